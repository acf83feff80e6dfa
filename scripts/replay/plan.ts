/**
 * How a recorded conversation is played: what is said through the socket, and what can only be imported.
 *
 * A socket takes user messages and gives the answer, step by step, as the client returns tool outputs. User messages
 * nobody answered wait in the client and travel with the next one that is. What is recorded and cannot come about that
 * way is imported where it stands: a greeting before anyone spoke, an answer after an answer, the last words of a user.
 * Tool results after which the model was never asked again never leave the client; they are left out. At a recorded
 * compaction the context started over, so a session does.
 */
import type { RecordedMessage, RecordedPart, RecordedUsage, Recording } from "./recording.ts";

export interface PlannedCall {
  /** unique in its session, and tells the step */
  id: string;
  name: string;
  /** the input as the model wrote it */
  arguments: string;
  /** absent when the recorded call never got a result */
  output?: string;
}

export type PlannedPart = { type: "text" | "reasoning"; text: string } | { type: "tool-call"; call: PlannedCall };

export interface PlannedStep {
  parts: PlannedPart[];
  usage: RecordedUsage | null;
}

export interface PlannedUser {
  role: "user" | "system";
  texts: string[];
  images: number;
}

export interface PlannedAssistant {
  role: "assistant";
  steps: PlannedStep[];
}

export type PlannedMessage = PlannedUser | PlannedAssistant;

export type Act =
  /** the last message asks; those before it were waiting */
  { kind: "say"; messages: PlannedUser[]; answer: PlannedAssistant } | { kind: "import"; message: PlannedMessage };

export interface PlannedSession {
  system: string | null;
  acts: Act[];
}

export interface Plan {
  sessions: PlannedSession[];
  /** names of the tools the recording calls */
  tools: string[];
  /** recorded calls that said nothing at all: aborted before the first token */
  empty: number;
  /** tool results that never reached a model */
  unsent: number;
}

export function planOf(recording: Recording): Plan {
  const segments = segmentsOf(recording);
  const items = segments.flat();
  const first = items[0];
  const system = first?.role === "system" ? textOf(first) : null;
  let unsent = 0;
  const sessions = segments.map((segment): PlannedSession => {
    const said = segment.filter((item) => item !== first || system === null).filter((item) => !isEmpty(item));
    const messages = messagesOf(said);
    unsent += forgetUnsentResults(messages);
    return { system, acts: actsOf(messages) };
  });
  return {
    sessions: sessions.filter(({ acts }) => acts.length > 0),
    tools: toolNames(items),
    empty: items.filter(isEmpty).length,
    unsent,
  };
}

function isEmpty(item: RecordedMessage): boolean {
  return item.role === "assistant" && item.parts.length === 0;
}

export function callsOf(step: PlannedStep): PlannedCall[] {
  return step.parts.flatMap((part) => (part.type === "tool-call" ? [part.call] : []));
}

/** The input of a call as a client holds it: parsed, or as written where it is no JSON. */
export function inputOfCall(call: PlannedCall): unknown {
  try {
    return JSON.parse(call.arguments) as unknown;
  } catch {
    return call.arguments;
  }
}

/** The conversation a session should hold in the end. */
export function messagesIn(session: PlannedSession): PlannedMessage[] {
  return session.acts.flatMap((act): PlannedMessage[] =>
    act.kind === "say" ? [...act.messages, act.answer] : [act.message],
  );
}

/** The recorded context starts over at each compaction, from its summary: there what the user says first. */
function segmentsOf(recording: Recording): RecordedMessage[][] {
  const segments: RecordedMessage[][] = [[]];
  for (const item of recording.items) {
    if (item.k === "msg") segments.at(-1)?.push(item);
    else segments.push(item.summary ? [{ k: "msg", role: "user", parts: [{ t: "text", s: item.summary }] }] : []);
  }
  return segments;
}

