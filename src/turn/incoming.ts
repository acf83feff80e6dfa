/**
 * What a client's transcript brings that is new.
 *
 * Stock clients post everything they have. The server has its own history and takes from a post only what stands at
 * its end: user messages it does not know, another text of a user message it knows, or outputs and approvals for tool
 * calls. What else a client says about the past is passed over without being looked at, so it costs nothing and
 * changes nothing.
 */
import { safeValidateUIMessages, type UIMessage } from "ai";
import { z } from "zod";
import { SessionError } from "../errors.ts";
import type { ClientTool, ToolAnswer, TurnRequest } from "../records.ts";
import type { Limits } from "./configuration.ts";
import { DEEPEST, isTooDeep } from "./json-depth.ts";

/** A request as a wire hands it over, its envelope checked and its messages not. */
export interface IncomingRequest {
  requestId: string;
  trigger: "submit-message" | "regenerate-message";
  /** the message that is edited, answered again or continued, if the client says so */
  messageId?: string;
  messages: readonly unknown[];
  /** as found in the request's body */
  clientTools?: unknown;
}

const MESSAGE_HEAD = z.looseObject({
  id: z.string().min(1).max(256).regex(/\S/, "it is blank"),
  role: z.enum(["user", "assistant", "system"]),
  parts: z.array(z.looseObject({ type: z.string() })),
});

/** Characters of all client tools as JSON: they are stored in the session's row, which holds 2 MB with all else in it. */
const CLIENT_TOOLS_LENGTH = 256 * 1024;

/** More than any model can choose from. */
const CLIENT_TOOLS_COUNT = 512;

const CLIENT_TOOLS = z.array(
  z.object({
    name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
    description: z.string().max(16_384).optional(),
    inputSchema: z.record(z.string(), z.unknown()),
  }),
);

/** A call as a client reports on it. Whether there is such a call is for the session to say. */
const REPORTED_CALL = z.looseObject({
  toolCallId: z.string(),
  state: z.string(),
  output: z.unknown().optional(),
  errorText: z.string().optional(),
  approval: z
    .looseObject({ id: z.string(), approved: z.boolean().optional(), reason: z.string().optional() })
    .optional(),
});

/** Parts a person can say. */
const USER_PARTS = /^(text|file|data-.+)$/;

const BASE64_DATA_URL = /^data:[^,]*;base64,[A-Za-z0-9+/_-]*={0,2}$/;

type MessageHead = z.infer<typeof MESSAGE_HEAD>;

/**
 * Reads what is new. `isKnown` says whether the session has a message of that id.
 * Throws `invalid-message`, `message-too-large` or `bad-request` with what is wrong and where.
 */
export async function readIncoming(
  incoming: IncomingRequest,
  isKnown: (messageId: string) => boolean,
  limits: Limits,
  clientToolsAllowed: boolean,
): Promise<TurnRequest> {
  const clientTools = readClientTools(incoming.clientTools, clientToolsAllowed);
  const base = { requestId: incoming.requestId, messages: [], ...(clientTools && { clientTools }) };
  if (incoming.trigger === "regenerate-message") {
    return { ...base, trigger: "regenerate", target: incoming.messageId };
  }
  const last = headOf(incoming.messages.at(-1), incoming.messages.length - 1, limits);
  switch (last.role) {
    case "assistant":
      return {
        ...base,
        trigger: "continue",
        target: last.id,
        toolAnswers: toolAnswersOf(last, limits),
        stepsKnown: Math.max(1, last.parts.filter((part) => part.type === "step-start").length),
      };
    case "user": {
      const edited = isKnown(last.id);
      if (!edited && incoming.messageId !== undefined && !isKnown(incoming.messageId)) {
        throw new SessionError("unknown-message", `The session has no message "${incoming.messageId}" to edit.`);
      }
      const fresh = edited ? [last] : freshTail(incoming.messages, isKnown, limits);
      const messages = await validated(fresh, limits);
      const before = MESSAGE_HEAD.safeParse(incoming.messages.at(-1 - fresh.length)).data;
      const toolAnswers = before?.role === "assistant" ? toolAnswersOf(before, limits) : [];
      return {
        ...base,
        trigger: "submit",
        messages,
        ...(edited && { target: last.id, ...(incoming.messageId === last.id && { edits: true }) }),
        ...(toolAnswers.length > 0 && { toolAnswers, answeredMessage: before?.id }),
      };
    }
    case "system":
      throw new SessionError(
        "invalid-message",
        `Message "${last.id}" has the role system; set the system prompt with PATCH /sessions/:id instead.`,
      );
  }
}

