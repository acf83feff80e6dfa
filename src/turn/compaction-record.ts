/** The record of a compaction: as it is stored, and as clients see it. */
import type { Compaction, CompactionEntry, CompactionTrigger, Seq } from "../records.ts";
import { modelId } from "./configuration.ts";
import { budgetAt, type Moment } from "./context-reading.ts";

/** What is known of a compaction when it is decided. */
export interface Beginning {
  id: number;
  trigger: CompactionTrigger;
  /** the context it was decided by */
  moment: Moment;
  /** ms since the epoch */
  startedAt: number;
}

/** What is known at its end. */
export type Ending = Pick<CompactionEntry, "outcome" | "reason"> &
  Partial<Pick<CompactionEntry, "tokensAfter" | "coveredMessages" | "summary" | "overlay" | "call">>;

/** `at` is the newest entry of the session, `now` ms since the epoch. */
export function compactionEntry(
  { id, trigger, moment, startedAt }: Beginning,
  ending: Ending,
  at: Seq,
  now: number,
): CompactionEntry {
  return {
    id,
    trigger,
    tokensBefore: moment.known.tokens,
    tokensAfter: null,
    reportedAfter: null,
    progress: null,
    coveredMessages: 0,
    summary: null,
    summaryUsage: ending.call?.usage ?? null,
    model: ending.call?.model ?? null,
    durationMs: now - startedAt,
    createdAt: now,
    undone: false,
    at,
    threshold: budgetAt(moment).threshold,
    sessionModel: modelId(moment.configuration.model),
    ...ending,
  };
}

/** A compaction as clients see it. */
export function listed(entry: CompactionEntry): Compaction {
  return {
    id: entry.id,
    outcome: entry.outcome,
    reason: entry.reason,
    trigger: entry.trigger,
    tokensBefore: entry.tokensBefore,
    tokensAfter: entry.tokensAfter,
    reportedAfter: entry.reportedAfter,
    coveredMessages: entry.coveredMessages,
    summaryUsage: entry.summaryUsage,
    model: entry.model,
    durationMs: entry.durationMs,
    createdAt: entry.createdAt,
    summary: entry.summary,
    undone: entry.undone,
  };
}
