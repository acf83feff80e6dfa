import { describe, expect, it } from "vitest";
import fc from "fast-check";
import { contextReport, predictionLine, type ReportInput } from "../../src/context/report.ts";
import { DEFAULT_POLICY, knownByPolicy } from "../../src/context/policy.ts";
import { prompt, reported, Story } from "./story.ts";

function inputOf(story: Story, change: Partial<ReportInput> = {}): ReportInput {
  return {
    ledger: story.ledger,
    prompt: story.prompt,
    known: story.known(),
    limits: { contextWindow: 200_000, maxOutput: 16_000 },
    threshold: 100_000,
    totals: { reasoningTokens: 0, cacheReadTokens: 0 },
    compactions: 0,
    ...change,
  };
}

describe("the report", () => {
  it("[AC23] is the seed's /context: 52,100 of 200,000 with 131,900 free", () => {
    const story = new Story({ systemUnits: 4000, toolsUnits: 8000 })
      .user(38_000)
      .step(2000, reported(50_000, 2000))
      .user(100);
    expect(contextReport(inputOf(story))).toEqual({
      tokens: 52_100,
      basis: "anchored",
      threshold: 100_000,
      suggestion: false,
      contextWindow: 200_000,
      reservedOutput: 16_000,
      free: 131_900,
      percent: 26.1,
      breakdown: { system: 4000, tools: 8000, summary: 0, messages: 40_100 },
      calculation: { lastInput: 50_000, lastOutput: 2000, newSince: 100 },
      reasoningTokens: 0,
      cacheReadTokens: 0,
      calibrationRatio: 1,
      accuracy: {
        calls: 1,
        last: { predicted: 50_000, actual: 50_000, errorPercent: 0 },
        medianPercent: 0,
        p95Percent: 0,
      },
      compactions: 0,
      model: "anthropic/claude-sonnet-4-5",
      warnings: [],
    });
  });

  it("[AC28] suggests a compaction above the threshold, not at it, and only where that is left to the client", () => {
    const story = new Story().user(100).step(100, reported(50_000, 1000));
    const suggestion = (change: Partial<ReportInput>) => contextReport(inputOf(story, change)).suggestion;
    expect(suggestion({ suggests: true, threshold: 50_999 })).toBe(true);
    expect(suggestion({ suggests: true, threshold: 51_000 })).toBe(false);
    expect(suggestion({ suggests: true, threshold: null })).toBe(false);
    expect(suggestion({ threshold: 50_999 })).toBe(false);
  });

  it("[AC23] shows the worked example: 5,000 + 100 + 20 is 5,120 against 5,115, +0.1 %", () => {
    const story = new Story({ systemUnits: 4900 }).user(100).step(100, reported(5000, 100), 20);
    expect(story.known().tokens).toBe(5120);
    story.step(50, reported(5115, 50));
    expect(contextReport(inputOf(story)).accuracy.last).toEqual({ predicted: 5120, actual: 5115, errorPercent: 0.098 });
    expect(predictionLine("anthropic/claude-sonnet-4-5", 5120, 5115)).toBe(
      "context anthropic/claude-sonnet-4-5: predicted=5120 actual=5115 error=+5 (+0.1 %)",
    );
  });

  it("[AC23] shows 0.0 percent and no window when the window is unknown", () => {
    const report = contextReport(inputOf(new Story().user(100), { limits: {}, threshold: null }));
    expect(report).toMatchObject({ contextWindow: null, percent: 0, reservedOutput: 0, free: 0, threshold: null });
  });

  it("[AC23] scales system and tools to the total when they alone exceed it, and says so", () => {
    const story = new Story({ systemUnits: 600, toolsUnits: 400 }).user(10).step(10, reported(5000, 10));
    story.prompt = prompt({ ...story.prompt, overlay: 1, covered: 4800 });
    const report = contextReport(inputOf(story));
    expect(report.breakdown).toEqual({ system: 126, tools: 84, summary: 0, messages: 0 });
    expect(report.warnings.length).toBe(1);
  });

  it("[AC23] shows an overhead nobody described as the system's", () => {
    const story = new Story().user(167).step(10, reported(2775, 10));
    expect(contextReport(inputOf(story)).breakdown).toEqual({ system: 2608, tools: 0, summary: 0, messages: 177 });
  });

  it("[AC23] shows an overfull context with nothing free", () => {
    const story = new Story().user(100).step(10, reported(199_000, 10));
    expect(contextReport(inputOf(story))).toMatchObject({ free: 0, percent: 99.5 });
  });

  it("[AC23] sums its parts to its total, whatever was reported", () => {
    const call = fc.record({ said: fc.nat(2000), input: fc.nat(100_000), output: fc.nat(4000), user: fc.nat(500) });
    const shape = fc.record({
      systemUnits: fc.nat(5000),
      toolsUnits: fc.nat(5000),
      covered: fc.nat(50_000),
      summary: fc.nat(3000),
    });
    fc.assert(
      fc.property(fc.array(call, { maxLength: 6 }), shape, (calls, change) => {
        const story = new Story({ systemUnits: change.systemUnits, toolsUnits: change.toolsUnits });
        for (const { said, input, output, user } of calls) story.user(user).step(said, reported(input, output));
        story.prompt = prompt({ ...story.prompt, overlay: 1, covered: change.covered, summary: change.summary });
        const { tokens, breakdown } = contextReport(inputOf(story));
        const parts = Object.values(breakdown);
        expect(parts.reduce((sum, part) => sum + part, 0)).toBe(tokens);
        expect(Math.min(...parts)).toBeGreaterThanOrEqual(0);
      }),
    );
  });

  it("[AC25] shows how far the newest predictions were off", () => {
    const story = new Story().user(1000);
    let input = 1000;
    for (const miss of [0, 10, -20, 5]) {
      story.step(100, reported(input + miss, 100)).user(900);
      input += 1000 + miss;
    }
    const { accuracy } = contextReport(inputOf(story));
    expect(accuracy.calls).toBe(4);
    expect(accuracy.last!.errorPercent).toBeLessThan(0);
    expect(accuracy.p95Percent).toBeGreaterThanOrEqual(accuracy.medianPercent!);
  });

  it("[AC25] has no accuracy before the first report", () => {
    expect(contextReport(inputOf(new Story().user(5))).accuracy).toEqual({
      calls: 0,
      last: null,
      medianPercent: null,
      p95Percent: null,
    });
  });
});

