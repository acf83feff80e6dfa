/**
 * Entries as text for the summariser: who said what, in order, as far as a model was shown it.
 *
 * What people and the model said is whole. What tools took and gave back is cut at both ends when it is long, because a
 * file that was read is rarely worth more to a summary than its beginning, its end and its name. Thoughts, sources and
 * data for the page are left out: no later step builds on them.
 */
import type { Entry, EntryState, Part } from "../records.ts";
import { splitsPair } from "./chunks.ts";

type ToolPart = Extract<Part, { toolCallId: string }>;

export interface TranscriptLimits {
  /** UTF-16 code units of one tool input, output or error; half from its beginning, half from its end */
  toolText: number;
}

/** 4,000 code units are about 1,000 tokens: all of a stack trace, and the beginning and the end of a file. */
export const TRANSCRIPT_LIMITS: Readonly<TranscriptLimits> = Object.freeze({ toolText: 4_000 });

/**
 * Blocks of text, oldest first, one for each thing said: a speaker in brackets, a space, and what was said. Reads one
 * entry at a time, so a branch of any length can be read from storage as it goes.
 */
export function* transcriptOf(
  entries: Iterable<Entry>,
  { toolText }: Readonly<TranscriptLimits> = TRANSCRIPT_LIMITS,
): Generator<string> {
  for (const { state, role, parts } of entries) {
    if (state === "deleted") continue;
    for (const part of parts) yield* blocksOf(part, role, toolText);
    const ending = ENDINGS[state];
    if (ending !== undefined) yield said(`${role}, broken off`, ending);
  }
}

/** Why a message ends where it does, when it is not complete. */
const ENDINGS: Partial<Record<EntryState, string>> = {
  aborted: "stopped by the user",
  failed: "the model failed",
  interrupted: "the service was interrupted",
};

function* blocksOf(part: Part, role: Entry["role"], toolText: number): Generator<string> {
  if ("toolCallId" in part) return yield* toolBlocks(part, toolText);
  switch (part.type) {
    case "text":
      if (part.text.trim() !== "") yield said(role, part.text);
      return;
    case "file":
      return yield said(`${role}, file`, [part.mediaType, part.filename].filter(Boolean).join(", "));
    case "steering-message":
      // what the user said into a running answer stands inside that answer
      for (const spoken of part.parts) yield* blocksOf(spoken, "user", toolText);
      return;
    default:
      // reasoning, sources, data, step marks, and what only a provider or a later version knows: nothing was said
      return;
  }
}

/** A call and what became of it stand next to each other, so calls in parallel need no ids to be told apart. */
function* toolBlocks(part: ToolPart, toolText: number): Generator<string> {
  const tool = toolNameOf(part);
  const input = part.input ?? ("rawInput" in part ? part.rawInput : undefined);
  yield said(`assistant, tool call ${tool}`, excerpt(input, toolText));
  if (part.approval) yield said(`tool approval ${tool}`, decisionOf(part.approval));
  switch (part.state) {
    case "output-available":
      return yield said(
        `tool result ${tool}${part.preliminary ? ", preliminary" : ""}`,
        excerpt(part.output, toolText),
      );
    case "output-error":
      return yield said(`tool error ${tool}`, excerpt(part.errorText, toolText));
    default:
      // a call that was denied or waits for a decision has said so above
      if (!part.approval || part.approval.approved)
        yield said(`tool result ${tool}`, "none: the call was not answered");
  }
}

/** In a marker, so without what would end it. */
function toolNameOf(part: ToolPart): string {
  const name = part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
  return name.replace(/[[\]\s]+/g, "_");
}

function decisionOf({ approved, reason, isAutomatic }: NonNullable<ToolPart["approval"]>): string {
  if (approved === undefined) return "asked for, not decided";
  const decision = `${approved ? "approved" : "denied"}${isAutomatic ? " automatically" : ""}`;
  return reason ? `${decision}: ${reason}` : decision;
}

/** Lines of what was said that would pass for a speaker of ours. */
const FORGED_SPEAKER = /^(?=\[(?:(?:user|assistant|system)[\],]|tool (?:result|error|approval) ))/gm;

function said(speaker: string, text: string): string {
  return `[${speaker}] ${text.toWellFormed().replace(FORGED_SPEAKER, "\\")}`;
}

/** A tool's input or output as the model saw it, a string as it is and anything else as JSON, without bytes and cut. */
function excerpt(value: unknown, length: number): string {
  const text =
    typeof value === "string" ? withoutBytes(value) : JSON.stringify(value, (_key, inner) => withoutBytes(inner));
  return withoutMiddle((text ?? "null").replace(DATA_URL, leftOutUrl), length);
}

/** What is kept of a text that is too long never begins or ends inside a character. */
function withoutMiddle(text: string, length: number): string {
  if (text.length <= length) return text;
  const half = Math.floor(length / 2);
  const headEnd = splitsPair(text, half) ? half - 1 : half;
  const tailStart = splitsPair(text, text.length - half) ? text.length - half + 1 : text.length - half;
  const middle = `[… ${tailStart - headEnd} characters left out …]`;
  return `${text.slice(0, headEnd)}\n${middle}\n${text.slice(tailStart)}`;
}

/** A data URL within a text: its media type, parameters, and data up to whatever ends a URL in JSON, HTML or Markdown. */
const DATA_URL = /(?<!\w)data:([\w.+-]{1,100}\/[\w.+-]{1,100})(?:;[\w.=+-]{1,100}){0,9},[^\s"'`<>()[\]{}\\|]*/g;

function leftOutUrl(url: string, mediaType: string): string {
  return `[data URL of ${mediaType}, ${url.length} characters left out]`;
}

/** UTF-16 code units from which a string without any break is taken for bytes: an image of a tool, not an id or a key. */
const SHORTEST_BYTES = 256;

function withoutBytes<T>(value: T): T | string {
  if (typeof value !== "string" || value.length < SHORTEST_BYTES || !/^[\w+/-]+={0,2}$/.test(value)) return value;
  const isMixed = /[a-z]/.test(value) && /[A-Z]/.test(value) && /\d/.test(value);
  return isMixed ? `[base64, ${value.length} characters left out]` : value;
}
