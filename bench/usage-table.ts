/**
 * What each of the 77 recorded usage objects says, written by hand after the providers' documentation and reviewed row
 * by row. The objects themselves stay in the corpus: a row is found by its place there, its host, and a hash of its field
 * names (`shapeOf`), so that a corpus that changes is noticed and not silently compared.
 *
 * A `null` means that the provider did not say, which is not 0.
 */

import { normaliseUsage } from "../src/context/usage.ts";

/** Why the figures of a row are what they are. */
export const REASONS = {
  chat: "OpenAI Chat Completions: prompt_tokens is all that was read, completion_tokens all that was put out; no details were given.",
  chatDetails:
    "OpenAI Chat Completions: cached_tokens is a part of prompt_tokens and not added; reasoning_tokens a part of completion_tokens.",
  chatReasoning:
    "OpenAI Chat Completions: total = prompt + completion, so reasoning_tokens stands inside completion_tokens.",
  chatCacheWrite:
    "OpenRouter: cached_tokens and cache_write_tokens are both parts of prompt_tokens (3,211 + 115 + 3 fresh = 3,329).",
  openRouterTools:
    "OpenRouter ran a search itself and put its results into the prompt: the model read them, and they are billed with it.",
  deepseek: "DeepSeek: prompt_tokens = cache hits + misses; the hit count repeats cached_tokens.",
  together: "Together through Hugging Face: cached_tokens at the top level, a part of prompt_tokens.",
  responses:
    "OpenAI Responses: input_tokens contains cached and cache-written tokens, output_tokens contains reasoning.",
  xai: "xAI Responses: as OpenAI's; context_details repeats the figures because there was one pass.",
  xaiTools:
    "xAI ran two searches inside the call: input_tokens is the bill of all passes, context_details what stood in the window in the last (4,860 + 269).",
  anthropic:
    "Anthropic Messages: input_tokens excludes the cache; read and written are 0, so the context is input_tokens.",
  anthropicCached:
    "Anthropic Messages: input_tokens + cache_read_input_tokens + cache_creation_input_tokens is what the model read, each once; all three are billed.",
  anthropicPasses:
    "Anthropic with iterations: the last message pass is the context; the top level is the bill of all its passes; an advisor is another model's bill.",
  anthropicServerTools:
    "Anthropic ran two searches and gave no iterations: the passes cannot be told apart, so input_tokens stands as given.",
  bedrock: "Bedrock Converse: inputTokens excludes the cache; none was used (total = input + output).",
  bedrockCached:
    "Bedrock Converse: total 7,365 = 10 input + 7,351 written + 0 read + 4 output; the fields ending in Count repeat the others.",
  cohere:
    "Cohere v2: tokens is what the model read and wrote with its template, billed_units.input_tokens what is paid; cached_tokens is a part of tokens.",
  google: "Gemini: promptTokenCount is all that was sent; without candidates nothing was put out.",
  googleThoughts:
    "Gemini: thoughtsTokenCount stands beside candidatesTokenCount (total = prompt + candidates + thoughts), and both are output.",
  googleCached: "Gemini: cachedContentTokenCount is a part of promptTokenCount; thoughts stand beside the candidates.",
  googleTools:
    "Gemini: toolUsePromptTokenCount is what its own tools fed back within the call: billed as input, gone afterwards, no part of the next prompt.",
  count:
    "The answer of a counting endpoint, abbreviated in the recording: no model was called, so nothing was read, put out or billed. Not reported.",
} as const;

type Figure = number | null;
export type ExpectedUsage = readonly [
  index: number,
  host: string,
  shape: string,
  contextInput: Figure,
  contextOutput: Figure,
  cacheRead: Figure,
  cacheWrite: Figure,
  output: Figure,
  reasoning: Figure,
  billedInput: Figure,
  reason: keyof typeof REASONS,
];

/** Order of the figures in a row. */
export const FIGURES = [
  "contextInput",
  "contextOutput",
  "cacheRead",
  "cacheWrite",
  "output",
  "reasoning",
  "billedInput",
] as const;

