/**
 * How often a socket may have a stream replayed. A small frame asks for it and everything streamed so far is the answer,
 * so a socket that asks without reading could fill the object's memory.
 */
import { SessionError } from "../errors.ts";

/** A client resumes when it loads and when its connection comes back. */
const REPLAYS = 10;
const WINDOW_MS = 10_000;

export class ReplayAllowance {
  readonly #clock: () => number;
  /** times of the newest replays, by socket */
  readonly #taken = new Map<string, number[]>();

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  /** Throws `too-many-requests` when a socket has had its share. */
  take(socketId: string): void {
    const now = this.#clock();
    const recent = (this.#taken.get(socketId) ?? []).filter((time) => now - time < WINDOW_MS);
    if (recent.length >= REPLAYS) {
      throw new SessionError(
        "too-many-requests",
        `A socket may resume ${REPLAYS} times in ${WINDOW_MS / 1_000} seconds.`,
      );
    }
    this.#taken.set(socketId, [...recent, now]);
  }

  forget(socketId: string): void {
    this.#taken.delete(socketId);
  }
}
