/** What storing the end of a turn means: one write of the session row. */
import type { Entry, ModelCall, OpenTurn, UsageTotals } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import type { Branch } from "./branch.ts";
import { countOf } from "./reported-usage.ts";

/** Requests remembered as answered. A client that repeats one does so within seconds. */
const FINISHED_KEPT = 16;

/**
 * Closes the open turn: the leaf moves to what was said, and the calls of the turn are added to the totals.
 * `error` is what the client was told of a turn that failed, so that it is told the same again.
 */
export function closeTurn(
  store: SessionStore,
  turn: OpenTurn,
  branch: Branch,
  now: number,
  error?: { code: string; message: string },
): void {
  const { session } = store;
  const finished = { requestId: turn.requestId, messageId: turn.messageId, ...(error && { error }) };
  const spoken = branch.leaf?.messageId === turn.messageId;
  const calls = callsOf(turn, branch.entries);
  store.saveSession({
    turn: null,
    activeAt: now,
    leaf: spoken ? (branch.leaf?.seq ?? null) : turn.leafIfSilent,
    measured: branch.entries.findLast((entry) => entry.anchor && entry.seq > turn.parent)?.seq ?? session.measured,
    messages: session.messages + (spoken && turn.trigger !== "continue" ? 1 : 0),
    finished: [...session.finished, finished].slice(-FINISHED_KEPT),
    totals: calls.reduce(addCall, session.totals),
  });
}

/** Calls that this turn made: a message that was continued has older ones too, stored before the turn was opened. */
export function callsOf(turn: OpenTurn, entries: readonly Entry[]): ModelCall[] {
  return entries
    .filter((entry) => entry.messageId === turn.messageId && entry.seq > turn.parent)
    .flatMap((entry) => entry.call ?? []);
}

/** Totals with one more call. What a provider did not report, or reported as nonsense, counts as nothing. */
export function addCall(totals: UsageTotals, { usage }: ModelCall): UsageTotals {
  return {
    calls: totals.calls + 1,
    inputTokens: totals.inputTokens + (countOf(usage?.inputTokens) ?? 0),
    outputTokens: totals.outputTokens + (countOf(usage?.outputTokens) ?? 0),
    reasoningTokens: totals.reasoningTokens + (countOf(usage?.outputTokenDetails?.reasoningTokens) ?? 0),
    cacheReadTokens: totals.cacheReadTokens + (countOf(usage?.inputTokenDetails?.cacheReadTokens) ?? 0),
    cacheWriteTokens: totals.cacheWriteTokens + (countOf(usage?.inputTokenDetails?.cacheWriteTokens) ?? 0),
  };
}
