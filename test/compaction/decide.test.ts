import { describe, expect, it } from "vitest";
import { budgetFor } from "../../src/compaction/budget.ts";
import { type Decision, decide, type DecisionSettings, type Known } from "../../src/compaction/decide.ts";
import type { History } from "../../src/compaction/history.ts";
import type { CompactionTrigger } from "../../src/records.ts";
import { applied, block, historyOf, knownOf, messages, output, projected, settings, stepBlock } from "./histories.ts";

const AUTOMATIC: readonly CompactionTrigger[] = ["after-turn", "before-turn", "between-steps", "import"];
const FORCED: readonly CompactionTrigger[] = ["manual", "no-room", "overflow"];

/** A conversation of questions of 100 tokens and answers of 400, and its number without overhead. */
const talk = (turns: number): History =>
  historyOf(
    Array.from({ length: turns }, (_, index) => [block(2 * index + 1, 100), stepBlock(2 * index + 2, 400)]).flat(),
  );

const onTalk = (turns: number, levers: Partial<DecisionSettings> = {}, known: Partial<Known> = {}): Decision =>
  decide(knownOf(talk(turns), known), settings(levers), () => talk(turns));

describe("firing", () => {
  it.each(AUTOMATIC)("[CM1] %s fires above the threshold, and neither at it nor below", (trigger) => {
    const at = (tokens: number) =>
      decide({ tokens, overhead: 0, summary: 0 }, settings({ trigger, budget: BUDGET }), () => talk(10)).kind;
    expect([999, 1_000, 1_001].map(at)).toEqual(["wait", "wait", "summarise"]);
  });

  it.each(FORCED)("[CM1] %s asks for no threshold", (trigger) => {
    expect(onTalk(2, { trigger, budget: { ...BUDGET, threshold: 100_000 } }).kind).toBe("summarise");
    expect(onTalk(2, { trigger, budget: { ...BUDGET, threshold: null } }).kind).toBe("summarise");
  });

  it.each([...AUTOMATIC, "no-room", "overflow"] as const)("[CM2] switched off, %s does nothing", (trigger) => {
    expect(onTalk(10, { trigger, isOff: true, room: 500 })).toEqual({ kind: "wait", reason: "off" });
  });

  it("[CM2] switched off, a person is given a summary", () => {
    expect(onTalk(10, { trigger: "manual", isOff: true }).kind).toBe("summarise");
    expect(onTalk(10, { trigger: "manual", isOff: true, budget: { ...BUDGET, threshold: null } }).kind).toBe(
      "summarise",
    );
  });

  it.each(AUTOMATIC)("[CX9] without a threshold, %s does nothing", (trigger) => {
    expect(onTalk(10, { trigger, budget: { ...BUDGET, threshold: null } })).toEqual({ kind: "wait", reason: "off" });
  });

  it.each(AUTOMATIC)("[CM8][CM10] stopped or backing off, %s does nothing, and says which", (trigger) => {
    const standing = (kind: "stopped" | "backing-off") =>
      onTalk(10, { trigger, standing: () => (kind === "stopped" ? { kind, reason: "R" } : { kind, until: 1 }) });
    expect(standing("stopped")).toEqual({ kind: "wait", reason: "stopped" });
    expect(standing("backing-off")).toEqual({ kind: "wait", reason: "backing-off" });
  });

  it.each(AUTOMATIC)(
    "[CM8] stopped where looking was all it did, %s looks again, and says no third time that there is nothing",
    (trigger) => {
      const standing = () => ({ kind: "stopped" as const, reason: "R", isFree: true as const });
      expect(onTalk(10, { trigger, standing }).kind).toBe("summarise");
      const full = historyOf([block(1, 1_500)]);
      const again = decide(knownOf(full), settings({ trigger, standing }), () => full);
      expect(again).toEqual({ kind: "wait", reason: "stopped" });
      expect(decide(knownOf(full), settings({ trigger }), () => full).kind).toBe("no-progress");
    },
  );

  it.each(FORCED)("[CM8] stopped, %s that finds nothing says so every time", (trigger) => {
    const standing = () => ({ kind: "stopped" as const, reason: "R", isFree: true as const });
    const full = historyOf([block(1, 1_500)]);
    expect(decide(knownOf(full), settings({ trigger, standing }), () => full).kind).toBe("no-progress");
  });

  it.each(FORCED)("[CM8] stopped, %s is done all the same", (trigger) => {
    expect(onTalk(10, { trigger, standing: () => ({ kind: "stopped", reason: "R" }) }).kind).toBe("summarise");
  });

  it("[CM8] how it stands is asked only where the number is above the threshold", () => {
    let asked = 0;
    const standing = () => {
      asked += 1;
      return { kind: "open" as const };
    };
    for (const trigger of AUTOMATIC) onTalk(2, { trigger, standing });
    onTalk(10, { trigger: "manual", standing });
    expect(asked).toBe(0);
    onTalk(10, { standing });
    expect(asked).toBe(1);
  });

  it("[CM20] where the provider compacts, nothing is done by itself, and a request is told so", () => {
    expect(onTalk(10, { providerCompacts: true })).toEqual({ kind: "wait", reason: "provider-compacts" });
    const reason = "The provider compacts this conversation itself.";
    for (const trigger of FORCED) {
      expect(onTalk(10, { trigger, providerCompacts: true })).toEqual({ kind: "no-progress", reason });
    }
  });

  it("[CM29] a person compacts below the threshold as well", () => {
    expect(onTalk(2, { trigger: "manual", budget: { ...BUDGET, threshold: 1_000_000 } })).toMatchObject({
      kind: "summarise",
      cut: { until: 2, rung: "half-budget" },
    });
  });
});

