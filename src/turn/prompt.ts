/**
 * The messages of a branch as a model is shown them.
 *
 * What providers refuse is left out, because what is refused once would be refused at every later turn:
 * - reasoning that is empty and carries nothing for the provider, or that nothing follows in its step
 * - tool calls that never got an answer
 * - compactions of a provider that failed
 * - in a step that was broken off, reasoning without a signature and what the provider knows by name alone: it was
 *   never completed there
 * - messages that hold nothing a model can be shown
 */
import { convertToModelMessages, type ModelMessage, type ToolSet, type UIMessage } from "ai";
import type { Entry, Part } from "../records.ts";
import { isToolPart } from "./answer.ts";
import { isProviderCompaction, isVoidCompaction } from "./provider-compaction.ts";
import { inLegalOrder } from "./role-order.ts";
import { withPlaceholders } from "./tool-set.ts";
import { endingOf, stepsOf, type AnswerMetadata } from "./transcript.ts";

/** What a model call is built from: the text that precedes the conversation, and the conversation. */
export interface Prompt {
  instructions: string | undefined;
  messages: ModelMessage[];
}

/**
 * Without `oldFiles` a line stands for each file in the messages before the user's newest one.
 * `systemPrompt` and the system messages that open the conversation become the instructions. A system message further
 * down is shown as a user message, since providers take system text only at the front.
 */
export async function promptOf(
  messages: readonly UIMessage[],
  systemPrompt: string | undefined,
  tools: ToolSet,
  { oldFiles = true }: { oldFiles?: boolean } = {},
): Promise<Prompt> {
  const firstOther = messages.findIndex((message) => message.role !== "system");
  const head = messages.slice(0, firstOther < 0 ? messages.length : firstOther);
  const instructions = [systemPrompt, ...head.map(textOf)].filter((text) => text).join("\n\n");
  const newest = messages.findLastIndex((message) => message.role === "user");
  const usable = oldFiles
    ? messages
    : messages.map((message, index) => (index < newest ? withoutFiles(message) : message));
  const shown = usable
    .slice(head.length)
    .map((message, index, all) => presentable(message, index === all.length - 1))
    .filter((message) => message.parts.some(isContent));
  const converted = await convertToModelMessages(shown, {
    tools: withPlaceholders(tools),
    ignoreIncompleteToolCalls: true,
  });
  return { instructions: instructions || undefined, messages: inLegalOrder(converted) };
}

/** Whether a message before the user's newest one holds a file. */
export function hasOldFiles(messages: readonly UIMessage[]): boolean {
  const newest = messages.findLastIndex((message) => message.role === "user");
  return messages.slice(0, Math.max(0, newest)).some((message) => message.parts.some((part) => part.type === "file"));
}

/** A line for each file of a message, where the model cannot be shown one of them and nobody can tell which. */
function withoutFiles(message: UIMessage): UIMessage {
  const parts = message.parts.map((part): Part => {
    if (part.type !== "file") return part;
    const name = [part.filename, part.mediaType].filter(Boolean).join(", ");
    return { type: "text", text: `[A file was sent here that cannot be shown again: ${name}]` };
  });
  return { ...message, parts };
}

function presentable(message: UIMessage, isLast: boolean): UIMessage {
  if (message.role === "system") return { ...message, role: "user" };
  if (message.role === "user") return message;
  const { ending } = (message.metadata ?? {}) as AnswerMetadata;
  const parts = stepsOf(message.parts).flatMap((step, index, all) => {
    const isEnd = index === all.length - 1;
    return presentableStep(step, isLast && isEnd, (isEnd && ending !== undefined) || step.some(isStreaming));
  });
  return { ...message, parts };
}

/**
 * The parts of an entry that a later call is shown: not the calls that nobody answered, nor reasoning that led nowhere.
 * For entries that others follow.
 */
export function shownLater({ role, state, parts }: Pick<Entry, "role" | "state" | "parts">): Part[] {
  if (role !== "assistant") return parts;
  return presentableStep(parts, false, endingOf(state).ending !== undefined || parts.some(isStreaming));
}

/** `isNewest`: the model goes on from this step, and the SDK runs the calls in it that were approved. */
function presentableStep(parts: Part[], isNewest: boolean, isBrokenOff: boolean): Part[] {
  const answered = parts.filter(
    (part) => !isUnanswered(part) && !isVoidCompaction(part) && (isNewest || !isApproved(part)),
  );
  const kept = isBrokenOff
    ? answered.filter((part) => part.type !== "reasoning" || isSigned(part)).map(withoutReference)
    : answered.filter((part) => !isEmptyReasoning(part));
  return kept.slice(0, kept.findLastIndex(isContent) + 1);
}

function isStreaming(part: Part): boolean {
  return "state" in part && (part.state === "streaming" || part.state === "input-streaming");
}

/** Whether reasoning can be sent back although its step was broken off: it is whole, and not only a name (`itemId`). */
function isSigned(part: Extract<Part, { type: "reasoning" }>): boolean {
  const said = Object.values(part.providerMetadata ?? {});
  return part.state !== "streaming" && said.length > 0 && !said.some((entry) => "itemId" in entry);
}

/** A text that a provider never completed is unknown there under the name it had, so it is sent as plain text. */
function withoutReference(part: Part): Part {
  if (part.type !== "text" || isProviderCompaction(part)) return part;
  const { providerMetadata: _, ...text } = part;
  return text;
}

/** Whether a part is something that a model is shown and that may stand at the end of a step. */
function isContent(part: Part): boolean {
  if (part.type === "text") return part.text.trim() !== "" || part.providerMetadata !== undefined;
  if (part.type === "custom") return part.kind !== ANTHROPIC_OPENING;
  return isToolPart(part) || part.type === "file" || part.type === "steering-message";
}

/** A part at the head of every answer of Anthropic: it has what the stream began with, and is never sent back. */
const ANTHROPIC_OPENING = "anthropic.message_start";

/** An approved call without output: it runs when the model goes on from its step, and never afterwards. */
function isApproved(part: Part): boolean {
  return isToolPart(part) && part.state === "approval-responded" && part.approval.approved;
}

function isEmptyReasoning(part: Part): boolean {
  return part.type === "reasoning" && part.text === "" && !part.providerMetadata;
}

function isUnanswered(part: Part): boolean {
  if (!isToolPart(part)) return false;
  if (part.state === "output-available") return part.preliminary === true;
  return part.state === "input-streaming" || part.state === "input-available" || part.state === "approval-requested";
}

function textOf(message: UIMessage): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}
