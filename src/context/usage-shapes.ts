/**
 * The usage objects of each provider, and how each is read. `bench/usage-table.ts` holds the expected values of 77
 * recorded ones with their reasons.
 *
 * A recogniser answers `undefined` unless the shape is its own. None adds up what it does not know to be disjoint.
 */

/** All in tokens; a figure the provider did not give is absent, which is not 0. */
export interface ReportedUsage {
  /** everything the model read in its last pass, cached or not, counted once */
  contextInput?: number;
  /** what it put out in that pass, reasoning included: it follows `contextInput` in the window */
  contextOutput?: number;
  /** part of the input that came from a cache */
  cacheRead?: number;
  /** part of the input that was written to a cache */
  cacheWrite?: number;
  /** everything put out and billed, reasoning included; over all passes */
  output?: number;
  /** part of `output` that is reasoning */
  reasoning?: number;
  /** input that is paid for, at whatever rate, over all passes */
  billedInput?: number;
  /** input and output together, where nothing finer was given */
  total?: number;
}

type Raw = Record<string, unknown>;
type Recogniser = (usage: Raw) => ReportedUsage | undefined;

/** A count of tokens: a finite number that is not negative. Anything else was not reported. */
function count(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
}

function first(...values: unknown[]): number | undefined {
  return values.map(count).find((value) => value !== undefined);
}

function inner(value: unknown): Raw {
  return typeof value === "object" && value !== null ? (value as Raw) : {};
}

function sum(...values: (number | undefined)[]): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0);
}

/** One pass over one prompt: context and bill agree. */
function single(contextInput: number, output: number | undefined, rest: ReportedUsage = {}): ReportedUsage {
  return { contextInput, contextOutput: output, output, billedInput: contextInput, ...rest };
}

/**
 * AI SDK 6 and 7: `inputTokens` is the total, cache reads and writes inside it (`ai/src/types/usage.ts`). The provider's
 * own object is in `raw` and is read first.
 */
const aiSdk: Recogniser = (usage) => {
  if (typeof usage.inputTokenDetails !== "object" && typeof usage.outputTokenDetails !== "object") return undefined;
  const input = count(usage.inputTokens);
  if (input === undefined) return onlyTotal(usage);
  const cache = inner(usage.inputTokenDetails);
  return single(input, count(usage.outputTokens), {
    cacheRead: first(cache.cacheReadTokens, usage.cachedInputTokens),
    cacheWrite: count(cache.cacheWriteTokens),
    reasoning: first(inner(usage.outputTokenDetails).reasoningTokens, usage.reasoningTokens),
  });
};

/**
 * AI SDK 4 (`promptTokens`) and 5 (`cachedInputTokens`). Version 5 passed on what the provider called input: OpenAI's
 * contains the cached part, Anthropic's does not. More cached than read can only mean the second.
 */
const olderAiSdk: Recogniser = (usage) => {
  const input = first(usage.promptTokens, usage.inputTokens);
  if (input === undefined || ("inputTokens" in usage && isBedrock(usage))) return undefined;
  const cacheRead = count(usage.cachedInputTokens);
  const all = cacheRead !== undefined && cacheRead > input ? input + cacheRead : input;
  return single(all, first(usage.completionTokens, usage.outputTokens), {
    cacheRead,
    reasoning: count(usage.reasoningTokens),
  });
};

/** Bedrock Converse: `inputTokens` are those beside the cache; `totalTokens` is the sum of all four. */
const bedrock: Recogniser = (usage) => {
  const input = count(usage.inputTokens);
  if (input === undefined || !isBedrock(usage)) return undefined;
  const cacheRead = first(usage.cacheReadInputTokens, usage.cacheReadInputTokenCount);
  const cacheWrite = first(usage.cacheWriteInputTokens, usage.cacheWriteInputTokenCount);
  return single(sum(input, cacheRead, cacheWrite), count(usage.outputTokens), { cacheRead, cacheWrite });
};

function isBedrock(usage: Raw): boolean {
  return "serverToolUsage" in usage || "cacheReadInputTokens" in usage || "cacheReadInputTokenCount" in usage;
}

/**
 * Anthropic Messages, also through Bedrock and Vertex: `input_tokens` are those beside the cache. With `iterations`, the
 * last pass that answered is the context; the top level and every pass but an advisor's are the bill. (An advisor is
 * another model with its own rate. A fallback's answer is already what the top level tells.)
 */
const anthropic: Recogniser = (usage) => {
  const input = count(usage.input_tokens);
  if (input === undefined || isOpenAiResponses(usage)) return undefined;
  const passes = Array.isArray(usage.iterations) ? usage.iterations.map(inner) : [];
  const top = anthropicInput(usage);
  const output = count(usage.output_tokens);
  const rest = {
    cacheRead: count(usage.cache_read_input_tokens),
    cacheWrite: count(usage.cache_creation_input_tokens),
    reasoning: count(inner(usage.output_tokens_details).thinking_tokens),
  };
  if (passes.length === 0 || passes.some(({ type }) => type === "fallback_message")) return single(top, output, rest);
  const compactions = passes.filter(({ type }) => type === "compaction");
  const last = passes.findLast(({ type }) => type === "message");
  return {
    ...rest,
    contextInput: last && anthropicInput(last),
    contextOutput: last && count(last.output_tokens),
    output: output === undefined ? undefined : sum(output, ...compactions.map((pass) => count(pass.output_tokens))),
    billedInput: sum(top, ...compactions.map(anthropicInput)),
  };
};

