import { describe, expect, it } from "vitest";
import fc from "fast-check";
import {
  compareFamilies,
  estimateEntry,
  estimateParts,
  estimateReasoning,
  estimateSystem,
  estimateText,
  estimateTools,
  familyOf,
  weightsFor,
} from "../../src/context/estimator.ts";
import { countFeatures, FEATURE_COUNT, FEATURES } from "../../src/context/features.ts";
import type { Part } from "../../src/records.ts";

const gpt = weightsFor("openai/gpt-4.1");
const claude = weightsFor("anthropic/claude-sonnet-4-5");

function features(text: string): Record<string, number> {
  const counts = new Float64Array(FEATURE_COUNT);
  countFeatures(text, counts);
  return Object.fromEntries(FEATURES.flatMap((name, i) => (counts[i]! > 0 ? [[name, counts[i]!]] : [])));
}

function call(state: Record<string, unknown>): Part {
  return { type: "dynamic-tool", toolCallId: "1", toolName: "look_up", input: { id: 7 }, ...state } as Part;
}

describe("features", () => {
  it.each([
    ["the cat sat", { wordsBare: 1, wordsSpaced: 2 }],
    ["camelHumpHere", { wordsBare: 1, humps: 2 }],
    ["internationalisation", { wordsBare: 1, lettersBeyondSix: 6, lettersBeyondTwelve: 8 }],
    ["HTTP", { wordsBare: 1, capitals: 3 }],
    ["12345", { digitGroups: 2 }],
    ["a, b", { wordsBare: 1, marksBare: 1, wordsSpaced: 1 }],
    ["----", { marksBare: 1, markRepeats: 3 }],
    ["=> ()", { marksBare: 1, markChanges: 2, marksSpaced: 1 }],
    ["a\n\nb", { wordsBare: 2, newlinesBare: 1, newlineRepeats: 1 }],
    ["a   b", { wordsBare: 1, spaceRuns: 1, wordsSpaced: 1 }],
    ["year 2024", { wordsBare: 1, spacesBeforeDigits: 1, digitGroups: 2 }],
    ["café", { wordsBare: 1, accents: 1 }],
    ["Привет", { otherLetters: 6 }],
    ["漢字かなカナ한글", { han: 2, kana: 4, hangul: 2 }],
    ["🙂", { astral: 1 }],
    ["、—│", { symbols: 3 }],
  ])("[AC14] counts %j", (text, expected) => {
    expect(features(text)).toEqual(expected);
  });

  it("[AC14] counts every text with finite numbers that are never negative", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 200 }), (text) => {
        const counts = new Float64Array(FEATURE_COUNT);
        countFeatures(text, counts);
        expect(counts.every((count) => Number.isFinite(count) && count >= 0)).toBe(true);
      }),
    );
  });

  it("[AC14] weighs two texts apart about as much as both together", () => {
    fc.assert(
      fc.property(fc.lorem({ maxCount: 40 }), fc.lorem({ maxCount: 40 }), (one, other) => {
        const together = estimateText(`${one}\n${other}`, gpt);
        expect(Math.abs(together - estimateText(one, gpt) - estimateText(other, gpt))).toBeLessThanOrEqual(4);
      }),
    );
  });
});

describe("families", () => {
  it.each([
    ["anthropic/claude-opus-4-6", "claude"],
    ["bedrock/us.anthropic.claude-sonnet-4-5", "claude"],
    ["openai/gpt-4.1", "o200k"],
    ["openai/gpt-4o-mini", "o200k"],
    ["openai/o3", "o200k"],
    ["openai/gpt-4", "cl100k"],
    ["@cf/meta/llama-3.3-70b-instruct-fp8-fast", "cl100k"],
    ["google/gemini-3-flash", "o200k"],
  ])("[AC14] estimates %s with the weights of %s", (model, family) => {
    expect(familyOf(model)).toBe(family);
  });

  it("[AC9] compares two families on the content that changes hands", () => {
    expect(compareFamilies([], gpt, claude)).toBe(1);
    expect(compareFamilies(["漢字".repeat(50)], gpt, weightsFor("openai/gpt-4"))).toBeGreaterThan(1.2);
  });
});

