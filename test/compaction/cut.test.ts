import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Cut, type CutRules, cutTail, ladder } from "../../src/compaction/cut.ts";
import type { History } from "../../src/compaction/history.ts";
import { applied, block, firstLive, histories, historyOf, newestUser, stepBlock, sumTokens } from "./histories.ts";

const rules = (budget: number, more: Partial<CutRules> = {}): CutRules => ({
  budget,
  minMessages: 1,
  most: budget,
  ...more,
});

const rungs = (history: History, held: CutRules) => [...ladder(history, held)].map(({ rung }) => rung);

/** Two turns: a question of 10 and an answer of three steps of 100 each. */
const TWO_TURNS = historyOf([
  block(1, 10),
  ...[2, 3, 4].map((seq) => stepBlock(seq, 100, { messageId: "a" })),
  block(6, 10),
  ...[7, 8, 9].map((seq) => stepBlock(seq, 100, { messageId: "b" })),
]);

describe("a cut by the tail budget", () => {
  it.each<[number, number | null, number | null, number]>([
    [620, null, null, 0],
    [619, 1, null, 610],
    [609, 2, null, 510],
    [410, 3, null, 410],
    [310, 5, null, 310],
    [309, 7, 6, 210],
    [210, 7, 6, 210],
    [110, 8, 6, 110],
    [109, 9, 6, 10],
    [0, 9, 6, 10],
  ])(
    "[CM3][CM4] of %i falls behind %s, also inside a message, pins %s and keeps %i",
    (budget, behind, pinned, kept) => {
      const cut = cutTail(TWO_TURNS, rules(budget));
      const until = behind === 5 ? 4 : behind;
      expect(cut).toEqual(until === null ? null : { until, pinned, kept, leaving: 620 - kept, rung: "tail-budget" });
    },
  );

  it("[CM3] of exactly what is there cuts nothing", () => {
    fc.assert(
      fc.property(histories, (history) => {
        const whole = sumTokens(history.blocks) + (history.pinned?.tokens ?? 0);
        expect(cutTail(history, rules(whole + 0.001))).toBeNull();
      }),
    );
  });

  it("[CM3] keeps more the larger the budget is", () => {
    fc.assert(
      fc.property(histories, fc.nat(50_000), fc.nat(50_000), (history, a, b) => {
        const kept = (budget: number) => cutTail(history, rules(budget))?.kept ?? Number.POSITIVE_INFINITY;
        expect(kept(Math.min(a, b))).toBeLessThanOrEqual(kept(Math.max(a, b)));
      }),
    );
  });

  it("[CM5] falls before the user's newest message where that is all the same, so that an edit of it keeps the summary", () => {
    expect(cutTail(TWO_TURNS, rules(310))).toMatchObject({ until: 4, pinned: null, kept: 310 });
    const alone = historyOf([block(1, 500), block(2, 900)]);
    expect(cutTail(alone, rules(0))).toMatchObject({ until: 1, pinned: null, kept: 900 });
  });

  it("[CM5] charges the newest message wherever it stands", () => {
    const history = historyOf([block(1, 400), ...[2, 3, 4].map((seq) => stepBlock(seq, 100, { messageId: "a" }))]);
    expect(cutTail(history, rules(600))).toMatchObject({ until: 2, pinned: 1, kept: 600 });
    expect(cutTail(history, rules(599))).toMatchObject({ until: 3, pinned: 1, kept: 500 });
  });

  it("[CM5] keeps a message pinned that was pinned, until the user says something newer", () => {
    const pinned = block(3, 40);
    const steps = [7, 8, 9].map((seq) => stepBlock(seq, 100, { messageId: "a" }));
    expect(cutTail(historyOf(steps, { pinned }), rules(250))).toEqual({
      until: 7,
      pinned: 3,
      kept: 240,
      leaving: 100,
      rung: "tail-budget",
    });
    expect(cutTail(historyOf([...steps, block(10, 5)], { pinned }), rules(250))).toEqual({
      until: 7,
      pinned: null,
      kept: 205,
      leaving: 140,
      rung: "tail-budget",
    });
  });

  it("[CM3] counts what is not loaded as leaving", () => {
    const history = historyOf(TWO_TURNS.blocks, { olderTokens: 5_000 });
    expect(cutTail(history, rules(210))).toMatchObject({ until: 7, kept: 210, leaving: 5_410 });
  });

  it("[CM5] falls behind the user's newest message where nothing before it is loaded", () => {
    const history = historyOf([block(6, 10), stepBlock(7, 100)], { olderTokens: 5_000 });
    expect(cutTail(history, rules(100))).toEqual({
      until: 7,
      pinned: 6,
      kept: 10,
      leaving: 5_100,
      rung: "tail-budget",
    });
    expect(cutTail(history, rules(109))).toMatchObject({ until: 7 });
    const live = historyOf([block(6, 10), stepBlock(7, 100, { live: true })], { olderTokens: 5_000 });
    expect(cutTail(live, rules(0))).toMatchObject({ until: 6, pinned: 6, kept: 110, leaving: 5_000 });
  });

  it("[CM4] keeps live blocks, above any budget", () => {
    const blocks = TWO_TURNS.blocks.map((each) => ({ ...each, live: each.seq >= 8 }));
    expect(cutTail(historyOf(blocks), rules(0))).toMatchObject({ until: 7, pinned: 6, kept: 210 });
  });

  it("[CM5] keeps the least number of messages while they have no more than they may", () => {
    const least = (minMessages: number, most: number) => cutTail(TWO_TURNS, rules(100, { minMessages, most }));
    expect(least(2, Number.POSITIVE_INFINITY)).toMatchObject({ until: 8, pinned: 6, kept: 110 });
    expect(least(2, 109)).toMatchObject({ until: 9, pinned: 6, kept: 10 });
    expect(least(3, Number.POSITIVE_INFINITY)).toMatchObject({ until: 3, pinned: null, kept: 410 });
    expect(least(4, Number.POSITIVE_INFINITY)).toBeNull();
  });

  it("[CM3] is none where there is nothing, or one live block", () => {
    expect(cutTail(historyOf([]), rules(0))).toBeNull();
    expect(cutTail(historyOf([stepBlock(1, 900, { live: true })]), rules(0))).toBeNull();
    expect(cutTail(historyOf([block(1, 900)]), rules(0))).toBeNull();
  });
});

