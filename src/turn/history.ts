/** What a session has stored, read and changed from outside a turn. Every change needs the session to be idle. */
import type { UIMessage } from "ai";
import { SessionError } from "../errors.ts";
import type { Compaction, Entry, EntryHead, Seq, UsageRecord, UsageTotals } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { listed } from "./compaction-record.ts";
import { overlayInForce } from "./overlay-in-force.ts";
import { messageOf } from "./transcript.ts";

/** A page of messages in order of time, and where the page before it ends. */
export interface MessagePage {
  messages: UIMessage[];
  /** pass as `before` for the page before this one; `null` when this is the first */
  cursor: string | null;
}

export interface UsagePage {
  /** newest first */
  records: UsageRecord[];
  totals: UsageTotals;
  cursor: string | null;
}

/** One branch of the conversation, named by its last entry. */
export interface BranchSummary {
  /** pass to `switchTo` */
  leaf: Seq;
  active: boolean;
  /** the branch's last message */
  messageId: string;
  /** the last message it shares with the active branch; `null` when it shares none */
  sharedUntil: string | null;
  /** messages on it, from the root */
  messages: number;
  /** ms since the epoch */
  updatedAt: number;
}

export class History {
  readonly #store: SessionStore;

  constructor(store: SessionStore) {
    this.#store = store;
  }

  /** `limit` messages of the active branch that end at the newest, or right before the cursor. */
  messages(before: string | undefined, limit: number): MessagePage {
    const from = before === undefined ? this.#store.session.leaf : this.#cursor(before);
    const page: Entry[][] = [];
    for (const entry of this.#store.walk(from)) {
      const open = page.at(-1);
      if (open && sameMessage(open[0], entry)) open.push(entry);
      else if (entry.state === "deleted") continue;
      else if (page.length === limit) return toPage(page, String(entry.seq));
      else page.push([entry]);
    }
    return toPage(page, null);
  }

  /** Booked calls, newest first: those of turns, and those of summaries at the time they were settled. */
  usage(before: string | undefined, limit: number): UsagePage {
    const from = before === undefined ? NEWEST : this.#usageCursor(before);
    const turns = this.#store.usage(from.seq, limit);
    const summaries = this.#store.compactions.calls(from.compaction, limit);
    const records = merged(turns, summaries).slice(0, limit);
    const seq = records.findLast((record) => record.compaction === undefined)?.seq ?? from.seq;
    const compaction = records.findLast((record) => record.compaction !== undefined)?.compaction ?? from.compaction;
    const { totals } = this.#store.session;
    return { records, totals, cursor: records.length === limit ? usageCursor({ seq, compaction }) : null };
  }

  /** Compactions, newest first. */
  compactions(before: string | undefined, limit: number): { compactions: Compaction[]; cursor: string | null } {
    const from = before === undefined ? Number.MAX_SAFE_INTEGER : this.#cursor(before);
    const compactions = this.#store.compactions.list(from, limit).map(listed);
    const last = compactions.at(-1);
    return { compactions, cursor: last && compactions.length === limit ? String(last.id) : null };
  }

  /** All branches, newest first. Reads the heads of every entry, once. */
  branches(): BranchSummary[] {
    const { leaf } = this.#store.session;
    const active = new Set([...this.#store.walkHeads(leaf)].map((head) => head.seq));
    const places = placesOf(this.#store.heads(), active);
    const leaves = [...places.values()].filter((place) => !place.followed || place.head.seq === leaf);
    return leaves.toReversed().map(({ head, messages, sharedUntil }) => ({
      leaf: head.seq,
      active: head.seq === leaf,
      messageId: head.messageId,
      sharedUntil,
      messages,
      updatedAt: head.createdAt,
    }));
  }

  /** Makes another branch the active one: a leaf, or the newest branch that holds a message. */
  switchTo(target: { leaf: Seq } | { messageId: string; version?: number }): Seq {
    const leaf = "leaf" in target ? this.#endOfMessage(target.leaf) : this.#newestLeafWith(target);
    this.#store.saveSession({ leaf, overlay: overlayInForce(this.#store, leaf)?.id ?? null });
    return leaf;
  }

  /**
   * Erases a message's content for good. Its entries stay in the chain, empty, so that what follows it keeps its place,
   * and the usage of its calls stays booked. Answers how many messages were erased: an edited one has several versions.
   */
  erase(messageId: string): number {
    const entries = this.#store.entriesOf(messageId).filter((entry) => entry.state !== "deleted");
    if (entries.length === 0) throw unknownMessage(messageId);
    const erased = entries.filter((entry) => entry.step === 0).length;
    this.#store.transaction(() => {
      for (const entry of entries) this.#eraseEntry(entry);
      const { session } = this.#store;
      this.#store.compactions.forgetFrom(entries[0]?.seq ?? 0);
      this.#store.saveSession({
        messages: session.messages - erased,
        erased: session.erased + entries.length,
        overlay: overlayInForce(this.#store, session.leaf)?.id ?? null,
      });
    });
    return erased;
  }

