/**
 * Usage that comes from outside, made safe to book: whatever its shape, it holds plain numbers that can be added.
 */
import type { LanguageModelUsage } from "ai";
import { normaliseUsage } from "../context/usage.ts";

/** Above any context or bill of one call; sums of as many as a session can hold stay exact. */
const LARGEST_COUNT = 1e12;

/** Characters of a provider's own object as JSON. Known ones have at most a few hundred. */
const USAGE_LENGTH = 16 * 1024;

const DEEPEST = 6;

/** In the shape of the AI SDK, the object as it came in `raw`; `undefined` when it says nothing that can be used. */
export function bookableUsage(reported: unknown): LanguageModelUsage | undefined {
  const clean = cleaned(reported, 0);
  if (!isObject(clean) || JSON.stringify(clean).length > USAGE_LENGTH) return undefined;
  // SAFETY: an object of the SDK's shape whose numbers were checked; other fields are only kept.
  if (isSdkShape(clean)) return clean as unknown as LanguageModelUsage;
  const { contextInput, billedInput, output, contextOutput, reasoning, cacheRead, cacheWrite, total } =
    normaliseUsage(clean);
  const inputTokens = billedInput ?? contextInput;
  const outputTokens = output ?? contextOutput;
  if (inputTokens === undefined && outputTokens === undefined && total === undefined) return undefined;
  return {
    inputTokens,
    inputTokenDetails: { noCacheTokens: undefined, cacheReadTokens: cacheRead, cacheWriteTokens: cacheWrite },
    outputTokens,
    outputTokenDetails: { textTokens: undefined, reasoningTokens: reasoning },
    totalTokens: total ?? (inputTokens ?? 0) + (outputTokens ?? 0),
    // SAFETY: what is left of it is JSON.
    raw: clean as LanguageModelUsage["raw"],
  };
}

/** A count of tokens, or nothing. */
export function countOf(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 && value <= LARGEST_COUNT ? value : undefined;
}

function isSdkShape(usage: Record<string, unknown>): boolean {
  return ["inputTokens", "outputTokens", "totalTokens"].some((name) => countOf(usage[name]) !== undefined);
}

/** Counts, short words and what holds them; anything else is left out. */
function cleaned(value: unknown, depth: number): unknown {
  if (typeof value === "number") return countOf(value);
  if (typeof value === "string") return value.length <= 64 ? value : undefined;
  if (typeof value !== "object" || value === null || depth > DEEPEST) return undefined;
  if (Array.isArray(value)) return value.map((item) => cleaned(item, depth + 1)).filter((item) => item !== undefined);
  const kept = Object.entries(value).map(([name, item]) => [name, cleaned(item, depth + 1)] as const);
  return Object.fromEntries(kept.filter(([, item]) => item !== undefined));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
