/**
 * What a model call reported, brought to one shape.
 *
 * Providers differ in whether input already contains cached tokens, whether output contains reasoning, and whether the
 * figures describe one reading of the context or the bill of several. Each known shape is read exactly, after its
 * provider's documentation; a shape that is not known is not reported, never guessed. *Context* figures say what stood
 * in the window, *billed* ones what is paid for; they are kept apart because tool loops inside a provider, its own
 * compactions and free parts of a prompt make them differ.
 */
import type { LanguageModelUsage, UIMessage } from "ai";
import { recognise, type ReportedUsage } from "./usage-shapes.ts";

export type { ReportedUsage } from "./usage-shapes.ts";

/** Nothing that could be read was reported. */
const NOT_REPORTED: ReportedUsage = Object.freeze({});

/**
 * Reads a usage object of any known shape. The AI SDK's own object is preferred through its `raw` where that is known:
 * the SDK sums the passes of one call, which is a bill and not a context (`convert-anthropic-usage.ts`).
 */
export function normaliseUsage(usage: unknown): ReportedUsage {
  if (!isObject(usage)) return NOT_REPORTED;
  const own = recognise(usage) ?? NOT_REPORTED;
  const raw = isObject(usage.raw) ? recognise(usage.raw) : undefined;
  return raw?.contextInput ? { ...own, ...raw } : own;
}

/**
 * Tokens that stood in the context when a call had ended: its last input and the output to it, else the total it gave.
 * `undefined` when nothing usable was reported: missing, zero, negative and non-finite figures say nothing.
 */
export function calculateContextTokens(
  usage: LanguageModelUsage | Record<string, unknown> | null | undefined,
): number | undefined {
  const { contextInput, contextOutput, total } = normaliseUsage(usage);
  if (contextInput) return contextInput + (contextOutput ?? 0);
  return total || undefined;
}

/**
 * The usage a message brings in its metadata, as clients and imports send it, where it describes one call: only answers
 * are made by calls. In AI SDK 7 `totalUsage`, and `usage` of a whole result, are sums over the steps of a turn: on a
 * message of several steps they are a bill and say nothing about the context.
 */
export function usageOfMessage({ role, metadata }: Pick<UIMessage, "role" | "metadata">, steps: number): ReportedUsage {
  if (role !== "assistant" || !isObject(metadata)) return NOT_REPORTED;
  const usage = normaliseUsage(metadata.usage);
  const total = normaliseUsage(metadata.totalUsage);
  if (steps <= 1) return isSaid(usage) ? usage : total;
  const isSum = isSaid(total) && total.contextInput === usage.contextInput && total.output === usage.output;
  return isSum ? NOT_REPORTED : usage;
}

function isSaid(usage: ReportedUsage): boolean {
  return Boolean(usage.contextInput || usage.total);
}

/** What a model can hold. */
export interface ModelLimits {
  /** tokens of the whole window; 0 or absent when unknown */
  contextWindow?: number;
  /** most tokens one answer may have; 0 or absent when unknown */
  maxOutput?: number;
}

/** Tokens kept for the answer at most, and when the model's own limit is unknown (OpenCode's `OUTPUT_TOKEN_MAX`). */
export const OUTPUT_TOKEN_MAX = 32_000;

/** Tokens to keep free for an answer: `min(maxOutput, 32,000) || 32,000`. */
export function reservedOutput(maxOutput: number | undefined): number {
  return Math.min(maxOutput ?? 0, OUTPUT_TOKEN_MAX) || OUTPUT_TOKEN_MAX;
}

/** Tokens a prompt may have; `undefined` while the window is unknown. */
export function usableContext(window: number | undefined, maxOutput: number | undefined): number | undefined {
  return window ? Math.max(0, window - reservedOutput(maxOutput)) : undefined;
}

/** Share of a window that a prompt may have where the answer that is reserved would leave it nothing. */
const SMALL_WINDOW_SHARE = 0.75;

/** Tokens a prompt may have before something has to be done about it; `undefined` while the window is unknown. */
export function promptRoom({ contextWindow, maxOutput }: ModelLimits): number | undefined {
  return (
    usableContext(contextWindow, maxOutput) ||
    (contextWindow ? Math.floor(contextWindow * SMALL_WINDOW_SHARE) : undefined)
  );
}

/** Whether a context no longer leaves room for an answer. An unknown window never overflows; the limit itself still fits. */
export function isOverflow(tokens: number, limits: ModelLimits): boolean {
  const usable = usableContext(limits.contextWindow, limits.maxOutput);
  return usable !== undefined && tokens > usable;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