const BUDGET = { threshold: 1_000, tail: 1_200, summary: 256, warnings: [] };

describe("the ladder", () => {
  it("[CM3] begins with the tail budget", () => {
    expect(onTalk(10)).toMatchObject({ kind: "summarise", cut: { until: 18, kept: 500, rung: "tail-budget" } });
  });

  it("[CM6] goes to half the budget where all of it fits", () => {
    expect(onTalk(3, { budget: { ...BUDGET, tail: 2_400 } })).toMatchObject({
      kind: "summarise",
      cut: { until: 2, pinned: null, kept: 1_000, rung: "half-budget" },
    });
  });

  it("[CM6] goes to the last turn where half the budget leaves too little", () => {
    const history = historyOf([block(1, 150), stepBlock(2, 150), block(3, 100), stepBlock(4, 700)]);
    expect(decide(knownOf(history), settings({ budget: { ...BUDGET, tail: 2_000 } }), () => history)).toMatchObject({
      kind: "summarise",
      cut: { until: 2, pinned: null, kept: 800, leaving: 300, rung: "last-turn" },
    });
  });

  it("[CM6] goes inside the last turn where that is all there is, and its question stays", () => {
    const history = historyOf([
      block(1, 100),
      ...[2, 3, 4, 5].map((seq) => stepBlock(seq, 300, { messageId: "answer" })),
    ]);
    expect(decide(knownOf(history), settings({ budget: { ...BUDGET, tail: 8_000 } }), () => history)).toMatchObject({
      kind: "summarise",
      cut: { until: 3, pinned: 1, kept: 700, leaving: 600, rung: "inside-last-turn" },
    });
  });

  it("[CM6] shortens outputs, the largest first, where no cut gains anything", () => {
    const history = historyOf([
      block(1, 100),
      stepBlock(2, 5_000, { outputs: [output("small", 1_500), output("large", 3_000)] }),
    ]);
    const levers = settings({ insists: true, budget: { ...BUDGET, threshold: 4_000, tail: 20_000 } });
    const decision = decide(knownOf(history), levers, () => history);
    expect(decision).toEqual({
      kind: "prune",
      plan: {
        until: 0,
        shortened: [{ seq: 2, toolCallId: "large", length: 2_000 }],
        saved: 3_000 * (1 - 2_000 / 12_000) - 24,
      },
    });
  });

  it("[CM6] shortens as many outputs as bring the number to the threshold, or to the room of the next call", () => {
    const outputs = ["a", "b", "c"].map((id) => output(id, 3_000));
    const history = historyOf([block(1, 100), stepBlock(2, 9_900, { outputs })]);
    const shortened = (levers: Partial<DecisionSettings>) => {
      const held = settings({ insists: true, budget: { ...BUDGET, threshold: 9_000, tail: 20_000 }, ...levers });
      const decision = decide(knownOf(history), held, () => history);
      return decision.kind === "prune" ? decision.plan.shortened.length : decision.kind;
    };
    // each of them saves 2,476 tokens of 10,000
    expect(shortened({})).toBe(1);
    expect(shortened({ trigger: "no-room", room: 6_000 })).toBe(2);
    expect(shortened({ trigger: "manual" })).toBe(1);
    expect(shortened({ trigger: "manual", budget: { ...BUDGET, threshold: 2_000, tail: 20_000 } })).toBe(1);
  });

  it("[CM6] says what takes the room where nothing can be made smaller", () => {
    const history = historyOf([block(1, 1_500)]);
    const decision = decide(knownOf(history, { overhead: 700 }), settings(), () => history);
    expect(decision).toEqual({
      kind: "no-progress",
      reason:
        "Of 2200 tokens, 700 are system prompt and tools, 1500 the newest message and 0 what must stay or is too little to summarise.",
    });
  });

  it("[CM6] never keeps fewer messages than are insisted on", () => {
    const kept = (minTailMessages: number) => {
      const decision = onTalk(3, { budget: { ...BUDGET, tail: 2_400 }, minTailMessages, insists: true });
      return decision.kind === "summarise" ? messages(applied(talk(3), decision)) : decision.kind;
    };
    expect([2, 3, 4, 5, 6].map(kept)).toEqual([4, 4, 4, "no-progress", "no-progress"]);
  });

  it("[CM7] takes no cut that gains less than 64 tokens", () => {
    const gain = (old: number) => {
      const history = historyOf([block(1, old), block(2, 500), stepBlock(3, 490)]);
      return decide(
        { tokens: 1_200, overhead: 0, summary: 0 },
        settings({ insists: true, budget: { ...BUDGET, tail: 990 } }),
        () => history,
      );
    };
    // a fifth of what leaves and 64 for the frame come back as the summary
    expect(gain(160)).toMatchObject({ kind: "summarise", cut: { until: 1, leaving: 160, rung: "tail-budget" } });
    expect(gain(159).kind).toBe("no-progress");
  });

  it("[CM7] counts what the earlier summary has", () => {
    const history = historyOf([block(1, 500), stepBlock(2, 400)]);
    const levers = settings({ trigger: "manual", budget: { ...BUDGET, tail: 450, summary: 300 } });
    const withSummary = (summary: number) => decide(knownOf(history, { summary }), levers, () => history).kind;
    expect(withSummary(0)).toBe("summarise");
    expect(withSummary(4_000)).toBe("summarise");
  });
});

