/**
 * The assistant message while it grows: applies stream chunks to the steps they belong to.
 *
 * The rules are those by which an AI SDK client builds the same message from the same chunks, so what is stored is
 * what clients see; a test holds both together on recorded streams. Unlike the client's reader nothing is cloned:
 * a chunk costs what it carries, whatever the message has grown to.
 */
import type { DynamicToolUIPart, FinishReason, ToolUIPart, UIMessageChunk } from "ai";
import type { Entry, EntryState, ModelCall, Part } from "../records.ts";

type ToolPart = ToolUIPart | DynamicToolUIPart;
type TextPart = Extract<Part, { type: "text" }>;
type ReasoningPart = Extract<Part, { type: "reasoning" }>;

/** What becomes of a call after its input is known. */
type ToolOutcomeChunk = Extract<
  UIMessageChunk,
  {
    type:
      | "tool-approval-request"
      | "tool-approval-response"
      | "tool-output-available"
      | "tool-output-error"
      | "tool-output-denied";
  }
>;

/** One step of the growing message. */
export interface AnswerStep {
  parts: Part[];
  state: EntryState;
  call?: ModelCall;
  /** the stored entry, once there is one */
  entry?: Entry;
  /** whether memory holds more than the stored entry */
  dirty: boolean;
}

export class Answer {
  readonly steps: AnswerStep[];
  readonly #texts = new Map<string, TextPart>();
  readonly #reasonings = new Map<string, ReasoningPart>();

  /** `stored` are the message's steps so far, when a message goes on. They are changed in place. */
  constructor(stored: readonly Entry[] = []) {
    this.steps = stored.map((entry) => ({
      parts: entry.parts,
      state: entry.state,
      call: entry.call,
      entry,
      dirty: false,
    }));
  }

