/**
 * The ledger of one branch: what the model would read if it were called now, in its own tokens.
 *
 * It is rebuilt from the newest anchor on the branch and the units of the entries after it; nothing in it grows with the
 * transcript. Every rule here is numbered in `docs/accounting.md`.
 */
import {
  type Anchor,
  anchorPosition,
  contextAfter,
  type ModelTraits,
  NO_ACCURACY,
  type Prompt,
  sameVersion,
} from "./anchor.ts";
import { type Boundary, clampRatio, dropsReasoning, learnDrop, learnSegment, NEW_MODEL, ratioOf, readSegment, recordPrediction, remember } from "./calibration.ts";
import type { ReportedUsage } from "./usage.ts";

export interface Ledger {
  /** newest anchor on the branch whose prefix is unchanged; `null` before the first report */
  anchor: Anchor | null;
  /** units on the branch, everything included */
  end: number;
  /** whether the next call goes on with a turn or opens one */
  boundary: Boundary;
  /** an anchor of another branch, for what a session knows of its overhead and models; read while `anchor` is `null` */
  kin: Anchor | null;
}

export type Basis = "counter" | "reported" | "anchored" | "estimated";

/** The one number, and what it is made of. All in tokens of the prompt's model. */
export interface KnownTokens {
  tokens: number;
  basis: Basis;
  /** system prompt, tools and whatever else belongs to no message */
  overhead: number;
  summary: number;
  /** part of `tokens` that no call has measured yet */
  fresh: number;
  /** scale on ledger sizes so that cut and fire agree; 1 unless a counter spoke */
  scale: number;
}

/** An entry as far as the ledger is concerned: `EntryHead` has it. */
export interface EntryUnits {
  role: string;
  unitsBefore: number;
  unitsSaid: number;
  unitsReturned: number;
}

/** Opens the ledger of a branch from its newest anchor and the entries from the anchor's own on, in order. */
export function openLedger(anchor: Anchor | null, entries: readonly EntryUnits[], kin: Anchor | null = null): Ledger {
  const last = entries.at(-1);
  const end = last ? last.unitsBefore + last.unitsSaid + last.unitsReturned : anchor ? anchorPosition(anchor) : 0;
  const fresh = anchor ? entries.filter((entry) => entry.unitsBefore >= anchorPosition(anchor)) : entries;
  const goesOn = last?.role === "assistant" && last.unitsReturned > 0 && !fresh.some((entry) => entry.role === "user");
  return { anchor, end, boundary: goesOn ? "step" : "turn", kin };
}

/** Units on the branch that no call has read or put out yet. */
function freshUnits({ anchor, end }: Ledger): number {
  return anchor ? Math.max(0, end - anchorPosition(anchor)) : end;
}

/** Traits of the model a prompt is for, with the factor expected of one that has not reported yet. */
function traitsFor(ledger: Ledger, prompt: Prompt): ModelTraits {
  const anchor = ledger.anchor ?? ledger.kin;
  const known = anchor?.models[prompt.model];
  if (known || !anchor) return known ?? NEW_MODEL;
  const before = anchor.models[anchor.prompt.model] ?? NEW_MODEL;
  // An unfitted model's ratio tells how far its estimates are off; the next model's are expected to be right.
  return { ...NEW_MODEL, factor: (before.factor * (prompt.rescale ?? 1)) / ratioOf(before) };
}

/** Ledger tokens of a prompt's overhead: what the anchor found, and the estimated difference where it changed since. */
function overheadOf(anchor: Anchor | null, prompt: Prompt, traits: ModelTraits): number {
  const perUnit = ratioOf(traits) / traits.factor;
  const units = prompt.systemUnits + prompt.toolsUnits;
  if (!anchor) return units * perUnit;
  const { overheadKey, systemUnits, toolsUnits } = anchor.prompt;
  if (overheadKey === prompt.overheadKey) return anchor.overhead;
  return Math.max(0, anchor.overhead + (units - systemUnits - toolsUnits) * perUnit);
}

/** Ledger tokens a prompt has beside the uncut transcript. */
function shapeOf(overhead: number, prompt: Prompt): number {
  return overhead + prompt.summary - prompt.covered - prompt.pruned;
}

/**
 * Ledger tokens by which a prompt differs from the one an anchor's call had, the transcript aside. What carries the same
 * name has the same size, even where later reports would measure it a little differently.
 */
function changeSince(anchor: Anchor, prompt: Prompt, overhead: number): number {
  const then = anchor.prompt;
  const { covered, summary } = then.overlay === prompt.overlay ? then : prompt;
  const { pruned } = then.pruneKey === prompt.pruneKey ? then : prompt;
  return shapeOf(overhead, { ...prompt, covered, summary, pruned }) - shapeOf(anchor.overhead, then) + settledRebase(anchor, prompt);
}

