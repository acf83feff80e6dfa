/**
 * The prompt cache of `mirror`: which beginnings of prompts one instance has read before.
 *
 * As with real providers a prompt is compared from its start, message by message, so a changed system prompt or tool set
 * finds nothing and an edited message finds what stands before it.
 */
import type { Prompt, Tools } from "./mirror-prompt.ts";

/** Beginnings remembered by default; a prompt of n messages has n. The least recently read go first. */
const DEFAULT_CAPACITY = 10_000;

export class PromptCache {
  readonly #seen = new Set<string>();
  readonly #capacity: number;

  constructor(capacity = DEFAULT_CAPACITY) {
    this.#capacity = capacity;
  }

  /** Remembers every beginning of a prompt. @returns how many leading messages an earlier prompt began with */
  read(prompt: Prompt, tools: Tools): number {
    let known = 0;
    let chain = fingerprint(JSON.stringify(tools ?? []));
    for (const [index, { role, content }] of prompt.entries()) {
      chain = fingerprint(`${chain} ${role} ${JSON.stringify(content, withoutBytes)}`);
      // a set keeps the order of insertion: taking out and putting back makes an entry the newest
      if (this.#seen.delete(chain)) known = index + 1;
      this.#seen.add(chain);
    }
    this.#forget();
    return known;
  }

  #forget(): void {
    for (const oldest of this.#seen) {
      if (this.#seen.size <= this.#capacity) return;
      this.#seen.delete(oldest);
    }
  }
}

/** A short text that differs for different texts: 53 bits of a multiplicative hash in base 36. Not for secrets. */
export function fingerprint(text: string): string {
  let low = 0xdeadbeef;
  let high = 0x41c6ce57;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    low = Math.imul(low ^ code, 0x9e3779b1);
    high = Math.imul(high ^ code, 0x5f356495);
  }
  low = Math.imul(low ^ (low >>> 16), 0x85ebca6b) ^ Math.imul(high ^ (high >>> 13), 0xc2b2ae35);
  high = Math.imul(high ^ (high >>> 16), 0x85ebca6b) ^ Math.imul(low ^ (low >>> 13), 0xc2b2ae35);
  return (0x1_0000_0000 * (high & 0x1f_ffff) + (low >>> 0)).toString(36);
}

/** JSON would write every byte of a file as a numbered field. */
function withoutBytes(_key: string, value: unknown): unknown {
  return value instanceof Uint8Array ? `${value.length} bytes ${fingerprint(value.join(" "))}` : value;
}
