/** The active branch in memory, oldest entry first: what the next prompt is built from. */
import type { Entry, Seq } from "../records.ts";

export class Branch {
  readonly #entries: Entry[];
  #erased: Entry[];

  /** `newestFirst` is consumed once. */
  constructor(newestFirst: Iterable<Entry>) {
    this.#entries = [...newestFirst].toReversed();
    this.#erased = this.#entries.filter((entry) => entry.state === "deleted");
  }

  get entries(): readonly Entry[] {
    return this.#entries;
  }

  get leaf(): Entry | undefined {
    return this.#entries.at(-1);
  }

  /** Estimator units of everything on the branch: what the next entry stores as `unitsBefore`. */
  get units(): number {
    const leaf = this.leaf;
    return leaf ? leaf.unitsBefore + leaf.unitsSaid + leaf.unitsReturned : 0;
  }

  /** Entries that were erased and keep their place. */
  get erased(): readonly Entry[] {
    return this.#erased;
  }

  push(entry: Entry): void {
    this.#entries.push(entry);
  }

  /** Puts a changed entry in the place of the one with its sequence. */
  replace(entry: Entry): void {
    const index = this.#entries.findLastIndex((other) => other.seq === entry.seq);
    if (index >= 0) this.#entries[index] = entry;
  }

  /** Drops everything after `seq`, or everything when it is `null`. Answers whether `seq` was on the branch. */
  cutAfter(seq: Seq | null): boolean {
    const index = seq === null ? -1 : this.#entries.findLastIndex((entry) => entry.seq === seq);
    if (seq !== null && index < 0) return false;
    this.#entries.length = index + 1;
    this.#erased = this.#erased.filter((entry) => seq !== null && entry.seq <= seq);
    return true;
  }

  /** The entries of a message, in order of its steps; empty when it is not on this branch or was deleted. */
  message(messageId: string): Entry[] {
    const found: Entry[] = [];
    for (let index = this.#entries.length - 1; index >= 0; index -= 1) {
      const entry = this.#entries[index];
      if (entry?.messageId === messageId && entry.state !== "deleted") found.unshift(entry);
      else if (found.length) break;
    }
    return found;
  }

  /** The first entry of the answer that follows an entry; `undefined` when it was not answered. */
  answerTo(seq: Seq): Entry | undefined {
    const next = this.#entries.findLast((entry) => entry.parent === seq);
    return next?.role === "assistant" && next.state !== "deleted" ? next : undefined;
  }

  /** The newest message of a role, in order of its steps; empty when there is none. */
  newest(role: Entry["role"]): Entry[] {
    const last = this.#entries.findLast((entry) => entry.role === role && entry.state !== "deleted");
    return last ? this.message(last.messageId) : [];
  }
}
