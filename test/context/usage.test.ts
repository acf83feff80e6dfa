import { describe, expect, inject, it } from "vitest";
import { compareShapes, type RecordedShape } from "../../bench/usage-table.ts";
import {
  calculateContextTokens,
  isOverflow,
  normaliseUsage,
  OUTPUT_TOKEN_MAX,
  reservedOutput,
  usableContext,
} from "../../src/context/usage.ts";

/** Usage as AI SDK 7 hands it on. */
function aiSdk(
  input: number | undefined,
  output: number | undefined,
  rest: Record<string, unknown> = {},
): Record<string, unknown> {
  return { inputTokens: input, inputTokenDetails: {}, outputTokens: output, outputTokenDetails: {}, ...rest };
}

describe("raw shapes", () => {
  it.each([
    [
      "OpenAI chat",
      { prompt_tokens: 48, completion_tokens: 14, prompt_tokens_details: { cached_tokens: 40 } },
      [48, 14, 48],
    ],
    [
      "OpenAI responses",
      { input_tokens: 2087, input_tokens_details: { cached_tokens: 2048 }, output_tokens: 124, total_tokens: 2211 },
      [2087, 124, 2087],
    ],
    [
      "Anthropic",
      { input_tokens: 4, cache_read_input_tokens: 14_210, cache_creation_input_tokens: 426, output_tokens: 290 },
      [14_640, 290, 14_640],
    ],
    [
      "Gemini",
      { promptTokenCount: 23, candidatesTokenCount: 25, thoughtsTokenCount: 158, totalTokenCount: 206 },
      [23, 183, 23],
    ],
    [
      "Gemini with its own tools",
      { promptTokenCount: 9, toolUsePromptTokenCount: 61, candidatesTokenCount: 27, thoughtsTokenCount: 221 },
      [9, 248, 70],
    ],
    [
      "Bedrock",
      { inputTokens: 10, cacheWriteInputTokens: 7351, cacheReadInputTokens: 0, outputTokens: 4, totalTokens: 7365 },
      [7361, 4, 7361],
    ],
    [
      "Cohere",
      { billed_units: { input_tokens: 21, output_tokens: 407 }, tokens: { input_tokens: 524, output_tokens: 410 } },
      [524, 410, 21],
    ],
    ["Mistral", { prompt_tokens: 93, total_tokens: 122, completion_tokens: 29 }, [93, 29, 93]],
    [
      "xAI, reasoning beside output",
      {
        prompt_tokens: 32,
        completion_tokens: 9,
        completion_tokens_details: { reasoning_tokens: 200 },
        total_tokens: 241,
      },
      [32, 209, 32],
    ],
    ["Ollama", { prompt_eval_count: 26, eval_count: 259 }, [26, 259, 26]],
    ["AI SDK 4", { promptTokens: 10, completionTokens: 20, totalTokens: 30 }, [10, 20, 10]],
    [
      "AI SDK 5 from Anthropic",
      { inputTokens: 4, outputTokens: 290, cachedInputTokens: 14_210 },
      [14_214, 290, 14_214],
    ],
    [
      "pi",
      { input: 1, output: 266, cacheRead: 174_218, cacheWrite: 519, totalTokens: 175_004 },
      [174_738, 266, 174_738],
    ],
  ])("[AC18] reads %s exactly", (_name, usage, [contextInput, contextOutput, billedInput]) => {
    expect(normaliseUsage(usage)).toMatchObject({ contextInput, contextOutput, billedInput });
  });

  it("[AC18] takes the last pass of an Anthropic call as context and all its own passes as the bill", () => {
    const pass = (type: string, input: number, output: number) => ({
      type,
      input_tokens: input,
      output_tokens: output,
    });
    const usage = {
      input_tokens: 23_000,
      output_tokens: 1000,
      iterations: [pass("compaction", 180_000, 3500), pass("advisor_message", 2518, 22), pass("message", 23_000, 1000)],
    };
    expect(normaliseUsage(usage)).toEqual({
      contextInput: 23_000,
      contextOutput: 1000,
      output: 4500,
      billedInput: 203_000,
    });
  });

  it("[AC18] reads the context from the provider's own object where the AI SDK has summed a bill", () => {
    const iterations = [
      { type: "compaction", input_tokens: 180_000, output_tokens: 3500 },
      { type: "message", input_tokens: 23_000, output_tokens: 1000 },
    ];
    const usage = aiSdk(203_000, 4500, { raw: { input_tokens: 23_000, output_tokens: 1000, iterations } });
    expect(normaliseUsage(usage).contextInput).toBe(23_000);
  });

  it("[AC18] reports nothing of a shape that nobody documented", () => {
    expect(normaliseUsage({ counted: 13 })).toEqual({});
    expect(normaliseUsage({ tokens_in: 5, tokens_out: 6 })).toEqual({});
    expect(normaliseUsage("12")).toEqual({});
    expect(normaliseUsage(null)).toEqual({});
  });

  it("[AC18] gives a total where there is only a total", () => {
    expect(normaliseUsage({ totalTokens: 12_000 })).toEqual({ total: 12_000 });
    expect(normaliseUsage({ total_tokens: 12_000 })).toEqual({ total: 12_000 });
  });

  it("[AC18] leaves out figures that are no counts", () => {
    expect(normaliseUsage({ prompt_tokens: Number.NaN, completion_tokens: 3 })).toEqual({});
    expect(normaliseUsage({ prompt_tokens: -5, completion_tokens: 3 })).toEqual({});
    expect(normaliseUsage(aiSdk(100, Number.POSITIVE_INFINITY))).toEqual({ contextInput: 100, billedInput: 100 });
  });

  const shapes = inject("usageShapes");
  it.skipIf(!shapes)("[AC18] reads all 77 recorded shapes as the reviewed table has them", () => {
    expect(compareShapes(JSON.parse(shapes!) as RecordedShape[])).toEqual({ total: 77, right: 77, faults: [] });
  });
});