function messagesOf(items: RecordedMessage[]): PlannedMessage[] {
  const messages: PlannedMessage[] = [];
  let steps = 0;
  for (const item of items) {
    if (item.role === "assistant") {
      addStep(messages, stepOf(item, steps));
      steps += 1;
      continue;
    }
    const unclaimed = giveResults(
      lastStep(messages),
      item.parts.filter((part) => part.t === "result"),
    );
    const rest = [...unclaimed, ...item.parts.filter((part) => part.t !== "result")];
    if (rest.length > 0) messages.push(userOf(item.role === "system" ? "system" : "user", rest));
  }
  return messages;
}

function stepOf(item: RecordedMessage, index: number): PlannedStep {
  let calls = 0;
  const parts = item.parts.map((part): PlannedPart => {
    if (part.t === "think") return { type: "reasoning", text: part.s };
    if (part.t !== "call") return { type: "text", text: part.s };
    const { name, args } = splitCall(part.s);
    return { type: "tool-call", call: { id: `call_${index}_${calls++}`, name, arguments: args } };
  });
  return { parts, usage: item.usage ?? null };
}

function splitCall(text: string): { name: string; args: string } {
  const name = /^[^{["]+/.exec(text)?.[0] ?? "unnamed";
  return { name, args: text.slice(name.length) || "{}" };
}

/** A step goes on with the message before it if that one ended with tool results: only then a client asks for more. */
function addStep(messages: PlannedMessage[], step: PlannedStep): void {
  const last = messages.at(-1);
  const calls = callsOf(lastStep(messages) ?? { parts: [], usage: null });
  const continues = calls.length > 0 && calls.every((call) => call.output !== undefined);
  if (last?.role === "assistant" && continues) last.steps.push(step);
  else messages.push({ role: "assistant", steps: [step] });
}

function lastStep(messages: PlannedMessage[]): PlannedStep | undefined {
  const last = messages.at(-1);
  return last?.role === "assistant" ? last.steps.at(-1) : undefined;
}

/** Results follow in the order of the calls; more results than calls are further blocks of the last one's. */
function giveResults(step: PlannedStep | undefined, results: RecordedPart[]): RecordedPart[] {
  const calls = step ? callsOf(step) : [];
  const last = calls.at(-1);
  if (last === undefined) return results;
  for (const { s } of results) {
    const open = calls.find((call) => call.output === undefined);
    if (open) open.output = s;
    else last.output = `${last.output}\n${s}`;
  }
  return [];
}

function userOf(role: "user" | "system", parts: RecordedPart[]): PlannedUser {
  return {
    role,
    texts: parts.filter((part) => part.t !== "image").map((part) => part.s),
    images: parts.filter((part) => part.t === "image").length,
  };
}

/** A client hands results in with its next request. Where none follows, they stay with it. */
function forgetUnsentResults(messages: PlannedMessage[]): number {
  const answer = messages.findLast((message) => message.role === "assistant");
  const results = callsOf(answer?.steps.at(-1) ?? { parts: [], usage: null }).filter(
    (call) => call.output !== undefined,
  );
  for (const call of results) delete call.output;
  return results.length;
}

function actsOf(messages: PlannedMessage[]): Act[] {
  const acts: Act[] = [];
  let waiting: PlannedUser[] = [];
  for (const message of messages) {
    if (message.role === "user") {
      waiting.push(message);
    } else if (message.role === "assistant" && waiting.length > 0) {
      acts.push({ kind: "say", messages: waiting, answer: message });
      waiting = [];
    } else {
      acts.push(...waiting.map((unanswered): Act => ({ kind: "import", message: unanswered })), {
        kind: "import",
        message,
      });
      waiting = [];
    }
  }
  return [...acts, ...waiting.map((message): Act => ({ kind: "import", message }))];
}

function textOf(item: RecordedMessage): string {
  return item.parts.map((part) => part.s).join("\n");
}

function toolNames(items: RecordedMessage[]): string[] {
  const calls = items
    .flatMap((item) => (item.role === "assistant" ? item.parts : []))
    .filter((part) => part.t === "call");
  return [...new Set(calls.map((part) => splitCall(part.s).name))].toSorted();
}
