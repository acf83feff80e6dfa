/**
 * What a prompt truly weighs: the sum of what is in it.
 *
 * What carries a mark weighs what the recording says (`recorded-sizes.ts`); an output that is shown shorter weighs its
 * tokenizer's share of that. What carries none was written here, the summary above all: the tokenizer weighs it, scaled to
 * the recorded model, and its framing.
 */
import type { Part } from "../../src/records.ts";
import { placeOfCall, placeOfMark, type Place, type Script } from "./script.ts";
import { countText } from "./tokens.ts";

/** One thing that a prompt shows. */
export interface Shown {
  /** absent for what is no piece of the script */
  place?: Place;
  /** of a result what the model reads of it; else what stands there */
  text: string;
  /** whether it is the result of the call at that place */
  isResult: boolean;
}

export class Scales {
  readonly #script: Script;
  /** tokens of texts that are no piece of the script, and of outputs that are shown shorter */
  readonly #weighed = new Map<string, number>();

  constructor(script: Script) {
    this.#script = script;
  }

  /** Tokens of what a prompt shows, system prompt and tools included. */
  prompt(shown: readonly Shown[]): number {
    return this.#script.overhead + this.sum(shown);
  }

  sum(shown: readonly Shown[]): number {
    return shown.reduce((sum, one) => sum + this.#weigh(one), 0);
  }

  /** Tokens of a text by the tokenizer, in the recorded model's. */
  text(text: string): number {
    const known = this.#weighed.get(text);
    if (known !== undefined) return known;
    const tokens = countText(text) * this.#script.perToken;
    this.#weighed.set(text, tokens);
    return tokens;
  }

  #weigh({ place, text, isResult }: Shown): number {
    const piece = place && this.#script.entries[place.entry]?.pieces[place.piece];
    if (!place || !piece) return this.text(text) + this.#script.frame;
    if (!isResult) return piece.tokens;
    const { output = "", outputTokens = 0 } = piece.tool ?? {};
    if (text === output) return outputTokens;
    return this.text(text) * (outputTokens / Math.max(1, this.text(output)));
  }
}

/** What a call's prompt shows, in either of the AI SDK's forms for models; the system prompt is overhead. */
export function shownInPrompt(messages: readonly { role: string; content: unknown }[]): Shown[] {
  return messages.flatMap(({ role, content }) => {
    if (role === "system") return [];
    // SAFETY: every other message's content is a list of parts, and these are the fields they have.
    return (content as PromptPart[]).flatMap(shownInPart);
  });
}

interface PromptPart {
  type: string;
  text?: string;
  toolCallId?: string;
  output?: { value?: unknown };
  providerOptions?: unknown;
}

function shownInPart({ type, text = "", toolCallId = "", output, providerOptions }: PromptPart): Shown[] {
  if (type === "tool-call") return [{ place: placeOfCall(toolCallId), text: "", isResult: false }];
  if (type === "tool-result") return [{ place: placeOfCall(toolCallId), text: asText(output?.value), isResult: true }];
  return [{ place: placeOfMark(providerOptions), text, isResult: false }];
}

/** The same of stored parts, as far as a later call is shown them. */
export function shownInParts(parts: readonly Part[]): Shown[] {
  return parts.flatMap((part): Shown[] => {
    if ("toolCallId" in part) {
      const place = placeOfCall(part.toolCallId);
      const output = "output" in part ? asText(part.output) : "";
      return [
        { place, text: "", isResult: false },
        { place, text: output, isResult: true },
      ];
    }
    if (part.type !== "text" && part.type !== "reasoning" && part.type !== "file") return [];
    return [{ place: placeOfMark(part.providerMetadata), text: "text" in part ? part.text : "", isResult: false }];
  });
}

function asText(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

/** The entry of the script that a stored entry is; -1 for none. */
export function entryOf(parts: readonly Part[]): number {
  return shownInParts(parts)[0]?.place?.entry ?? -1;
}
