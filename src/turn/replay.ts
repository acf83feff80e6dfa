/**
 * A stored message as the chunks that would have built it.
 *
 * Needed where a client rebuilds a message from a stream although part of it is older than the stream: when a turn
 * continues a message, and when a request that was answered before is sent again.
 */
import type { UIMessage, UIMessageChunk } from "ai";
import type { Entry, Part } from "../records.ts";
import { isFinishReason, isToolPart, toolNameOf } from "./answer.ts";
import { stepsOf } from "./transcript.ts";

/** Chunks of the parts alone, without `start` and `finish`. */
export function* chunksOfParts(parts: readonly Part[]): Generator<UIMessageChunk> {
  let stepOpen = false;
  for (const [index, part] of parts.entries()) {
    if (part.type === "step-start") {
      if (stepOpen) yield { type: "finish-step" };
      stepOpen = true;
      yield { type: "start-step" };
    } else yield* chunksOfPart(part, `stored-${index}`);
  }
  if (stepOpen) yield { type: "finish-step" };
}

/**
 * A whole stream for a stored message; `last` is its last entry, which says how it ended. A client that continues the
 * message has its first `stepsKnown` steps and would show them twice: of those it is sent what became of their calls.
 */
export function* chunksOfMessage(
  message: UIMessage,
  last: Pick<Entry, "state" | "call"> = { state: "done" },
  stepsKnown = 0,
): Generator<UIMessageChunk> {
  yield {
    type: "start",
    messageId: message.id,
    ...(message.metadata !== undefined && { messageMetadata: message.metadata }),
  };
  const steps = stepsOf(message.parts);
  yield* chunksOfNews(steps.slice(0, stepsKnown).flat());
  yield* chunksOfParts(steps.slice(stepsKnown).flat());
  if (last.state === "failed") return;
  if (last.state === "aborted" || last.state === "interrupted") return yield { type: "abort" };
  const reason = last.call?.finishReason;
  yield { type: "finish", ...(isFinishReason(reason) && { finishReason: reason }) };
}

/** What may have become of calls since a client saw them: another one may have decided on them, or answered. */
export function* chunksOfNews(parts: readonly Part[]): Generator<UIMessageChunk> {
  for (const part of parts.filter(isToolPart)) {
    if (part.approval) yield* chunksOfDecision(part.approval);
    yield* chunksOfOutcome(part);
  }
}

function* chunksOfPart(part: Part, index: string): Generator<UIMessageChunk> {
  if (isToolPart(part)) return yield* chunksOfTool(part);
  switch (part.type) {
    case "text":
    case "reasoning":
      return yield* chunksOfText(part, index);
    case "file":
    case "reasoning-file":
    case "source-url":
    case "source-document":
    case "custom":
    case "steering-message":
      yield part;
      return;
    default:
      if ("data" in part) yield part;
  }
}

function* chunksOfText(part: Extract<Part, { type: "text" | "reasoning" }>, index: string): Generator<UIMessageChunk> {
  const id = (part.type === "reasoning" && part.id) || index;
  const metadata = part.providerMetadata && { providerMetadata: part.providerMetadata };
  yield { type: `${part.type}-start`, id, ...metadata };
  yield { type: `${part.type}-delta`, id, delta: part.text };
  if (part.state === "streaming") return;
  if (part.type === "reasoning") yield { type: "reasoning-end", id };
  else yield { type: "text-end", id, ...(part.citations && { citations: part.citations }) };
}

function* chunksOfTool(part: Extract<Part, { toolCallId: string }>): Generator<UIMessageChunk> {
  const call = {
    toolCallId: part.toolCallId,
    toolName: toolNameOf(part),
    ...(part.type === "dynamic-tool" && { dynamic: true }),
    ...(part.title !== undefined && { title: part.title }),
    ...(part.toolMetadata && { toolMetadata: part.toolMetadata }),
    ...(part.providerExecuted !== undefined && { providerExecuted: part.providerExecuted }),
    ...(part.callProviderMetadata && { providerMetadata: part.callProviderMetadata }),
  };
  if (part.state === "input-streaming") {
    yield { type: "tool-input-start", ...call, ...(part.inputEncoding && { inputEncoding: part.inputEncoding }) };
    if (part.rawInput) yield { type: "tool-input-delta", toolCallId: part.toolCallId, inputTextDelta: part.rawInput };
    return;
  }
  yield { type: "tool-input-available", ...call, input: part.input };
  if (part.approval) yield* chunksOfApproval(part.toolCallId, part.approval);
  yield* chunksOfOutcome(part);
}

type Approval = NonNullable<Extract<Part, { toolCallId: string }>["approval"]>;

function* chunksOfApproval(toolCallId: string, approval: Approval): Generator<UIMessageChunk> {
  yield {
    type: "tool-approval-request",
    approvalId: approval.id,
    toolCallId,
    ...(approval.descriptor !== undefined && { approvalDescriptor: approval.descriptor }),
    ...("inputSchemaInput" in approval && { inputSchemaInput: approval.inputSchemaInput }),
    ...(approval.requestReason !== undefined && { reason: approval.requestReason }),
    ...(approval.isAutomatic !== undefined && { isAutomatic: approval.isAutomatic }),
    ...(approval.signature !== undefined && { signature: approval.signature }),
  };
  yield* chunksOfDecision(approval);
}

function* chunksOfDecision(approval: Approval): Generator<UIMessageChunk> {
  if (approval.approved === undefined) return;
  yield {
    type: "tool-approval-response",
    approvalId: approval.id,
    approved: approval.approved,
    ...(approval.reason !== undefined && { reason: approval.reason }),
  };
}

function* chunksOfOutcome(part: Extract<Part, { toolCallId: string }>): Generator<UIMessageChunk> {
  const result = {
    toolCallId: part.toolCallId,
    ...("resultProviderMetadata" in part &&
      part.resultProviderMetadata && { providerMetadata: part.resultProviderMetadata }),
  };
  if (part.state === "output-available") {
    yield {
      type: "tool-output-available",
      ...result,
      output: part.output ?? null,
      ...(part.preliminary !== undefined && { preliminary: part.preliminary }),
    };
  } else if (part.state === "output-error") yield { type: "tool-output-error", ...result, errorText: part.errorText };
  else if (part.state === "output-denied") yield { type: "tool-output-denied", toolCallId: part.toolCallId };
}
