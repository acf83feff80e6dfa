/**
 * A recorded stretch of conversation as it is played: what is said, and what each piece of it truly weighs.
 *
 * Pieces carry their entry and place wherever a prompt takes them: text and reasoning in their provider metadata, calls
 * and results in the call id. So a prompt says by itself what is in it.
 */
import type { SharedV4ProviderMetadata } from "@ai-sdk/provider";

/** All tokens are those of the recorded model. */
export interface ScriptedPiece {
  kind: "text" | "reasoning" | "image" | "call";
  /** what is said; of a call its input as JSON; empty for an image */
  text: string;
  tokens: number;
  /** of a call */
  tool?: { name: string; output: string; outputTokens: number };
}

/** A user or system message, or one step of an answer. */
export interface ScriptedEntry {
  role: "user" | "system" | "assistant";
  pieces: ScriptedPiece[];
  /** output tokens as the recorded call reported them; `null`: it reported nothing */
  output: number | null;
  /** whether reports tell the size of the context right before it; where not, a tokenizer shares a span out */
  exact: boolean;
}

/** Entries by their index. */
export type Act =
  /** the last asks, and the steps answer; those before it go with it */
  { kind: "turn"; asked: number[]; steps: number[] } | { kind: "import"; entry: number };

export interface Script {
  name: string;
  /** registry id */
  model: string;
  /** half of the recording it belongs to, whose weights never saw it; absent for neither */
  half?: number;
  system: string | null;
  tools: string[];
  /** tokens that the first call read beside its messages: system prompt, tools, and what nobody recorded */
  overhead: number;
  /** the model's tokens for one of o200k's */
  perToken: number;
  /** tokens around a message */
  frame: number;
  /** spans between two reports, and those of them that contradict their text (`recorded-sizes.ts`) */
  spans: number;
  contradictions: number;
  entries: ScriptedEntry[];
  acts: Act[];
}

/** Which piece of a script something in a prompt is. */
export interface Place {
  entry: number;
  piece: number;
}

export function markOf({ entry, piece }: Place): SharedV4ProviderMetadata {
  return { bench: { entry, piece } };
}

export function callIdOf({ entry, piece }: Place): string {
  return `call_${entry}_${piece}`;
}

export function placeOfCall(toolCallId: string): Place | undefined {
  const [, entry, piece] = /^call_(\d+)_(\d+)$/.exec(toolCallId) ?? [];
  return entry === undefined ? undefined : { entry: Number(entry), piece: Number(piece) };
}

export function placeOfMark(metadata: unknown): Place | undefined {
  // SAFETY: what is under this name was put there by `markOf`.
  return (metadata as { bench?: Place } | undefined)?.bench;
}

/** Tokens of a whole entry as it was recorded. */
export function sizeOfEntry({ pieces }: ScriptedEntry): number {
  return pieces.reduce((sum, { tokens, tool }) => sum + tokens + (tool?.outputTokens ?? 0), 0);
}