// prettier-ignore
export const EXPECTED_USAGE: readonly ExpectedUsage[] = [
  [0, "GPUSTACK_API_BASE", "01c99fe5", 15, 204, 2, null, 204, 137, 15, "chatReasoning"],
  [1, "OLLAMA_API_BASE", "aa33cf48", 20, 421, null, null, 421, null, 20, "chat"],
  [2, "aiplatform.googleapis.com", "d540d60e", 13, 8, null, null, 8, null, 13, "google"],
  [3, "aiplatform.googleapis.com", "92acce65", null, null, null, null, null, null, null, "count"],
  [4, "aiplatform.googleapis.com", "0eb06caf", 9613, 72, 9602, null, 72, 39, 9613, "googleCached"],
  [5, "aiplatform.googleapis.com", "a308d626", 9, 248, null, null, 248, 221, 70, "googleTools"],
  [6, "api.anthropic.com", "d6ce51ea", 781, 74, 0, 0, 74, null, 781, "anthropic"],
  [7, "api.anthropic.com", "1867a0ff", 1592, 4, 1590, 0, 4, 0, 1592, "anthropicCached"],
  [8, "api.anthropic.com", "92acce65", null, null, null, null, null, null, null, "count"],
  [9, "api.anthropic.com", "22bb27a8", 22397, 637, 0, 0, 637, null, 22397, "anthropicServerTools"],
  [10, "api.anthropic.com", "4d3423b7", 14640, 290, 14210, 426, 290, 15, 14640, "anthropicCached"],
  [11, "api.anthropic.com", "bf6d57f8", 1262, 11, 0, 0, 121, 28, 2390, "anthropicPasses"],
  [12, "api.anthropic.com", "933a37d9", 32, 5, 0, 0, 5, null, 32, "anthropic"],
  [13, "api.anthropic.com", "fb9dde3a", 1311, 16, 0, 0, 16, 0, 1311, "anthropicPasses"],
  [14, "api.cerebras.ai", "0a60a4e5", 80, 45, 0, null, 45, 34, 80, "chatReasoning"],
  [15, "api.cerebras.ai", "919f83cd", 42, 8, 0, null, 8, null, 42, "chatDetails"],
  [16, "api.cohere.com", "12c8e1d2", 524, 410, 448, null, 410, null, 21, "cohere"],
  [17, "api.cohere.com", "9a673135", 91, 11, null, null, 11, null, 25, "cohere"],
  [18, "api.deepseek.com", "5dcdf014", 44, 9, 0, null, 9, null, 44, "deepseek"],
  [19, "api.deepseek.com", "df216ea8", 200, 16, 128, null, 16, 14, 200, "responses"],
  [20, "api.groq.com", "ac667deb", 35, 25, null, null, 25, null, 35, "chat"],
  [21, "api.groq.com", "6eb877c8", 84, 58, null, null, 58, 48, 84, "chatReasoning"],
  [22, "api.inference.crusoecloud.com", "ddada5e7", 214, 54, 64, null, 54, 20, 214, "chatReasoning"],
  [23, "api.inference.crusoecloud.com", "919f83cd", 46, 14, 0, null, 14, null, 46, "chatDetails"],
  [24, "api.mistral.ai", "b1c786d5", 93, 29, 16, null, 29, null, 93, "chatDetails"],
  [25, "api.mistral.ai", "919f83cd", 268, 5, 224, null, 5, null, 268, "chatDetails"],
  [26, "api.openai.com", "6eee25c1", 48, 14, 0, null, 14, 0, 48, "chatDetails"],
  [27, "api.openai.com", "df216ea8", 2087, 124, 2048, null, 124, 0, 2087, "responses"],
  [28, "api.openai.com", "92acce65", null, null, null, null, null, null, null, "count"],
  [29, "api.openai.com", "edef8ab2", 4020, 4, 4012, 0, 4, 0, 4020, "chatDetails"],
  [30, "api.x.ai", "dab96961", 504, 1170, 192, null, 1170, 1109, 504, "xai"],
  [31, "api.x.ai", "4eefd6a9", 4860, 269, 2048, null, 364, 263, 5913, "xaiTools"],
  [32, "bedrock-mantle.AWS_REGION.api.aws", "df216ea8", 73, 27, 0, null, 27, 17, 73, "responses"],
  [33, "bedrock-mantle.us-east-1.api.aws", "6b917e7f", 158, 32, 0, 43, 32, 10, 158, "responses"],
  [34, "bedrock-mantle.us-east-1.api.aws", "aa33cf48", 72, 56, null, null, 56, null, 72, "chat"],
  [35, "bedrock-runtime.AWS_REGION.amazonaws.com", "ac4ec04c", 53, 39, null, null, 39, null, 53, "bedrock"],
  [36, "bedrock-runtime.AWS_REGION.amazonaws.com", "7d4e2a82", 7361, 4, 0, 7351, 4, null, 7361, "bedrockCached"],
  [37, "bedrock-runtime.eu-central-1.amazonaws.com", "a54bdad6", 11470, 44, 9511, 1956, 44, null, 11470, "anthropicCached"],
  [38, "bedrock-runtime.us-east-1.amazonaws.com", "ac4ec04c", 27, 34, null, null, 34, null, 27, "bedrock"],
  [39, "bedrock-runtime.us-east-1.amazonaws.com", "ac4ec04c", 25, 4, null, null, 4, null, 25, "bedrock"],
  [40, "bedrock-runtime.us-east-1.amazonaws.com", "c92644f6", 68, 508, 0, 0, 508, 0, 68, "anthropic"],
  [41, "bedrock-runtime.us-east-2.amazonaws.com", "ac4ec04c", 15, 86, null, null, 86, null, 15, "bedrock"],
  [42, "europe-west4-aiplatform.googleapis.com", "35d9fba6", 19, 33, null, null, 33, 27, 19, "googleThoughts"],
  [43, "generativelanguage.googleapis.com", "b964f93e", 23, 183, null, null, 183, 158, 23, "googleThoughts"],
  [44, "generativelanguage.googleapis.com", "bb7d041f", 25, 8, null, null, 8, null, 25, "google"],
  [45, "generativelanguage.googleapis.com", "e6c1fd17", 14, 1, null, null, 1, null, 14, "google"],
  [46, "generativelanguage.googleapis.com", "efae281f", 95, 198, null, null, 198, 132, 534, "googleTools"],
  [47, "generativelanguage.googleapis.com", "19988604", 8, 8, null, null, 8, null, 8, "google"],
  [48, "generativelanguage.googleapis.com", "49d74a1f", 9622, 171, 9609, null, 171, 136, 9622, "googleCached"],
  [49, "generativelanguage.googleapis.com", "92acce65", null, null, null, null, null, null, null, "count"],
  [50, "generativelanguage.googleapis.com", "2232b611", 432, 18, null, null, 18, 18, 510, "googleTools"],
  [51, "generativelanguage.googleapis.com", "99d137fe", 417, 71, null, null, 71, 71, 417, "googleThoughts"],
  [52, "generativelanguage.googleapis.com", "2c9f6c9f", 15, 2, null, null, 2, 2, 15, "googleThoughts"],
  [53, "generativelanguage.googleapis.com", "d7f49144", 14, 0, null, null, 0, null, 14, "google"],
  [54, "generativelanguage.googleapis.com", "097e18d8", 11, 111, null, null, 111, null, 11, "google"],
  [55, "localhost:11434", "aa33cf48", 136, 15, null, null, 15, null, 136, "chat"],
  [56, "localhost:8787", "e8815406", 7, 78, null, null, 78, null, 7, "bedrock"],
  [57, "localhost:8787", "e8f72d74", 7, 61, null, null, 61, 53, 7, "googleThoughts"],
  [58, "localhost:8787", "336c4c63", 13, 11, 0, null, 11, 0, 13, "chatDetails"],
  [59, "localhost:8787", "0b6dd6b6", 13, 8, 0, null, 8, 0, 13, "responses"],
  [60, "ollama.com", "aa33cf48", 172, 88, null, null, 88, null, 172, "chat"],
  [61, "openrouter.ai", "2bd617c0", 3329, 53, 3211, 115, 53, 0, 3329, "chatCacheWrite"],
  [62, "openrouter.ai", "0e3f3e42", 23, 48, 0, null, 48, 0, 23, "chatDetails"],
  [63, "openrouter.ai", "ec916a5f", 8, 15, null, null, 15, 0, 8, "chatDetails"],
  [64, "openrouter.ai", "ed6889f1", 900, 69, 0, 0, 69, 0, 900, "openRouterTools"],
  [65, "openrouter.ai", "0e3f3e42", 326, 91, 0, null, 91, 0, 326, "chatDetails"],
  [66, "openrouter.ai", "46e0cc11", 8174, 30, 0, 0, 30, 0, 8174, "openRouterTools"],
  [67, "openrouter.ai", "07c4e2af", 687, 240, 682, null, 240, 165, 687, "chatReasoning"],
  [68, "openrouter.ai", "710cd679", 4020, 5, 4012, null, 5, 0, 4020, "responses"],
  [69, "openrouter.ai", "710cd679", 78, 37, 0, null, 37, 22, 78, "responses"],
  [70, "openrouter.ai", "8726bdb0", 31, 21, 0, null, 21, 0, 31, "chatDetails"],
  [71, "pydantic-ai-realtime-dev.openai.azure.com", "df216ea8", 18, 5, 0, null, 5, 0, 18, "responses"],
  [72, "router.huggingface.co", "ca67930b", 16, 216, 0, null, 216, null, 16, "together"],
  [73, "router.huggingface.co", "aa33cf48", 40, 2, null, null, 2, null, 40, "chat"],
  [74, "rubyllm.services.ai.azure.com", "6b917e7f", 18, 129, 0, 0, 129, 64, 18, "responses"],
  [75, "rubyllm.services.ai.azure.com", "6f7783db", 14, 139, 0, null, 139, 128, 14, "chatReasoning"],
  [76, "us.inference.heroku.com", "aa33cf48", 14, 51, null, null, 51, null, 14, "chat"],
];

