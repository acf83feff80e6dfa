/**
 * The model: says the recorded steps in their order, and reports what it was really sent (`scales.ts`). Its outputs it
 * reports as the recording has them, placeholders too. Asked to generate, it summarises.
 *
 * Like a provider it refuses what its window does not hold.
 */
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
} from "@ai-sdk/provider";
import type { Pace } from "./pace.ts";
import type { SummariserRecord } from "./records.ts";
import { type Scales, type Shown, shownInPrompt } from "./scales.ts";
import { callIdOf, markOf, type Script, type ScriptedEntry } from "./script.ts";
import { answerOf, summaryOf, textIn } from "./summariser.ts";

export interface DoubleParts {
  script: Script;
  scales: Scales;
  pace: Pace;
  contextWindow: number;
  /** a call of a turn arrives: what it shows, and what that weighs */
  heard: (options: LanguageModelV4CallOptions, shown: readonly Shown[], tokens: number) => void;
  /** a call arrives that nobody made in the recording: there the user spoke before the model went on */
  spared: () => void;
}

export class Double implements LanguageModelV4 {
  readonly specificationVersion = "v4";
  readonly provider: string;
  readonly modelId: string;
  readonly supportedUrls = {};
  readonly summariser: SummariserRecord = { calls: 0, largest: 0, refused: 0 };
  readonly #parts: DoubleParts;
  /** steps it is about to say, by entry */
  #due: number[] = [];

  constructor(parts: DoubleParts) {
    this.#parts = parts;
    const [provider = "", ...name] = parts.script.model.split("/");
    this.provider = provider;
    this.modelId = name.join("/");
  }

  /** The steps of the turn that is about to begin. */
  prepare(steps: readonly number[]): void {
    this.#due = [...steps];
  }

  doStream(options: LanguageModelV4CallOptions): Promise<{ stream: ReadableStream<LanguageModelV4StreamPart> }> {
    const { scales, pace, contextWindow, heard, spared, script } = this.#parts;
    const shown = shownInPrompt(options.prompt);
    const tokens = Math.round(scales.prompt(shown));
    const [index] = this.#due;
    const step = index === undefined ? undefined : script.entries[index];
    if (index === undefined || !step) {
      spared();
      return Promise.reject(new DOMException("The turn was stopped.", "AbortError"));
    }
    pace.goOn();
    heard(options, shown, tokens);
    if (tokens > contextWindow)
      return Promise.reject(new Error(`prompt is too long: ${tokens} tokens > ${contextWindow} maximum`));
    this.#due.shift();
    return Promise.resolve({ stream: streamOf(chunksOf(step, index, tokens)) });
  }

  async doGenerate(options: LanguageModelV4CallOptions) {
    const { scales, pace, contextWindow } = this.#parts;
    const text = textIn(options);
    const tokens = Math.round(scales.text(text));
    this.summariser.calls += 1;
    this.summariser.largest = Math.max(this.summariser.largest, tokens);
    if (tokens > contextWindow) {
      this.summariser.refused += 1;
      throw new Error(`prompt is too long: ${tokens} tokens > ${contextWindow} maximum`);
    }
    await pace.done();
    const summary = summaryOf(text, this.summariser.calls);
    return answerOf(summary, tokens, Math.round(scales.text(summary)));
  }
}

function streamOf(chunks: Iterable<LanguageModelV4StreamPart>): ReadableStream<LanguageModelV4StreamPart> {
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
}

function* chunksOf(step: ScriptedEntry, entry: number, input: number): Generator<LanguageModelV4StreamPart> {
  yield { type: "stream-start", warnings: [] };
  for (const [index, { kind, text, tool }] of step.pieces.entries()) {
    const place = { entry, piece: index };
    const id = String(index);
    if (tool) yield { type: "tool-call", toolCallId: callIdOf(place), toolName: tool.name, input: text };
    else {
      const said = kind === "reasoning" ? "reasoning" : "text";
      yield { type: `${said}-start`, id, providerMetadata: markOf(place) };
      yield { type: `${said}-delta`, id, delta: text };
      yield { type: `${said}-end`, id };
    }
  }
  const calls = step.pieces.some(({ tool }) => tool !== undefined);
  const finishReason = { unified: calls ? ("tool-calls" as const) : ("stop" as const), raw: undefined };
  yield { type: "finish", finishReason, usage: usageOf(input, step.output) };
}

/** A recorded call that reported nothing reports nothing here. */
function usageOf(input: number, output: number | null): LanguageModelV4Usage {
  const read = output === null ? undefined : input;
  const said = output ?? undefined;
  return {
    inputTokens: { total: read, noCache: read, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: said, text: undefined, reasoning: undefined },
  };
}
