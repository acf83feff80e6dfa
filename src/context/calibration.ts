/** What measured segments teach: tokens per unit, dropped reasoning, and how good the predictions were. */
import { type Accuracy, type Anchor, type ModelTraits, RECENT_ERRORS, REMEMBERED_MODELS } from "./anchor.ts";

/** A ratio further from 1 is no tokenizer's, it is a mistake elsewhere. */
const LOWEST_RATIO = 0.25;
const HIGHEST_RATIO = 4;

/**
 * Units that the fitted weights are worth as evidence, as long as segments agree with them. Fewer, and a session follows
 * the noise of what nobody recorded; more, and it learns nothing (both tried on every recording, `docs/accounting.md`).
 */
const PRIOR_UNITS = 12_000;

/**
 * Deviation from the fitted weights, as a logarithm, at which they count half. Their own error on a whole session is
 * 3 to 5 %: ten and more can only mean a tokenizer they were not fitted for, which has to be learned at once.
 */
const FOREIGN_DEVIATION = 0.1;

/** Share of older evidence kept for each prior's worth of new: content changes within a session. */
const FADE = 0.5;

/** Smallest and largest share of a segment's estimate that is believed: beyond, it holds what nobody recorded. */
const PLAUSIBLE = 2.5;

export const NEW_MODEL: ModelTraits = Object.freeze({ factor: 1, measuredTokens: 0, measuredUnits: 0 });

export function clampRatio(ratio: number): number {
  return Number.isFinite(ratio) ? Math.min(HIGHEST_RATIO, Math.max(LOWEST_RATIO, ratio)) : 1;
}

/** Tokens of a model for one estimator unit: 1 until its segments say otherwise. */
export function ratioOf(traits: ModelTraits | undefined): number {
  const { measuredTokens, measuredUnits } = traits ?? NEW_MODEL;
  if (measuredUnits <= 0) return 1;
  const deviation = Math.log(clampRatio(measuredTokens / measuredUnits)) / FOREIGN_DEVIATION;
  const prior = PRIOR_UNITS / (1 + deviation * deviation);
  return clampRatio((measuredTokens + prior) / (measuredUnits + prior));
}

/** Traits after one more measured segment of `tokens` that was estimated at `units`. */
export function learnSegment(traits: ModelTraits, tokens: number, units: number): ModelTraits {
  if (tokens > units * PLAUSIBLE * ratioOf(traits) || tokens * PLAUSIBLE < units * ratioOf(traits)) return traits;
  const kept = FADE ** (units / PRIOR_UNITS);
  return {
    ...traits,
    measuredTokens: traits.measuredTokens * kept + tokens,
    measuredUnits: traits.measuredUnits * kept + units,
  };
}

/** Where a call stands in its session: after tool results of the same turn, or at the head of a new one. */
export type Boundary = "step" | "turn";

export function dropsReasoning(traits: ModelTraits | undefined, boundary: Boundary): boolean {
  return (boundary === "step" ? traits?.dropsAtStep : traits?.dropsAtTurn) ?? false;
}

/** Reasoning below this share of what is new cannot be told from the estimate's own error. */
const TELLING_SHARE = 0.25;

/** What may be new between two reports, all in the model's tokens. */
export interface Reading {
  /** the later input less the earlier context */
  difference: number;
  /** what the provider may have dropped, and whether it did so before at this boundary */
  reasoning: number;
  expected: boolean;
  /** what is new, by estimate */
  estimate: number;
}

/** The size of what lies between two reports. */
export interface Segment {
  tokens: number;
  dropped: boolean;
}

/**
 * Chooses what a difference of reports means; `null` when no reading of it is positive. Whichever positive one of
 * `difference` and `difference + reasoning` is nearer to the estimate by ratio is the segment; where the reasoning is
 * too little to tell, its model's habit decides. An estimate that is merely too high is no sign of dropped reasoning:
 * 36 % of calls look so.
 */
export function readSegment({ difference, reasoning, expected, estimate }: Reading): Segment | null {
  const whole = difference + reasoning;
  if (whole <= 0) return null;
  if (difference <= 0) {
    // A few tokens missing beside much reasoning: nothing was dropped, the output was counted a little too high.
    const missesLess = Math.abs(difference - estimate) <= Math.abs(whole - estimate);
    return missesLess ? null : { tokens: whole, dropped: true };
  }
  const dropped = tells(reasoning, estimate)
    ? offBy(whole, estimate) < offBy(difference, estimate)
    : expected && reasoning > 0;
  return { tokens: dropped ? whole : difference, dropped };
}

function tells(reasoning: number, estimate: number): boolean {
  return reasoning > TELLING_SHARE * estimate;
}

function offBy(tokens: number, estimate: number): number {
  return Math.abs(Math.log(tokens / Math.max(1, estimate)));
}

/** Traits after a segment showed whether reasoning was kept. Too little reasoning shows nothing. */
export function learnDrop(
  traits: ModelTraits,
  segment: Segment,
  { reasoning, estimate }: Reading,
  boundary: Boundary,
): ModelTraits {
  if (!tells(reasoning, estimate)) return traits;
  return boundary === "step"
    ? { ...traits, dropsAtStep: segment.dropped }
    : { ...traits, dropsAtTurn: segment.dropped };
}

/** Verdicts of the next report after which a model's small output figures are believed. */
const TRUST = 2;
const MOST_TRUST = 3;

/** Whether a model's output figures are believed however small they are. */
export function trustsOutput(traits: ModelTraits | undefined): boolean {
  return (traits?.outputTrust ?? 0) >= TRUST;
}

/**
 * Traits after the next report showed what a figure taken for a placeholder was. `difference` is what was put out and
 * added together, `told` and `assumed` the two sizes of the output, `estimate` what was added.
 */
export function learnTrust(
  traits: ModelTraits,
  difference: number,
  told: number,
  assumed: number,
  estimate: number,
): ModelTraits {
  if (!tells(assumed - told, estimate)) return traits;
  const right = Math.abs(difference - told - estimate) < Math.abs(difference - assumed - estimate);
  const trust = Math.max(-MOST_TRUST, Math.min(MOST_TRUST, (traits.outputTrust ?? 0) + (right ? 1 : -1)));
  return { ...traits, outputTrust: trust };
}

/** The models of an anchor with one of them replaced, the longest unused forgotten. */
export function remember(models: Anchor["models"], model: string, traits: ModelTraits): Anchor["models"] {
  const { [model]: _replaced, ...others } = models;
  const kept = Object.entries(others).slice(1 - REMEMBERED_MODELS);
  return Object.fromEntries([...kept, [model, roundTraits(traits)]]);
}

/** Anchors are rows: digits that carry nothing are not stored. */
function roundTraits(traits: ModelTraits): ModelTraits {
  return {
    ...traits,
    factor: Math.round(traits.factor * 1e5) / 1e5,
    measuredTokens: Math.round(traits.measuredTokens),
    measuredUnits: Math.round(traits.measuredUnits),
  };
}

/** Signed error of a prediction in percent of what was reported: above 0 when too much was expected. */
export function errorPercent(predicted: number, actual: number): number {
  return ((predicted - actual) / actual) * 100;
}

export function recordPrediction(accuracy: Accuracy, predicted: number, actual: number): Accuracy {
  const error = Math.round(errorPercent(predicted, actual) * 1_000) / 1_000;
  return {
    calls: accuracy.calls + 1,
    recent: [...accuracy.recent, error].slice(-RECENT_ERRORS),
    last: { predicted, actual },
  };
}
