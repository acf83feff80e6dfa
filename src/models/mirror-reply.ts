/**
 * What `mirror` answers to a prompt, decided as a whole before a word of it is streamed. Pure.
 */
import type { LanguageModelV4Message } from "@ai-sdk/provider";
import { fingerprint } from "./mirror-cache.ts";
import { isSummary, isSummaryText, lastTextOf, spokenIn, textOf, type Prompt, type Tools } from "./mirror-prompt.ts";
import { parseScript, plainStep, type Script, type ScriptedCall, type ScriptedStep } from "./mirror-script.ts";
import { clip, isSummaryRequest, summarise, withoutConversation } from "./mirror-summary.ts";

export interface ReplyCall extends ScriptedCall {
  toolCallId: string;
}

export interface Reply extends Pick<ScriptedStep, "fail" | "stall" | "usage"> {
  /** absent when nothing was thought */
  reasoning?: string;
  /** each with the space after it; joined they are the text, and none are no text */
  words: string[];
  calls: ReplyCall[];
  /** in ms, before each word; absent when the prompt does not say */
  wordDelayMs?: number;
}

const LINE_CHARACTERS = 80;
const RESULT_CHARACTERS = 200;
const VOCABULARY = "the tide comes in and goes out again and leaves a line of weed and shells along the sand".split(
  " ",
);
const WORDS_PER_SENTENCE = 12;

/**
 * The reply to a prompt.
 *
 * @param serial number of this call among those of its instance; goes into tool call ids, so that no two are alike
 */
export function planReply(prompt: Prompt, tools: Tools = [], serial = 0): Reply {
  const names = tools.map(({ name }) => name);
  const { script, number, summary } = readRequest(prompt);
  const step = script.steps[number] ?? plainStep();
  const calls = step.calls.filter(({ toolName }) => names.includes(toolName));
  // an instance forgets its serial numbers with a restart, so the prompt has to tell its calls apart too
  const origin = calls.length > 0 ? fingerprint(`${serial}\n${prompt.map(textOf).join("\n")}`) : "";
  return {
    reasoning: step.reasoning.length > 0 ? step.reasoning.join("\n") : undefined,
    words: wordsOf(summary ?? textFor(step, prompt, names)),
    calls: calls.map((call, index) => ({ ...call, toolCallId: `mirror-${number}-${index}-${origin}` })),
    wordDelayMs: script.wordDelayMs,
    fail: step.fail,
    stall: step.stall,
    usage: step.usage,
  };
}

/** What was asked for, how many of its steps are done, and the summary if one was asked for. */
function readRequest(prompt: Prompt): { script: Script; number: number; summary?: string } {
  const users = prompt.filter(({ role }) => role === "user");
  const latest = users.at(-1);
  const request = latest ? textOf(latest) : "";
  const instructions = [...prompt.filter(({ role }) => role === "system").map(textOf), request].join("\n");
  if (isSummaryRequest(instructions)) {
    return { script: parseScript(withoutConversation(request)), number: 0, summary: summarise(instructions) };
  }
  const asked = users.findLast((message) => !isSummaryText(lastTextOf(message)));
  const since = prompt.slice(asked ? prompt.indexOf(asked) + 1 : 0);
  return { script: parseScript(asked ? lastTextOf(asked) : ""), number: stepNumber(since) };
}

/**
 * Steps already taken since the user spoke. Counted, but also read from our own call ids: a compaction inside a long turn
 * takes away its first steps, and a script must not begin again for that.
 */
function stepNumber(since: LanguageModelV4Message[]): number {
  const steps = since.flatMap((message) => {
    if (message.role !== "assistant") return [];
    const call = message.content.find((part) => part.type === "tool-call");
    return call ? [Number(/^mirror-(\d+)-/.exec(call.toolCallId)?.[1] ?? -1)] : [];
  });
  return Math.max(steps.length, 1 + Math.max(-1, ...steps));
}

function textFor(step: ScriptedStep, prompt: Prompt, names: string[]): string {
  const refused = step.calls.filter(({ toolName }) => !names.includes(toolName)).map(({ toolName }) => toolName);
  const refusal = refused.length > 0 ? `I was told to call ${refused.join(", ")}, which I was not offered.` : "";
  if (step.words !== undefined) return `${refusal} ${say(step.words)}`.trim();
  if (step.calls.length > 0) return refusal;
  return prompt.at(-1)?.role === "tool" ? tellResults(prompt) : describe(prompt, names);
}

/** N words in sentences, the same ones every time. */
function say(count: number): string {
  const words = Array.from({ length: count }, (_, index) => VOCABULARY[index % VOCABULARY.length] ?? "");
  return words
    .map((word, index) => ((index + 1) % WORDS_PER_SENTENCE === 0 || index + 1 === count ? `${word}.` : word))
    .join(" ");
}

function tellResults(prompt: Prompt): string {
  const last = prompt.at(-1);
  const results = last?.role === "tool" ? last.content.filter((part) => part.type === "tool-result") : [];
  const told = results.map((part) => clip(textOf({ role: "tool", content: [part] }), RESULT_CHARACTERS));
  return `I am mirror. The tools answered: ${told.join("; ") || "nothing"}.`;
}

function describe(prompt: Prompt, names: string[]): string {
  const said = prompt.filter(
    (message) => message.role !== "system" && !(isSummary(message) && spokenIn(message) === ""),
  );
  const count = `${said.length} ${said.length === 1 ? "message" : "messages"}`;
  const summary = prompt.some(isSummary) ? "and a summary" : "no summary";
  const first = clip(linesOf(said[0]).at(0) ?? "", LINE_CHARACTERS);
  const last = clip(linesOf(said.at(-1)).at(-1) ?? "", LINE_CHARACTERS);
  return [
    `I am mirror, a local model for development. I was shown ${count} (${summary}).`,
    `First: "${first}". Last: "${last}". Tools: ${names.join(", ") || "none"}.`,
  ].join(" ");
}

function linesOf(message: LanguageModelV4Message | undefined): string[] {
  return message
    ? spokenIn(message)
        .split("\n")
        .filter((line) => line.trim() !== "")
    : [];
}

function wordsOf(text: string): string[] {
  return text.match(/\S+\s*/g) ?? [];
}
