/**
 * Whether a provider refused a call because the prompt is too long.
 *
 * There is no common code for it: every provider has words of its own, and some say it in the middle of a stream. The
 * same words (too large, too many tokens, limit) tell of rate limits and of the answer's length, where a shorter prompt
 * helps nobody, so those are ruled out first, whatever else is said.
 */
import { JSONParseError, RetryError, TypeValidationError } from "ai";

/** What a prompt that is too long is called, by who says so. */
const WORDINGS: Readonly<Record<string, RegExp>> = {
  "Anthropic, Fireworks, Ollama's cloud, mirror": /prompt (?:is )?too long/i,
  "Anthropic, with the answer's length": /input length and `?max_tokens`? exceed/i,
  "Bedrock, Databricks": /\binput is too long\b|too many total text bytes|number of input tokens exceeds/i,
  "OpenAI, Azure, Groq, Cerebras, OpenRouter, Mistral, DeepSeek, vLLM, SGLang":
    /context[_ ]length[_ ]exceeded|maximum context length/i,
  "OpenAI Responses": /exceeds? (?:the|this model'?s|the model'?s) context window/i,
  "OpenAI, by tokens or messages":
    /input tokens exceed the configured limit|invalid '(?:messages|input)': \w+ too long/i,
  Gemini: /input token count\b.{0,40}\bexceeds the maximum|request payload size exceeds/i,
  Vertex: /input token count is [\d,]+ but (?:the )?model only supports/i,
  xAI: /maximum prompt length is|sent message larger than max/i,
  "Groq, Cerebras": /reduce the length of (?:the|your) (?:messages|input|prompt)/i,
  Together: /longer than the model'?s context length|input token count \+ max_tokens/i,
  "text-generation-inference": /`inputs` tokens \+ `max_new_tokens` must be|`inputs` must have less than/i,
  "OpenRouter, SGLang": /input length\b.{0,40}\bexceeds (?:the )?maximum allowed/i,
  vLLM: /longer than the maximum model length|too long to fit into the model|model'?s context length is only/i,
  "vLLM, where no room is left for an answer": /max_tokens must be at least 1, got -/i,
  "llama.cpp": /exceeds the available context size|exceed_context_size_error|context size has been exceeded/i,
  "LM Studio": /greater than the context length|context length of only|reached context length of/i,
  Ollama: /input length exceeds the context length|prompt is longer than the context length/i,
  Cohere: /too many tokens: (?:total number of tokens|.{0,50}size limit exceeded)/i,
  MiniMax: /context window exceeds limit/i,
  Kimi: /exceeded model token limit|token length too long/i,
  "Workers AI": /exceeded this model context window limit/i,
  "GitHub Copilot": /prompt token count of [\d,]+ exceeds|model_max_prompt_tokens_exceeded/i,
  "GitHub Models": /tokens_limit_reached|request body too large for/i,
  "Z.ai": /context_window_exceeded|prompt exceeds max(?:imum)? length/i,
  Qwen: /range of input length should be/i,
  ds4: /configured context size is|exceeds context size \(/i,
  "any server, by the size of the body":
    /^413$|^413 status code|(?:request|entity|payload|content)[ _]too[ _]large|request exceeds the maximum/i,
};

/** Words of limits over time and of money. They hold whatever stands beside them. */
const RATE_LIMITS: readonly RegExp[] = [
  /^(?:402|429|529)$/,
  /\brate[ _-]?limit|too[ _]many[ _]requests|\bquota|throttl|overloaded|resource[ _]?exhausted/i,
  /\btokens?(?: per |\/)(?:sec|min|hour|day|month)|\b[TR]P[SMHD]\b|\b(?:daily|monthly)\b.{0,20}\blimit/i,
  /please (?:wait|slow down)|(?:try again|retry) (?:in|after) \d/i,
  /\bcredits?\b|\bbilling\b|insufficient[ _]balance/i,
];

/** A complaint about the length of the answer that was asked for. */
const ANSWER_TOO_LONG =
  /max_\w*tokens\W{0,3}(?:or \W?max_\w*tokens\W )?(?:is too large|exceeds|must be less)|at most [\d,]+ (?:completion|output)/i;
const PROMPT = /\b(?:input|prompt|messages)\b/i;
/** vLLM's reckoning: tokens asked for, tokens of the window, tokens of the prompt. */
const ROOM_FOR_ANSWER = /\((\d+) > (\d+) - \d+\)/;

/** Reads any error a call can end with. Never true of a rate limit, whatever its words. */
export function isContextOverflow(error: unknown): boolean {
  const said = saidBy(error, new Set());
  if (said.some((text) => RATE_LIMITS.some((limit) => limit.test(text)) || isOnlyAboutAnswer(text))) return false;
  return said.some((text) => Object.values(WORDINGS).some((wording) => wording.test(text)));
}

/** Whether the answer asked for is too long for any prompt. */
function isOnlyAboutAnswer(text: string): boolean {
  const [, asked, window] = ROOM_FOR_ANSWER.exec(text) ?? [];
  if (asked !== undefined) return Number(asked) > Number(window);
  return ANSWER_TOO_LONG.test(text) && !PROMPT.test(text);
}

/** Where errors and their bodies keep what they say. Nothing else is read, since some bodies quote the prompt. */
const SPOKEN_FIELDS = [
  ...["message", "msg", "detail", "title", "raw", "responseBody"],
  ...["name", "code", "type", "error_type", "status", "statusCode", "status_code"],
  ...["error", "errors", "data", "response", "metadata", "cause"],
];

/** UTF-16 code units of one text that are read. */
const READ_LENGTH = 4_000;

/** Every text, code and status of an error, of what it wraps and of the body it came with. */
function saidBy(value: unknown, seen: Set<unknown>): string[] {
  if (typeof value === "number") return [String(value)];
  if (typeof value === "string") return saidByText(value, seen);
  if (typeof value !== "object" || value === null || seen.has(value)) return [];
  seen.add(value);
  if (Array.isArray(value)) return value.flatMap((item) => saidBy(item, seen));
  // The tries before the last one failed for reasons of their own.
  if (RetryError.isInstance(value)) return saidBy(value.lastError, seen);
  // The messages of these two quote a chunk, which may be part of an answer.
  if (JSONParseError.isInstance(value)) return [];
  if (TypeValidationError.isInstance(value)) return saidBy(value.value, seen);
  return SPOKEN_FIELDS.flatMap((field) => saidBy((value as Record<string, unknown>)[field], seen));
}

/** Bodies are JSON in a string, and so are the errors that gateways pass on. */
function saidByText(text: string, seen: Set<unknown>): string[] {
  const parsed = /^\s*[[{]/.test(text) ? parsedOf(text) : undefined;
  return parsed === undefined ? [text.slice(0, READ_LENGTH)] : saidBy(parsed, seen);
}

function parsedOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
