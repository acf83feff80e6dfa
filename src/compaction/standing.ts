/**
 * Whether a session may compact by itself now, judged by what became of its newest compactions. They are stored, so a restart
 * changes nothing.
 */
import type { CompactionEntry } from "../records.ts";

export type Standing =
  | { kind: "open" }
  /**
   * two compactions in a row brought nothing, or a person took the newest back; `reason` says so to people. `isFree`: all that
   * was found is that nothing could be taken away, which costs nothing to look for again
   */
  | { kind: "stopped"; reason: string; isFree?: true }
  /** a failed one is not tried again before `until`, in ms since the epoch */
  | { kind: "backing-off"; until: number };

/** Compactions without progress after which there is no third. */
export const STRIKES = 2;

/** How long the first failure holds off the next try; twice as long after each further one, up to the longest, in ms. */
const FIRST_PAUSE_MS = 30_000;
const LONGEST_PAUSE_MS = 15 * 60_000;

/** Compactions that have to be looked at where the newest two say nothing: they failed, or were declined. */
export const STANDING_DEPTH = 8;

/** Whether the newest compactions have to be looked at further back than these, newest first. */
export function needsMore(newestFirst: readonly CompactionEntry[]): boolean {
  return (
    newestFirst.length === STRIKES && newestFirst.some(({ outcome }) => outcome === "failed" || outcome === "cancelled")
  );
}

/** `newestFirst`: the newest two, or where those need more the newest `STANDING_DEPTH`. `threshold` and `model` are those of the decision at hand. */
export function standingOf(
  newestFirst: readonly CompactionEntry[],
  { threshold, model, now }: { threshold: number | null; model: string; now: number },
): Standing {
  const failures = countWhile(newestFirst, ({ outcome }) => outcome === "failed");
  const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
  const until = (newestFirst[0]?.createdAt ?? 0) + pause;
  if (failures > 0 && now < until) return { kind: "backing-off", until };
  const same = (entry: CompactionEntry) => entry.threshold === threshold && entry.sessionModel === model;
  const newest = newestFirst.find(({ outcome }) => outcome === "applied" || outcome === "pruned");
  if (newest && wasTakenBack(newest) && same(newest)) return { kind: "stopped", reason: TAKEN_BACK };
  const judged = newestFirst.filter(({ outcome }) => outcome !== "failed" && outcome !== "cancelled");
  const strikes = judged.slice(
    0,
    countWhile(judged, (entry) => same(entry) && isStrike(entry)),
  );
  if (strikes.length < STRIKES) return { kind: "open" };
  const isFree = strikes.slice(0, STRIKES).every(({ outcome, call }) => outcome === "no-progress" && !call);
  return isFree
    ? { kind: "stopped", reason: `${FOUND_NOTHING} ${strikes[0]?.reason}`, isFree }
    : { kind: "stopped", reason: stopReason(strikes[0], threshold) };
}

function isStrike(entry: CompactionEntry): boolean {
  return entry.trigger !== "manual" && !entry.undone && broughtNothing(entry);
}

/** By a person: what an erased message takes back has lost its summary. */
function wasTakenBack({ undone, summary }: CompactionEntry): boolean {
  return undone && summary !== null;
}

const TAKEN_BACK =
  "The last compaction was taken back, so none is begun by itself until there is no room for a call; it goes on after a manual compaction, or when compactAfter or the model changes.";

const FOUND_NOTHING =
  "The context is above compactAfter, and there was nothing to take away; it is looked for again as the conversation goes on.";

/** Until a call was built with it, what the ledger says of it has to do. */
function broughtNothing({ outcome, progress, tokensAfter, threshold }: CompactionEntry): boolean {
  if (outcome === "no-progress") return true;
  return progress === null ? (tokensAfter ?? 0) > (threshold ?? Infinity) : !progress;
}

function stopReason(newest: CompactionEntry | undefined, threshold: number | null): string {
  const left = newest?.reportedAfter ?? newest?.tokensAfter;
  const last = newest?.reason ?? `The model still read ${left} tokens afterwards.`;
  return `Automatic compaction has stopped: the last ${STRIKES} did not bring the context below ${threshold} tokens. ${last} It goes on after a manual compaction, or when compactAfter or the model changes.`;
}

function countWhile<T>(items: readonly T[], holds: (item: T) => boolean): number {
  const end = items.findIndex((item) => !holds(item));
  return end < 0 ? items.length : end;
}
