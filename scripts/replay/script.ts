/** A planned session as the scripted model says it, and as the model should have been shown it. */
import { ASSISTANT_BEGINS } from "../../src/turn/role-order.ts";
import type { ScriptedPart, ScriptedStep, Script } from "../../test/loopback/openai-compatible-server.ts";
import {
  callsOf,
  inputOfCall,
  type PlannedAssistant,
  type PlannedMessage,
  type PlannedSession,
  type PlannedStep,
  type PlannedUser,
} from "./plan.ts";
import { inputOf, type RecordedUsage } from "./recording.ts";

/** A step of a planned session, in the order in which the scripted model counts them. */
interface Place {
  /** the conversation before it */
  before: PlannedMessage[];
  step: PlannedStep;
  /** absent for a step that was said elsewhere */
  said?: true;
  /** the user's words that it answers, for the first step of an answer */
  after?: string;
}

/** Places are counted in prompts, so an answer that a prompt joins to the one before it has none of its own. */
export function placesOf(session: PlannedSession): Place[] {
  const places: Place[] = [];
  const messages: PlannedMessage[] = [];
  for (const act of session.acts) {
    const answer = act.kind === "say" ? act.answer : act.message;
    if (act.kind === "say") messages.push(...act.messages);
    if (answer.role === "assistant") places.push(...answerPlaces([...messages], answer, act.kind === "say"));
    messages.push(answer);
  }
  return places;
}

function answerPlaces(messages: PlannedMessage[], answer: PlannedAssistant, said: boolean): Place[] {
  const asked = shownMessages(messages).at(-1);
  const places = answer.steps.map((step, index): Place => {
    const begun: PlannedMessage[] = index === 0 ? [] : [{ role: "assistant", steps: answer.steps.slice(0, index) }];
    const after = index === 0 && asked?.role === "user" ? { after: asked.content } : {};
    return { before: [...messages, ...begun], step, ...(said && { said }), ...after };
  });
  return !said && asked?.role === "assistant" ? places.slice(1) : places;
}

/** Imported steps were said elsewhere and leave a gap. */
export function scriptOf(session: PlannedSession): Script {
  return placesOf(session).map(({ step, said, after }) => (said ? scriptedStep(step, after) : null));
}

function scriptedStep(step: PlannedStep, after: string | undefined): ScriptedStep {
  const parts = step.parts.map((part): ScriptedPart => {
    if (part.type !== "tool-call") return part;
    return { type: "tool-call", id: part.call.id, name: part.call.name, arguments: part.call.arguments };
  });
  return { parts, usage: step.usage && wireUsage(step.usage), ...(after === undefined ? {} : { after }) };
}

/** Cache writes have no place in the format; they travel as gateways send them and stay in the raw object. */
function wireUsage(usage: RecordedUsage): Record<string, unknown> {
  return {
    prompt_tokens: inputOf(usage),
    completion_tokens: usage.out,
    total_tokens: inputOf(usage) + usage.out,
    prompt_tokens_details: { cached_tokens: usage.cr, cache_write_tokens: usage.cw },
  };
}

function textOf(message: PlannedUser): string {
  return message.texts.join("\n");
}

/** One message of a chat completions request, as far as a conversation determines it. */
export type ShownMessage =
  | { role: "user"; content: string }
  | { role: "assistant"; content: string; reasoning: string; calls: { id: string; name: string; input: unknown }[] }
  | { role: "tool"; id: string; content: string };

/**
 * What the model should be shown of a conversation: no call without its result, no reasoning that nothing follows, the
 * user first, and neighbours of one role as one message.
 */
export function shownMessages(messages: PlannedMessage[]): ShownMessage[] {
  const shown = messages.flatMap((message): ShownMessage[] => {
    if (message.role !== "assistant") return [{ role: "user", content: textOf(message) }];
    return message.steps.flatMap(shownStep);
  });
  if (shown[0]?.role === "assistant") shown.unshift({ role: "user", content: ASSISTANT_BEGINS });
  const joined: ShownMessage[] = [];
  for (const next of shown) {
    const both = bothOf(joined.at(-1), next);
    if (both) joined[joined.length - 1] = both;
    else joined.push(next);
  }
  return joined;
}

/** Two neighbours as one; nothing where they stay apart, as the results of calls do. */
function bothOf(one: ShownMessage | undefined, next: ShownMessage): ShownMessage | undefined {
  if (one?.role === "user" && next.role === "user") {
    return { role: "user", content: [one.content, next.content].filter((text) => text !== "").join("\n") };
  }
  if (one?.role !== "assistant" || next.role !== "assistant") return undefined;
  const [content, reasoning] = [one.content + next.content, one.reasoning + next.reasoning];
  return { role: "assistant", content, reasoning, calls: [...one.calls, ...next.calls] };
}

function shownStep(step: PlannedStep): ShownMessage[] {
  const answered = callsOf(step).filter((call) => call.output !== undefined);
  const said = (part: PlannedStep["parts"][number]): boolean =>
    part.type === "tool-call" ? part.call.output !== undefined : part.type === "text" && part.text.trim() !== "";
  const shown = step.parts.slice(0, step.parts.findLastIndex(said) + 1);
  const text = (type: "text" | "reasoning"): string =>
    shown.map((part) => (part.type === type ? part.text : "")).join("");
  if (shown.length === 0) return [];
  const calls = answered.map((call) => ({ id: call.id, name: call.name, input: inputOfCall(call) }));
  return [
    { role: "assistant", content: text("text"), reasoning: text("reasoning"), calls },
    ...answered.map((call): ShownMessage => ({ role: "tool", id: call.id, content: call.output ?? "" })),
  ];
}

/** The same of a request as it was received, the system prompt left out. */
export function receivedMessages(body: Record<string, unknown>): ShownMessage[] {
  const messages = (body["messages"] ?? []) as Record<string, unknown>[];
  return messages.filter(({ role }) => role !== "system").map(receivedMessage);
}

/** The system prompt of a request; null when it has none. */
export function receivedSystem(body: Record<string, unknown>): string | null {
  const messages = (body["messages"] ?? []) as Record<string, unknown>[];
  const system = messages.find(({ role }) => role === "system");
  return system === undefined ? null : contentText(system["content"]);
}

function receivedMessage(message: Record<string, unknown>): ShownMessage {
  const content = contentText(message["content"]);
  if (message["role"] === "tool") return { role: "tool", id: String(message["tool_call_id"]), content };
  if (message["role"] !== "assistant") return { role: "user", content };
  const calls = (message["tool_calls"] ?? []) as { id: string; function: { name: string; arguments: string } }[];
  return {
    role: "assistant",
    content,
    reasoning: String(message["reasoning_content"] ?? ""),
    calls: calls.map((call) => ({
      id: call.id,
      name: call.function.name,
      input: JSON.parse(call.function.arguments) as unknown,
    })),
  };
}

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return (content as { text?: string }[]).flatMap(({ text }) => (text === undefined ? [] : [text])).join("\n");
}
