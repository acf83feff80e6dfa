import { describe, expect, it } from "vitest";
import type { Entry } from "../../src/records.ts";
import { Branch } from "../../src/turn/branch.ts";
import { asked, step, text } from "./entries.ts";

const HISTORY = [
  asked(1, "q1", { unitsBefore: 0, unitsSaid: 3 }),
  step(2, [text("a")], { messageId: "a1", unitsBefore: 3, unitsSaid: 4, unitsReturned: 5 }),
  step(4, [text("b")], { messageId: "a1", step: 1, parent: 2, unitsBefore: 12, unitsSaid: 1 }),
  asked(6, "q2", { parent: 4, unitsBefore: 13, unitsSaid: 2 }),
];

const branchOf = (entries: readonly Entry[] = HISTORY) => new Branch(entries.toReversed());
const seqs = (entries: readonly Entry[]) => entries.map(({ seq }) => seq);

describe("the branch in memory", () => {
  it("[ST4] holds what it was read from, oldest first, and ends at the leaf", () => {
    expect([seqs(branchOf().entries), branchOf().leaf?.seq, branchOf().units]).toEqual([[1, 2, 4, 6], 6, 15]);
    expect([branchOf([]).entries, branchOf([]).leaf, branchOf([]).units]).toEqual([[], undefined, 0]);
  });

  it("[ST4] counts what tools returned to the leaf", () => {
    expect(branchOf(HISTORY.slice(0, 2)).units).toBe(12);
  });

  it("[ST4] grows at its end and takes a changed entry in the place of the old one", () => {
    const branch = branchOf();
    branch.push(step(7, []));
    branch.replace({ ...HISTORY[1]!, state: "aborted" });
    branch.replace(asked(99, "elsewhere"));
    expect(branch.entries.map(({ seq, state }) => [seq, state])).toEqual([
      [1, "done"],
      [2, "aborted"],
      [4, "done"],
      [6, "done"],
      [7, "done"],
    ]);
  });

  it.each<[number | null, boolean, number[]]>([
    [4, true, [1, 2, 4]],
    [6, true, [1, 2, 4, 6]],
    [null, true, []],
    [3, false, [1, 2, 4, 6]],
  ])("[TN7] cut after %s: it was there: %s", (seq, expected, left) => {
    const branch = branchOf();
    expect([branch.cutAfter(seq), seqs(branch.entries)]).toEqual([expected, left]);
  });

  it("[TN7] finds all steps of a message, and no deleted or unknown one", () => {
    const deleted = branchOf(
      HISTORY.map((entry) => (entry.messageId === "a1" ? { ...entry, state: "deleted" } : entry)),
    );
    expect([seqs(branchOf().message("a1")), seqs(branchOf().message("m6")), branchOf().message("none")]).toEqual([
      [2, 4],
      [6],
      [],
    ]);
    expect(deleted.message("a1")).toEqual([]);
  });

  it("[TN7] finds the newest message of a role, passing over deleted ones", () => {
    const deleted = branchOf(HISTORY.map((entry) => (entry.seq === 6 ? { ...entry, state: "deleted" } : entry)));
    expect([
      seqs(branchOf().newest("assistant")),
      seqs(branchOf().newest("user")),
      branchOf().newest("system"),
    ]).toEqual([[2, 4], [6], []]);
    expect(seqs(deleted.newest("user"))).toEqual([1]);
  });

  it("[TN4] finds the answer to an entry, and none where there is none", () => {
    const branch = branchOf();
    expect([1, 6, 2, 4, 99].map((seq) => branch.answerTo(seq)?.seq)).toEqual([2, undefined, 4, undefined, undefined]);
    const deleted = branchOf(
      HISTORY.map((entry) => (entry.messageId === "a1" ? { ...entry, state: "deleted" } : entry)),
    );
    expect(deleted.answerTo(1)).toBeUndefined();
  });
});
