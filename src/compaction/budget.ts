/**
 * How many tokens go where: what the application asked for, reduced to what can work.
 *
 * A compaction that leaves the context above its threshold fires again at once, so the tail, the summary and the overhead
 * together have to stay well below it.
 */

/** What is asked for. All in model tokens. */
export interface BudgetRequest {
  /** `null` where compaction never fires by itself */
  threshold: number | null;
  /** tokens a prompt may have beside the answer that is reserved; absent while the window is unknown */
  usable: number | undefined;
  tailTokenBudget: number;
  /** system prompt and tools */
  overhead: number;
}

/** What holds. */
export interface Budget {
  threshold: number | null;
  /** kept verbatim */
  tail: number;
  /** what a summary may have */
  summary: number;
  /** what was reduced, with the numbers */
  warnings: string[];
}

/** Share of the room beside the overhead that tail and summary may fill: the rest is what the next turns grow into. */
const FILLED_SHARE = 0.9;

/** Share of it that a tail which has to be reduced gets at least. */
const REDUCED_SHARE = 0.5;

/** A tail is reduced by so many times what is missing: the smaller the room, the more of it the next turns need. */
const REDUCTION = 2;

/** Share of it that a summary gets, within what is worth writing and what is read with attention. */
const SUMMARY_SHARE = 1 / 8;
const SHORTEST_SUMMARY = 256;
const LONGEST_SUMMARY = 4_096;

export function budgetFor({ threshold, usable, tailTokenBudget, overhead }: BudgetRequest): Budget {
  const warnings: string[] = [];
  const limit = reducedThreshold(threshold, usable, warnings);
  const ceiling = limit ?? (usable || undefined);
  if (ceiling === undefined) return { threshold: limit, tail: tailTokenBudget, summary: LONGEST_SUMMARY, warnings };
  const room = Math.max(0, ceiling - overhead);
  const summary = Math.round(Math.min(LONGEST_SUMMARY, Math.max(SHORTEST_SUMMARY, room * SUMMARY_SHARE)));
  const missing = tailTokenBudget + summary - room * FILLED_SHARE;
  if (missing <= 0) return { threshold: limit, tail: tailTokenBudget, summary, warnings };
  const reduced = Math.max(tailTokenBudget - missing * REDUCTION, room * REDUCED_SHARE);
  const tail = Math.min(tailTokenBudget, Math.floor(reduced));
  if (limit !== null && tail < tailTokenBudget) warnings.push(tailWarning(tailTokenBudget, tail, limit, overhead));
  return { threshold: limit, tail, summary, warnings };
}

function reducedThreshold(threshold: number | null, usable: number | undefined, warnings: string[]): number | null {
  if (threshold === null || !usable || threshold <= usable) return threshold;
  warnings.push(
    `compactAfter is ${threshold} tokens, but the window holds ${usable} beside the answer; it compacts after ${usable}.`,
  );
  return usable;
}

function tailWarning(wanted: number, tail: number, threshold: number, overhead: number): string {
  if (tail === 0) {
    return `System prompt and tools take ${overhead} tokens and it compacts after ${threshold}, which leaves nothing for the conversation: only the newest message is kept; raise compactAfter.`;
  }
  return `tailTokenBudget is ${wanted} tokens, but ${threshold} less ${overhead} for system prompt and tools leaves ${threshold - overhead}; ${tail} are kept.`;
}
