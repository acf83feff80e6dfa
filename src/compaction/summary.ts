/**
 * What is accepted as a summary. A summary replaces what it stands for in every later prompt, so an answer that may be
 * anything else is rejected, and nothing changes.
 */
import type { ModelCall } from "../records.ts";
import { holdsPromptTag, type SummaryPrompt } from "./summary-prompt.ts";

/** An answer of the summariser, and what it was asked. */
export interface SummaryAnswer {
  text: string;
  finishReason: ModelCall["finishReason"];
  /** tools that it called */
  toolCalls: number;
  /** the chunk it was to summarise */
  conversation: string;
  prompt: SummaryPrompt;
}

export type SummaryReading =
  /** without what models like to wrap around it */
  | { kind: "summary"; text: string }
  /** `reason` is a sentence for the record */
  | { kind: "rejected"; reason: string };

/** UTF-16 code units; about 100,000 tokens, far above any summary that is one. */
export const LONGEST_SUMMARY = 400_000;

export function readSummary(answer: SummaryAnswer): SummaryReading {
  const text = unwrapped(answer.text.toWellFormed());
  const reason = failureOf(answer) ?? flawOf(text) ?? echoOf(text, answer);
  return reason === undefined ? { kind: "summary", text } : { kind: "rejected", reason };
}

/** What is wrong with how the call ended. Only `stop` says that the model had said all it wanted to. */
function failureOf({ toolCalls, finishReason }: SummaryAnswer): string | undefined {
  if (toolCalls > 0) return UNFINISHED["tool-calls"];
  // a provider may know reasons that are younger than this list
  return finishReason === "stop" ? undefined : (UNFINISHED[finishReason] ?? UNFINISHED.other);
}

const UNFINISHED: Record<Exclude<SummaryAnswer["finishReason"], "stop">, string> = {
  length: "The summary was cut off at the model's output limit.",
  "tool-calls": "The model called a tool instead of writing a summary.",
  "content-filter": "The provider's content filter stopped the summary.",
  error: "The model failed while it wrote the summary.",
  aborted: "The summary was stopped before it was complete.",
  interrupted: "The summary was interrupted before it was complete.",
  other: "The model ended without saying that its summary is complete.",
};

/** What is wrong with the text by itself. */
function flawOf(text: string): string | undefined {
  if (!/[\p{L}\p{N}]/u.test(text)) return "The model wrote no summary.";
  if (text.length <= LONGEST_SUMMARY) return undefined;
  return `The summary has ${text.length} characters, which is more than ${LONGEST_SUMMARY}.`;
}

/** What of the prompt came back instead of a summary. Layout does not count: models change it as they copy. */
function echoOf(text: string, { conversation, prompt }: SummaryAnswer): string | undefined {
  if (holdsPromptTag(text)) return "The model repeated its prompt instead of writing a summary.";
  const answer = inOneLine(text);
  if (repeatsInstructions(answer, inOneLine(prompt.instructions))) {
    return "The model repeated its instructions instead of writing a summary.";
  }
  if (repeatsConversation(answer, conversation))
    return "The model repeated the conversation instead of summarising it.";
  return undefined;
}

function inOneLine(text: string): string {
  return text.replace(/\s+/g, " ");
}

/** Characters of our instructions in a row that no summary has by chance: longer than any heading it was asked for. */
const TELLING_RUN = 60;

/** Instructions are searched for in runs that do not overlap, so any copy of twice a run is found. */
function repeatsInstructions(answer: string, instructions: string): boolean {
  for (let start = 0; start + TELLING_RUN <= instructions.length; start += TELLING_RUN) {
    if (answer.includes(instructions.slice(start, start + TELLING_RUN))) return true;
  }
  return false;
}

/** When an answer is taken for a copy of the conversation. */
const COPY = Object.freeze({
  /** UTF-16 code units from which an answer is judged: a short one may be the one sentence that mattered */
  shortest: 500,
  /** passages looked up, spread evenly over the answer */
  passages: 20,
  /** UTF-16 code units of a passage: more than an identifier, less than a sentence that is worth quoting */
  passage: 60,
  /** share of the passages that must stand in the conversation word for word */
  share: 0.8,
});

function repeatsConversation(answer: string, conversation: string): boolean {
  if (answer.length < COPY.shortest) return false;
  const material = inOneLine(conversation);
  const stride = (answer.length - COPY.passage) / (COPY.passages - 1);
  const passages = Array.from({ length: COPY.passages }, (_, index) => {
    const start = Math.floor(index * stride);
    return answer.slice(start, start + COPY.passage);
  });
  return passages.filter((passage) => material.includes(passage)).length >= COPY.share * COPY.passages;
}

/** Without the tag and the code fence that may stand around a whole summary, in either order. */
function unwrapped(text: string): string {
  return withoutTag(withoutFence(withoutTag(text.trim())));
}

function withoutTag(text: string): string {
  const opening = /^<summary>/i.exec(text);
  const closing = /<\/summary>$/i.exec(text);
  return opening && closing ? text.slice(opening[0].length, closing.index).trim() : text;
}

/** A fence within may be a summary's own, so it must be the only one or say that it holds Markdown. */
function withoutFence(text: string): string {
  const opening = /^```(\w*)[^\S\n]*\n/.exec(text);
  if (!opening || !text.endsWith("```")) return text;
  const inner = text.slice(opening[0].length, -"```".length);
  return /^(?:md|markdown)$/i.test(opening[1] ?? "") || !inner.includes("```") ? inner.trim() : text;
}
