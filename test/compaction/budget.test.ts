import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { budgetFor, type BudgetRequest } from "../../src/compaction/budget.ts";

/** The levers of a session that set nothing, on a window of 200,000 tokens with 64,000 for the answer. */
const budget = (asked: Partial<BudgetRequest> = {}) =>
  budgetFor({ threshold: 168_000, usable: 168_000, tailTokenBudget: 20_000, overhead: 5_000, ...asked });

const size = fc.integer({ min: 1, max: 2_000_000 });

const requests: fc.Arbitrary<BudgetRequest> = fc.record({
  threshold: fc.option(size, { freq: 6 }),
  usable: fc.oneof(fc.constant(undefined), fc.constant(0), size),
  tailTokenBudget: fc.oneof(fc.constant(20_000), size),
  overhead: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 100_000 })),
});

describe("a budget", () => {
  it("[CM11] that can work is what was asked for, and says nothing", () => {
    expect(budget()).toEqual({ threshold: 168_000, tail: 20_000, summary: 4_096, warnings: [] });
  });

  it.each<[number, number, number]>([
    [30_807, 20_000, 3_226],
    [30_800, 19_990, 3_225],
    [25_000, 11_000, 2_500],
    [15_000, 5_000, 1_250],
  ])(
    "[CM11] above %i tokens keeps %i: tail and summary fill at most 90 hundredths of the room, and less of a smaller one",
    (threshold, tail, summary) => {
      expect(budget({ threshold })).toMatchObject({ threshold, tail, summary });
    },
  );

  it("[CM11] for a threshold of 3,000 keeps half of the room it leaves, and says the numbers", () => {
    expect(budget({ threshold: 3_000, overhead: 200 })).toEqual({
      threshold: 3_000,
      tail: 1_400,
      summary: 350,
      warnings: [
        "tailTokenBudget is 20000 tokens, but 3000 less 200 for system prompt and tools leaves 2800; 1400 are kept.",
      ],
    });
  });

  it("[CM11] for a threshold above what the window holds fires there, and says the numbers", () => {
    expect(budget({ threshold: 500_000, usable: 168_000 })).toEqual({
      threshold: 168_000,
      tail: 20_000,
      summary: 4_096,
      warnings: [
        "compactAfter is 500000 tokens, but the window holds 168000 beside the answer; it compacts after 168000.",
      ],
    });
  });

  it("[CM11] for a threshold at what the window holds is no warning", () => {
    expect(budget({ threshold: 168_000, usable: 168_000 }).warnings).toEqual([]);
    expect(budget({ threshold: 168_001, usable: 168_000 }).warnings).toHaveLength(1);
  });

  it.each([3_000, 3_001, 90_000])(
    "[CM11] of a threshold that the overhead of %i fills keeps nothing, and says what to do",
    (overhead) => {
      expect(budget({ threshold: 3_000, overhead })).toEqual({
        threshold: 3_000,
        tail: 0,
        summary: 256,
        warnings: [
          `System prompt and tools take ${overhead} tokens and it compacts after 3000, which leaves nothing for the conversation: only the newest message is kept; raise compactAfter.`,
        ],
      });
    },
  );

  it("[CM11] says both where threshold and tail are reduced", () => {
    const { warnings, ...held } = budget({ threshold: 50_000, usable: 10_000, overhead: 0 });
    expect(held).toEqual({ threshold: 10_000, tail: 5_000, summary: 1_250 });
    expect(warnings).toHaveLength(2);
  });

  it("[CM11] without a threshold fits the window, where that is known, and warns of nothing", () => {
    expect(budget({ threshold: null, usable: 8_000, overhead: 0 })).toEqual({
      threshold: null,
      tail: 4_000,
      summary: 1_000,
      warnings: [],
    });
    for (const usable of [undefined, 0]) {
      expect(budget({ threshold: null, usable })).toEqual({
        threshold: null,
        tail: 20_000,
        summary: 4_096,
        warnings: [],
      });
    }
  });

  it("[CM11] is what was asked for or less, never above the window, and says so where a threshold is not kept", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const { threshold, tail, warnings } = budgetFor(request);
        expect(tail).toBeLessThanOrEqual(request.tailTokenBudget);
        expect(tail).toBeGreaterThanOrEqual(0);
        const fires = request.threshold === null ? null : Math.min(request.threshold, request.usable || Infinity);
        expect(threshold).toBe(fires);
        expect(threshold === null && warnings.length > 0).toBe(false);
        const reduced = [threshold !== request.threshold, threshold !== null && tail < request.tailTokenBudget];
        expect(warnings.length).toBeGreaterThanOrEqual(reduced.filter(Boolean).length);
      }),
      { numRuns: 1_000 },
    );
  });

  it("[CM11] leaves room for the next turns: overhead, tail and summary stay below the threshold", () => {
    fc.assert(
      fc.property(requests, (request) => {
        const { threshold, tail, summary } = budgetFor(request);
        const room = (threshold ?? (request.usable || Number.POSITIVE_INFINITY)) - request.overhead;
        // below this the shortest summary that is worth writing has more than its share
        if (room < 732) return;
        expect(tail + summary).toBeLessThanOrEqual(0.9 * room + 1);
      }),
      { numRuns: 1_000 },
    );
  });

  it("[CM11] gives a summary 256 to 4,096 tokens, an eighth of the room in between", () => {
    const summaries = [1_000, 2_048, 2_056, 16_000, 32_768, 1_000_000].map(
      (threshold) => budget({ threshold, usable: undefined, overhead: 0 }).summary,
    );
    expect(summaries).toEqual([256, 256, 257, 2_000, 4_096, 4_096]);
  });
});