describe("the least number of messages", () => {
  const budget = budgetFor({ threshold: 10_000, usable: 100_000, tailTokenBudget: 2_000, overhead: 0 });
  const ending = (answer: number): History =>
    historyOf([block(1, 4_000), stepBlock(2, 4_000), block(3, 50), stepBlock(4, answer)]);
  const cutOf = (answer: number, levers: Partial<DecisionSettings> = {}) => {
    const history = ending(answer);
    const decision = decide(knownOf(history), settings({ budget, ...levers }), () => history);
    return { decision, after: projected(knownOf(history), decision, budget) };
  };

  it("[CM5] stays above the tail budget where the number ends at the threshold at most", () => {
    // 10,000 less 1,250 for a summary and 64 for its frame
    const most = cutOf(8_636);
    expect(most).toMatchObject({ decision: { kind: "summarise", cut: { until: 2, pinned: null, kept: 8_686 } } });
    expect(most.after).toBe(10_000);
  });

  it("[CM5] does not stay where it would hold the number above the threshold", () => {
    const { decision, after } = cutOf(8_637);
    expect(decision).toMatchObject({ kind: "summarise", cut: { until: 4, pinned: 3, kept: 50 } });
    expect(after).toBeLessThan(10_000);
  });

  it("[CM5] stays whatever it has where somebody insists on it", () => {
    expect(cutOf(60_000, { insists: true }).decision).toMatchObject({ cut: { until: 2, pinned: null, kept: 60_050 } });
    expect(cutOf(2_000, { insists: true, minTailMessages: 3 }).decision).toMatchObject({
      cut: { until: 1, kept: 6_050 },
    });
  });

  it("[CM5][CM6] gives way where nothing else can leave, but not for a person, who can wait", () => {
    const history = historyOf([block(1, 50), stepBlock(2, 12_000)]);
    const decided = (levers: Partial<DecisionSettings>) =>
      decide(knownOf(history), settings({ budget, ...levers }), () => history);
    expect(decided({})).toMatchObject({ kind: "summarise", cut: { until: 2, pinned: 1, kept: 50 } });
    expect(decided({ trigger: "overflow" })).toMatchObject({ kind: "summarise", cut: { until: 2 } });
    const small = historyOf([block(1, 50), stepBlock(2, 900)]);
    const onSmall = (trigger: CompactionTrigger) =>
      decide(knownOf(small), settings({ budget, trigger, room: 800 }), () => small).kind;
    expect([onSmall("manual"), onSmall("no-room")]).toEqual(["no-progress", "summarise"]);
  });

  it("[CM5] counts a message that stays in part", () => {
    const history = historyOf([
      block(1, 3_000),
      ...[2, 3, 4].map((seq) => stepBlock(seq, 3_000, { messageId: "answer" })),
      block(5, 100),
    ]);
    expect(decide(knownOf(history), settings({ budget }), () => history)).toMatchObject({
      cut: { until: 3, pinned: null, kept: 3_100 },
    });
  });
});

