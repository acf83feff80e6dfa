/**
 * Messages as clients see them, and entries as the session stores them: how one becomes the other.
 *
 * A message is cut before each `step-start` but the first, so that joining its entries gives back exactly the parts
 * that went in. Usage is never stored twice: the metadata of an answer is derived from the calls on its entries.
 */
import type { LanguageModelUsage, UIMessage } from "ai";
import type { Entry, EntryState, ModelCall, Part } from "../records.ts";
import { countOf } from "./reported-usage.ts";

/** What the service adds to the metadata of an answer. Usage objects come without the provider's `raw` object. */
export interface AnswerMetadata {
  /** of the last step: what the context is measured by */
  usage?: LanguageModelUsage;
  /** sum over the steps: what the answer cost */
  totalUsage?: LanguageModelUsage;
  /** one per step, in order; `null` for a step without a report */
  steps?: (LanguageModelUsage | null)[];
  /** registry id of the last step's model */
  model?: string;
  /** present when the answer is not complete */
  ending?: "aborted" | "failed" | "interrupted";
}

/** Cuts the parts of a message into steps. A message without `step-start` is one step. */
export function stepsOf(parts: readonly Part[]): Part[][] {
  const steps: Part[][] = [];
  let open: Part[] | undefined;
  let started = false;
  for (const part of parts) {
    if (!open || (part.type === "step-start" && started)) steps.push((open = []));
    started ||= part.type === "step-start";
    open.push(part);
  }
  return steps.length ? steps : [[]];
}

/** Joins the entries of a branch, oldest first, into its messages. Deleted ones leave nothing. */
export function messagesOf(entries: Iterable<Entry>): UIMessage[] {
  const messages: UIMessage[] = [];
  let group: Entry[] = [];
  const flush = () => {
    if (group.some((entry) => entry.state !== "deleted")) messages.push(messageOf(group));
    group = [];
  };
  for (const entry of entries) {
    const head = group[0];
    if (head && (head.messageId !== entry.messageId || head.version !== entry.version)) flush();
    group.push(entry);
  }
  flush();
  return messages;
}

/** Joins the entries of one message, in order of their steps. */
export function messageOf(entries: readonly Entry[]): UIMessage {
  const head = entries[0];
  if (!head) throw new TypeError("a message has at least one entry");
  const metadata = metadataOf(entries);
  return {
    id: head.messageId,
    role: head.role,
    ...(metadata !== undefined && { metadata }),
    parts: entries.flatMap((entry) => entry.parts),
  };
}

/** Usage and model of an answer from its calls; empty when no call was made for it. */
export function answerMetadata(calls: readonly (ModelCall | undefined)[]): AnswerMetadata {
  const last = calls.at(-1);
  if (!calls.some((call) => call !== undefined)) return {};
  const steps = calls.map((call) => (call?.usage ? withoutRaw(call.usage) : null));
  const reported = steps.filter((usage) => usage !== null);
  return {
    ...(steps.at(-1) && { usage: steps.at(-1) as LanguageModelUsage }),
    ...(reported.length && { totalUsage: reported.reduce(addUsage) }),
    steps,
    model: last?.model ?? calls.find((call) => call)?.model,
  };
}

function metadataOf(entries: readonly Entry[]): unknown {
  const sent = entries[0]?.metadata;
  const derived = { ...answerMetadata(entries.map((entry) => entry.call)), ...endingOf(entries.at(-1)?.state) };
  if (Object.keys(derived).length === 0) return sent;
  return { ...(typeof sent === "object" && sent), ...derived };
}

/** How an answer that is not complete ended, by the state of its last step. */
export function endingOf(state: EntryState | undefined): Pick<AnswerMetadata, "ending"> {
  return state === "aborted" || state === "failed" || state === "interrupted" ? { ending: state } : {};
}

function withoutRaw({ raw: _, ...usage }: LanguageModelUsage): LanguageModelUsage {
  return usage;
}

/** Sums two calls; what neither reported stays unknown. */
export function addUsage(a: LanguageModelUsage, b: LanguageModelUsage): LanguageModelUsage {
  return {
    inputTokens: add(a.inputTokens, b.inputTokens),
    inputTokenDetails: {
      noCacheTokens: add(a.inputTokenDetails?.noCacheTokens, b.inputTokenDetails?.noCacheTokens),
      cacheReadTokens: add(a.inputTokenDetails?.cacheReadTokens, b.inputTokenDetails?.cacheReadTokens),
      cacheWriteTokens: add(a.inputTokenDetails?.cacheWriteTokens, b.inputTokenDetails?.cacheWriteTokens),
    },
    outputTokens: add(a.outputTokens, b.outputTokens),
    outputTokenDetails: {
      textTokens: add(a.outputTokenDetails?.textTokens, b.outputTokenDetails?.textTokens),
      reasoningTokens: add(a.outputTokenDetails?.reasoningTokens, b.outputTokenDetails?.reasoningTokens),
    },
    totalTokens: add(a.totalTokens, b.totalTokens),
  };
}

/** Stored usage may be older than the checks at the door. */
function add(a: unknown, b: unknown): number | undefined {
  const [first, second] = [countOf(a), countOf(b)];
  return first === undefined && second === undefined ? undefined : (first ?? 0) + (second ?? 0);
}
