/**
 * The messages of a branch as a model is shown them.
 *
 * Three things are left out because providers refuse them: reasoning that is empty and carries nothing for the
 * provider, tool calls that never got an answer, and, in a step that holds nothing else, the reasoning that led to
 * such calls.
 */
import { convertToModelMessages, type ModelMessage, type ToolSet, type UIMessage } from "ai";
import type { Part } from "../records.ts";
import { isToolPart } from "./answer.ts";
import { stepsOf } from "./transcript.ts";

/** What a model call is built from: the text that precedes the conversation, and the conversation. */
export interface Prompt {
  instructions: string | undefined;
  messages: ModelMessage[];
}

/**
 * `systemPrompt` and the system messages that open the conversation become the instructions. A system message further
 * down is shown as a user message, since providers take system text only at the front.
 */
export async function promptOf(
  messages: readonly UIMessage[],
  systemPrompt: string | undefined,
  tools: ToolSet,
): Promise<Prompt> {
  const firstOther = messages.findIndex((message) => message.role !== "system");
  const head = messages.slice(0, firstOther < 0 ? messages.length : firstOther);
  const instructions = [systemPrompt, ...head.map(textOf)].filter((text) => text).join("\n\n");
  const shown = messages
    .slice(head.length)
    .map(presentable)
    .filter((message) => message.parts.length > 0);
  return {
    instructions: instructions || undefined,
    messages: await convertToModelMessages(shown, { tools, ignoreIncompleteToolCalls: true }),
  };
}

function presentable(message: UIMessage): UIMessage {
  if (message.role === "system") return { ...message, role: "user" };
  if (message.role === "user") return message;
  return { ...message, parts: stepsOf(message.parts).flatMap(presentableStep) };
}

function presentableStep(parts: Part[]): Part[] {
  const kept = parts.filter((part) => !isEmptyReasoning(part) && !isUnanswered(part));
  const cutCall = parts.some(isUnanswered);
  return cutCall && !kept.some((part) => part.type === "text" || isToolPart(part)) ? [] : kept;
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
