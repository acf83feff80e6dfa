/**
 * `mirror`: a model that runs here, costs nothing and says what it was shown. For development and tests.
 *
 * It is deterministic: a fresh instance answers the same calls in the same way. It has tokens of its own (`mirror-tokenizer.ts`),
 * reports what a call really cost in them, prompt cache included, holds to its limits as a provider would, and
 * can be told to call tools, think, dawdle or fail by commands in the user's message (`mirror-script.ts`). All
 * state belongs to the instance and is gone with it.
 */
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4Content,
  LanguageModelV4FinishReason,
  LanguageModelV4GenerateResult,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
} from "@ai-sdk/provider";
import { APICallError } from "ai";
import { fingerprint, PromptCache } from "./mirror-cache.ts";
import { countToolCall, measureMirrorPrompt } from "./mirror-prompt.ts";
import { planReply, type Reply } from "./mirror-reply.ts";
import { countMirrorTokens } from "./mirror-tokenizer.ts";
import { garbageUsage, reportUsage, unreportedUsage, type Spent } from "./mirror-usage.ts";

/** Resolves after that many ms; rejects with the signal's reason as soon as it aborts. */
export type Sleep = (ms: number, signal: AbortSignal) => Promise<void>;

export interface MirrorOptions {
  /** ms before each word where the prompt does not say; default 0 */
  wordDelayMs?: number;
  /** default: a timer */
  sleep?: Sleep;
  /** tokens; a larger prompt is refused as a provider refuses it, with status 400; default: no limit */
  contextWindow?: number;
  /** tokens of one answer, reasoning included; a longer text is cut and finishes with `length`; default: no limit */
  maxOutputTokens?: number;
}

/** A new `mirror` with an empty prompt cache. */
export function createMirror(options: MirrorOptions = {}): LanguageModelV4 {
  return new Mirror(options);
}

class Mirror implements LanguageModelV4 {
  readonly specificationVersion = "v4";
  readonly provider = "mirror";
  readonly modelId = "mirror";
  readonly supportedUrls = {};
  readonly #options: MirrorOptions;
  readonly #cache = new PromptCache();
  #calls = 0;

  constructor(options: MirrorOptions) {
    this.#options = options;
  }