/**
 * What leaves `rebase` when an overlay is put in force: the unexplained loss lay in old content, and the overlay covers
 * that. Ledger tokens.
 */
function settledRebase(anchor: Anchor, prompt: Prompt): number {
  if (anchor.prompt.overlay === prompt.overlay || anchor.rebase >= 0) return 0;
  return Math.min(-anchor.rebase, Math.max(0, prompt.covered - anchor.prompt.covered));
}

/** Reasoning that the next call will not read any more, in ledger tokens, as its model did it before. */
function expectedDrop(anchor: Anchor, boundary: Boundary): number {
  const traits = anchor.models[anchor.prompt.model];
  return dropsReasoning(traits, boundary) ? anchor.liveReasoning + anchor.ownReasoning : 0;
}

/** The context if the model were called now with `prompt`: from the newest report, or estimated while there is none. */
export function knownTokens(ledger: Ledger, prompt: Prompt): KnownTokens {
  const { anchor } = ledger;
  const traits = traitsFor(ledger, prompt);
  const overhead = overheadOf(anchor ?? ledger.kin, prompt, traits);
  const fresh = freshUnits(ledger) * ratioOf(traits);
  const parts = { overhead: overhead * traits.factor, summary: prompt.summary * traits.factor, fresh, scale: 1 };
  if (!anchor) {
    const tokens = Math.max(0, shapeOf(overhead, prompt) * traits.factor + fresh);
    return { tokens: Math.round(tokens), basis: "estimated", ...parts };
  }
  const before = anchor.models[anchor.prompt.model]?.factor ?? 1;
  const change = changeSince(anchor, prompt, overhead);
  const drop = expectedDrop(anchor, ledger.boundary);
  const standing = contextAfter(anchor) / before - drop + change;
  const tokens = Math.round(Math.max(0, standing * traits.factor) + fresh);
  const untouched = fresh === 0 && drop === 0 && anchor.outputReported && sameVersion(anchor.prompt, prompt);
  return { tokens, basis: untouched ? "reported" : "anchored", ...parts };
}

/** What a finished step tells the ledger. */
export interface StepReport {
  /** what the call's prompt was built from, not what is in force now */
  prompt: Prompt;
  usage: ReportedUsage;
  /** units on the branch before the step's output, and of the output */
  at: number;
  said: number;
  /** units of the reasoning in the output */
  reasoningUnits: number;
}

/** Below this share of the estimate of what can be seen, a reported output is a placeholder. */
const PLACEHOLDER_SHARE = 0.5;

/**
 * The anchor a step leaves, or `null` when its report says nothing: missing, zero or no context input. `ledger` is the
 * branch as the call saw it, without the step. The caller leaves out calls that are not steps of this branch: failed
 * and aborted ones, the summariser's own.
 */
export function anchorFor(ledger: Ledger, step: StepReport): Anchor | null {
  const { contextInput } = step.usage;
  if (!contextInput) return null;
  const { anchor } = ledger;
  const seen = { ...ledger, end: step.at };
  const traits = traitsFor(seen, step.prompt);
  const predicted = knownTokens(seen, step.prompt).tokens;
  const measured = !anchor
    ? firstMeasure(seen, step, traits)
    : sameVersion(anchor.prompt, step.prompt)
      ? nextMeasure(anchor, seen, step, traits)
      : correctedMeasure(anchor, seen, step, traits, predicted);
  const models = remember((anchor ?? ledger.kin)?.models ?? {}, step.prompt.model, measured.traits);
  const accuracy = recordPrediction((anchor ?? ledger.kin)?.accuracy ?? NO_ACCURACY, predicted, contextInput);
  const { traits: learned, ...position } = measured;
  return { ...outputOf(step, learned), ...position, at: step.at, said: step.said, input: contextInput, prompt: step.prompt, models, accuracy };
}

/** Ôₙ, and how much of it is reasoning in ledger tokens. */
function outputOf({ usage, said, reasoningUnits }: StepReport, traits: ModelTraits): Pick<Anchor, "output" | "outputReported" | "ownReasoning"> {
  const estimate = said * ratioOf(traits);
  const reported = usage.contextOutput;
  const outputReported = reported !== undefined && reported >= PLACEHOLDER_SHARE * estimate;
  const output = outputReported ? reported : Math.round(estimate);
  const reasoning = Math.min(output, (outputReported && usage.reasoning) || reasoningUnits * ratioOf(traits));
  return { output, outputReported, ownReasoning: Math.round(reasoning / traits.factor) };
}

