import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  isPrunable,
  mergePrunes,
  outputLength,
  PLACEHOLDER,
  planPrune,
  planShortening,
  pruned,
  type PrunePlan,
} from "../../src/compaction/prune.ts";
import type { Entry, Part, Pruning } from "../../src/records.ts";
import { answeredWith, dynamicCall, failedWith, step, text, toolCall } from "../turn/entries.ts";
import { block, firstLive, histories, historyOf, output, stepBlock, sumTokens } from "./histories.ts";

const leftOut = (length: number) =>
  `[Left out to save room: an output of ${length} characters. Call the tool again if it is needed.]`;

const upTo = (until: number): Pick<Pruning, "until" | "shortened"> => ({ until, shortened: [] });
const cutTo = (length: number, toolCallId = "c", seq = 2): Pick<Pruning, "until" | "shortened"> => ({
  until: 0,
  shortened: [{ seq, toolCallId, length }],
});

/** What is shown of the output of the only call of a step at 2. */
function shownOutput(given: unknown, pruning: Pick<Pruning, "until" | "shortened">): unknown {
  const part = pruned(step(2, [toolCall("c", answeredWith(given))]), pruning).parts[1];
  return part && "output" in part ? part.output : undefined;
}

describe("an output that is left out", () => {
  it("[CM12] is a line that says how long it was, and what to do", () => {
    const long = "x".repeat(401);
    expect(shownOutput(long, upTo(2))).toBe(leftOut(401));
    expect(shownOutput(long, upTo(1))).toBe(long);
    expect(shownOutput({ rows: ["y".repeat(500)] }, upTo(9))).toBe(leftOut(513));
  });

  it("[CM12] is one of more than 400 characters: a line would save nothing of the others", () => {
    expect(shownOutput("x".repeat(400), upTo(2))).toBe("x".repeat(400));
    expect(shownOutput(null, upTo(2))).toBeNull();
    expect(shownOutput({ ok: true }, upTo(2))).toEqual({ ok: true });
  });

  it("[CM12] is never text, an error, an input, a provider's own result or one that is not final", () => {
    const long = "x".repeat(9_000);
    const parts: Part[] = [
      text(long),
      toolCall("a", { input: { long } }),
      toolCall("b", failedWith(long)),
      toolCall("c", { ...answeredWith(long), preliminary: true }),
      toolCall("d", { ...answeredWith(long), providerExecuted: true }),
    ];
    const entry = step(2, parts);
    expect(pruned(entry, upTo(2))).toBe(entry);
    expect(parts.map((part) => isPrunable(part))).toEqual([false, false, false, false, false]);
  });

  it("[CM12] leaves the call as it is, with its name, id and input, whatever kind of tool it was", () => {
    const calls = [toolCall("a", answeredWith("x".repeat(500))), dynamicCall("b", answeredWith("x".repeat(600)))];
    expect(pruned(step(2, calls), upTo(2)).parts.slice(1)).toEqual([
      { ...calls[0], output: leftOut(500) },
      { ...calls[1], output: leftOut(600) },
    ]);
  });

  it("[CM12] stays what it is in storage: the entry is not changed", () => {
    const entry = step(2, [toolCall("c", answeredWith("x".repeat(500)))]);
    const before = structuredClone(entry);
    expect(pruned(entry, upTo(2))).not.toBe(entry);
    expect(entry).toEqual(before);
  });
});