  /** Chunks that carry nothing of the message (`start`, `finish`, metadata, transient data) change nothing. */
  apply(chunk: UIMessageChunk): void {
    switch (chunk.type) {
      case "start-step":
        this.steps.push({ parts: [{ type: "step-start" }], state: "streaming", dirty: true });
        return;
      case "text-start":
        return this.#open(this.#texts, chunk.id, {
          type: "text",
          text: "",
          state: "streaming",
          ...metadataOf(chunk),
        });
      case "text-delta":
        return this.#grow(this.#texts, chunk);
      case "text-end":
        return this.#close(this.#texts, chunk, chunk.citations && { citations: chunk.citations });
      case "reasoning-start":
        return this.#open(this.#reasonings, chunk.id, {
          type: "reasoning",
          id: chunk.id,
          text: "",
          state: "streaming",
          ...metadataOf(chunk),
        });
      case "reasoning-delta":
        return this.#grow(this.#reasonings, chunk);
      case "reasoning-end":
        return this.#close(this.#reasonings, chunk);
      case "custom":
        return this.#add({ type: "custom", kind: chunk.kind, ...metadataOf(chunk) });
      case "file":
      case "reasoning-file":
      case "source-url":
      case "source-document":
        return this.#add({ ...chunk });
      case "tool-input-start":
      case "tool-input-delta":
      case "tool-input-available":
      case "tool-input-error":
        return this.#applyToolInput(chunk);
      case "tool-approval-request":
      case "tool-approval-response":
      case "tool-output-available":
      case "tool-output-error":
      case "tool-output-denied":
        return this.#applyToolOutcome(chunk);
      case "steering-message":
        return this.#add({ type: "steering-message", id: chunk.id, parts: chunk.parts });
      default:
        if (chunk.type.startsWith("data-")) this.#applyData(chunk as Extract<UIMessageChunk, { data: unknown }>);
    }
  }

  /** The step being generated. */
  get current(): AnswerStep | undefined {
    return this.steps.at(-1);
  }

  /** The part of a tool call and the step it stands in, newest step first. */
  toolCall(toolCallId: string): { part: ToolPart; step: AnswerStep } | undefined {
    for (const step of this.steps.toReversed()) {
      const part = step.parts.find((candidate): candidate is ToolPart => isCall(candidate, toolCallId));
      if (part) return { part, step };
    }
    return undefined;
  }

  /** Forgets the current step if it was never stored and says nothing. */
  dropSilentStep(): void {
    const step = this.current;
    if (step && !step.entry && step.parts.every(isSilent)) this.steps.pop();
  }

  #target(): AnswerStep {
    const step = this.current;
    if (step) {
      step.dirty = true;
      return step;
    }
    const first: AnswerStep = { parts: [], state: "streaming", dirty: true };
    this.steps.push(first);
    return first;
  }

  #add(part: Part): void {
    this.#target().parts.push(part);
  }

  #open<P extends TextPart | ReasoningPart>(open: Map<string, P>, id: string, part: P): void {
    open.set(id, part);
    this.#add(part);
  }

  #grow<P extends TextPart | ReasoningPart>(
    open: Map<string, P>,
    chunk: { id: string; delta: string; providerMetadata?: P["providerMetadata"] },
  ): void {
    const part = open.get(chunk.id);
    if (!part) return;
    part.text += chunk.delta;
    if (chunk.providerMetadata) part.providerMetadata = chunk.providerMetadata;
    this.#target();
  }

  #close<P extends TextPart | ReasoningPart>(
    open: Map<string, P>,
    chunk: { id: string; providerMetadata?: P["providerMetadata"] },
    extra?: Partial<P>,
  ): void {
    const part = open.get(chunk.id);
    if (!part) return;
    Object.assign(part, { state: "done" }, extra, metadataOf(chunk));
    open.delete(chunk.id);
    this.#target();
  }

  #applyToolInput(
    chunk: Extract<
      UIMessageChunk,
      { type: "tool-input-start" | "tool-input-delta" | "tool-input-available" | "tool-input-error" }
    >,
  ): void {
    const existing = this.current?.parts.find((part): part is ToolPart => isCall(part, chunk.toolCallId));
    if (chunk.type === "tool-input-delta") {
      if (existing?.state !== "input-streaming") return;
      existing.rawInput = (existing.rawInput ?? "") + chunk.inputTextDelta;
      this.#target();
      return;
    }
    const part = existing ?? newToolPart(chunk);
    Object.assign(part, toolInputChange(chunk), {
      ...(chunk.type !== "tool-input-error" && chunk.title !== undefined && { title: chunk.title }),
      ...(chunk.toolMetadata !== undefined && { toolMetadata: chunk.toolMetadata }),
      ...(chunk.providerExecuted !== undefined && { providerExecuted: chunk.providerExecuted }),
    });
    if (existing) this.#target();
    else this.#add(part);
  }

  #applyToolOutcome(chunk: ToolOutcomeChunk): void {
    const found =
      chunk.type === "tool-approval-response" ? this.#approval(chunk.approvalId) : this.toolCall(chunk.toolCallId);
    if (!found) return;
    Object.assign(found.part, toolOutcomeChange(chunk, found.part));
    found.step.dirty = true;
  }

  #approval(approvalId: string): { part: ToolPart; step: AnswerStep } | undefined {
    for (const step of this.steps.toReversed()) {
      const part = step.parts.find(
        (candidate): candidate is ToolPart => isToolPart(candidate) && candidate.approval?.id === approvalId,
      );
      if (part) return { part, step };
    }
    return undefined;
  }

  #applyData(chunk: Extract<UIMessageChunk, { data: unknown }>): void {
    if (chunk.transient) return;
    const parts = this.steps.flatMap((step) => step.parts);
    const existing = parts.find(
      (part): part is Extract<Part, { data: unknown }> =>
        chunk.id !== undefined && "data" in part && part.type === chunk.type && part.id === chunk.id,
    );
    if (!existing) return this.#add({ ...chunk });
    existing.data = chunk.data;
    for (const step of this.steps) if (step.parts.includes(existing)) step.dirty = true;
  }
}

function isSilent(part: Part): boolean {
  return part.type === "step-start" || ((part.type === "text" || part.type === "reasoning") && part.text === "");
}

/** Whether a part is a tool call, by a named tool or a dynamic one. */
export function isToolPart(part: Part): part is ToolPart {
  return part.type === "dynamic-tool" || part.type.startsWith("tool-");
}

/** Whether a finished step is for the model to go on from: it called tools, and every call has its result. */
export function awaitsModel(step: { parts: readonly Part[]; call?: ModelCall } | undefined): boolean {
  const calls = step?.parts.filter(isToolPart) ?? [];
  return step?.call?.finishReason === "tool-calls" && calls.length > 0 && calls.every(isAnswered);
}