  /** Its units stay: they say where on the branch everything behind it lies. */
  #eraseEntry(entry: Entry): void {
    this.#store.update({ ...entry, state: "deleted", parts: [], metadata: undefined });
  }

  #endOfMessage(leaf: Seq): Seq {
    const entry = this.#store.entry(leaf);
    if (!entry)
      throw new SessionError(
        "unknown-branch",
        `The session has no branch that ends at ${leaf}; list them with GET /sessions/:id/branches.`,
      );
    return chainFrom(entry, this.#store.entriesOf(entry.messageId)).at(-1)?.seq ?? entry.seq;
  }

  #newestLeafWith({ messageId, version }: { messageId: string; version?: number }): Seq {
    const versions = this.#store.versions(messageId);
    const head = version === undefined ? versions.at(-1) : versions.find((other) => other.version === version);
    if (!head && versions.length > 0) {
      throw new SessionError(
        "unknown-message",
        `Message "${messageId}" has no version ${version}; it has ${versions.length}.`,
      );
    }
    if (!head) throw unknownMessage(messageId);
    const below = new Set([head.seq]);
    let newest = head.seq;
    // A parent is stored before its children, so one pass in order finds everything that follows the message.
    for (const { seq, parent } of this.#store.heads()) {
      if (parent === null || !below.has(parent)) continue;
      below.add(seq);
      newest = seq;
    }
    return newest;
  }

  #usageCursor(text: string): typeof NEWEST {
    const [, seq, compaction] = /^(\d*)(?:c(\d+))?$/.exec(text) ?? [];
    if (!seq && !compaction) return { ...NEWEST, seq: this.#cursor(text) };
    return {
      seq: seq ? this.#cursor(seq) : NEWEST.seq,
      compaction: compaction ? this.#cursor(compaction) : NEWEST.compaction,
    };
  }

  #cursor(text: string): Seq {
    const seq = Number(text);
    if (Number.isSafeInteger(seq) && seq > 0) return seq;
    throw new SessionError("bad-request", `"${text}" is not a cursor; pass the cursor of an earlier page.`);
  }
}

/** Before which calls of turns, and of summaries, a page of usage begins. */
const NEWEST = { seq: Number.MAX_SAFE_INTEGER, compaction: Number.MAX_SAFE_INTEGER };

/** `4` behind a page of turns, `c2` behind one of summaries, `4c2` behind both. */
function usageCursor({ seq, compaction }: typeof NEWEST): string {
  const turns = seq === NEWEST.seq ? "" : String(seq);
  return compaction === NEWEST.compaction ? turns : `${turns}c${compaction}`;
}

/** Both lists newest first; a summary settled after the entry that it names. */
function merged(turns: readonly UsageRecord[], summaries: readonly UsageRecord[]): UsageRecord[] {
  return [...summaries, ...turns].toSorted((a, b) => b.seq - a.seq);
}

/** Where an entry stands: what its branch has by then. */
interface Place {
  head: EntryHead;
  /** messages from the root */
  messages: number;
  /** the last message that the active branch has as well */
  sharedUntil: string | null;
  /** whether another entry follows */
  followed: boolean;
}

/** The place of every entry, from heads in order of storing. */
function placesOf(heads: Iterable<EntryHead>, active: ReadonlySet<Seq>): Map<Seq, Place> {
  const places = new Map<Seq, Place>();
  for (const head of heads) {
    const before = head.parent === null ? undefined : places.get(head.parent);
    if (before) before.followed = true;
    const begins = head.state !== "deleted" && !sameMessage(before?.head, head);
    const sharedUntil = active.has(head.seq) ? head.messageId : (before?.sharedUntil ?? null);
    places.set(head.seq, { head, messages: (before?.messages ?? 0) + (begins ? 1 : 0), sharedUntil, followed: false });
  }
  return places;
}

/** The later steps of a message that follow one of its entries; a branch never ends inside a message. */
function chainFrom(entry: Entry, entries: readonly Entry[]): Entry[] {
  const chain = [entry];
  for (const next of entries) if (next.parent === chain.at(-1)?.seq) chain.push(next);
  return chain;
}

function toPage(newestFirst: Entry[][], cursor: string | null): MessagePage {
  return { messages: newestFirst.toReversed().map((group) => messageOf(group.toReversed())), cursor };
}

function sameMessage(a: EntryHead | undefined, b: EntryHead): boolean {
  return a !== undefined && a.messageId === b.messageId && a.version === b.version;
}

function unknownMessage(messageId: string): SessionError {
  return new SessionError("unknown-message", `The session has no message "${messageId}".`);
}