/** Where an anchor stands and what it believes of everything before it. */
type Measure = Pick<Anchor, "measured" | "head" | "headUnits" | "headInput" | "overhead" | "rebase" | "liveReasoning" | "droppedBefore"> & {
  traits: ModelTraits;
};

/** First report: what the messages do not explain is overhead, and the measured total starts here at 0. */
function firstMeasure(ledger: Ledger, step: StepReport, traits: ModelTraits): Measure {
  const { prompt } = step;
  const input = (step.usage.contextInput ?? 0) / traits.factor;
  const head = (step.at * ratioOf(traits)) / traits.factor;
  const content = Math.max(0, head + prompt.summary - prompt.covered - prompt.pruned);
  // A branch without a report in a session that has some: what was found there is better than what is left over here.
  const overhead = ledger.kin ? Math.min(input, overheadOf(ledger.kin, prompt, traits)) : Math.max(0, input - content);
  const whole = !ledger.kin && content === head;
  return {
    measured: 0,
    head: whole ? input - overhead : head,
    headUnits: step.at,
    headInput: whole && overhead > 0 ? input : null,
    overhead,
    rebase: whole ? 0 : input - overhead - content,
    liveReasoning: 0,
    droppedBefore: 0,
    traits,
  };
}

/** Same version: the difference of two reports is the exact size of what lies between them. */
function nextMeasure(anchor: Anchor, ledger: Ledger, step: StepReport, traits: ModelTraits): Measure {
  const live = anchor.liveReasoning + anchor.ownReasoning;
  const units = freshUnits(ledger) + (anchor.outputReported ? 0 : anchor.said);
  const estimate = units * ratioOf(traits);
  const span = (step.usage.contextInput ?? 0) - anchor.input - (anchor.outputReported ? anchor.output : 0);
  const expected = dropsReasoning(traits, ledger.boundary);
  const reading = { difference: span, reasoning: live * traits.factor, expected, estimate };
  const segment = readSegment(reading);
  const start = anchor.measured + (anchor.outputReported ? anchor.output / traits.factor : 0);
  if (!segment) {
    const explained = estimate / traits.factor;
    const rebase = anchor.rebase + span / traits.factor - explained;
    return { ...standing(anchor), measured: start + explained, rebase, liveReasoning: ledger.boundary === "turn" ? 0 : live, traits };
  }
  const taught = learnSegment(learnDrop(traits, segment, reading, ledger.boundary), segment.tokens, units);
  return {
    ...resplit(anchor, taught),
    measured: start + span / traits.factor,
    // Reasoning that outlived the end of its turn is there to stay.
    liveReasoning: segment.dropped || ledger.boundary === "turn" ? 0 : live,
    droppedBefore: segment.dropped ? anchorPosition(anchor) : anchor.droppedBefore,
    traits: taught,
  };
}

/** What an anchor inherits when nothing new is known of the overhead. */
function standing(anchor: Anchor): Pick<Measure, "head" | "headUnits" | "headInput" | "overhead" | "rebase" | "droppedBefore"> {
  const { head, headUnits, headInput, overhead, rebase, droppedBefore } = anchor;
  return { head, headUnits, headInput, overhead, rebase, droppedBefore };
}

/** The first report's overhead again, with the ratio that is known by now. */
function resplit(anchor: Anchor, traits: ModelTraits): ReturnType<typeof standing> {
  const { headInput, headUnits } = anchor;
  if (headInput === null) return standing(anchor);
  const overhead = Math.max(0, headInput - (headUnits * ratioOf(traits)) / traits.factor);
  return { ...standing(anchor), overhead, head: headInput - overhead };
}

/** Another version: the segment stays an estimate, and what the prediction missed corrects the overhead or the factor. */
function correctedMeasure(anchor: Anchor, ledger: Ledger, step: StepReport, traits: ModelTraits, predicted: number): Measure {
  const input = step.usage.contextInput ?? 0;
  const fresh = freshUnits(ledger) * ratioOf(traits);
  const base = {
    ...standing(anchor),
    measured: anchor.measured + anchor.output / (anchor.models[anchor.prompt.model]?.factor ?? 1) + fresh / traits.factor,
    overhead: overheadOf(anchor, step.prompt, traits),
    headInput: null,
    rebase: anchor.rebase + settledRebase(anchor, step.prompt),
    liveReasoning: 0,
  };
  if (anchor.prompt.model !== step.prompt.model) {
    const factor = clampRatio(traits.factor * Math.max(0, (input - fresh) / Math.max(1, predicted - fresh)));
    return { ...base, traits: { ...traits, factor } };
  }
  const overhead = base.overhead + (input - predicted) / traits.factor;
  return { ...base, overhead: Math.max(0, overhead), rebase: base.rebase + Math.min(0, overhead), traits };
}