/** Whether the reason a call ended is one that the AI SDK has a word for. */
export function isFinishReason(reason: ModelCall["finishReason"] | undefined): reason is FinishReason {
  return reason !== undefined && reason !== "aborted";
}

/** Whether a call has its result: an output that is not preliminary, an error, or a denial. */
export function isAnswered(part: ToolPart): boolean {
  if (part.state === "output-available") return part.preliminary !== true;
  return part.state === "output-error" || part.state === "output-denied";
}

/** The name of the tool that a part calls. */
export function toolNameOf(part: ToolPart): string {
  return part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
}

function isCall(part: Part, toolCallId: string): part is ToolPart {
  return isToolPart(part) && part.toolCallId === toolCallId;
}

function newToolPart(chunk: { toolCallId: string; toolName: string; dynamic?: boolean }): ToolPart {
  const name = chunk.dynamic
    ? { type: "dynamic-tool" as const, toolName: chunk.toolName }
    : { type: `tool-${chunk.toolName}` as const };
  return { ...name, toolCallId: chunk.toolCallId, state: "input-streaming", input: undefined };
}

function toolInputChange(
  chunk: Extract<UIMessageChunk, { type: "tool-input-start" | "tool-input-available" | "tool-input-error" }>,
): object {
  const call = chunk.providerMetadata && { callProviderMetadata: chunk.providerMetadata };
  switch (chunk.type) {
    case "tool-input-start":
      return { state: "input-streaming", ...(chunk.inputEncoding && { inputEncoding: chunk.inputEncoding }), ...call };
    case "tool-input-available":
      return { state: "input-available", input: chunk.input, rawInput: undefined, inputEncoding: undefined, ...call };
    case "tool-input-error":
      return {
        state: "output-error",
        input: chunk.input,
        rawInput: undefined,
        inputEncoding: undefined,
        errorText: chunk.errorText,
        ...(chunk.providerMetadata && { resultProviderMetadata: chunk.providerMetadata }),
      };
  }
}

function toolOutcomeChange(chunk: ToolOutcomeChunk, part: ToolPart): object {
  switch (chunk.type) {
    case "tool-approval-request":
      return {
        state: "approval-requested",
        approval: {
          id: chunk.approvalId,
          ...(chunk.approvalDescriptor != null && { descriptor: chunk.approvalDescriptor }),
          ...("inputSchemaInput" in chunk && { inputSchemaInput: chunk.inputSchemaInput }),
          ...(chunk.reason != null && { requestReason: chunk.reason }),
          ...(chunk.isAutomatic && { isAutomatic: true }),
          ...(chunk.signature != null && { signature: chunk.signature }),
        },
      };
    case "tool-approval-response":
      return {
        state: "approval-responded",
        approval: {
          ...part.approval,
          id: chunk.approvalId,
          approved: chunk.approved,
          ...(chunk.reason != null && { reason: chunk.reason }),
        },
        ...(chunk.providerExecuted != null && { providerExecuted: chunk.providerExecuted }),
        ...(chunk.providerMetadata && { callProviderMetadata: chunk.providerMetadata }),
      };
    case "tool-output-denied":
      return { state: "output-denied" };
    case "tool-output-available":
      return {
        state: "output-available",
        output: chunk.output,
        ...toolResultExtras(chunk),
        preliminary: chunk.preliminary,
      };
    case "tool-output-error":
      // A preliminary output is not the result of a call that failed.
      return {
        state: "output-error",
        errorText: chunk.errorText,
        output: undefined,
        preliminary: undefined,
        ...toolResultExtras(chunk),
      };
  }
}

function toolResultExtras(
  chunk: Extract<UIMessageChunk, { type: "tool-output-available" | "tool-output-error" }>,
): object {
  return {
    ...(chunk.providerExecuted != null && { providerExecuted: chunk.providerExecuted }),
    ...(chunk.providerMetadata && { resultProviderMetadata: chunk.providerMetadata }),
    ...(chunk.toolMetadata && { toolMetadata: chunk.toolMetadata }),
  };
}

function metadataOf<M>(chunk: { providerMetadata?: M }): { providerMetadata?: M } {
  return chunk.providerMetadata === undefined ? {} : { providerMetadata: chunk.providerMetadata };
}
