/**
 * Counters: an authority over the whole prompt that stands above reported usage.
 *
 * A counter sees the whole prompt and is called once per decision, never per message: that is what lets one that ignores
 * its arguments and returns the last usage be legal. Its total is the number; ledger sizes are scaled to it, so that the
 * cut stays where it was.
 */
import type { ModelMessage } from "ai";
import { clampRatio } from "./calibration.ts";
import type { ToolDescription } from "./estimator.ts";
import type { KnownTokens } from "./known.ts";

/** What would be sent if the model were called now. */
export interface CountedPrompt {
  messages: ModelMessage[];
  system: string;
  tools: ToolDescription[];
}

/** Tokens of the whole prompt, by whatever means. May be slow; may throw. */
export type TokenCounter = (prompt: CountedPrompt) => number | Promise<number>;

/** The number after a counter was asked. `failure` says why it was not used, in words for the log. */
export interface Counted {
  known: KnownTokens;
  failure?: string;
}

/**
 * Asks a counter once. Its total replaces the number unless it throws or returns something that is no size of a prompt:
 * then the number stays what reports and estimates made it.
 */
export async function countKnown(counter: TokenCounter, prompt: CountedPrompt, known: KnownTokens): Promise<Counted> {
  try {
    const tokens = await counter(prompt);
    if (!Number.isFinite(tokens) || tokens <= 0) return { known, failure: `the token counter returned ${tokens}` };
    return { known: scaleTo(Math.round(tokens), known) };
  } catch (error) {
    return { known, failure: `the token counter failed: ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** The number as a counter gives it, with ledger sizes scaled by (counter − overhead) / (ledger − overhead). */
function scaleTo(tokens: number, known: KnownTokens): KnownTokens {
  const content = known.tokens - known.overhead;
  const scale = content > 0 ? clampRatio((tokens - known.overhead) / content) : 1;
  return { ...known, tokens, basis: "counter", fresh: known.fresh * scale, scale };
}

/** Where and how a counting service is reached. */
export interface CountingService {
  /** the provider's own name of the model */
  model: string;
  apiKey: string;
  /** without a slash at the end */
  baseUrl?: string;
  fetch?: typeof fetch;
  /** ms after which the next source serves; 5,000 unless told */
  timeout?: number;
}

/** Anthropic's `POST /v1/messages/count_tokens`: exact, free, one request per decision. */
export function anthropicCounter({
  model,
  apiKey,
  baseUrl = "https://api.anthropic.com/v1",
  ...service
}: CountingService): TokenCounter {
  return async ({ messages, system, tools }) => {
    const body = {
      model,
      ...(system && { system }),
      messages: messages.filter(({ role }) => role !== "system").map(anthropicMessage),
      ...(tools.length > 0 && {
        tools: tools.map(({ name, description, inputSchema }) => ({ name, description, input_schema: inputSchema })),
      }),
    };
    const headers = { "x-api-key": apiKey, "anthropic-version": "2023-06-01" };
    const { input_tokens } = await post(`${baseUrl}/messages/count_tokens`, headers, body, service);
    return Number(input_tokens);
  };
}

/** Gemini's `models.countTokens`: exact for contents, system instruction and tools, one request per decision. */
export function geminiCounter({
  model,
  apiKey,
  baseUrl = "https://generativelanguage.googleapis.com/v1beta",
  ...service
}: CountingService): TokenCounter {
  return async ({ messages, system, tools }) => {
    const generateContentRequest = {
      model: `models/${model}`,
      ...(system && { systemInstruction: { parts: [{ text: system }] } }),
      contents: messages.filter(({ role }) => role !== "system").map(geminiContent),
      ...(tools.length > 0 && {
        tools: [
          {
            functionDeclarations: tools.map(({ name, description, inputSchema }) => ({
              name,
              description,
              parametersJsonSchema: inputSchema,
            })),
          },
        ],
      }),
    };
    const { totalTokens } = await post(
      `${baseUrl}/models/${model}:countTokens`,
      { "x-goog-api-key": apiKey },
      { generateContentRequest },
      service,
    );
    return Number(totalTokens);
  };
}

/** A vocabulary on this machine, such as `gpt-tokenizer/encoding/o200k_base`. */
export interface Tokenizer {
  countTokens(text: string): number;
}

/**
 * A local tokenizer, loaded when it is first asked: `tokenizerCounter(() => import("gpt-tokenizer/encoding/o200k_base"))`.
 * Nothing of it is in a bundle that does not write this line. It reads the whole prompt at every decision.
 */
export function tokenizerCounter(load: () => Promise<Tokenizer>): TokenCounter {
  let loaded: Promise<Tokenizer> | undefined;
  return async ({ messages, system, tools }) => {
    loaded ??= load();
    const { countTokens } = await loaded;
    const texts = [system, ...tools.map((tool) => JSON.stringify(tool)), ...messages.flatMap(textsOf)];
    return texts.reduce((sum, text) => sum + countTokens(text), 0) + messages.length * FRAME_TOKENS;
  };
}

/** Tokens around a message in OpenAI's chat format. */
const FRAME_TOKENS = 4;

async function post(
  url: string,
  headers: Record<string, string>,
  body: unknown,
  { fetch: send = fetch, timeout = 5_000 }: Pick<CountingService, "fetch" | "timeout">,
): Promise<Record<string, unknown>> {
  const response = await send(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(timeout),
  });
  if (!response.ok) throw new Error(`counting answered ${response.status}`);
  return (await response.json()) as Record<string, unknown>;
}

type MessagePart = Exclude<ModelMessage["content"], string>[number];

function partsOf({ content }: ModelMessage): MessagePart[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}

/** What a part says as text; media and provider-specific parts say nothing here. */
function textOf(part: MessagePart): string {
  if (part.type === "text" || part.type === "reasoning") return part.text;
  if (part.type === "tool-call") return part.toolName + JSON.stringify(part.input ?? {});
  return part.type === "tool-result" ? outputText(part.output) : "";
}

function outputText(output: Extract<MessagePart, { type: "tool-result" }>["output"]): string {
  if (output.type === "execution-denied") return output.reason ?? "Tool call execution denied.";
  return typeof output.value === "string" ? output.value : JSON.stringify(output.value);
}

/** An image or document of a message: its base64 or its address; `undefined` for parts that are neither. */
function mediaOf(part: MessagePart): { mediaType: string; data?: string; url?: string } | undefined {
  if (part.type !== "file" && part.type !== "image") return undefined;
  const held: unknown = part.type === "file" ? part.data : part.image;
  const tagged = held as { data?: unknown; url?: unknown };
  const inner =
    typeof held === "object" && held !== null && !(held instanceof URL) ? (tagged.url ?? tagged.data ?? held) : held;
  const mediaType = part.mediaType ?? "image/png";
  const text = inner instanceof URL ? inner.href : inner;
  if (typeof text !== "string") return undefined;
  if (!/^(https?|data):/.test(text)) return { mediaType, data: text };
  return text.startsWith("data:") ? { mediaType, data: text.slice(text.indexOf(",") + 1) } : { mediaType, url: text };
}

function textsOf(message: ModelMessage): string[] {
  return partsOf(message).map(textOf);
}

function anthropicMessage(message: ModelMessage): object {
  const content = partsOf(message).flatMap((part): object[] => {
    if (part.type === "tool-call")
      return [{ type: "tool_use", id: part.toolCallId, name: part.toolName, input: part.input ?? {} }];
    if (part.type === "tool-result")
      return [{ type: "tool_result", tool_use_id: part.toolCallId, content: outputText(part.output) }];
    const media = mediaOf(part);
    if (media)
      return [{ type: media.mediaType.startsWith("image") ? "image" : "document", source: anthropicSource(media) }];
    const text = textOf(part);
    return text ? [{ type: "text", text }] : [];
  });
  return { role: message.role === "assistant" ? "assistant" : "user", content };
}

function anthropicSource({ mediaType, data, url }: { mediaType: string; data?: string; url?: string }): object {
  return url ? { type: "url", url } : { type: "base64", media_type: mediaType, data };
}

function geminiContent(message: ModelMessage): object {
  const parts = partsOf(message).flatMap((part): object[] => {
    if (part.type === "tool-call") return [{ functionCall: { name: part.toolName, args: part.input ?? {} } }];
    if (part.type === "tool-result")
      return [{ functionResponse: { name: part.toolName, response: { result: outputText(part.output) } } }];
    const media = mediaOf(part);
    if (media)
      return [
        media.url
          ? { fileData: { fileUri: media.url, mimeType: media.mediaType } }
          : { inlineData: { data: media.data, mimeType: media.mediaType } },
      ];
    const text = textOf(part);
    return text ? [{ text }] : [];
  });
  return { role: message.role === "assistant" ? "model" : "user", parts };
}