describe("live blocks", () => {
  const running = historyOf([
    block(1, 2_000),
    stepBlock(2, 100, { messageId: "a" }),
    block(3, 100),
    stepBlock(4, 30_000, { messageId: "b", outputs: [output("c", 29_000)], live: true }),
  ]);

  it("[CM4] stay, whatever they have, and everything before them may leave", () => {
    expect(decide(knownOf(running), settings(), () => running)).toMatchObject({
      kind: "summarise",
      cut: { until: 2, pinned: null, kept: 30_100, leaving: 2_100 },
    });
  });

  it("[CM4] keep their outputs while the prompt can be sent", () => {
    const history = historyOf(running.blocks.slice(2));
    expect(decide(knownOf(history), settings(), () => history).kind).toBe("no-progress");
    expect(decide(knownOf(history), settings({ trigger: "no-room", room: 20_000 }), () => history)).toMatchObject({
      kind: "prune",
      plan: { until: 0, shortened: [{ seq: 4, toolCallId: "c" }] },
    });
  });

  it("[CM9] are shortened where the provider refused the prompt, and nothing else can go", () => {
    const history = historyOf(running.blocks.slice(2));
    const levers = settings({ trigger: "overflow", budget: { ...BUDGET, threshold: 100_000 } });
    expect(decide(knownOf(history), levers, () => history)).toMatchObject({
      kind: "prune",
      plan: { until: 0, shortened: [{ seq: 4, toolCallId: "c" }] },
    });
  });

  it("[CM4] are not among old outputs that are left out, though newer than nothing", () => {
    const history = historyOf([
      block(1, 100),
      stepBlock(2, 20_000, { messageId: "a", outputs: [output("old", 19_000)] }),
      ...running.blocks.slice(2),
    ]);
    const levers = settings({ prune: 10_000, budget: { ...BUDGET, threshold: 48_000, tail: 10_000 } });
    expect(decide(knownOf(history), levers, () => history)).toMatchObject({ kind: "prune", plan: { until: 3 } });
  });
});