describe("an output that is shortened", () => {
  it("[CM6] keeps both ends, and says how much is missing", () => {
    const shown = shownOutput(`${"a".repeat(3_000)}${"z".repeat(3_000)}`, cutTo(2_000));
    expect(shown).toBe(
      `[Left out to save room: 4000 of 6000 characters, from the middle.]\n${"a".repeat(1_000)}\n[…]\n${"z".repeat(1_000)}`,
    );
  });

  it("[CM6] is the one that is named, by its entry and its call", () => {
    const long = "x".repeat(5_000);
    const entry = step(2, [toolCall("c", answeredWith(long)), toolCall("d", answeredWith(long))]);
    const outputs = (pruning: Pick<Pruning, "until" | "shortened">) =>
      pruned(entry, pruning).parts.map((part) => "output" in part && String(part.output).startsWith(PLACEHOLDER));
    expect(outputs(cutTo(2_000, "d"))).toEqual([false, false, true]);
    expect(pruned(entry, cutTo(2_000, "e"))).toBe(entry);
    expect(pruned(entry, cutTo(2_000, "c", 3))).toBe(entry);
  });

  it("[CM6] is left as it is where it is not longer than that", () => {
    expect(shownOutput("x".repeat(2_000), cutTo(2_000))).toBe("x".repeat(2_000));
  });

  it("[CM6] is valid text wherever it is cut, and JSON is cut as text", () => {
    const pairs = "😀".repeat(2_000);
    const shown = String(shownOutput(pairs, cutTo(1_001)));
    expect(shown.isWellFormed()).toBe(true);
    expect(String(shownOutput({ rows: pairs }, cutTo(100)))).toMatch(
      /^\[Left out .* of 4011 characters[^]*\{"rows":"😀/,
    );
  });

  it("[CM6] has about the length that was asked for, whatever it was", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "binary", maxLength: 6_000 }),
        fc.integer({ min: 2, max: 3_000 }),
        (said, length) => {
          const shown = String(shownOutput(said, cutTo(length)));
          expect(shown.length).toBeLessThanOrEqual(Math.max(said.length, length + 90));
        },
      ),
    );
  });
});

describe("pruning", () => {
  it("[CM12] nothing gives the entry itself", () => {
    const entry = step(2, [toolCall("c", answeredWith("x".repeat(500)))]);
    expect([pruned(entry, null), pruned(entry, upTo(1)), pruned(entry, upTo(0))]).toEqual([entry, entry, entry]);
    expect(pruned(entry, upTo(1))).toBe(entry);
  });

  it("[CM13] what was left out is left out once", () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.string({ maxLength: 2_000 }), fc.json())), (said) => {
        const entry: Entry = step(
          2,
          said.map((each, index) => toolCall(`c${index}`, answeredWith(each))),
        );
        const once = pruned(entry, upTo(2));
        expect(pruned(once, upTo(2))).toBe(once);
      }),
    );
  });

  it("measures an output as it is sent: text as it is, anything else as JSON", () => {
    expect(["abc", { a: 1 }, [1], null, undefined].map((given) => outputLength({ output: given }))).toEqual([
      3, 7, 3, 4, 0,
    ]);
  });
});

describe("a plan to leave old outputs out", () => {
  const history = historyOf([
    stepBlock(1, 2_000, { outputs: [output("a", 1_000), output("short", 90), output("b", 900)] }),
    block(2, 100),
    stepBlock(3, 1_500, { outputs: [output("c", 1_400)] }),
    block(4, 100),
  ]);
  const plan = (protect: number, known = 3_700, threshold = 3_000) => planPrune(history, { known, threshold, protect });

  it("[CM12] takes all long ones behind the newest tokens, and none of those", () => {
    expect(plan(0)).toEqual({ until: 4, shortened: [], saved: 976 + 876 + 1_376 });
    expect(plan(1_599)).toEqual({ until: 3, shortened: [], saved: 976 + 876 + 1_376 });
    expect(plan(1_600)).toEqual({ until: 2, shortened: [], saved: 976 + 876 });
    expect(plan(1_700)).toEqual({ until: 1, shortened: [], saved: 976 + 876 });
    expect(plan(3_700)).toBeNull();
  });

  it("[CM12] is none where it would not bring the number to four fifths", () => {
    expect(plan(1_600, 4_252)).toMatchObject({ until: 2 });
    expect(plan(1_600, 4_253)).toBeNull();
  });

  it("[CM12] is none where no output is long enough, and none of nothing", () => {
    const short = historyOf([stepBlock(1, 500, { outputs: [{ toolCallId: "a", tokens: 400, length: 400 }] })]);
    expect(planPrune(short, { known: 100, threshold: 9_000, protect: 0 })).toBeNull();
    expect(planPrune(historyOf([]), { known: 100, threshold: 9_000, protect: 0 })).toBeNull();
  });

  it("[CM4] stops before what the model has not read, however much that has", () => {
    const unread = stepBlock(5, 50_000, { outputs: [output("d", 49_000)], live: true });
    const found = planPrune(historyOf([...history.blocks, unread]), { known: 53_700, threshold: 66_000, protect: 0 });
    expect(found).toEqual({ until: 4, shortened: [], saved: 976 + 876 + 1_376 });
  });

  it("[CM12] of any branch saves no more than the outputs have, and touches nothing that is live or protected", () => {
    fc.assert(
      fc.property(histories, fc.nat(100_000), (any, protect) => {
        const found = planPrune(any, { known: 0, threshold: 0, protect });
        if (!found) return;
        const old = any.blocks.filter(({ seq }) => seq <= found.until);
        expect(old.length).toBeLessThanOrEqual(firstLive(any));
        expect(found.saved).toBeLessThanOrEqual(sumTokens(old.flatMap(({ outputs }) => outputs)) + 0.001);
        const last = any.blocks.slice(old.length - 1);
        expect(old.length === firstLive(any) || sumTokens(last) > protect).toBe(true);
      }),
      { numRuns: 300 },
    );
  });
});

