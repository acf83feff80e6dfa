/**
 * What a client says about tool calls, held against the calls that are open.
 *
 * Pure: entries in, changed entries out. Only the client may answer a client's tool, and only once; a server tool's
 * output never comes from a client.
 */
import type { ToolSet } from "ai";
import { SessionError } from "../errors.ts";
import type { Entry, Part, ToolAnswer } from "../records.ts";
import { isAnswered, isToolPart, toolNameOf } from "./answer.ts";
import { runsOnServer } from "./tool-set.ts";

type ToolPart = Extract<Part, { toolCallId: string }>;

/** Entries whose calls were answered, with the answers in place. The entries given are not changed. */
export function withToolAnswers(entries: readonly Entry[], answers: readonly ToolAnswer[], tools: ToolSet): Entry[] {
  return entries.flatMap((entry) => {
    const parts = entry.parts.map((part) => (isToolPart(part) ? answered(part, answers, tools) : part));
    return parts.some((part, index) => part !== entry.parts[index]) ? [{ ...entry, parts }] : [];
  });
}

/** Throws `unknown-tool-call` when an answer is for a call that the message does not have. */
export function refuseUnknownCalls(entries: readonly Entry[], answers: readonly ToolAnswer[]): void {
  const calls = new Set(entries.flatMap((entry) => entry.parts.filter(isToolPart).map((part) => part.toolCallId)));
  const stranger = answers.find((answer) => !calls.has(answer.toolCallId));
  if (!stranger) return;
  throw new SessionError(
    "unknown-tool-call",
    `The message has no tool call "${stranger.toolCallId}"; load the history again before answering.`,
  );
}

/** Whether a call in these parts still waits for the client. */
export function waitsForClient(parts: readonly Part[]): boolean {
  return parts.some((part) => isToolPart(part) && !isAnswered(part) && part.state !== "approval-responded");
}

function answered(part: ToolPart, answers: readonly ToolAnswer[], tools: ToolSet): Part {
  const answer = answers.find((candidate) => candidate.toolCallId === part.toolCallId);
  if (!answer) return part;
  if (answer.kind === "approval") return approved(part, answer);
  if (part.state !== "input-available" || part.providerExecuted || runsOnServer(tools, toolNameOf(part))) return part;
  // SAFETY: a call whose input is available becomes one with an output or an error by these two fields alone.
  return answer.kind === "output"
    ? ({ ...part, state: "output-available", output: answer.output } as Part)
    : ({ ...part, state: "output-error", errorText: answer.errorText } as Part);
}

function approved(part: ToolPart, answer: Extract<ToolAnswer, { kind: "approval" }>): Part {
  if (part.state !== "approval-requested" || part.approval.id !== answer.approvalId) return part;
  const { approved: decision, reason } = answer;
  // SAFETY: a requested approval becomes a responded one by its decision.
  return {
    ...part,
    state: "approval-responded",
    approval: { ...part.approval, approved: decision, ...(reason !== undefined && { reason }) },
  } as Part;
}
