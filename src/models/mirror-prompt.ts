/**
 * How `mirror` reads a prompt: the text of each message and what it costs.
 *
 * Everything that is sent costs something: text by its tokens, tool calls and results by their names and JSON, files by a flat
 * price, and each message and the call itself a fixed framing. Ids, provider options and signatures are free, as they
 * are with most vendors.
 */
import type {
  LanguageModelV4CallOptions,
  LanguageModelV4Message,
  LanguageModelV4ToolResultOutput,
} from "@ai-sdk/provider";
import { countMirrorTokens } from "./mirror-tokenizer.ts";

export type Prompt = LanguageModelV4CallOptions["prompt"];
export type Tools = LanguageModelV4CallOptions["tools"];

/** Fixed prices in tokens. */
const PRICES = Object.freeze({
  call: 3,
  message: 4,
  /** each tool offered, call and result, beside its text */
  tool: 4,
  image: 600,
  /** any other file whose text the prompt does not hold */
  file: 1_200,
});

/** In tokens. */
export interface PromptSize {
  /** the call's framing and the tools: what belongs to no message */
  overhead: number;
  /** each message of the prompt, system messages included, in order */
  messages: number[];
  /** sum of the above: what `mirror` reports as `inputTokens.total` */
  total: number;
}

/** How a message that stands for compacted messages begins. `mirror` says whether it was shown one. */
const SUMMARY_MARKER = "<summary>";

/** Exact size of a prompt as `mirror` counts it; usable as the true counter in tests of an estimate. */
export function measureMirrorPrompt(prompt: Prompt, tools: Tools = []): PromptSize {
  const offered = tools.map((tool) => PRICES.tool + countMirrorTokens(JSON.stringify(tool)));
  const overhead = PRICES.call + sum(offered);
  const messages = prompt.map((message) => PRICES.message + sum(read(message).map(costOf)));
  return { overhead, messages, total: overhead + sum(messages) };
}

/** What a tool call costs, in an answer as in the prompt it comes back in. */
export function countToolCall(toolName: string, input: string): number {
  return costOf({ text: `${toolName} ${input}`, flat: PRICES.tool });
}

/** All that a message says, its parts joined by newlines. Tool results read `name → output`. */
export function textOf(message: LanguageModelV4Message): string {
  return read(message)
    .map((part) => part.text)
    .filter((text) => text !== "")
    .join("\n");
}

/**
 * The last thing a message says. Messages of one role in a row reach a model as the parts of one message, so this is what was
 * said last, without what stood before it.
 */
export function lastTextOf(message: LanguageModelV4Message): string {
  return read(message).findLast((part) => part.text.trim() !== "")?.text ?? "";
}

/** All that a message says beside what stands for compacted ones. */
export function spokenIn(message: LanguageModelV4Message): string {
  return read(message)
    .map((part) => part.text)
    .filter((text) => text !== "" && !isSummaryText(text))
    .join("\n");
}

/** Whether a message holds what stands for compacted ones. A system prompt may carry the summary further down. */
export function isSummary(message: LanguageModelV4Message): boolean {
  const text = textOf(message);
  return isSummaryText(text) || (message.role === "system" && text.includes(`\n${SUMMARY_MARKER}`));
}

/** Whether a text stands for compacted messages. */
export function isSummaryText(text: string): boolean {
  return text.trimStart().startsWith(SUMMARY_MARKER);
}

/** A part as text, and what it costs beside that text, in tokens. */
interface Reading {
  text: string;
  flat: number;
}

type Part = Exclude<LanguageModelV4Message["content"], string>[number];

function read(message: LanguageModelV4Message): Reading[] {
  if (message.role === "system") return [{ text: message.content, flat: 0 }];
  return message.content.map(readPart);
}

function readPart(part: Part): Reading {
  switch (part.type) {
    case "text":
    case "reasoning":
      return { text: part.text, flat: 0 };
    case "file":
      return part.data.type === "text" ? { text: part.data.text, flat: 0 } : readFile(part.mediaType);
    case "reasoning-file":
      return readFile(part.mediaType);
    case "tool-call":
      return { text: `${part.toolName} ${JSON.stringify(part.input ?? {})}`, flat: PRICES.tool };
    case "tool-result": {
      const { text, flat } = readOutput(part.output);
      return { text: `${part.toolName} → ${text}`, flat: PRICES.tool + flat };
    }
    case "tool-approval-response":
      return { text: part.reason ?? "", flat: PRICES.tool };
    case "custom":
      return { text: "", flat: PRICES.tool };
  }
}

/** Only the flat price counts: the bytes would say nothing of what a model pays. */
function readFile(mediaType: string): Reading {
  return { text: "", flat: mediaType.startsWith("image") ? PRICES.image : PRICES.file };
}

function readOutput(output: LanguageModelV4ToolResultOutput): Reading {
  switch (output.type) {
    case "text":
    case "error-text":
      return { text: output.value, flat: 0 };
    case "json":
    case "error-json":
      return { text: JSON.stringify(output.value), flat: 0 };
    case "execution-denied":
      return { text: output.reason ? `denied: ${output.reason}` : "denied", flat: 0 };
    case "content": {
      const readings = output.value.map((item) => {
        if (item.type === "text") return { text: item.text, flat: 0 };
        return item.type === "file" ? readFile(item.mediaType) : { text: "", flat: 0 };
      });
      return {
        text: readings.map((reading) => reading.text).join("\n"),
        flat: sum(readings.map((reading) => reading.flat)),
      };
    }
  }
}

function costOf({ text, flat }: Reading): number {
  return flat + countMirrorTokens(text);
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
