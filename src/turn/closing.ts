/** What storing the end of a turn means: one write of the session row. */
import type { Entry, ModelCall, OpenTurn, UsageTotals } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { overlayInForce } from "./overlay-in-force.ts";
import { countOf } from "./reported-usage.ts";

/** Requests remembered as answered. A client that repeats one does so within seconds. */
const FINISHED_KEPT = 16;

/**
 * Closes the open turn: the leaf moves to what was said, and the calls of the turn are added to the totals.
 * `answer` are the entries of the turn's message, in order of its steps. `error` is what the client was told of a turn that
 * failed, so that it is told the same again.
 */
export function closeTurn(
  store: SessionStore,
  turn: OpenTurn,
  answer: readonly Entry[],
  now: number,
  error?: { code: string; message: string },
): void {
  const { session } = store;
  const finished = { requestId: turn.requestId, messageId: turn.messageId, ...(error && { error }) };
  const said = answer.at(-1)?.seq;
  const leaf = said ?? turn.leafIfSilent;
  store.saveSession({
    turn: null,
    activeAt: now,
    leaf,
    // What a turn says goes on with the branch it was opened on; the answer it gives back may stand on another.
    overlay: said === undefined && leaf !== session.leaf ? (overlayInForce(store, leaf)?.id ?? null) : session.overlay,
    measured: answer.findLast((entry) => entry.anchor && entry.seq > turn.parent)?.seq ?? session.measured,
    messages: session.messages + (said !== undefined && turn.trigger !== "continue" ? 1 : 0),
    finished: [...session.finished, finished].slice(-FINISHED_KEPT),
    totals: callsOf(turn, answer).reduce(addCall, session.totals),
  });
}

/** Calls that this turn made: a message that was continued has older ones too, stored before the turn was opened. */
export function callsOf(turn: OpenTurn, answer: readonly Entry[]): ModelCall[] {
  return answer.filter((entry) => entry.seq > turn.parent).flatMap((entry) => entry.call ?? []);
}

/** Totals with one more call. What a provider did not report, or reported as nonsense, counts as nothing. */
export function addCall(totals: UsageTotals, { usage, calls = 1 }: ModelCall): UsageTotals {
  return {
    calls: totals.calls + calls,
    inputTokens: totals.inputTokens + (countOf(usage?.inputTokens) ?? 0),
    outputTokens: totals.outputTokens + (countOf(usage?.outputTokens) ?? 0),
    reasoningTokens: totals.reasoningTokens + (countOf(usage?.outputTokenDetails?.reasoningTokens) ?? 0),
    cacheReadTokens: totals.cacheReadTokens + (countOf(usage?.inputTokenDetails?.cacheReadTokens) ?? 0),
    cacheWriteTokens: totals.cacheWriteTokens + (countOf(usage?.inputTokenDetails?.cacheWriteTokens) ?? 0),
  };
}