function anthropicInput(usage: Raw): number {
  return sum(count(usage.input_tokens), count(usage.cache_read_input_tokens), count(usage.cache_creation_input_tokens));
}

/**
 * OpenAI Responses, also of Azure, Bedrock, OpenRouter, DeepSeek and xAI: cached input is inside input, reasoning inside
 * output. xAI runs tools inside one call and tells the last pass in `context_details`; the rest is its bill.
 */
const openAiResponses: Recogniser = (usage) => {
  const input = count(usage.input_tokens);
  if (input === undefined || !isOpenAiResponses(usage)) return undefined;
  const cache = inner(usage.input_tokens_details);
  const context = inner(usage.context_details);
  const output = count(usage.output_tokens);
  return {
    contextInput: first(context.input_tokens, input),
    contextOutput: first(context.output_tokens, output),
    cacheRead: count(cache.cached_tokens),
    cacheWrite: count(cache.cache_write_tokens),
    output,
    reasoning: count(inner(usage.output_tokens_details).reasoning_tokens),
    billedInput: input,
  };
};

function isOpenAiResponses(usage: Raw): boolean {
  return "input_tokens_details" in usage || "total_tokens" in usage;
}

/**
 * OpenAI Chat Completions and all that follow it: Mistral, DeepSeek, Groq, Cerebras, OpenRouter, Ollama, Workers AI.
 * Cached input is inside input. Reasoning is inside output, unless the total says that it stands beside it (xAI).
 */
const openAiChat: Recogniser = (usage) => {
  const input = count(usage.prompt_tokens);
  if (input === undefined) return undefined;
  const cache = inner(usage.prompt_tokens_details);
  const said = count(usage.completion_tokens);
  const reasoning = first(inner(usage.completion_tokens_details).reasoning_tokens, usage.reasoning_tokens);
  const beside = reasoning !== undefined && reasoning > 0 && count(usage.total_tokens) === sum(input, said, reasoning);
  return single(input, beside ? sum(said, reasoning) : said, {
    cacheRead: first(cache.cached_tokens, usage.prompt_cache_hit_tokens, usage.cached_tokens),
    cacheWrite: count(cache.cache_write_tokens),
    reasoning,
  });
};

/**
 * Gemini: cached content is inside the prompt, thoughts stand beside the candidates. Prompts of tools that Gemini ran
 * itself are billed as input and are gone afterwards.
 */
const google: Recogniser = (usage) => {
  const input = count(usage.promptTokenCount);
  if (input === undefined) return onlyTotal({ totalTokens: usage.totalTokenCount });
  const thoughts = count(usage.thoughtsTokenCount);
  return single(input, sum(count(usage.candidatesTokenCount), thoughts), {
    cacheRead: count(usage.cachedContentTokenCount),
    reasoning: thoughts,
    billedInput: sum(input, count(usage.toolUsePromptTokenCount)),
  });
};

/** Gemini's Interactions API: thoughts stand beside the output. */
const googleInteractions: Recogniser = (usage) => {
  const input = count(usage.total_input_tokens);
  if (input === undefined) return undefined;
  const thoughts = count(usage.total_thought_tokens);
  return single(input, sum(count(usage.total_output_tokens), thoughts), {
    cacheRead: count(usage.total_cached_tokens),
    reasoning: thoughts,
  });
};

/** Cohere: `tokens` is what the model read and wrote, `billed_units` what is paid, without the chat template. */
const cohere: Recogniser = (usage) => {
  const tokens = inner(usage.tokens);
  const input = count(tokens.input_tokens);
  if (input === undefined) return undefined;
  return single(input, count(tokens.output_tokens), {
    cacheRead: count(usage.cached_tokens),
    billedInput: first(inner(usage.billed_units).input_tokens, input),
  });
};

/** Ollama's own API. */
const ollama: Recogniser = (usage) => {
  const input = count(usage.prompt_eval_count);
  return input === undefined ? undefined : single(input, count(usage.eval_count));
};

/** pi, opencode and others that store four disjoint figures. */
const disjoint: Recogniser = (usage) => {
  const input = count(usage.input);
  if (input === undefined) return undefined;
  const cache = inner(usage.cache);
  const cacheRead = first(usage.cacheRead, cache.read);
  const cacheWrite = first(usage.cacheWrite, cache.write);
  const reasoning = count(usage.reasoning);
  return single(sum(input, cacheRead, cacheWrite), count(usage.output), { cacheRead, cacheWrite, reasoning });
};

/** A total and nothing else: good enough to know how full the context is. */
const onlyTotal: Recogniser = (usage) => {
  const total = first(usage.totalTokens, usage.total_tokens);
  return total ? { total } : undefined;
};

/** First match wins: an object of one provider is never read by another's rule. */
const RECOGNISERS: readonly Recogniser[] = [
  aiSdk,
  bedrock,
  openAiResponses,
  anthropic,
  openAiChat,
  google,
  googleInteractions,
  cohere,
  ollama,
  olderAiSdk,
  disjoint,
  onlyTotal,
];

/** Reads an object by the first shape it has; `undefined` when it has none. Absent figures are left out. */
export function recognise(usage: Raw): ReportedUsage | undefined {
  for (const recogniser of RECOGNISERS) {
    const reported = recogniser(usage);
    if (reported) return Object.fromEntries(Object.entries(reported).filter(([, tokens]) => tokens !== undefined));
  }
  return undefined;
}
