/**
 * The report: how full the context is, why, and how far the predictions were off. A pure function over the one number;
 * its parts sum to its total.
 */
import { type Accuracy, type Anchor, type ModelTraits, NO_ACCURACY, type Prompt } from "./anchor.ts";
import { errorPercent, ratioOf } from "./calibration.ts";
import type { Basis, KnownTokens, Ledger } from "./known.ts";
import { type ModelLimits, reservedOutput } from "./usage.ts";

/** All in tokens of the model unless said otherwise. */
export interface ContextReport {
  tokens: number;
  basis: Basis;
  /** above this a compaction is wanted; `null` when compaction is off or the window it depends on is unknown */
  threshold: number | null;
  /** whether the client is asked to compact: the number is above the threshold, and compacting is left to the client */
  suggestion: boolean;
  /** `null` when unknown */
  contextWindow: number | null;
  /** kept for the answer; 0 while the window is unknown */
  reservedOutput: number;
  /** window less reserved output less tokens; 0 when overfull or unknown */
  free: number;
  /** share of the window, one decimal; 0 when it is unknown */
  percent: number;
  breakdown: Breakdown;
  calculation: {
    /** what the last request read and put out; `null` before the first report */
    lastInput: number | null;
    lastOutput: number | null;
    /** estimate of what came after */
    newSince: number;
  };
  /** sums over the session */
  reasoningTokens: number;
  cacheReadTokens: number;
  /** tokens per estimator unit, learned from measured segments; 1 until then */
  calibrationRatio: number;
  accuracy: AccuracyReport;
  compactions: number;
  /** registry id */
  model: string;
  /** what a reader should know about these figures; empty most of the time */
  warnings: string[];
}

/** Where the tokens are. System and tools share the overhead by their estimates; messages are what is left. */
export interface Breakdown {
  system: number;
  tools: number;
  summary: number;
  messages: number;
}

export interface AccuracyReport {
  /** calls that were predicted and reported */
  calls: number;
  /** the newest of them, its error signed: above 0 when too much was expected */
  last: { predicted: number; actual: number; errorPercent: number } | null;
  /** of the absolute errors of the newest calls, in percent; `null` before the first */
  medianPercent: number | null;
  p95Percent: number | null;
}

export interface ReportInput {
  ledger: Ledger;
  prompt: Prompt;
  known: KnownTokens;
  limits: ModelLimits;
  threshold: number | null;
  /** whether compacting is left to the client; default false */
  suggests?: boolean;
  totals: { reasoningTokens: number; cacheReadTokens: number };
  compactions: number;
}

export function contextReport(input: ReportInput): ContextReport {
  const { ledger, prompt, known, limits, threshold, suggests = false, totals, compactions } = input;
  const { anchor } = ledger;
  const learned = anchor ?? ledger.kin;
  const window = limits.contextWindow || null;
  const reserved = window === null ? 0 : reservedOutput(limits.maxOutput);
  const { breakdown, warnings } = breakDown(known, prompt);
  return {
    tokens: known.tokens,
    basis: known.basis,
    threshold,
    suggestion: suggests && threshold !== null && known.tokens > threshold,
    contextWindow: window,
    reservedOutput: reserved,
    free: window === null ? 0 : Math.max(0, window - reserved - known.tokens),
    percent: window === null ? 0 : round((known.tokens / window) * 100, 1),
    breakdown,
    calculation: {
      lastInput: anchor?.input ?? null,
      lastOutput: anchor?.output ?? null,
      newSince: Math.round(known.fresh),
    },
    reasoningTokens: totals.reasoningTokens,
    cacheReadTokens: totals.cacheReadTokens,
    calibrationRatio: round(ratioOf(traitsOf(learned, prompt.model)), 3),
    accuracy: accuracyReport(learned?.accuracy ?? NO_ACCURACY),
    compactions,
    model: prompt.model,
    warnings,
  };
}

/** Splits the total. Messages are back-calculated, so that the parts sum to it whatever was estimated. */
function breakDown(known: KnownTokens, prompt: Prompt): { breakdown: Breakdown; warnings: string[] } {
  const units = prompt.systemUnits + prompt.toolsUnits;
  const warnings: string[] = [];
  let overhead = Math.round(known.overhead);
  if (overhead > known.tokens) {
    if (known.tokens > 0)
      warnings.push(
        `System prompt and tools are estimated at ${overhead} tokens, more than the whole context; they are shown scaled to it.`,
      );
    overhead = known.tokens;
  }
  const system = units > 0 ? Math.round((overhead * prompt.systemUnits) / units) : overhead;
  const summary = Math.min(Math.round(known.summary), known.tokens - overhead);
  const messages = known.tokens - overhead - summary;
  return { breakdown: { system, tools: overhead - system, summary, messages }, warnings };
}

function accuracyReport({ calls, recent, last }: Accuracy): AccuracyReport {
  const errors = recent.map(Math.abs).toSorted((a, b) => a - b);
  const at = (share: number) =>
    errors.length === 0 ? null : round(errors[Math.min(errors.length - 1, Math.floor(share * errors.length))]!, 3);
  return {
    calls,
    last: last && { ...last, errorPercent: round(errorPercent(last.predicted, last.actual), 3) },
    medianPercent: at(0.5),
    p95Percent: at(0.95),
  };
}

function traitsOf(anchor: Anchor | null, model: string): ModelTraits | undefined {
  return anchor && Object.hasOwn(anchor.models, model) ? anchor.models[model] : undefined;
}

function round(value: number, decimals: number): number {
  return Math.round(value * 10 ** decimals) / 10 ** decimals;
}

/** The line that is logged for every call that was predicted. */
export function predictionLine(model: string, predicted: number, actual: number): string {
  const error = predicted - actual;
  const sign = error > 0 ? "+" : "";
  return `context ${model}: predicted=${predicted} actual=${actual} error=${sign}${error} (${sign}${errorPercent(predicted, actual).toFixed(1)} %)`;
}
