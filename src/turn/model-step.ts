/**
 * One model call: prompt in, chunks out, and one settled report at the end.
 *
 * The AI SDK could loop over steps by itself. It is asked for one step at a time instead, so that every prompt is built
 * from what is stored, the same way after a restart as before it, and every step is committed before the next begins.
 */
import { streamText, toUIMessageStream, type LanguageModel, type ToolSet, type UIMessageChunk } from "ai";
import type { ModelCall } from "../records.ts";
import { DEEPEST, isTooDeep } from "./json-depth.ts";
import type { Prompt } from "./prompt.ts";

export interface ModelStepRequest {
  model: Exclude<LanguageModel, string>;
  /** name under which the call is booked */
  modelId: string;
  prompt: Prompt;
  tools: ToolSet;
  maxOutputTokens: number | undefined;
  signal: AbortSignal;
  /** called before a server tool runs, which waits for it */
  beforeTool: (toolCallId: string) => Promise<void>;
  /** ms since the epoch */
  clock: () => number;
}

/** How a call ended. `call` is booked in every case. */
export type ModelStepOutcome =
  | { kind: "done"; call: ModelCall }
  | { kind: "aborted"; call: ModelCall }
  | { kind: "failed"; call: ModelCall; error: unknown };

/**
 * Streams one call. Yields the chunks of the message, without `start`, `finish`, `abort` and `error`.
 * Does not throw for anything the model or a provider does: that is the outcome it returns.
 */
export async function* modelStep(request: ModelStepRequest): AsyncGenerator<UIMessageChunk, ModelStepOutcome> {
  const report = new CallReport(request);
  try {
    for await (const chunk of chunksOf(request, report)) {
      if (chunk.type !== "abort" && chunk.type !== "error") yield asStored(chunk);
    }
  } catch (error) {
    report.failed(error);
  }
  return report.outcome(request.signal.aborted);
}

/**
 * A tool's output as JSON gives it back, so that it is the same in memory, on the wire and in storage. Throws for an input
 * that is nested too deep: the call cannot be kept, so it must not run.
 */
function asStored(chunk: UIMessageChunk): UIMessageChunk {
  if ("input" in chunk && isTooDeep(chunk.input)) {
    throw new TypeError(`it called a tool with an input that is nested deeper than ${DEEPEST} levels`);
  }
  if (chunk.type !== "tool-output-available") return chunk;
  try {
    const output: unknown = JSON.parse(JSON.stringify(chunk.output) ?? "null");
    if (isTooDeep(output)) throw new TypeError(`it is nested deeper than ${DEEPEST} levels`);
    return { ...chunk, output };
  } catch (error) {
    const why = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
    return {
      type: "tool-output-error",
      toolCallId: chunk.toolCallId,
      errorText: `The tool ran, but its output cannot be kept: ${why}`,
    };
  }
}

function chunksOf(request: ModelStepRequest, report: CallReport): AsyncIterable<UIMessageChunk> {
  const { model, prompt, tools, maxOutputTokens, signal, beforeTool } = request;
  const result = streamText({
    model,
    instructions: prompt.instructions,
    messages: prompt.messages,
    tools,
    maxOutputTokens,
    abortSignal: signal,
    onToolExecutionStart: ({ toolCall }) => beforeTool(toolCall.toolCallId),
    // The report keeps the error for the outcome; the SDK would print it a second time.
    onError: () => {},
  });
  return readable(
    toUIMessageStream({
      stream: result.stream,
      tools,
      sendReasoning: true,
      sendSources: true,
      sendStart: false,
      sendFinish: false,
      onError: () => "",
      redactToolErrors: false,
      messageMetadata: ({ part }) => {
        if (part.type === "finish-step") report.reported(part.usage, part.finishReason);
        else if (part.type === "error") report.failed(part.error);
        return undefined;
      },
    }),
  );
}

/** A `ReadableStream` is iterable in every runtime this runs in, though not in every type library. */
function readable<T>(stream: ReadableStream<T>): AsyncIterable<T> {
  return stream as ReadableStream<T> & AsyncIterable<T>;
}

/** What is learned of a call while it runs. */
class CallReport {
  readonly #request: ModelStepRequest;
  readonly #startedAt: number;
  #usage: ModelCall["usage"];
  #finishReason: ModelCall["finishReason"] | undefined;
  #error: { cause: unknown } | undefined;

  constructor(request: ModelStepRequest) {
    this.#request = request;
    this.#startedAt = request.clock();
  }

  reported(usage: ModelCall["usage"], finishReason: ModelCall["finishReason"]): void {
    // The SDK fills in an object even where the provider said nothing.
    this.#usage = usage && saysSomething(usage) ? usage : undefined;
    this.#finishReason = finishReason;
  }

  failed(error: unknown): void {
    this.#error ??= { cause: error };
  }

  outcome(aborted: boolean): ModelStepOutcome {
    if (this.#finishReason && !this.#error) return { kind: "done", call: this.#call(this.#finishReason) };
    if (aborted) return { kind: "aborted", call: this.#call("aborted") };
    const error = this.#error ? this.#error.cause : new Error("the model's stream ended without a finish");
    return { kind: "failed", call: this.#call("error"), error };
  }

  #call(finishReason: ModelCall["finishReason"]): ModelCall {
    return {
      purpose: "turn",
      model: this.#request.modelId,
      finishReason,
      ...(this.#usage && { usage: this.#usage }),
      startedAt: this.#startedAt,
      durationMs: this.#request.clock() - this.#startedAt,
    };
  }
}

function saysSomething({ inputTokens, outputTokens, totalTokens }: NonNullable<ModelCall["usage"]>): boolean {
  return inputTokens !== undefined || outputTokens !== undefined || totalTokens !== undefined;
}
