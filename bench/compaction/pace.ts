/**
 * When a summary is done: not after a time, but after the conversation has gone on so far, or when it cannot go on
 * without. So whether a turn waits is a matter of what happened, and the same in every run.
 */
export class Pace {
  /** calls of turns that have begun */
  calls = 0;
  /** those of them that began while a summary was being written */
  meanwhile = 0;
  readonly #delay: number;
  /** calls that had begun when the summary that is being written was decided; `undefined` while none is */
  #since: number | undefined;
  #waiting: (() => void)[] = [];

  /** `delay`: calls of turns that begin before a summary is done */
  constructor(delay: number) {
    this.#delay = delay;
  }

  get isWriting(): boolean {
    return this.#since !== undefined;
  }

  /** A summary is begun. */
  begin(): void {
    this.#since = this.calls;
  }

  /** It has been put in force, or given up. */
  end(): void {
    this.#since = undefined;
  }

  /** Settles when the summary is done. */
  done(): Promise<void> {
    if (this.#isDue) return Promise.resolve();
    return new Promise((release) => this.#waiting.push(release));
  }

  /** A call of a turn begins. */
  goOn(): void {
    this.calls += 1;
    if (this.isWriting) this.meanwhile += 1;
    if (this.#isDue) this.#release();
  }

  /** Nothing goes on any more before the summary is done. */
  hurry(): void {
    if (this.#since !== undefined) this.#since = this.calls - this.#delay;
    this.#release();
  }

  get #isDue(): boolean {
    return this.#since === undefined || this.calls - this.#since >= this.#delay;
  }

  #release(): void {
    for (const release of this.#waiting.splice(0)) release();
  }
}
