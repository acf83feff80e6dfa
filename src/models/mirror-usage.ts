/**
 * What `mirror` reports of a call, in the shape providers give the AI SDK. The raw object has the shape of OpenAI's chat API.
 */
import type { LanguageModelV4Usage } from "@ai-sdk/provider";

/** Tokens of one call. */
export interface Spent {
  /** everything read, cached or not */
  input: number;
  /** the part of `input` an earlier call had read */
  cached: number;
  reasoning: number;
  /** text and tool calls */
  text: number;
}

export function reportUsage({ input, cached, reasoning, text }: Spent): LanguageModelV4Usage {
  return {
    // keeping a prompt costs nothing here, so nothing is ever a cache write
    inputTokens: { total: input, noCache: input - cached, cacheRead: cached, cacheWrite: 0 },
    outputTokens: { total: reasoning + text, text, reasoning },
    raw: {
      prompt_tokens: input,
      completion_tokens: reasoning + text,
      total_tokens: input + reasoning + text,
      prompt_tokens_details: { cached_tokens: cached },
      completion_tokens_details: { reasoning_tokens: reasoning },
    },
  };
}

/** What a provider gives that reports nothing. */
export function unreportedUsage(): LanguageModelV4Usage {
  return {
    inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: undefined, text: undefined, reasoning: undefined },
  };
}

/** Numbers that cannot be true. */
export function garbageUsage(): LanguageModelV4Usage {
  return {
    inputTokens: { total: -1, noCache: NaN, cacheRead: -5, cacheWrite: Infinity },
    outputTokens: { total: NaN, text: -2, reasoning: -1 },
    raw: { prompt_tokens: -1, completion_tokens: "many" },
  };
}
