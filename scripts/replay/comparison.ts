/** Whether what is stored is what was said. Every check gives the first difference as a sentence, or nothing. */
import { isDeepStrictEqual } from "node:util";
import type { LanguageModelUsage, UIMessage } from "ai";
import { inputOfCall, type PlannedAssistant, type PlannedMessage, type PlannedStep } from "./plan.ts";
import { inputOf } from "./recording.ts";
import type { ShownMessage } from "./script.ts";

/** A part, stripped of what a conversation does not determine: stream states, provider metadata. */
type BarePart =
  | { type: "step-start" | "file" }
  | { type: "text" | "reasoning"; text: string }
  | { type: "tool"; name: string; id: string; input: unknown; output: unknown };

/** The model's own report, message by message, as clients read it. */
interface AssistantMetadata {
  usage?: LanguageModelUsage;
  totalUsage?: LanguageModelUsage;
  steps?: LanguageModelUsage[];
  model?: string;
}

export function differenceOfMessages(said: PlannedMessage[], stored: UIMessage[]): string | null {
  for (const [index, message] of said.entries()) {
    const found = stored[index];
    if (found === undefined) return `message ${index} of ${said.length} is not stored`;
    if (found.role !== message.role) return `message ${index} is stored as ${found.role}, said by ${message.role}`;
    const difference = differenceOfParts(saidParts(message), found.parts.flatMap(barePart));
    if (difference !== null) return `message ${index}, ${difference}`;
  }
  return stored.length > said.length ? `${stored.length} messages are stored, ${said.length} were said` : null;
}

/** The service's copy and the client's: same ids, same parts, same order. */
export function differenceOfCopies(client: UIMessage[], stored: UIMessage[]): string | null {
  if (client.length !== stored.length)
    return `the client holds ${client.length} messages, the service ${stored.length}`;
  for (const [index, message] of client.entries()) {
    const copy = stored[index];
    if (copy?.id !== message.id)
      return `message ${index} has the id ${message.id} in the client, ${copy?.id} in the service`;
    const difference = differenceOfParts(message.parts.flatMap(barePart), copy.parts.flatMap(barePart));
    if (difference !== null) return `client and service differ in message ${index}, ${difference}`;
  }
  return null;
}

/** `model` is the one that spoke; an imported message names none. */
export function differenceOfUsage(said: PlannedAssistant, stored: UIMessage | undefined, model: string): string | null {
  const metadata = (stored?.metadata ?? {}) as AssistantMetadata;
  const steps = metadata.steps ?? [];
  if (steps.length !== said.steps.length)
    return `metadata.steps has ${steps.length} entries for ${said.steps.length} steps`;
  for (const [index, step] of said.steps.entries()) {
    const difference = differenceOfStepUsage(step, steps[index]);
    if (difference !== null) return `metadata.steps[${index}]: ${difference}`;
  }
  if (!isDeepStrictEqual(metadata.usage, steps.at(-1))) return "metadata.usage is not that of the last step";
  const total = said.steps.reduce((sum, { usage }) => sum + (usage ? inputOf(usage) : 0), 0);
  if ((metadata.totalUsage?.inputTokens ?? 0) !== total)
    return `metadata.totalUsage has input ${metadata.totalUsage?.inputTokens}, said ${total}`;
  return metadata.model === model ? null : `metadata.model is ${metadata.model}, not ${model}`;
}

function differenceOfStepUsage({ usage }: PlannedStep, stored: LanguageModelUsage | undefined): string | null {
  const figures = {
    input: [usage ? inputOf(usage) : undefined, stored?.inputTokens],
    output: [usage?.out, stored?.outputTokens],
    "cache read": [usage?.cr, stored?.inputTokenDetails?.cacheReadTokens],
  };
  for (const [name, [reported, kept]] of Object.entries(figures)) {
    if (reported !== kept) return `${name} is ${kept}, reported ${reported}`;
  }
  return null;
}

/**
 * Compares what a model was shown with what it should have been, from the end: the head may have been summarised. A cut
 * may go through words that would be shown as one message, so the first one behind the summary may be the end of one.
 */
export function differenceOfPrompts(
  expected: ShownMessage[],
  received: ShownMessage[],
  shortened: boolean,
): string | null {
  if (!shortened && expected.length !== received.length)
    return `the prompt has ${received.length} messages, expected ${expected.length}`;
  const length = shortened ? Math.max(received.length - 1, 0) : received.length;
  for (let back = 1; back <= length; back += 1) {
    const [shown, due] = [received.at(-back), expected.at(-back)];
    if (isDeepStrictEqual(shown, due) || (shortened && back === length && isEndOf(shown, due))) continue;
    return `prompt message ${received.length - back}: ${short(shown)}, expected ${short(due)}`;
  }
  return null;
}

function isEndOf(shown: ShownMessage | undefined, due: ShownMessage | undefined): boolean {
  if (shown?.role !== "assistant" || due?.role !== "assistant") return false;
  const calls = due.calls.slice(due.calls.length - shown.calls.length);
  return (
    due.content.endsWith(shown.content) &&
    due.reasoning.endsWith(shown.reasoning) &&
    isDeepStrictEqual(shown.calls, calls)
  );
}

function differenceOfParts(said: BarePart[], stored: BarePart[]): string | null {
  for (let index = 0; index < Math.max(said.length, stored.length); index += 1) {
    if (!isDeepStrictEqual(said[index], stored[index])) {
      return `part ${index}: stored ${short(stored[index])}, said ${short(said[index])}`;
    }
  }
  return null;
}

function saidParts(message: PlannedMessage): BarePart[] {
  if (message.role !== "assistant") {
    const images = Array.from({ length: message.images }, (): BarePart => ({ type: "file" }));
    return [...message.texts.map((text): BarePart => ({ type: "text", text })), ...images];
  }
  return message.steps.flatMap((step): BarePart[] => [
    { type: "step-start" },
    ...step.parts.map((part): BarePart => {
      if (part.type !== "tool-call") return { type: part.type, text: part.text };
      const { id, name, output } = part.call;
      return { type: "tool", name, id, input: inputOfCall(part.call), output };
    }),
  ]);
}

function barePart(part: UIMessage["parts"][number]): BarePart[] {
  if (part.type === "text" || part.type === "reasoning") return [{ type: part.type, text: part.text }];
  if (part.type === "step-start" || part.type === "file") return [{ type: part.type }];
  if (!("toolCallId" in part)) return [];
  const name = part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
  return [{ type: "tool", name, id: part.toolCallId, input: part.input, output: part.output }];
}

function short(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}
