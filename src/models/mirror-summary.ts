/**
 * How `mirror` summarises: it copies, it does not understand. The first sentence of each message, the goal and the latest
 * request, and whatever looks like an identifier, within a fixed share of what it read.
 */
import { countMirrorTokens } from "./mirror-tokenizer.ts";

/** What a request must say for `mirror` to answer with a summary. */
const REQUEST = /summari[sz]e the conversation/i;
/** What it must also hold: the text to summarise, in these tags. */
const [OPEN, CLOSE] = ["<conversation>", "</conversation>"];
/** An earlier summary to carry on, outside the conversation. */
const EARLIER = /<(?:previous-)?summary>([\s\S]*?)<\/(?:previous-)?summary>/;
const SPEAKER = /^[[<*]*(?:user|assistant|system|tool)\b[^:\]>\n]{0,60}[:\]>]+\**/i;

/** Share of what was read, and the least and most a summary has, in tokens. */
const SHARE = 0.2;
const LEAST = 40;
const MOST = 400;
const SENTENCE_CHARACTERS = 100;
const MOST_IDENTIFIERS = 12;

/**
 * Whether instructions ask for a summary: they say `Summarise the conversation`, in any case and either spelling, and hold a
 * `<conversation>` block that is not empty. Instructions are the system prompt and the last user message together.
 */
export function isSummaryRequest(instructions: string): boolean {
  return REQUEST.test(instructions) && split(instructions).conversation !== "";
}

/** The instructions without what is to be summarised: only here do commands count. */
export function withoutConversation(instructions: string): string {
  return split(instructions).around.replace(EARLIER, "");
}

/** An extract of at most a fifth of the conversation's tokens, and of 400; short conversations may take 40. */
export function summarise(instructions: string): string {
  const { conversation, around } = split(instructions);
  const earlier = EARLIER.exec(around)?.[1] ?? "";
  const said = messagesOf(conversation);
  const requests = said.filter(({ speaker }) => speaker === "user");
  const goal = lineAfter(earlier, "Goal: ") ?? (requests[0] ?? said[0])?.sentence ?? "nothing was said";
  const budget = new Budget(Math.min(MOST, Math.max(LEAST, Math.floor(SHARE * countMirrorTokens(conversation)))));
  const first = budget.take([`Goal: ${goal}`]);
  const last = budget.take([`Latest request: ${(requests.at(-1) ?? said.at(-1))?.sentence ?? goal}`]);
  const names = budget.take(identifierLines(`${earlier}\n${conversation}`));
  const heading = budget.take(["Progress:"]);
  const progress = [...bulletsOf(earlier), ...said.map(({ speaker, sentence }) => `- ${speaker}: ${sentence}`)];
  // what is newest is what the next turn needs, so the oldest lines give way
  const kept = heading.length > 0 ? budget.take(progress.reverse()).reverse() : [];
  return [...first, ...(kept.length > 0 ? [...heading, ...kept] : []), ...names, ...last].join("\n");
}

/** Lines are taken while they fit; the first that does not ends it. */
class Budget {
  #left: number;

  constructor(tokens: number) {
    this.#left = tokens;
  }

  take(lines: string[]): string[] {
    const taken: string[] = [];
    for (const line of lines) {
      const cost = countMirrorTokens(line) + 1;
      if (cost > this.#left) break;
      this.#left -= cost;
      taken.push(line);
    }
    return taken;
  }
}

/** Up to the last closing tag, for a conversation may talk about tags. */
function split(instructions: string): { conversation: string; around: string } {
  const start = instructions.indexOf(OPEN);
  const end = instructions.lastIndexOf(CLOSE);
  if (start < 0 || end < start) return { conversation: "", around: instructions };
  const around = instructions.slice(0, start) + instructions.slice(end + CLOSE.length);
  return { conversation: instructions.slice(start + OPEN.length, end).trim(), around };
}

interface Said {
  speaker: string;
  sentence: string;
}

/** A message begins at a line that names its speaker (`user:`, `[assistant]`, `<tool …>`); without any, at each paragraph. */
function messagesOf(conversation: string): Said[] {
  const lines = conversation.split("\n").map((line) => line.trim());
  const named = lines.some((line) => SPEAKER.test(line));
  const starts = lines.flatMap((line, index) => {
    const begins = named ? SPEAKER.test(line) : line !== "" && !lines[index - 1];
    return begins ? [index] : [];
  });
  return starts.flatMap((start, index) => {
    const [head = "", ...rest] = lines.slice(start, starts[index + 1]);
    const marker = SPEAKER.exec(head)?.[0] ?? "";
    const body = [head.slice(marker.length), ...rest].find((line) => line.trim() !== "");
    return body === undefined ? [] : [{ speaker: speakerOf(marker), sentence: firstSentence(body) }];
  });
}

function speakerOf(marker: string): string {
  return /[a-z]+/i.exec(marker)?.[0].toLowerCase() ?? "said";
}

function firstSentence(line: string): string {
  const [sentence = ""] = line.trim().split(/(?<=[.!?。？！])(?:\s|$)/, 1);
  return clip(sentence, SENTENCE_CHARACTERS);
}

/** What names a thing: letters with digits, paths, names with underscores. The newest first. */
function identifierLines(text: string): string[] {
  const words = text.match(/[^\s"'`,;:!?()<>[\]{}→]+/g) ?? [];
  const names = words.map((word) => word.replace(/[.*_/-]+$/, "")).filter(isIdentifier);
  const newest = [...new Set(names.reverse())].slice(0, MOST_IDENTIFIERS);
  return newest.length > 0 ? [`Identifiers: ${newest.join(", ")}`] : [];
}

function isIdentifier(word: string): boolean {
  if (word.length < 4 || word.length > 60 || !/[a-z]/i.test(word)) return false;
  return /\d/.test(word) || /[a-z0-9][_/][a-z0-9]/i.test(word);
}

function lineAfter(text: string, label: string): string | undefined {
  return text
    .split("\n")
    .find((line) => line.startsWith(label))
    ?.slice(label.length);
}

function bulletsOf(text: string): string[] {
  return text.split("\n").filter((line) => line.startsWith("- "));
}

/** At most that many characters, the last an ellipsis where something was cut. */
export function clip(text: string, characters: number): string {
  const head = [...text.slice(0, 2 * characters + 2)];
  return head.length > characters ? `${head.slice(0, characters - 1).join("")}…` : text;
}
