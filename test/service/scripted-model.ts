/**
 * `mirror` as a double that a test directs: it keeps every call, counts honestly, and gives the next summaries, and refuses
 * the next turns, as it is told. Turns stream and summaries do not, so the two are told apart by how it is called.
 */
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4Content,
  LanguageModelV4FinishReason,
  LanguageModelV4GenerateResult,
  LanguageModelV4Message,
} from "@ai-sdk/provider";
import { APICallError } from "ai";
import { measureMirrorPrompt, textOf } from "../../src/models/mirror-prompt.ts";
import { countMirrorTokens } from "../../src/models/mirror-tokenizer.ts";
import { reportUsage } from "../../src/models/mirror-usage.ts";
import { createMirror } from "../../src/models/mirror.ts";

type Call = LanguageModelV4CallOptions;

/** How one call for a summary is answered. `mirror` gives the summary that it would have had. */
export type Summarising = (
  call: Call,
  mirror: () => Promise<LanguageModelV4GenerateResult>,
) => Promise<LanguageModelV4GenerateResult>;

export class ScriptedModel implements LanguageModelV4 {
  readonly specificationVersion = "v4";
  readonly provider = "scripted";
  readonly modelId: string;
  readonly supportedUrls = {};
  readonly turns: Call[] = [];
  readonly summaries: Call[] = [];
  /** what the next calls for a summary get; after them it summarises as `mirror` does */
  readonly script: Summarising[] = [];
  /** what the next turns are refused with; after them it answers */
  readonly refusals: Error[] = [];
  readonly #mirror: LanguageModelV4;

  /** `window`: tokens that it can really read, whatever a session was told of it. */
  constructor({ modelId = "mirror", window }: { modelId?: string; window?: number } = {}) {
    this.modelId = modelId;
    this.#mirror = createMirror(window === undefined ? {} : { contextWindow: window });
  }

  async doGenerate(call: Call): Promise<LanguageModelV4GenerateResult> {
    this.summaries.push(call);
    const mirror = async () => this.#mirror.doGenerate(call);
    const next = this.script.shift();
    return next ? next(call, mirror) : mirror();
  }

  async doStream(call: Call) {
    this.turns.push(call);
    const refusal = this.refusals.shift();
    if (refusal) throw refusal;
    return this.#mirror.doStream(call);
  }

  /** Tokens that each turn read, in order. */
  get read(): number[] {
    return this.turns.map(({ prompt, tools }) => measureMirrorPrompt(prompt, tools).total);
  }

  /** What the newest turn was shown, without its system prompt. */
  get shown(): string[] {
    return (this.turns.at(-1)?.prompt ?? []).filter(({ role }) => role !== "system").map(textOf);
  }

  /** What each call for a summary was asked, its system prompt left out. */
  get asked(): string[] {
    return this.summaries.map(({ prompt }) => askedIn(prompt));
  }
}

function askedIn(prompt: LanguageModelV4Message[]): string {
  return prompt
    .filter(({ role }) => role === "user")
    .map(textOf)
    .join("\n");
}

/** The text of a block of a summariser's prompt; empty where there is none. */
export function blockOf(prompt: string, tag: "conversation" | "previous-summary" | "summary-instructions"): string {
  return new RegExp(`<${tag}>\\n([\\s\\S]*?)\\n</${tag}>`).exec(prompt)?.[1] ?? "";
}

/** Says this, and that it is done. */
export function says(text: string): Summarising {
  return async (call) => answer(call, [{ type: "text", text }], "stop", text);
}

export const saysNothing: Summarising = says("");

export function throws(error: Error): Summarising {
  return async () => {
    throw error;
  };
}

/** Never answers; ends when it is aborted. */
export const hangs: Summarising = async ({ abortSignal }) =>
  new Promise((_resolve, reject) => {
    abortSignal?.addEventListener("abort", () => reject(abortSignal.reason), { once: true });
  });

export const callsATool: Summarising = async (call) => {
  const input = '{"path":"notes.txt"}';
  return answer(call, [{ type: "tool-call", toolCallId: "call-1", toolName: "read", input }], "tool-calls", input);
};

/** Is cut off in the middle of its summary. */
export const reachesItsLimit: Summarising = async (call) => {
  const text = "## Goal\nThe user wants to";
  return answer(call, [{ type: "text", text }], "length", text);
};

/** Gives back the conversation that it was to summarise. */
export const echoes: Summarising = async (call) => {
  const text = blockOf(askedIn(call.prompt), "conversation");
  return answer(call, [{ type: "text", text }], "stop", text);
};

/** Summarises once it is released; ends when it is aborted. */
export function slowly(): { summarise: Summarising; release: () => void } {
  let release = () => {};
  const released = new Promise<void>((resolve) => (release = resolve));
  return {
    summarise: async (call, mirror) => Promise.race([released.then(mirror), hangs(call, mirror)]),
    release: () => release(),
  };
}

function answer(
  { prompt }: Call,
  content: LanguageModelV4Content[],
  unified: LanguageModelV4FinishReason["unified"],
  said: string,
): LanguageModelV4GenerateResult {
  const input = measureMirrorPrompt(prompt).total;
  const usage = reportUsage({ input, cached: 0, reasoning: 0, text: countMirrorTokens(said) });
  return { content, finishReason: { unified, raw: unified }, usage, warnings: [] };
}

/** What a provider refuses a call with. */
export function refusal(statusCode: number, message: string): APICallError {
  return new APICallError({ message, url: "scripted:", requestBodyValues: {}, statusCode, isRetryable: false });
}