describe("parts", () => {
  it("[AC14] weighs a message with its framing and an empty one not at all", () => {
    const text = "Where is my order?";
    expect(estimateParts("user", [{ type: "text", text }], gpt)).toEqual({
      said: estimateText(text, gpt) + 7,
      returned: 0,
    });
    expect(estimateParts("user", [], gpt)).toEqual({ said: 0, returned: 0 });
  });

  it("[AC14] keeps what a step said apart from what came back to it", () => {
    const open = estimateParts("assistant", [call({ state: "input-available" })], gpt);
    const done = estimateParts("assistant", [call({ state: "output-available", output: "shipped on Monday" })], gpt);
    expect(open.returned).toBe(0);
    expect(done.said).toBe(open.said);
    expect(done.returned).toBeGreaterThan(10);
  });

  it("[AC14] counts errors, refusals and their reasons", () => {
    const returned = (state: Record<string, unknown>) => estimateParts("assistant", [call(state)], gpt).returned;
    expect(returned({ state: "output-error", errorText: "the service answered 503 twice" })).toBeGreaterThan(15);
    expect(returned({ state: "output-denied", approval: { id: "1", approved: false } })).toBeGreaterThan(12);
    expect(
      returned({
        state: "approval-responded",
        approval: { id: "1", approved: false, reason: "too expensive for this customer" },
      }),
    ).toBeGreaterThan(12);
    expect(returned({ state: "approval-responded", approval: { id: "1", approved: true } })).toBe(0);
    expect(returned({ state: "approval-requested", approval: { id: "1" } })).toBe(0);
  });

  it("[AC14] counts what is sent and not what stays with the client", () => {
    const parts: Part[] = [
      { type: "step-start" },
      { type: "source-url", sourceId: "1", url: "https://example.com/a-long-address-that-is-not-sent" },
      { type: "data-context", data: { tokens: 5 } },
    ];
    expect(estimateParts("assistant", parts, gpt)).toEqual({ said: 0, returned: 0 });
  });

  it.each([
    ["image/png", 1200],
    ["image", 1200],
    ["audio/mpeg", 1500],
    ["video/mp4", 8000],
    ["application/pdf", 6000],
    ["application/zip", 2000],
  ])("[AC14] takes a %s at %i tokens, whatever its base64 is", (mediaType, tokens) => {
    const of = (url: string) => estimateParts("user", [{ type: "file", mediaType, url }], gpt).said;
    expect(of("https://example.com/file")).toBe(tokens + 7);
    expect(of(`data:${mediaType};base64,${"A".repeat(100_000)}`)).toBe(tokens + 7);
  });

  it("[AC14] weighs a text file as the text it is sent as", () => {
    const text = "One two three. ".repeat(100);
    const said = estimateParts(
      "user",
      [{ type: "file", mediaType: "text/plain", url: `data:text/plain;base64,${btoa(text)}` }],
      gpt,
    ).said;
    expect(said).toBe(estimateText(text, gpt) + 7);
  });

  it("[AC14] takes media inside a tool's output at its flat cost", () => {
    const output = {
      content: [
        { type: "image", mimeType: "image/png", data: "A".repeat(400_000) },
        { type: "text", text: "a chart" },
      ],
    };
    const { returned } = estimateParts("assistant", [call({ state: "output-available", output })], gpt);
    expect(returned).toBeGreaterThan(1200);
    expect(returned).toBeLessThan(1300);
  });

  it("[AC14] weighs a result that is JSON as its JSON and a text as it is", () => {
    const of = (output: unknown) =>
      estimateParts("assistant", [call({ state: "output-available", output })], gpt).returned;
    expect(of({ a: 1 })).toBe(of('{"a":1}'));
  });

  it("[AC12] knows how much of a step is reasoning", () => {
    const parts: Part[] = [
      { type: "reasoning", text: "think it over" },
      { type: "text", text: "done" },
    ];
    expect(estimateReasoning(parts, gpt)).toBe(estimateText("think it over", gpt));
  });

  it("[AC14] weighs an entry for the family of its model", () => {
    const entry = { role: "assistant" as const, parts: [call({ state: "input-available" })] };
    expect(estimateEntry(entry, "anthropic/claude-sonnet-4-5").said).toBeGreaterThan(
      estimateEntry(entry, "openai/gpt-4.1").said,
    );
  });

  it("[AC14] weighs system prompt and tools", () => {
    expect(estimateSystem(undefined, gpt)).toBe(0);
    expect(estimateSystem("You are helpful.", gpt)).toBe(estimateText("You are helpful.", gpt) + 7);
    expect(estimateTools([], gpt)).toBe(0);
    expect(
      estimateTools([{ name: "look_up", description: "Finds an order", inputSchema: { type: "object" } }], gpt),
    ).toBeGreaterThan(15);
  });
});