describe("a plan to shorten outputs", () => {
  const history = historyOf([
    stepBlock(1, 9_000, { outputs: [output("a", 3_000), output("b", 5_000)] }),
    stepBlock(2, 2_000, { outputs: [output("c", 1_000)] }),
    stepBlock(3, 8_000, { outputs: [output("d", 7_000)], live: true }),
  ]);
  const saving = (tokens: number) => tokens * (1 - 2_000 / (4 * tokens)) - 24;
  const named = (plan: PrunePlan | null) => plan?.shortened.map(({ toolCallId }) => toolCallId);

  it("[CM6] takes the largest first, as many as are needed", () => {
    const needed = (need: number) => named(planShortening(history, need, false));
    expect(needed(1)).toEqual(["b"]);
    expect(needed(saving(5_000))).toEqual(["b"]);
    expect(needed(saving(5_000) + 1)).toEqual(["b", "a"]);
    expect(needed(1_000_000)).toEqual(["b", "a"]);
    expect(planShortening(history, 1_000_000, false)?.saved).toBe(saving(5_000) + saving(3_000));
  });

  it("[CM4] takes what the model has not read where nothing could be sent otherwise", () => {
    expect(named(planShortening(history, 1, true))).toEqual(["d"]);
  });

  it("[CM6] takes none of 4,000 characters or fewer, and nothing is no plan", () => {
    const lengths = (length: number) =>
      planShortening(
        historyOf([stepBlock(1, 9_000, { outputs: [{ toolCallId: "a", tokens: 8_000, length }] })]),
        1,
        false,
      );
    expect(lengths(4_000)).toBeNull();
    expect(named(lengths(4_001))).toEqual(["a"]);
    expect(planShortening(historyOf([]), 1, true)).toBeNull();
  });
});

describe("one prune after another", () => {
  const plan = (until: number, ...shortened: [number, string][]): PrunePlan => ({
    until,
    shortened: shortened.map(([seq, toolCallId]) => ({ seq, toolCallId, length: 2_000 })),
    saved: 1,
  });

  it("[CM13] leaves out what either left out, and shortens what is newer", () => {
    const first = mergePrunes(null, plan(4, [6, "a"], [9, "b"]));
    expect(first).toEqual({ until: 4, shortened: plan(0, [6, "a"], [9, "b"]).shortened });
    expect(mergePrunes(first, plan(7))).toEqual({ until: 7, shortened: plan(0, [9, "b"]).shortened });
    expect(mergePrunes(first, plan(6))).toEqual({ until: 6, shortened: plan(0, [9, "b"]).shortened });
    expect(mergePrunes(first, plan(0, [9, "b"], [9, "c"]))).toEqual({
      until: 4,
      shortened: plan(0, [6, "a"], [9, "b"], [9, "c"]).shortened,
    });
  });

  it("[CM13] applied twice is applied once, and no prune gives anything back", () => {
    const plans = fc
      .record({ until: fc.nat(12), shortened: fc.array(fc.tuple(fc.nat(12), fc.constantFrom("a", "b"))) })
      .map(({ until, shortened }) => plan(until, ...shortened));
    fc.assert(
      fc.property(plans, plans, (a, b) => {
        const once = mergePrunes(mergePrunes(null, a), b);
        expect(mergePrunes(once, b)).toEqual(once);
        expect(mergePrunes(once, a)).toEqual(once);
        expect(once.until).toBe(Math.max(a.until, b.until));
      }),
    );
  });
});
