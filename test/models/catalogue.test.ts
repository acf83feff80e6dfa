import { expect, it } from "vitest";
import { limitsOf } from "../../src/models/catalogue.ts";

it("[MD16] mirror reads 32,000 tokens and writes 4,096", () => {
  expect(limitsOf("mirror")).toEqual({ contextWindow: 32_000, maxOutputTokens: 4_096 });
});

it.each([
  ["anthropic/claude-sonnet-4-5", 200_000, 64_000],
  ["openai/gpt-4.1-mini", 1_047_576, 32_768],
  ["google/gemini-2.5-flash", 1_048_576, 65_536],
  ["workers-ai/@cf/meta/llama-4-scout-17b-16e-instruct", 131_000, 16_384],
])("[MD16] %s reads %i tokens and writes %i", (id, contextWindow, maxOutputTokens) => {
  expect(limitsOf(id)).toEqual({ contextWindow, maxOutputTokens });
});

it("[MD16] an output limit that only repeats the window is unknown", () => {
  expect(limitsOf("workers-ai/@cf/meta/llama-3.3-70b-instruct-fp8-fast")).toEqual({
    contextWindow: 24_000,
    maxOutputTokens: undefined,
  });
});

it.each([
  ["anthropic/claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5"],
  ["anthropic/claude-sonnet-4-5-20990101", "anthropic/claude-sonnet-4-5"],
  ["anthropic/claude-sonnet-4-5-latest", "anthropic/claude-sonnet-4-5"],
  ["openai/gpt-4.1-2025-04-14", "openai/gpt-4.1"],
  ["google/gemini-2.5-pro-preview-09-09", "google/gemini-2.5-pro"],
  ["anthropic/claude-3-5-sonnet", "anthropic/claude-3-5-sonnet-20241022"],
  ["anthropic/claude-3-5-sonnet-latest", "anthropic/claude-3-5-sonnet-20241022"],
])("[MD17] %s has the limits of %s", (id, known) => {
  const { contextWindow, maxOutputTokens } = limitsOf(known);
  expect([contextWindow, maxOutputTokens].map(Number).every((limit) => limit > 0)).toBe(true);
  expect(limitsOf(id)).toEqual({ contextWindow, maxOutputTokens });
});

it("[MD17] a dated name with limits of its own keeps them", () => {
  expect(limitsOf("openai/gpt-4o-2024-05-13")).toEqual({ contextWindow: 128_000, maxOutputTokens: 4_096 });
});

it.each([
  "openai-compatible/gpt-4o",
  "openai/gpt-4.1-ultra",
  "mistral/large",
  "gpt-4o",
  "constructor/name",
  "openai/toString",
  "",
])("[MD17] nothing is known of %j, and nothing is guessed", (id) => {
  expect(limitsOf(id)).toEqual({});
});