/** Checks new messages of any role, for the import. */
export async function validated(messages: readonly unknown[], limits: Limits): Promise<UIMessage[]> {
  messages.forEach((message, index) => {
    headOf(message, index, limits);
    checkSize(message, index, limits);
  });
  const result = await safeValidateUIMessages({ messages: [...messages] });
  if (!result.success) {
    throw new SessionError("invalid-message", `A message is not a valid UI message: ${firstIssue(result.error)}`);
  }
  result.data.forEach(checkParts);
  return result.data;
}

/** Unknown user messages at the end of the transcript, oldest first. */
function freshTail(messages: readonly unknown[], isKnown: (id: string) => boolean, limits: Limits): MessageHead[] {
  const fresh: MessageHead[] = [];
  for (let index = messages.length - 1; index >= 0; index -= 1) {
    const head = headOf(messages[index], index, limits);
    if (head.role !== "user" || isKnown(head.id)) break;
    if (fresh.some((other) => other.id === head.id)) {
      throw new SessionError("duplicate-id", `Two new messages have the id "${head.id}"; ids must be unique.`);
    }
    fresh.unshift(head);
    if (fresh.length > limits.messagesPerRequest) {
      throw new SessionError("bad-request", `A request may bring at most ${limits.messagesPerRequest} new messages.`);
    }
  }
  return fresh;
}

function headOf(message: unknown, index: number, limits: Limits): MessageHead {
  refuseManyParts(message, index, limits);
  if (message === undefined) throw new SessionError("invalid-message", "The request has no messages.");
  const head = MESSAGE_HEAD.safeParse(message);
  if (head.success) return head.data;
  throw new SessionError("invalid-message", `messages[${index}] is not a UI message: ${firstIssue(head.error)}`);
}

function checkSize(message: unknown, index: number, limits: Limits): void {
  const { length } = JSON.stringify(message) ?? "";
  if (length > limits.messageLength) {
    throw new SessionError(
      "message-too-large",
      `messages[${index}] has ${length} characters as JSON; at most ${limits.messageLength} are allowed.`,
    );
  }
  refuseDepth(message, `messages[${index}]`);
}

/** Before the message is looked at: a list of a million wrong parts would be a million complaints. */
function refuseManyParts(message: unknown, index: number, limits: Limits): void {
  const parts: unknown =
    typeof message === "object" && message !== null && "parts" in message ? message.parts : undefined;
  if (!Array.isArray(parts) || parts.length <= limits.messageParts) return;
  throw new SessionError(
    "message-too-large",
    `messages[${index}] has ${parts.length} parts; at most ${limits.messageParts} are allowed.`,
  );
}

function refuseDepth(value: unknown, name: string): void {
  if (!isTooDeep(value)) return;
  throw new SessionError("invalid-message", `${name} is nested deeper than ${DEEPEST} levels.`);
}

/** What a model could never be shown would fail the turn, and a url that does not parse every later one. */
function checkParts(message: UIMessage): void {
  for (const part of message.parts) {
    if (message.role === "user" && !USER_PARTS.test(part.type)) {
      throw new SessionError("invalid-message", `A user message cannot have a part of type "${part.type}".`);
    }
    if ("url" in part && typeof part.url === "string" && !isFetchable(part.url)) {
      throw new SessionError(
        "invalid-message",
        `Message "${message.id}" has a part whose url is not an http, https or Base64 data URL.`,
      );
    }
  }
  if (message.role === "user" && !message.parts.some(saysSomething)) {
    throw new SessionError("invalid-message", `Message "${message.id}" has neither text nor a file.`);
  }
}

