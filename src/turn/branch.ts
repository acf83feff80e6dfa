/**
 * The active branch in memory, newest entries first: what the next prompt is built from.
 *
 * Entries are read when they are asked for, from the leaf towards the root, and kept. Where an overlay is in force, what
 * it covers is not kept: a prompt does not need it, and a long session would not fit.
 */
import type { Entry, Overlay, Seq } from "../records.ts";
import { reachOf } from "../storage/compaction-table.ts";
import type { SessionStore } from "../storage/session-store.ts";

/** Rows the next stretch asks for: few at first, since many questions are answered by the newest entries. */
const FIRST_STRETCH = 4;
const LONGEST_STRETCH = 8;

/** Rows at once where everything is wanted. */
const WHOLE_STRETCH = 256;

export type EntrySource = Pick<SessionStore, "stretch" | "entry" | "walk">;

export class Branch {
  readonly #source: EntrySource;
  /** oldest first */
  #loaded: Entry[] = [];
  /** the newest entry that is not loaded; the overlay's `until` or `null` once all is */
  #next: Seq | null;
  #stretch = FIRST_STRETCH;
  #overlay: Overlay | null;
  #kept: { head: Entry[]; pinned: Entry[] } | undefined;
  /** the leaf where nothing behind the overlay is on the branch */
  #covered: Entry | undefined;

  constructor(source: EntrySource, leaf: Seq | null, overlay: Overlay | null = null) {
    this.#source = source;
    this.#next = leaf;
    this.#overlay = overlay;
  }

  /** What is in force on it. */
  get overlay(): Overlay | null {
    return this.#overlay;
  }

  /** Everything behind the overlay, oldest first; the whole branch where there is none. */
  get entries(): readonly Entry[] {
    while (this.#load(WHOLE_STRETCH));
    return this.#loaded;
  }

  /** What of that is in memory. */
  get loaded(): readonly Entry[] {
    return this.#loaded;
  }

  /** What is shown though it stands before `entries`: in front of the summary, and right behind it. */
  get kept(): { head: readonly Entry[]; pinned: readonly Entry[] } {
    this.#kept ??= {
      head: (this.#overlay?.head ?? []).flatMap((seq) => this.#source.entry(seq) ?? []),
      pinned: this.#overlay?.pinned ? [this.#source.entry(this.#overlay.pinned)].flatMap((entry) => entry ?? []) : [],
    };
    return this.#kept;
  }

  get leaf(): Entry | undefined {
    if (this.#loaded.length === 0) this.#load();
    if (this.#loaded.length === 0 && this.#next !== null) this.#covered ??= this.#source.entry(this.#next);
    return this.#loaded.at(-1) ?? this.#covered;
  }

  /** Estimator units of everything on the branch: what the next entry stores as `unitsBefore`. */
  get units(): number {
    const { leaf } = this;
    return leaf ? leaf.unitsBefore + leaf.unitsSaid + leaf.unitsReturned : 0;
  }

  /** Entries that would be shown and were erased. Reads everything behind the overlay. */
  get erased(): readonly Entry[] {
    const { head, pinned } = this.kept;
    return [...head, ...pinned, ...this.entries].filter((entry) => entry.state === "deleted");
  }

  /** Entries behind the overlay, newest first. Stop iterating to stop reading. */
  *backwards(): Generator<Entry> {
    for (let fromEnd = 1; ; fromEnd += 1) {
      if (fromEnd > this.#loaded.length && !this.#load()) return;
      const entry = this.#loaded[this.#loaded.length - fromEnd];
      if (!entry) return;
      yield entry;
    }
  }

  /** Every entry, newest first, those that the overlay covers included; they are read each time. */
  *history(): Generator<Entry> {
    yield* this.backwards();
    if (this.#next !== null) yield* this.#source.walk(this.#next);
  }

  /** Whether everything behind the overlay has been read. */
  get isComplete(): boolean {
    return this.#next === null || this.#next === this.#boundary;
  }

  push(entry: Entry): void {
    this.#loaded.push(entry);
  }

  /** Puts a changed entry in the place of the one with its sequence. */
  replace(entry: Entry): void {
    const index = this.#loaded.findLastIndex((other) => other.seq === entry.seq);
    if (index >= 0) this.#loaded[index] = entry;
  }

  /** The same branch under another overlay that covers entries of it, or more of them; this one stays as it is. */
  under(overlay: Overlay): Branch {
    const other = new Branch(this.#source, this.#next, this.#overlay);
    other.#loaded = [...this.#loaded];
    other.#covered = this.#covered;
    other.show(overlay);
    return other;
  }

  /** Puts an overlay in force that covers entries of this branch, or more of them than the one before. */
  show(overlay: Overlay): void {
    const { until } = overlay;
    const { leaf } = this;
    this.#overlay = overlay;
    this.#kept = undefined;
    if (until === null) return;
    const oldest = this.#loaded[0];
    if (oldest && oldest.seq <= until) this.#next = until;
    this.#loaded = this.#loaded.filter((entry) => entry.seq > until);
    if (this.#loaded.length === 0) this.#covered = leaf;
  }

  /** Drops everything after `seq`. Answers whether that could be done: it is in memory, and the overlay speaks of nothing behind it. */
  cutAfter(seq: Seq | null): boolean {
    if (seq !== null && this.leaf?.seq === seq) return true;
    if (seq === null || (this.#overlay && seq < reachOf(this.#overlay))) return false;
    const index = this.#loaded.findLastIndex((entry) => entry.seq === seq);
    if (index < 0) return false;
    this.#loaded.length = index + 1;
    return true;
  }

  /** Whether an entry is on the branch. */
  has(seq: Seq): boolean {
    for (const entry of this.history()) if (entry.seq <= seq) return entry.seq === seq;
    return false;
  }

  /** The entries of a message, in order of its steps; empty when it is not on this branch or was deleted. */
  message(messageId: string): Entry[] {
    const found: Entry[] = [];
    for (const entry of this.history()) {
      if (entry.messageId === messageId && entry.state !== "deleted") found.unshift(entry);
      else if (found.length) break;
    }
    return found;
  }

  /** The entries of the message that ends the branch, if it is that one. */
  answer(messageId: string): Entry[] {
    return this.leaf?.messageId === messageId ? this.message(messageId) : [];
  }

  /** The first entry of the answer that follows an entry; `undefined` when it was not answered. */
  answerTo(seq: Seq): Entry | undefined {
    let next: Entry | undefined;
    for (const entry of this.history()) {
      if (entry.seq <= seq) break;
      next = entry;
    }
    return next?.parent === seq && next.role === "assistant" && next.state !== "deleted" ? next : undefined;
  }

  /** The newest message of a role, in order of its steps; empty when there is none. */
  newest(role: Entry["role"]): Entry[] {
    for (const entry of this.history())
      if (entry.role === role && entry.state !== "deleted") return this.message(entry.messageId);
    return [];
  }

  get #boundary(): Seq | null {
    return this.#overlay?.until ?? null;
  }

  /** Reads one more stretch. Answers whether there was anything to read. */
  #load(atLeast = 0): boolean {
    if (this.#next === null || this.isComplete) return false;
    const { entries, next } = this.#source.stretch(this.#next, Math.max(this.#stretch, atLeast), this.#boundary ?? 0);
    this.#stretch = Math.min(this.#stretch * 2, LONGEST_STRETCH);
    this.#next = next;
    this.#loaded.unshift(...entries.toReversed());
    return entries.length > 0;
  }
}