describe("the ladder", () => {
  it("[CM6] has three rungs in order, each with its cut", () => {
    expect([...ladder(TWO_TURNS, rules(1_000))]).toEqual([
      { until: 3, pinned: null, kept: 410, leaving: 210, rung: "half-budget" },
      { until: 4, pinned: null, kept: 310, leaving: 310, rung: "last-turn" },
      { until: 8, pinned: 6, kept: 110, leaving: 510, rung: "inside-last-turn" },
    ]);
  });

  it("[CM6] leaves rungs out that keep fewer messages than are to stay", () => {
    expect(rungs(TWO_TURNS, rules(1_000, { minMessages: 2 }))).toEqual([
      "half-budget",
      "last-turn",
      "inside-last-turn",
    ]);
    expect(rungs(TWO_TURNS, rules(200, { minMessages: 3 }))).toEqual([]);
    expect(rungs(TWO_TURNS, rules(1_000, { minMessages: 5 }))).toEqual([]);
  });

  it("[CM6] goes no further than live blocks let it", () => {
    const blocks = TWO_TURNS.blocks.map((each) => ({ ...each, live: each.seq === 9 }));
    const cuts = [...ladder(historyOf(blocks), rules(1_000))];
    expect(cuts.at(-1)).toMatchObject({ until: 8, pinned: 6, kept: 110, rung: "inside-last-turn" });
    expect(rungs(historyOf([block(1, 10), stepBlock(2, 500, { live: true })]), rules(1_000))).toEqual([]);
  });

  it("[CM6] inside the last turn keeps half of what followed the newest message, where it is pinned as well", () => {
    const steps = [7, 8, 9, 10].map((seq) => stepBlock(seq, 100, { messageId: "a" }));
    const history = historyOf(steps, { pinned: block(3, 40) });
    const cuts = [...ladder(history, rules(10_000))];
    expect(cuts).toEqual([{ until: 8, pinned: 3, kept: 240, leaving: 200, rung: "inside-last-turn" }]);
  });

  it("[CM4][CM5] of any branch has legal cuts alone, and each keeps the newest message", () => {
    fc.assert(
      fc.property(histories, fc.nat(60_000), fc.integer({ min: 1, max: 4 }), (history, budget, minMessages) => {
        for (const cut of ladder(history, rules(budget, { minMessages }))) {
          const index = history.blocks.findIndex(({ seq }) => seq === cut.until);
          expect(index).toBeGreaterThanOrEqual(0);
          expect(index).toBeLessThan(firstLive(history));
          expect(cut.leaving).toBeGreaterThan(0);
          expect(newestUser(after(history, cut))).toEqual(newestUser(history));
        }
      }),
      { numRuns: 300 },
    );
  });
});

const after = (history: History, cut: Cut): History => applied(history, { kind: "summarise", cut });
