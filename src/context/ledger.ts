/**
 * The ledger: what a reported call teaches, as the anchor it leaves.
 *
 * Two reports of one prompt version measure what lies between them; a report under another version corrects what no
 * message explains. Every rule here is numbered in `docs/accounting.md`.
 */
import { type Anchor, anchorPosition, type ModelTraits, NO_ACCURACY, type Prompt, sameVersion } from "./anchor.ts";
import {
  type Boundary,
  clampRatio,
  dropsReasoning,
  learnDrop,
  learnSegment,
  learnTrust,
  ratioOf,
  readSegment,
  recordPrediction,
  remember,
  trustsOutput,
} from "./calibration.ts";
import { freshUnits, knownTokens, type Ledger, overheadOf, settledRebase, traitsFor } from "./known.ts";
import type { ReportedUsage } from "./usage.ts";

export { type EntryUnits, type KnownTokens, knownTokens, type Ledger, openLedger } from "./known.ts";

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

/**
 * The report of a step with its input and output told apart. A report that has only a total says where the context
 * stood after the call, so the estimate of the output splits it.
 */
function readReport(step: StepReport, ratio: number): StepReport {
  const { contextInput, total } = step.usage;
  if (contextInput || !total) return step;
  const contextOutput = Math.min(total - 1, Math.round(step.said * ratio));
  return { ...step, usage: { ...step.usage, contextInput: total - contextOutput, contextOutput } };
}

/** Below this share of the estimate of what can be seen, a reported output is a placeholder. */
const PLACEHOLDER_SHARE = 0.5;

/**
 * The anchor a step leaves, or `null` when its report says nothing: missing, zero or no context input. `ledger` is the
 * branch as the call saw it, without the step. The caller leaves out calls that are not steps of this branch: failed
 * and aborted ones, the summariser's own.
 */
export function anchorFor(ledger: Ledger, report: StepReport): Anchor | null {
  const { anchor } = ledger;
  const seen = { ...ledger, end: report.at };
  const traits = traitsFor(seen, report.prompt);
  const step = readReport(report, ratioOf(traits));
  const { contextInput } = step.usage;
  if (!contextInput) return null;
  const predicted = knownTokens(seen, step.prompt).tokens;
  const measured = !anchor
    ? firstMeasure(seen, step, traits)
    : sameVersion(anchor.prompt, step.prompt)
      ? nextMeasure(anchor, seen, step, traits)
      : correctedMeasure(anchor, seen, step, traits, predicted);
  const models = remember((anchor ?? ledger.kin)?.models ?? {}, step.prompt.model, measured.traits);
  const accuracy = recordPrediction((anchor ?? ledger.kin)?.accuracy ?? NO_ACCURACY, predicted, contextInput);
  const { traits: learned, ...position } = measured;
  return {
    ...outputOf(step, learned),
    ...position,
    at: step.at,
    said: step.said,
    input: contextInput,
    prompt: step.prompt,
    models,
    accuracy,
  };
}

type Output = Pick<Anchor, "output" | "outputReported" | "placeholder" | "ownReasoning">;

/** Ôₙ, and how much of it is reasoning in ledger tokens. */
function outputOf({ usage, said, reasoningUnits }: StepReport, traits: ModelTraits): Output {
  const estimate = said * ratioOf(traits);
  const told = usage.contextOutput;
  const outputReported =
    told !== undefined && (told >= PLACEHOLDER_SHARE * estimate || (told > 0 && trustsOutput(traits)));
  const output = outputReported ? told : Math.round(estimate);
  const reasoning = Math.min(output, (outputReported && usage.reasoning) || reasoningUnits * ratioOf(traits));
  const ownReasoning = Math.round(reasoning / traits.factor);
  return {
    output,
    outputReported,
    ...(outputReported || told === undefined ? {} : { placeholder: told }),
    ownReasoning,
  };
}