describe("calculateContextTokens", () => {
  it("[AC19] adds input and output, reasoning and cache counted once", () => {
    const details = { inputTokenDetails: { cacheReadTokens: 900 }, outputTokenDetails: { reasoningTokens: 150 } };
    expect(calculateContextTokens(aiSdk(1000, 200, details))).toBe(1200);
  });

  it("[AC19] takes the total where nothing finer is given", () => {
    expect(calculateContextTokens({ totalTokens: 4321 })).toBe(4321);
  });

  it("[AC19] is unknown for zero, negative, missing and non-finite usage", () => {
    for (const usage of [
      aiSdk(0, 0),
      aiSdk(-1, 5),
      aiSdk(undefined, undefined),
      { totalTokens: 0 },
      { totalTokens: Number.NaN },
      null,
      undefined,
    ]) {
      expect(calculateContextTokens(usage)).toBeUndefined();
    }
  });

  it("[AC19] takes the last request of a tool loop and never the sum of its requests", () => {
    const steps = [aiSdk(5000, 100), aiSdk(5115, 50)];
    expect(calculateContextTokens(steps.at(-1))).toBe(5165);
  });
});

describe("limits", () => {
  it.each([
    [200_000, 8192, 191_808],
    [128_000, 4096, 123_904],
    [200_000, 64_000, 168_000],
    [200_000, undefined, 168_000],
    [200_000, 0, 168_000],
    [20_000, 64_000, 0],
  ])("[AC20] a window of %i with %s output leaves %i tokens", (window, maxOutput, usable) => {
    expect(usableContext(window, maxOutput)).toBe(usable);
  });

  it("[AC20] reserves 32,000 tokens at most, and where the model's own limit is unknown", () => {
    expect(OUTPUT_TOKEN_MAX).toBe(32_000);
    expect([8192, 64_000, 0, undefined].map(reservedOutput)).toEqual([8192, 32_000, 32_000, 32_000]);
  });

  it("[AC20] knows no usable context without a window", () => {
    expect(usableContext(0, 8192)).toBeUndefined();
    expect(usableContext(undefined, 8192)).toBeUndefined();
  });

  it.each([
    [191_000, 200_000, 8192, false],
    [171_000, 200_000, 64_000, true],
    [191_808, 200_000, 8192, false],
    [191_809, 200_000, 8192, true],
    [5_000_000, 0, 8192, false],
  ])("[AC20] %i tokens of %i with %i output overflow: %s", (tokens, contextWindow, maxOutput, overflows) => {
    expect(isOverflow(tokens, { contextWindow, maxOutput })).toBe(overflows);
  });
});