describe("policies", () => {
  const compacted = () => {
    const story = new Story().user(50_000).step(1000, reported(52_000, 1000));
    story.prompt = prompt({ overlay: 1, covered: 50_000, summary: 500 });
    return story;
  };

  it("[AC24] defaults to the estimate, the anchored size and the whole context", () => {
    expect(DEFAULT_POLICY).toEqual({ reportUnknownAs: "estimate", afterCompaction: "anchored", counts: "context" });
    const story = new Story({ systemUnits: 500 }).user(100);
    expect(knownByPolicy(story.ledger, story.prompt)).toMatchObject({ tokens: 600, basis: "estimated" });
  });

  it("[AC24] shows 0 tokens and 0.0 % of a session without a report, which fires nothing", () => {
    const story = new Story({ systemUnits: 500 }).user(500_000);
    const known = knownByPolicy(story.ledger, story.prompt, { ...DEFAULT_POLICY, reportUnknownAs: "zero" });
    expect(known).toMatchObject({ tokens: 0, basis: "estimated" });
    expect(contextReport(inputOf(story, { known }))).toMatchObject({
      tokens: 0,
      percent: 0,
      breakdown: { system: 0, tools: 0, summary: 0, messages: 0 },
    });
  });

  it("[AC24] estimates between a compaction and the next report when the anchored size is not wanted", () => {
    const story = compacted();
    expect(knownByPolicy(story.ledger, story.prompt)).toMatchObject({ tokens: 3500, basis: "anchored" });
    const unknown = knownByPolicy(story.ledger, story.prompt, { ...DEFAULT_POLICY, afterCompaction: "unknown" });
    expect(unknown).toMatchObject({ tokens: 3500, basis: "estimated" });
  });

  it("[AC24] shows nothing between a compaction and the next report when both seeds' ways are chosen", () => {
    const story = compacted();
    const policy = { ...DEFAULT_POLICY, afterCompaction: "unknown", reportUnknownAs: "zero" } as const;
    expect(knownByPolicy(story.ledger, story.prompt, policy).tokens).toBe(0);
    story.user(100).step(50, reported(3600, 50));
    expect(knownByPolicy(story.ledger, story.prompt, policy)).toMatchObject({ tokens: 3650, basis: "reported" });
  });

  it("[AC24] counts the last request's input alone when a bar of requests is wanted", () => {
    const story = new Story().user(100).step(100, reported(5000, 100), 20).step(50, reported(5115, 50));
    expect(knownByPolicy(story.ledger, story.prompt, { ...DEFAULT_POLICY, counts: "lastRequest" })).toMatchObject({
      tokens: 5115,
      basis: "reported",
    });
  });
});
