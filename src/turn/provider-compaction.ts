/**
 * Compaction that a provider does within a call: its answer holds what stands for the conversation before it.
 *
 * - Anthropic (`compact_20260112`): a text whose metadata says so. The text is the summary; it is empty where the
 *   compaction failed, which changes nothing.
 * - OpenAI: a custom part with encrypted content, under the name of the provider that the part came by.
 *
 * Both are stored as any part is and sent back as they came, and the provider reads on from there. A conversation that is
 * compacted in two places at once would lose what only one of them knows, so the service's own compaction keeps off.
 */
import type { Part } from "../records.ts";

/** Whether a message or a step holds a compaction that took effect. */
export function holdsProviderCompaction(parts: readonly Part[]): boolean {
  return parts.some(isProviderCompaction);
}

/** Whether a part is a whole compaction, which goes back unchanged or is lost. */
export function isProviderCompaction(part: Part): boolean {
  if (isAnthropicBlock(part)) return !isVoidCompaction(part);
  if (part.type !== "custom" || part.kind !== "openai.compaction") return false;
  return Object.values(part.providerMetadata ?? {}).some(({ encryptedContent }) => Boolean(encryptedContent));
}

/** Whether a part is a compaction that failed or was broken off: nothing for a model, and not the assistant's words. */
export function isVoidCompaction(part: Part): boolean {
  return isAnthropicBlock(part) && (part.text === "" || part.state === "streaming");
}

function isAnthropicBlock(part: Part): part is Extract<Part, { type: "text" }> {
  return part.type === "text" && part.providerMetadata?.["anthropic"]?.["type"] === "compaction";
}