/** A hash of an object's field names at every depth, in any order. */
export function shapeOf(usage: unknown): string {
  const names = fieldsOf(usage, "").toSorted().join(" ");
  let hash = 2_166_136_261;
  for (let i = 0; i < names.length; i++) hash = Math.imul(hash ^ names.charCodeAt(i), 16_777_619);
  return (hash >>> 0).toString(16).padStart(8, "0");
}

function fieldsOf(value: unknown, path: string): string[] {
  if (value === null || typeof value !== "object") return [path];
  if (Array.isArray(value)) return value.length > 0 ? fieldsOf(value[0], `${path}[]`) : [`${path}[]`];
  return Object.entries(value).flatMap(([name, inner]) => fieldsOf(inner, path === "" ? name : `${path}.${name}`));
}

export interface RecordedShape {
  host: string;
  usage: unknown;
}

export interface UsageCheck {
  total: number;
  right: number;
  /** what is wrong, a line each */
  faults: string[];
}

export function compareShapes(shapes: RecordedShape[]): UsageCheck {
  const faults: string[] = [];
  let right = 0;
  for (const [index, { host, usage }] of shapes.entries()) {
    const wrong = faultOf(index, usage);
    if (wrong === undefined) right++;
    else faults.push(`shape ${index} (${host}): ${wrong}`);
  }
  return { total: shapes.length, right, faults };
}

function faultOf(index: number, usage: unknown): string | undefined {
  const expected = EXPECTED_USAGE.find((row) => row[0] === index);
  if (!expected) return "no expected values";
  if (expected[2] !== shapeOf(usage)) return `the table is for shape ${expected[2]}, this is ${shapeOf(usage)}`;
  const reported = normaliseUsage(usage);
  const wrong = FIGURES.filter((figure, i) => (reported[figure] ?? null) !== expected[3 + i]);
  return wrong.length === 0 ? undefined : wrong.map((figure) => `${figure} is ${reported[figure]}`).join(", ");
}
