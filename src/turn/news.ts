/**
 * What a session has told since its object started, in order, for everyone who listens.
 *
 * It is kept in memory alone and nothing of it is stored: the state itself can be read at any time, so a listener that
 * missed something reads that. Events are serialised once, whatever the number of listeners.
 */
import type { SessionEvent } from "../events.ts";

/** Events that are kept for listeners who come back. One is some kilobytes: a report, or a compaction with its summary. */
const EVENTS_KEPT = 100;

/** One event as listeners get it. */
export interface NewsItem {
  /** the place behind this event; opaque to listeners */
  cursor: string;
  /** one serialised `SessionEvent` */
  json: string;
}

/** Where a listener goes on. */
export interface Continuation {
  /** whether `missed` is everything after the cursor it had; if not, it has to read the state anew */
  replayed: boolean;
  /** the place before `missed` */
  cursor: string;
  /** in order; empty unless `replayed` */
  missed: readonly NewsItem[];
}

export class SessionNews {
  readonly #epoch: string;
  readonly #listeners = new Set<(item: NewsItem) => void>();
  #kept: readonly NewsItem[] = [];
  /** the place before what is kept */
  #oldest: string;
  /** events told so far */
  #count = 0;

  /** `epoch` tells this object's cursors from those of the objects before it */
  constructor(epoch: string) {
    this.#epoch = epoch;
    this.#oldest = this.cursor;
  }

  /** The place behind the newest event. */
  get cursor(): string {
    return `${this.#epoch}.${this.#count}`;
  }

  /** A listener that throws gets nothing more; the others do. */
  publish(event: SessionEvent): void {
    this.#count += 1;
    const item = { cursor: this.cursor, json: JSON.stringify(event) };
    this.#keep(item);
    for (const listener of this.#listeners) {
      try {
        listener(item);
      } catch (error) {
        this.#listeners.delete(listener);
        console.error("a listener of the session's news failed", error);
      }
    }
  }

  /** Hands over every event from now on. Returns the function that stops it. */
  follow(listener: (item: NewsItem) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** What a listener with this cursor has missed, if that can be told. */
  since(cursor: string | null): Continuation {
    const places: (string | null)[] = [this.#oldest, ...this.#kept.map((item) => item.cursor)];
    const index = places.indexOf(cursor);
    if (cursor === null || index < 0) return { replayed: false, cursor: this.cursor, missed: [] };
    return { replayed: true, cursor, missed: this.#kept.slice(index) };
  }

  /** Forgets what was told: content was erased, and what is kept may speak of it. Who comes back reads the state anew. */
  forget(): void {
    this.#kept = [];
    this.#oldest = this.cursor;
  }

  #keep(item: NewsItem): void {
    const all = [...this.#kept, item];
    const dropped = all.splice(0, Math.max(all.length - EVENTS_KEPT, 0));
    this.#oldest = dropped.at(-1)?.cursor ?? this.#oldest;
    this.#kept = all;
  }
}
