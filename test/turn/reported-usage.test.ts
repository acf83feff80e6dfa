import { describe, expect, it } from "vitest";
import { bookableUsage, countOf } from "../../src/turn/reported-usage.ts";
import { asJson, usage } from "./entries.ts";

describe("usage from outside", () => {
  it("[US6] that has the shape of the AI SDK is booked as it is", () => {
    const reported = asJson(usage(30, 12));
    expect(bookableUsage(reported)).toEqual(reported);
  });

  it.each<[string, object, object]>([
    [
      "chat completions",
      {
        prompt_tokens: 30,
        completion_tokens: 12,
        total_tokens: 42,
        prompt_tokens_details: { cached_tokens: 8 },
        completion_tokens_details: { reasoning_tokens: 5 },
      },
      {
        inputTokens: 30,
        outputTokens: 12,
        totalTokens: 42,
        inputTokenDetails: { cacheReadTokens: 8 },
        outputTokenDetails: { reasoningTokens: 5 },
      },
    ],
    [
      "Anthropic",
      { input_tokens: 10, cache_read_input_tokens: 15, cache_creation_input_tokens: 5, output_tokens: 12 },
      {
        inputTokens: 30,
        outputTokens: 12,
        totalTokens: 42,
        inputTokenDetails: { cacheReadTokens: 15, cacheWriteTokens: 5 },
      },
    ],
    [
      "Gemini",
      { promptTokenCount: 30, candidatesTokenCount: 7, thoughtsTokenCount: 5, totalTokenCount: 42 },
      { inputTokens: 30, outputTokens: 12, totalTokens: 42, outputTokenDetails: { reasoningTokens: 5 } },
    ],
  ])(
    "[US6] in the raw shape of %s is booked in the shape of the AI SDK, the raw object beside it",
    (_n, raw, booked) => {
      expect(bookableUsage(raw)).toMatchObject({ ...booked, raw });
    },
  );

  it.each<[string, unknown]>([
    ["nothing", undefined],
    ["null", null],
    ["a string", "lots"],
    ["a number", 40],
    ["a list", [1, 2, 3]],
    ["an empty object", {}],
    ["an object of other things", { tokens: "many", colour: { is: "blue" } }],
    ["strings for counts", { inputTokens: "30", outputTokens: "12" }],
    ["objects for counts", { inputTokens: { total: 30 }, outputTokens: [] }],
    ["counts below zero", { inputTokens: -30, outputTokens: -1 }],
    ["counts beyond all sums", { inputTokens: 1e308, outputTokens: 1e308, totalTokens: 1e13 }],
    ["more than any provider says", { inputTokens: 30, raw: Array.from({ length: 20_000 }, () => 7) }],
  ])("[US6] that is %s books no usage", (_name, reported) => {
    expect(bookableUsage(reported)).toBe(undefined);
  });

  it("[US6] keeps the counts that can be added and drops those beside them that cannot", () => {
    const reported = {
      inputTokens: 30,
      outputTokens: 1e308,
      inputTokenDetails: { cacheReadTokens: -4, cacheWriteTokens: "9", noCacheTokens: 2 },
      raw: { long: "x".repeat(65), short: "tier", deep: [[[[[[[[1]]]]]]]] },
    };
    expect(bookableUsage(reported)).toEqual({
      inputTokens: 30,
      inputTokenDetails: { cacheWriteTokens: "9", noCacheTokens: 2 },
      raw: { short: "tier", deep: [[[[[]]]]] },
    });
  });

  it.each([
    [0, 0],
    [1e12, 1e12],
    [1e12 + 1, undefined],
    [-1, undefined],
    [Number.NaN, undefined],
    [Number.POSITIVE_INFINITY, undefined],
    ["5", undefined],
  ])("[US6] %s as a count is %s", (value, count) => {
    expect(countOf(value)).toBe(count);
  });
});