  async doStream(call: LanguageModelV4CallOptions) {
    const stopped = new AbortController();
    const signal = call.abortSignal ? AbortSignal.any([call.abortSignal, stopped.signal]) : stopped.signal;
    return { stream: streamOf(this.#answer(call, signal), stopped) };
  }

  async doGenerate(call: LanguageModelV4CallOptions): Promise<LanguageModelV4GenerateResult> {
    return collect(this.#answer(call, call.abortSignal ?? new AbortController().signal));
  }

  /** Throws what a provider would refuse with; what goes wrong later goes wrong in the parts. */
  #answer(call: LanguageModelV4CallOptions, signal: AbortSignal): AsyncGenerator<LanguageModelV4StreamPart> {
    signal.throwIfAborted();
    const tools = call.toolChoice?.type === "none" ? [] : call.tools;
    const size = measureMirrorPrompt(call.prompt, call.tools);
    const { contextWindow, maxOutputTokens = Infinity, sleep = timer } = this.#options;
    if (contextWindow && size.total > contextWindow) throw tooLong(size.total, contextWindow);
    const serial = (this.#calls += 1);
    const reply = planReply(call.prompt, tools, serial);
    if (reply.fail === "before") throw new Error("mirror failed before the stream, as it was told to.");
    const known = this.#cache.read(call.prompt, call.tools);
    const cached = known > 0 ? size.messages.slice(0, known).reduce((sum, tokens) => sum + tokens, size.overhead) : 0;
    const limit = Math.min(maxOutputTokens, call.maxOutputTokens ?? Infinity);
    const delay = reply.wordDelayMs ?? this.#options.wordDelayMs ?? 0;
    const pace = async () => (delay > 0 ? sleep(delay, signal) : signal.throwIfAborted());
    return speak({ reply: shorten(reply, limit), id: `mirror-${serial}`, input: size.total, cached, pace, signal });
  }
}

interface Speech {
  reply: ShortReply;
  /** of the response */
  id: string;
  /** tokens read, and how many of them the cache held */
  input: number;
  cached: number;
  pace: () => Promise<void>;
  signal: AbortSignal;
}

async function* speak({ reply, id, input, cached, pace, signal }: Speech): AsyncGenerator<LanguageModelV4StreamPart> {
  yield { type: "stream-start", warnings: [] };
  yield { type: "response-metadata", id, modelId: "mirror" };
  if (reply.reasoning !== undefined) yield* think(reply.reasoning, pace);
  yield* write(reply, pace, signal);
  for (const { toolCallId, toolName, input: json } of reply.calls) {
    yield { type: "tool-input-start", id: toolCallId, toolName };
    yield { type: "tool-input-delta", id: toolCallId, delta: json };
    yield { type: "tool-input-end", id: toolCallId };
    yield { type: "tool-call", toolCallId, toolName, input: json };
  }
  if (reply.fail === "after") {
    yield { type: "error", error: new Error("mirror failed before the end, as it was told to.") };
    return;
  }
  yield { type: "finish", finishReason: finishReasonOf(reply), usage: usageOf(reply, input, cached) };
}

/** The signature stands at the end, as with providers that sign, and depends on the thought alone. */
async function* think(reasoning: string, pace: () => Promise<void>): AsyncGenerator<LanguageModelV4StreamPart> {
  const id = "reasoning-0";
  yield { type: "reasoning-start", id };
  for (const delta of reasoning.match(/\S+\s*/g) ?? []) {
    await pace();
    yield { type: "reasoning-delta", id, delta };
  }
  yield { type: "reasoning-end", id, providerMetadata: signatureOf(reasoning) };
}

async function* write(
  { words, fail, stall }: ShortReply,
  pace: () => Promise<void>,
  signal: AbortSignal,
): AsyncGenerator<LanguageModelV4StreamPart> {
  const id = "text-0";
  const breaks = stall || fail === "during";
  if (words.length > 0) yield { type: "text-start", id };
  for (const delta of breaks ? words.slice(0, Math.ceil(words.length / 2)) : words) {
    await pace();
    yield { type: "text-delta", id, delta };
  }
  if (stall) await aborted(signal);
  if (fail === "during") throw new Error("mirror broke the stream, as it was told to.");
  if (words.length > 0) yield { type: "text-end", id };
}

interface ShortReply extends Reply {
  /** whether words or calls were left out for want of tokens */
  cut: boolean;
}

/** Words are left out from the first that does not fit, and the calls after them. */
function shorten(reply: Reply, limit: number): ShortReply {
  let left = limit - countMirrorTokens(reply.reasoning ?? "");
  const end = reply.words.findIndex((word) => (left -= countMirrorTokens(word)) < 0);
  return end < 0 ? { ...reply, cut: false } : { ...reply, words: reply.words.slice(0, end), calls: [], cut: true };
}

function finishReasonOf({ cut, calls }: ShortReply): LanguageModelV4FinishReason {
  const unified = cut ? "length" : calls.length > 0 ? "tool-calls" : "stop";
  return { unified, raw: unified };
}

function usageOf(
  { reasoning = "", words, calls, usage }: ShortReply,
  input: number,
  cached: number,
): LanguageModelV4Usage {
  if (usage === "none") return unreportedUsage();
  if (usage === "garbage") return garbageUsage();
  const called = calls.reduce((sum, { toolName, input: json }) => sum + countToolCall(toolName, json), 0);
  const spent: Spent = {
    input,
    cached,
    reasoning: countMirrorTokens(reasoning),
    text: countMirrorTokens(words.join("")) + called,
  };
  return reportUsage(spent);
}

function signatureOf(reasoning: string) {
  return { mirror: { signature: `signed-${fingerprint(reasoning)}` } };
}

/** The wording is one that providers use, so that what recognises theirs recognises this. */
function tooLong(tokens: number, contextWindow: number): APICallError {
  return new APICallError({
    message: `prompt is too long: ${tokens} tokens > ${contextWindow} maximum`,
    url: "mirror:",
    requestBodyValues: {},
    statusCode: 400,
    isRetryable: false,
  });
}

/** Parts are made as they are read, so a reader sets the pace; one who leaves ends the call. */
function streamOf(parts: AsyncGenerator<LanguageModelV4StreamPart>, stopped: AbortController) {
  return new ReadableStream<LanguageModelV4StreamPart>({
    async pull(controller) {
      const { value, done } = await parts.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: (reason) => stopped.abort(reason),
  });
}

async function collect(parts: AsyncGenerator<LanguageModelV4StreamPart>): Promise<LanguageModelV4GenerateResult> {
  const content: LanguageModelV4Content[] = [];
  const result: LanguageModelV4GenerateResult = {
    content,
    finishReason: { unified: "other", raw: undefined },
    usage: unreportedUsage(),
    warnings: [],
  };
  for await (const part of parts) {
    if (part.type === "error") throw part.error;
    if (part.type === "finish") Object.assign(result, { finishReason: part.finishReason, usage: part.usage });
    if (part.type === "response-metadata") result.response = { id: part.id, modelId: part.modelId };
    gather(content, part);
  }
  return result;
}

function gather(content: LanguageModelV4Content[], part: LanguageModelV4StreamPart): void {
  const last = content.at(-1);
  if (part.type === "text-start") content.push({ type: "text", text: "" });
  if (part.type === "reasoning-start") content.push({ type: "reasoning", text: "" });
  if (part.type === "tool-call") content.push(part);
  if (part.type === "text-delta" && last?.type === "text") last.text += part.delta;
  if (part.type === "reasoning-delta" && last?.type === "reasoning") last.text += part.delta;
  if (part.type === "reasoning-end" && last?.type === "reasoning") last.providerMetadata = part.providerMetadata;
}

const timer: Sleep = (ms, signal) =>
  new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stop = () => {
      clearTimeout(timeout);
      reject(signal.reason);
    };
    const timeout = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal.addEventListener("abort", stop, { once: true });
  });

/** Never resolves; rejects with the signal's reason. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