describe("leaving old outputs out", () => {
  /** Old steps with outputs of 5,000 tokens, then a turn of 500. */
  const history = (steps: number): History =>
    historyOf([
      block(1, 100),
      ...Array.from({ length: steps }, (_, index) =>
        stepBlock(index + 2, 5_100, { messageId: "a", outputs: [output(`c${index}`, 5_000)] }),
      ),
      block(90, 100),
      stepBlock(91, 400),
    ]);

  it("[CM12] comes before a summary where it brings the number to four fifths of the threshold", () => {
    const levers = (threshold: number) => settings({ prune: 500, budget: { ...BUDGET, threshold, tail: 500 } });
    const shown = history(4);
    // 21,000 - 4 × (5,000 - 24) = 1,096
    const known = knownOf(shown);
    expect(decide(known, levers(1_369), () => shown)).toMatchObject({ kind: "summarise" });
    expect(decide(known, levers(1_370), () => shown)).toEqual({
      kind: "prune",
      plan: { until: 5, shortened: [], saved: 19_904 },
    });
  });

  it("[CM12] leaves the newest outputs alone, as many tokens as are protected", () => {
    const levers = (prune: number) => settings({ prune, budget: { ...BUDGET, threshold: 19_000, tail: 500 } });
    const until = (prune: number) => decide(knownOf(history(4)), levers(prune), () => history(4));
    expect(until(5_599)).toMatchObject({ kind: "prune", plan: { until: 5 } });
    expect(until(5_600)).toMatchObject({ kind: "prune", plan: { until: 4 } });
    expect(until(10_700)).toMatchObject({ kind: "prune", plan: { until: 3 } });
  });

  it("[CM12] is not done where it is switched off, nor for a person, who wants a summary", () => {
    const levers = settings({ prune: 500, budget: { ...BUDGET, threshold: 19_000 } });
    expect(decide(knownOf(history(4)), { ...levers, prune: false }, () => history(4)).kind).toBe("summarise");
    expect(decide(knownOf(history(4)), { ...levers, trigger: "manual" }, () => history(4)).kind).toBe("summarise");
  });

  it("[CM12][CM9] has to free a fifth of what a provider refused, wherever the threshold is", () => {
    const levers = settings({ trigger: "overflow", budget: { ...BUDGET, threshold: 100_000, tail: 500 } });
    const shown = history(4);
    const at = (prune: number) => decide(knownOf(shown), { ...levers, prune }, () => shown);
    // of 21,000 tokens 4,976 go with the oldest output, and 9,952 with the next
    expect(at(10_700)).toMatchObject({ kind: "prune", plan: { until: 3 } });
    expect(at(15_800)).toMatchObject({ kind: "prune", plan: { until: 2 } });
    expect(decide({ ...knownOf(shown), tokens: 25_000 }, { ...levers, prune: 15_800 }, () => shown).kind).toBe(
      "summarise",
    );
  });

  it("[CM12] measures itself by the room where there is none for the next call", () => {
    const levers = settings({ trigger: "no-room", prune: 500, budget: { ...BUDGET, threshold: 100_000 } });
    const at = (room: number) => decide(knownOf(history(4)), { ...levers, room }, () => history(4)).kind;
    // 21,000 - 19,904 = 1,096
    expect([at(1_369), at(1_370)]).toEqual(["summarise", "prune"]);
  });
});

describe("levers that cannot work as they are", () => {
  it("[CM11] a threshold of 3,000 with the default tail of 20,000 compacts, and ends below it", () => {
    const history = talk(7);
    const budget = budgetFor({ threshold: 3_000, usable: 27_904, tailTokenBudget: 20_000, overhead: 200 });
    const known = knownOf(history, { overhead: 200 });
    const decision = decide(known, settings({ budget }), () => history);
    expect(decision).toMatchObject({ kind: "summarise", cut: { until: 9, kept: 1_400, rung: "tail-budget" } });
    expect(projected(known, decision, budget)).toBeLessThan(3_000);
  });

  it("[CM11] an overhead above the threshold keeps the newest message alone", () => {
    const budget = budgetFor({ threshold: 3_000, usable: 27_904, tailTokenBudget: 20_000, overhead: 5_000 });
    const history = talk(7);
    expect(decide(knownOf(history, { overhead: 5_000 }), settings({ budget }), () => history)).toMatchObject({
      kind: "summarise",
      cut: { until: 14, pinned: 13, kept: 100 },
    });
  });
});
