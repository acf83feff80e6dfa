import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { STANDING_DEPTH, standingOf } from "../../src/compaction/standing.ts";
import type { CompactionEntry } from "../../src/records.ts";
import { compactionEntry, NOON } from "../turn/entries.ts";

const MINUTE = 60_000;

/** Newest first, each a second before the one in front of it; the decision is made an hour later. */
function standing(newestFirst: Partial<CompactionEntry>[], at: Partial<Parameters<typeof standingOf>[1]> = {}) {
  const entries = newestFirst.map((entry, index) =>
    compactionEntry(newestFirst.length - index, { createdAt: NOON - 1_000 * index, ...entry }),
  );
  return standingOf(entries, { threshold: 900, model: "mirror", now: NOON + 60 * MINUTE, ...at });
}

const nothing = { outcome: "no-progress", reason: "There was nothing to cut." } as const;
const useless = { outcome: "applied", progress: false, reportedAfter: 950 } as const;
const useful = { outcome: "applied", progress: true, reportedAfter: 400 } as const;
const unjudged = { outcome: "applied", progress: null } as const;
const failed = { outcome: "failed" } as const;

describe("automatic compaction", () => {
  it("[CM8] is open before the first, and after one without progress", () => {
    expect(standing([])).toEqual({ kind: "open" });
    expect(standing([nothing])).toEqual({ kind: "open" });
    expect(standing([useless])).toEqual({ kind: "open" });
  });

  it.each<[string, Partial<CompactionEntry>[]]>([
    ["nothing to cut, twice", [nothing, nothing]],
    ["a report above the threshold, twice", [useless, useless]],
    ["one of each", [nothing, useless]],
    [
      "a prune that was not enough, twice",
      [
        { ...useless, outcome: "pruned" },
        { ...useless, outcome: "pruned" },
      ],
    ],
    ["failures and declined ones between them", [failed, nothing, { outcome: "cancelled" }, failed, useless]],
  ])("[CM8] stops after %s", (_what, entries) => {
    expect(standing(entries).kind).toBe("stopped");
  });

  it.each<[string, Partial<CompactionEntry>[]]>([
    ["one that brought something came after", [useful, nothing, nothing]],
    ["one that brought something lies between", [nothing, useful, nothing]],
    ["the newest was not judged yet", [unjudged, nothing, nothing]],
    ["a person compacted since, with or without success", [{ ...nothing, trigger: "manual" }, nothing, nothing]],
    ["a person compacted in between", [nothing, { ...useful, trigger: "manual" }, nothing]],
    ["an erased message took the newest back", [{ ...useless, undone: true, summary: null }, nothing, nothing]],
  ])("[CM8] goes on where %s", (_what, entries) => {
    expect(standing(entries)).toEqual({ kind: "open" });
  });

  it("[CM8] stops where a person took the newest back, until the threshold or the model changes", () => {
    const takenBack = [{ ...useful, undone: true, summary: "The harbour is full." }];
    expect(standing(takenBack).kind).toBe("stopped");
    expect(standing(takenBack, { threshold: 901 }).kind).toBe("open");
    expect(standing([{ ...useful, trigger: "manual" }, ...takenBack])).toEqual({ kind: "open" });
    expect(standing([{ ...nothing, trigger: "manual" }, ...takenBack]).kind).toBe("stopped");
  });

  it("[CM8] may look again for nothing where looking was all it did", () => {
    expect(standing([nothing, nothing])).toMatchObject({ kind: "stopped", isFree: true });
    expect(standing([nothing, useless])).not.toHaveProperty("isFree");
  });

  it("[CM8] goes on when the threshold or the model changes, and stops again when they are back", () => {
    const stopped = [nothing, useless];
    expect(standing(stopped, { threshold: 901 })).toEqual({ kind: "open" });
    expect(standing(stopped, { threshold: null })).toEqual({ kind: "open" });
    expect(standing(stopped, { model: "openai/gpt" })).toEqual({ kind: "open" });
    expect(standing(stopped).kind).toBe("stopped");
  });

  it("[CM8] counts only what was decided by the same threshold and model", () => {
    expect(standing([nothing, { ...nothing, threshold: 800 }])).toEqual({ kind: "open" });
    expect(standing([nothing, { ...nothing, sessionModel: "openai/gpt" }])).toEqual({ kind: "open" });
  });

  it("[CM8] says to people why it stopped, and what lets it go on", () => {
    const onwards = " It goes on after a manual compaction, or when compactAfter or the model changes.";
    const stopped = "Automatic compaction has stopped: the last 2 did not bring the context below 900 tokens. ";
    expect(standing([nothing, useless])).toEqual({
      kind: "stopped",
      reason: `${stopped}There was nothing to cut.${onwards}`,
    });
    expect(standing([useless, nothing])).toEqual({
      kind: "stopped",
      reason: `${stopped}The model still read 950 tokens afterwards.${onwards}`,
    });
  });

  it("[CM8] goes by the order of compactions and by no clock", () => {
    const entries = [useful, nothing, nothing].map((entry, index) => ({ ...entry, createdAt: NOON + 5_000 * index }));
    expect(standing(entries)).toEqual({ kind: "open" });
  });
});