/** Where an anchor stands and what it believes of everything before it. */
type Measure = Pick<
  Anchor,
  | "measured"
  | "head"
  | "headUnits"
  | "headInput"
  | "overhead"
  | "rebase"
  | "liveReasoning"
  | "liveSince"
  | "droppedFrom"
  | "droppedBefore"
> & {
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
    liveSince: step.at,
    droppedFrom: 0,
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
    return {
      ...standing(anchor),
      measured: start + explained,
      rebase,
      ...reasoningKept(anchor, step, ledger.boundary),
      traits,
    };
  }
  const heard =
    anchor.placeholder === undefined
      ? traits
      : learnTrust(traits, span, anchor.placeholder, anchor.output, estimate - anchor.output);
  const taught = learnSegment(learnDrop(heard, segment, reading, ledger.boundary), segment.tokens, units);
  return {
    ...resplit(anchor, taught),
    measured: start + span / traits.factor,
    ...(segment.dropped ? reasoningDropped(anchor, step, expected) : reasoningKept(anchor, step, ledger.boundary)),
    traits: taught,
  };
}

type Reasoning = Pick<Measure, "liveReasoning" | "liveSince" | "droppedFrom" | "droppedBefore">;

/** Reasoning that outlived the end of its turn is there to stay; within a turn it may still go. */
function reasoningKept(anchor: Anchor, { at }: StepReport, boundary: Boundary): Reasoning {
  const { droppedFrom, droppedBefore, liveSince } = anchor;
  const live = boundary === "turn" ? 0 : anchor.liveReasoning + anchor.ownReasoning;
  return { liveReasoning: live, liveSince: live > 0 ? liveSince : at, droppedFrom, droppedBefore };
}

/** A habitual drop left every turn before it without reasoning as well; a first one only its own. */
function reasoningDropped(anchor: Anchor, { at }: StepReport, habit: boolean): Reasoning {
  const droppedFrom = habit ? Math.min(anchor.droppedFrom, anchor.liveSince) : anchor.liveSince;
  return { liveReasoning: 0, liveSince: at, droppedFrom, droppedBefore: anchorPosition(anchor) };
}

/** What an anchor inherits when nothing new is known of the overhead. */
function standing(anchor: Anchor): Pick<Measure, "head" | "headUnits" | "headInput" | "overhead" | "rebase"> {
  const { head, headUnits, headInput, overhead, rebase } = anchor;
  return { head, headUnits, headInput, overhead, rebase };
}

/** The first report's overhead again, with the ratio that is known by now. */
function resplit(anchor: Anchor, traits: ModelTraits): ReturnType<typeof standing> {
  const { headInput, headUnits } = anchor;
  if (headInput === null) return standing(anchor);
  const overhead = Math.max(0, headInput - (headUnits * ratioOf(traits)) / traits.factor);
  return { ...standing(anchor), overhead, head: headInput - overhead };
}

/** Another version: the segment stays an estimate, and what the prediction missed corrects the overhead or the factor. */
function correctedMeasure(
  anchor: Anchor,
  ledger: Ledger,
  step: StepReport,
  traits: ModelTraits,
  predicted: number,
): Measure {
  const input = step.usage.contextInput ?? 0;
  const fresh = freshUnits(ledger) * ratioOf(traits);
  const base = {
    ...standing(anchor),
    ...reasoningKept(anchor, step, "turn"),
    measured:
      anchor.measured + anchor.output / (anchor.models[anchor.prompt.model]?.factor ?? 1) + fresh / traits.factor,
    overhead: overheadOf(anchor, step.prompt, traits),
    headInput: null,
    rebase: anchor.rebase + settledRebase(anchor, step.prompt),
  };
  if (anchor.prompt.model !== step.prompt.model) {
    const factor = clampRatio(traits.factor * Math.max(0, (input - fresh) / Math.max(1, predicted - fresh)));
    return { ...base, traits: { ...traits, factor } };
  }
  const overhead = base.overhead + (input - predicted) / traits.factor;
  return { ...base, overhead: Math.max(0, overhead), rebase: base.rebase + Math.min(0, overhead), traits };
}
