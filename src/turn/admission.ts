/**
 * From a request to a plan: where the turn attaches, what is stored before it, or why it is not run.
 *
 * Pure over the history it is shown. A request that was answered before is recognised here by its message, so a client
 * that never saw the answer gets it instead of a second one.
 */
import { isDeepEqualData, type ToolSet, type UIMessage } from "ai";
import { SessionError } from "../errors.ts";
import type { Entry, EntryHead, Seq, TurnRequest } from "../records.ts";
import { isToolPart } from "./answer.ts";
import { refuseUnknownCalls, waitsForClient, withToolAnswers } from "./tool-answers.ts";

/** What admission may ask of the history. */
export interface KnownHistory {
  /** last entry of the active branch */
  leaf: Entry | undefined;
  /** entries of a message on the active branch, in order of steps; empty if it is not there */
  onBranch(messageId: string): Entry[];
  /** the newest message of a role on the active branch */
  newest(role: Entry["role"]): Entry[];
  /** first entry of the answer that follows an entry on the active branch */
  answerTo(seq: Seq): Entry | undefined;
  /** first entry of every version of a message, on any branch */
  versions(messageId: string): EntryHead[];
  entry(seq: Seq): Entry | undefined;
}

/** A user message to store, and as which version. */
export interface MessageToStore {
  message: UIMessage;
  version: number;
}

/** Store, then answer. */
export interface RunAdmission {
  kind: "run";
  /** where the branch goes on from */
  parent: Seq | null;
  store: MessageToStore[];
  /** entries whose calls were answered */
  update: Entry[];
  /** the message that goes on, when none begins */
  continues?: string;
}

export type Admission =
  | RunAdmission
  /** tool answers are stored and others are still awaited */
  | { kind: "wait-for-client"; messageId: string; update: Entry[] }
  /** answered before by this message */
  | { kind: "answered"; messageId: string };

/** Throws `unknown-message`, `unknown-tool-call` or `bad-request`. */
export function admit(request: TurnRequest, history: KnownHistory, tools: ToolSet): Admission {
  switch (request.trigger) {
    case "submit":
      return request.target === undefined ? append(request, history, tools) : edit(request, request.target, history);
    case "regenerate":
      return regenerate(request.target, history);
    case "continue":
      return goOn(request, request.target ?? "", history, tools);
  }
}

function append(request: TurnRequest, history: KnownHistory, tools: ToolSet): Admission {
  const answers = request.toolAnswers ?? [];
  // Providers reuse call ids, so a stale transcript could answer a later call: the message has to be the newest answer.
  const answered = history.newest("assistant").filter((entry) => entry.messageId === request.answeredMessage);
  // What was new when a request came may have been stored by a turn it waited for.
  const fresh = request.messages.filter(({ id }) => history.versions(id).length === 0);
  const last = request.messages.at(-1);
  if (last && fresh.length === 0) return edit({ ...request, messages: [last] }, last.id, history);
  return {
    kind: "run",
    parent: history.leaf?.seq ?? null,
    store: fresh.map((message) => ({ message, version: 0 })),
    update: answers.length ? withToolAnswers(answered, answers, tools) : [],
  };
}

function edit(request: TurnRequest, target: string, history: KnownHistory): Admission {
  const [edited] = request.messages;
  const versions = history.versions(target);
  const current = history.onBranch(target)[0] ?? history.entry(versions.at(-1)?.seq ?? 0);
  if (!edited || !current) throw unknownMessage(target);
  if (current.role !== "user") {
    throw new SessionError("invalid-message", `Message "${target}" is not a user message and cannot be edited.`);
  }
  if (!isDeepEqualData(current.parts, edited.parts)) {
    return { kind: "run", parent: current.parent, store: [{ message: edited, version: versions.length }], update: [] };
  }
  const answer = history.answerTo(current.seq);
  const stands = answer && answer.state !== "failed" && answer.state !== "interrupted";
  if (answer && stands && (!request.edits || history.leaf?.messageId === answer.messageId)) {
    return { kind: "answered", messageId: answer.messageId };
  }
  return { kind: "run", parent: current.seq, store: [], update: [] };
}

function regenerate(target: string | undefined, history: KnownHistory): Admission {
  const found = target === undefined ? newestToAnswer(history) : firstEntry(target, history);
  if (!found) throw unknownMessage(target ?? "");
  const parent = found.role === "assistant" ? found.parent : found.seq;
  if (parent === null)
    throw new SessionError("bad-request", "Nothing comes before this message that could be answered.");
  return { kind: "run", parent, store: [], update: [] };
}

function goOn(request: TurnRequest, target: string, history: KnownHistory, tools: ToolSet): Admission {
  const entries = history.onBranch(target);
  const last = entries.at(-1);
  const answers = request.toolAnswers ?? [];
  if (!last) throw unknownMessage(target);
  if (last.role !== "assistant") {
    throw new SessionError("invalid-message", `Message "${target}" is not an assistant message here.`);
  }
  refuseUnknownCalls(entries, answers);
  const update = withToolAnswers(entries, answers, tools);
  const unfinished = history.leaf?.seq === last.seq && last.parts.some(isToolPart) && !waitsForClient(last.parts);
  if (update.length === 0 && !unfinished) return { kind: "answered", messageId: target };
  if (history.leaf?.messageId !== target) {
    throw new SessionError("unknown-tool-call", "The conversation has moved on; these tool calls no longer wait.");
  }
  const changedLast = update.find((entry) => entry.seq === last.seq) ?? last;
  if (waitsForClient(changedLast.parts)) return { kind: "wait-for-client", messageId: target, update };
  return { kind: "run", parent: last.seq, store: [], update, continues: target };
}

function newestToAnswer(history: KnownHistory): Entry | undefined {
  return history.leaf?.role === "user" ? history.leaf : history.newest("assistant")[0];
}

function firstEntry(messageId: string, history: KnownHistory): Entry | undefined {
  return history.onBranch(messageId)[0] ?? history.entry(history.versions(messageId).at(-1)?.seq ?? 0);
}

function unknownMessage(messageId: string): SessionError {
  return new SessionError("unknown-message", `The session has no message "${messageId}".`);
}