describe("after failures", () => {
  const failures = (count: number) => Array.from({ length: count }, () => failed);
  const until = (count: number) => standing(failures(count), { now: NOON });

  it("[CM10] none is begun for 30 seconds, twice as long after each further one, and 15 minutes at most", () => {
    expect([1, 2, 3, 4, 5, 6, 7, 8].map((count) => until(count))).toEqual(
      [30, 60, 120, 240, 480, 900, 900, 900].map((seconds) => ({
        kind: "backing-off",
        until: NOON + seconds * 1_000,
      })),
    );
  });

  it("[CM10] the pause ends to the millisecond", () => {
    expect(standing(failures(1), { now: NOON + 29_999 }).kind).toBe("backing-off");
    expect(standing(failures(1), { now: NOON + 30_000 })).toEqual({ kind: "open" });
  });

  it("[CM10] the pause begins with the newest, and one that did not fail ends it", () => {
    expect(standing([failed, useful, failed, failed], { now: NOON })).toEqual({
      kind: "backing-off",
      until: NOON + 30_000,
    });
    expect(standing([useful, failed, failed], { now: NOON })).toEqual({ kind: "open" });
    expect(standing([{ outcome: "cancelled" }, failed, failed], { now: NOON })).toEqual({ kind: "open" });
  });

  it("[CM10] the pause comes before what was stopped, which is told after it", () => {
    const entries = [failed, nothing, nothing];
    expect(standing(entries, { now: NOON + 1 }).kind).toBe("backing-off");
    expect(standing(entries, { now: NOON + MINUTE }).kind).toBe("stopped");
  });

  it("[CM8][CM10] it is the same after a restart: the same records give the same answer", () => {
    const record = fc.record({
      outcome: fc.constantFrom("applied", "pruned", "no-progress", "failed", "cancelled"),
      progress: fc.constantFrom(true, false, null),
      trigger: fc.constantFrom("after-turn", "manual", "no-room"),
      threshold: fc.constantFrom(900, 800, null),
      undone: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(record, { maxLength: STANDING_DEPTH }), fc.nat(20 * MINUTE), (records, later) => {
        const answer = standing(records as Partial<CompactionEntry>[], { now: NOON + later });
        const again = standing(structuredClone(records) as Partial<CompactionEntry>[], { now: NOON + later });
        expect(again).toEqual(answer);
        const judged = records.filter(({ outcome }) => outcome !== "failed" && outcome !== "cancelled");
        const strikes = judged.slice(0, 2).filter(({ outcome, progress, trigger, threshold, undone }) => {
          const isCounted = trigger !== "manual" && threshold === 900 && !undone;
          return isCounted && (outcome === "no-progress" || progress === false);
        });
        const isRight = {
          stopped: strikes.length === 2,
          open: strikes.length < 2,
          "backing-off": records[0]?.outcome === "failed",
        };
        expect(isRight[answer.kind]).toBe(true);
      }),
      { numRuns: 500 },
    );
  });
});
