/** Writes a summary: asks a model, in as many calls as the history needs, and books what they cost. */
import { generateText, type LanguageModel, type LanguageModelUsage } from "ai";
import { chunksOf } from "../compaction/chunks.ts";
import { readSummary } from "../compaction/summary.ts";
import { summaryPrompt } from "../compaction/summary-prompt.ts";
import { transcriptOf } from "../compaction/transcript.ts";
import { estimateText, weightsFor } from "../context/estimator.ts";
import { reservedOutput, type ModelLimits } from "../context/usage.ts";
import type { Entry, ModelCall } from "../records.ts";
import { isContextOverflow } from "./context-overflow.ts";
import { describeModelError } from "./model-error.ts";
import { addUsage } from "./transcript.ts";

export interface SummaryRequest {
  model: Exclude<LanguageModel, string>;
  /** name under which the calls are booked */
  modelId: string;
  limits: ModelLimits;
  /** the model's tokens for one estimator unit */
  ratio: number;
  /** read anew for every try */
  entries: () => Iterable<Entry>;
  previousSummary: string | null;
  /** what the application and a person ask of it */
  instructions: readonly string[];
  /** model tokens that the summary may have */
  targetTokens: number;
  timeoutMs: number;
  signal: AbortSignal;
  /** ms since the epoch */
  clock: () => number;
}

/** `call` is booked whatever came of it; absent where no model was reached. `tokens`: what the last call put out, as it reported. */
export type SummaryOutcome =
  | { kind: "summary"; text: string; call: ModelCall; tokens: number | undefined }
  | { kind: "failed"; reason: string; call?: ModelCall };

/** Share of the window that a chunk may fill by estimate: what the estimate misses has to fit as well. */
const FILLED_SHARE = 0.7;

/** Tokens of a chunk where the window is unknown: half of the smallest window in use. */
const UNKNOWN_WINDOW_CHUNK = 16_000;

/** Times a chunk that the provider finds too long is halved. */
const HALVINGS = 3;

/** Never throws for anything a model or a provider does. */
export async function writeSummary(request: SummaryRequest): Promise<SummaryOutcome> {
  const bill = new Bill(request);
  for (let halvings = 0; ; halvings += 1) {
    try {
      return await writeInChunks(request, bill, chunkTokens(request) / 2 ** halvings);
    } catch (error) {
      if (isContextOverflow(error) && halvings < HALVINGS) continue;
      return bill.failed(failureReason(request, error));
    }
  }
}

async function writeInChunks(request: SummaryRequest, bill: Bill, limit: number): Promise<SummaryOutcome> {
  const weights = weightsFor(request.modelId);
  const weigh = (text: string) => estimateText(text, weights) * request.ratio;
  let summary = request.previousSummary;
  let tokens: number | undefined;
  let part = 0;
  for (const conversation of chunksOf(transcriptOf(request.entries()), limit, weigh)) {
    part += 1;
    const answer = await ask(request, bill, { conversation, previousSummary: summary, part });
    if (answer.kind === "rejected") return bill.failed(answer.reason);
    summary = answer.text;
    tokens = answer.tokens;
  }
  if (summary === null) return bill.failed("There was nothing to summarise.");
  return bill.settled(summary, tokens);
}

type Answer = { kind: "summary"; text: string; tokens: number | undefined } | { kind: "rejected"; reason: string };

async function ask(
  { model, instructions, targetTokens, timeoutMs, signal }: SummaryRequest,
  bill: Bill,
  material: { conversation: string; previousSummary: string | null; part: number },
): Promise<Answer> {
  const prompt = summaryPrompt({ ...material, instructions, targetTokens });
  signal.throwIfAborted();
  bill.began();
  const result = await withTimeout(timeoutMs, signal, (abortSignal) =>
    generateText({ model, instructions: prompt.instructions, prompt: prompt.prompt, abortSignal }),
  );
  bill.add(result.usage);
  const read = readSummary({
    text: result.text,
    finishReason: result.finishReason,
    toolCalls: result.toolCalls.length,
    conversation: material.conversation,
    prompt,
  });
  return read.kind === "rejected" ? read : { ...read, tokens: textTokens(result.usage) };
}

/** As `AbortSignal.timeout`, except that nothing is left ticking: a pending timer keeps the object in memory. */
export async function withTimeout<T>(
  ms: number,
  signal: AbortSignal,
  work: (signal: AbortSignal) => PromiseLike<T>,
): Promise<T> {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new DOMException("timed out", "TimeoutError")), ms);
  try {
    const any = AbortSignal.any([signal, late.signal]);
    return await Promise.race([work(any), abortOf(any)]);
  } finally {
    clearTimeout(timer);
  }
}

/** Never resolves; rejects with the signal's reason. What is asked may not heed it. */
function abortOf(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

function chunkTokens({ limits, targetTokens }: SummaryRequest): number {
  const { contextWindow, maxOutput } = limits;
  if (!contextWindow) return UNKNOWN_WINDOW_CHUNK;
  const room = contextWindow - Math.min(reservedOutput(maxOutput), contextWindow / 4);
  // Beside the chunk stand our own words and the summary so far.
  return Math.max(contextWindow / 8, room * FILLED_SHARE - targetTokens - PROMPT_TOKENS);
}

/** Tokens of the default prompt, about. */
const PROMPT_TOKENS = 1_000;

/** Tokens of the text alone, as reported. */
function textTokens({ outputTokens, outputTokenDetails }: LanguageModelUsage): number | undefined {
  if (outputTokenDetails?.textTokens) return outputTokenDetails.textTokens;
  return outputTokens === undefined ? undefined : outputTokens - (outputTokenDetails?.reasoningTokens ?? 0);
}

function failureReason({ signal, timeoutMs }: SummaryRequest, error: unknown): string {
  if (signal.aborted) return "It was stopped.";
  if (error instanceof Error && error.name === "TimeoutError")
    return `The summary was not written within ${timeoutMs} ms.`;
  return describeModelError(error);
}

/** The calls of one summary, booked as one. */
class Bill {
  readonly #request: SummaryRequest;
  readonly #startedAt: number;
  #calls = 0;
  #usage: LanguageModelUsage | undefined;

  constructor(request: SummaryRequest) {
    this.#request = request;
    this.#startedAt = request.clock();
  }

  /** A call is paid for whatever becomes of it. */
  began(): void {
    this.#calls += 1;
  }

  add(usage: LanguageModelUsage): void {
    const { raw: _, ...counts } = usage;
    this.#usage = this.#usage ? addUsage(this.#usage, counts) : counts;
  }

  settled(text: string, tokens: number | undefined): SummaryOutcome {
    return { kind: "summary", text, tokens, call: this.#call("stop") };
  }

  failed(reason: string): SummaryOutcome {
    return { kind: "failed", reason, ...(this.#calls > 0 && { call: this.#call("error") }) };
  }

  #call(finishReason: ModelCall["finishReason"]): ModelCall {
    return {
      purpose: "summary",
      model: this.#request.modelId,
      finishReason,
      ...(this.#usage && { usage: this.#usage }),
      startedAt: this.#startedAt,
      durationMs: this.#request.clock() - this.#startedAt,
      ...(this.#calls > 1 && { calls: this.#calls }),
    };
  }
}
