/** Real tokens, by OpenAI's public vocabulary. */
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";

const PLAIN = { disallowedSpecial: new Set<string>() };

export function countText(text: string): number {
  return countTokens(text, PLAIN);
}
