/**
 * A summariser that always writes the same of the same: words of what it is given, at even distances, under the headings
 * it is asked for. It is as long as it may be, or as a fifth of what it stands for.
 */
import type { LanguageModelV4CallOptions, LanguageModelV4GenerateResult } from "@ai-sdk/provider";

const HEADINGS = ["Goal", "Progress", "Decisions", "Facts and identifiers", "Open items", "The latest request"];

/** Words of the material for one of the summary. */
const CONDENSED = 5;
const FEWEST_WORDS = 30;

/** Every summary has another number, so that a prompt tells which it shows. */
export function summaryOf(prompt: string, number: number): string {
  const allowed = Number(/in at most (\d+) words/.exec(prompt)?.[1] ?? 100);
  const words = prompt.match(/[\p{L}\p{N}_./-]{2,40}/gu) ?? [];
  const wanted = Math.max(FEWEST_WORDS, Math.min(allowed * 0.9, words.length / CONDENSED));
  const stride = Math.max(3, Math.floor(words.length / wanted));
  const chosen = words.filter((_, index) => index % stride === 0).slice(0, wanted);
  const share = Math.ceil(chosen.length / HEADINGS.length);
  const sections = HEADINGS.map((heading, index) => {
    const said = chosen.slice(index * share, (index + 1) * share);
    return said.length > 0 ? `## ${heading}\n${sentences(said)}` : "";
  });
  return [`Summary number ${number}.`, ...sections].filter(Boolean).join("\n\n");
}

function sentences(words: readonly string[]): string {
  return words.map((word, index) => ((index + 1) % 12 === 0 ? `${word}.` : word)).join(" ");
}

/** All that a summariser is given. */
export function textIn({ prompt }: LanguageModelV4CallOptions): string {
  return prompt
    .map(({ content }) =>
      typeof content === "string" ? content : content.map((part) => ("text" in part ? part.text : "")).join("\n"),
    )
    .join("\n\n");
}

/** An answer as a provider gives it. */
export function answerOf(text: string, inputTokens: number, outputTokens: number): LanguageModelV4GenerateResult {
  return {
    content: [{ type: "text", text }],
    finishReason: { unified: "stop", raw: "stop" },
    usage: {
      inputTokens: { total: inputTokens, noCache: inputTokens, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: outputTokens, text: outputTokens, reasoning: undefined },
    },
    warnings: [],
  };
}
