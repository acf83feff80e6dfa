/** What a session tells those who listen, apart from the chunks of a turn. */
import type { Compaction, CompactionTrigger } from "./records.ts";

/** A compaction began: a summary is being written. Turns go on meanwhile. */
export interface CompactionStarted {
  phase: "started";
  /** the id it will be listed under */
  id: number;
  trigger: CompactionTrigger;
  /** the one number when it was decided */
  tokensBefore: number;
}

/**
 * A compaction ended: `finished` when what is shown changed or could not be made smaller, else `failed`. `undone`: one that
 * had taken effect was taken back.
 */
export interface CompactionEnded {
  phase: "finished" | "failed" | "undone";
  compaction: Compaction;
}

/** News of one compaction: data of transient `data-compaction` parts and of `compaction` events. */
export type CompactionNews = CompactionStarted | CompactionEnded;

/** News of a session, as the event socket sends them. */
export type SessionEvent =
  | { type: "compaction"; data: CompactionNews }
  /** the context report, after every model call and whenever it changed without one */
  | { type: "context"; data: object };
