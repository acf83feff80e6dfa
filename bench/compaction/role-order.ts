/** What no provider takes: calls without results, results without calls, roles out of turn. Checked on every prompt that is sent. */
import type { LanguageModelV4Message, LanguageModelV4Prompt } from "@ai-sdk/provider";

/** Sentences; none for a prompt in order. */
export function faultsOf(prompt: LanguageModelV4Prompt): string[] {
  const messages = prompt.filter(({ role }) => role !== "system");
  const faults: string[] = [];
  if (prompt.findLastIndex(({ role }) => role === "system") > prompt.length - messages.length - 1)
    faults.push("a system message stands behind the conversation's first");
  if (messages[0]?.role !== "user") faults.push(`the first message is of the role ${messages[0]?.role}`);
  if (messages.at(-1)?.role === "assistant") faults.push("the last message is the assistant's");
  for (const [index, message] of messages.entries())
    faults.push(...faultsAt(messages[index - 1], message, messages[index + 1]));
  return faults;
}

/** Roles that may follow a role. */
const FOLLOWS: Readonly<Record<string, readonly string[]>> = {
  user: ["assistant"],
  assistant: ["user", "tool"],
  tool: ["assistant", "user"],
};

function faultsAt(
  before: LanguageModelV4Message | undefined,
  message: LanguageModelV4Message,
  after: LanguageModelV4Message | undefined,
): string[] {
  const faults: string[] = [];
  if (before && !FOLLOWS[before.role]?.includes(message.role)) faults.push(`${message.role} follows ${before.role}`);
  const called = idsIn(message, "tool-call");
  const returned = idsIn(after, "tool-result");
  for (const id of called) if (!returned.includes(id)) faults.push(`the call ${id} has no result right behind it`);
  if (message.role !== "tool") return faults;
  const asked = idsIn(before, "tool-call");
  for (const id of idsIn(message, "tool-result")) if (!asked.includes(id)) faults.push(`the result ${id} has no call`);
  return faults;
}

function idsIn(message: LanguageModelV4Message | undefined, type: "tool-call" | "tool-result"): string[] {
  if (!message || message.role === "system") return [];
  return message.content.flatMap((part) => (part.type === type ? [part.toolCallId] : []));
}