function saysSomething(part: UIMessage["parts"][number]): boolean {
  return part.type === "file" || (part.type === "text" && part.text.trim() !== "");
}

/** The SDK takes what stands behind the comma of a data URL for Base64, whatever the URL says. */
function isFetchable(url: string): boolean {
  if (url.startsWith("data:")) return BASE64_DATA_URL.test(url) && isDecodable(url.slice(url.indexOf(",") + 1));
  return URL.canParse(url) && /^https?:$/.test(new URL(url).protocol);
}

/** Padding may be left out; where it stands it has to fit. One letter beyond a group of four is half a byte. */
function isDecodable(base64: string): boolean {
  const letters = base64.replace(/=+$/, "").length;
  const padded = letters !== base64.length;
  return letters % 4 !== 1 && (!padded || base64.length % 4 === 0);
}

function readClientTools(given: unknown, allowed: boolean): ClientTool[] | undefined {
  if (given === undefined || given === null) return undefined;
  if (!allowed)
    throw new SessionError("bad-request", "This session takes no client tools; allow them with allowClientTools().");
  if (Array.isArray(given) && given.length > CLIENT_TOOLS_COUNT) {
    throw new SessionError("bad-request", `A request may bring at most ${CLIENT_TOOLS_COUNT} client tools.`);
  }
  const tools = CLIENT_TOOLS.safeParse(given);
  if (tools.success && JSON.stringify(tools.data).length <= CLIENT_TOOLS_LENGTH) return tools.data;
  if (tools.success)
    throw new SessionError("bad-request", `clientTools may have ${CLIENT_TOOLS_LENGTH} characters as JSON at most.`);
  throw new SessionError("bad-request", `clientTools is not valid: ${firstIssue(tools.error)}`);
}

function toolAnswersOf(message: MessageHead, limits: Limits): ToolAnswer[] {
  const answers = reportedCalls(message);
  for (const answer of answers) {
    const { length } = JSON.stringify(answer);
    refuseDepth(answer, `The output of the call "${answer.toolCallId}"`);
    if (length <= limits.messageLength) continue;
    throw new SessionError(
      "message-too-large",
      `The output of the call "${answer.toolCallId}" has ${length} characters; at most ${limits.messageLength} are allowed.`,
    );
  }
  return answers;
}

function reportedCalls(message: MessageHead): ToolAnswer[] {
  return message.parts.flatMap((part): ToolAnswer[] => {
    const call = REPORTED_CALL.safeParse(part);
    if (!call.success) return [];
    const { toolCallId, state, output, errorText, approval } = call.data;
    if (state === "output-available") return [{ toolCallId, kind: "output", output: output ?? null }];
    if (state === "output-error") return [{ toolCallId, kind: "error", errorText: errorText ?? "" }];
    if (state !== "approval-responded" || approval?.approved === undefined) return [];
    const { id: approvalId, approved, reason } = approval;
    return [{ toolCallId, kind: "approval", approvalId, approved, ...(reason !== undefined && { reason }) }];
  });
}

/** The first thing wrong, with its path; a client needs no more to find it. */
function firstIssue(error: unknown): string {
  const zodError = findZodError(error);
  const issue = zodError?.issues[0];
  if (!issue) return error instanceof Error ? (error.message.split("\n")[0] ?? "") : "unknown";
  return issue.path.length ? `${issue.path.map(String).join(".")}: ${issue.message}` : issue.message;
}

function findZodError(error: unknown): z.ZodError | undefined {
  if (error instanceof z.ZodError) return error;
  return error instanceof Error && error.cause !== undefined ? findZodError(error.cause) : undefined;
}
