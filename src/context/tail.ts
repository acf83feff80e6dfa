/**
 * Sizes along a branch: the difference of two stored numbers, interpolated between the anchors around a position.
 *
 * Positions are units on the branch (`Entry.unitsBefore`); sizes are tokens of the model that reads them. Nothing here
 * reads content, and nothing depends on how long the transcript is.
 */
import { type Anchor, anchorPosition } from "./anchor.ts";
import { dropsReasoning, ratioOf } from "./calibration.ts";
import type { KnownTokens, Ledger } from "./known.ts";

/** The anchors of a branch, in memory or in an index: each question is one row. */
export interface AnchorIndex {
  /** newest anchor whose `at` is at or before `position` */
  before(position: number): Anchor | undefined;
  /** oldest anchor whose `at` is after `position` */
  after(position: number): Anchor | undefined;
}

/** An index over anchors in branch order. */
export function anchorIndex(anchors: readonly Anchor[]): AnchorIndex {
  const after = (position: number) => firstIndex(anchors.length, (i) => anchors[i]!.at > position);
  return { before: (position) => anchors[after(position) - 1], after: (position) => anchors[after(position)] };
}

/** Smallest index below `count` where `holds` is true, given that it stays true from there on; `count` if nowhere. */
export function firstIndex(count: number, holds: (index: number) => boolean): number {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Ledger tokens up to a position, counted from the first report. Positions before that are negative; the newest anchor
 * says how much of the first report that head has, because it says how much is overhead.
 */
function ledgerTokensAt(position: number, index: AnchorIndex, newest: Anchor): number {
  const before = index.before(position);
  const after = index.after(position);
  if (!before) return after ? beforeAnchors(position, { ...after, head: newest.head }) : 0;
  const start = settled(before, before.measured, before.liveReasoning, newest);
  const factor = before.models[before.prompt.model]?.factor ?? 1;
  const spoken = before.output / factor;
  const end = settled(before, before.measured + spoken, before.liveReasoning + before.ownReasoning, newest);
  if (position < anchorPosition(before) || !after) {
    if (before.outputReported || !after) {
      const into = Math.min(position - before.at, before.said);
      return (
        start +
        share(into, before.said) * (end - start) +
        (freshRatio(before) * Math.max(0, position - anchorPosition(before))) / factor
      );
    }
  }
  // Between two anchors the truth is known at both ends. A placeholder's output belongs to what lies between.
  const from = before.outputReported ? anchorPosition(before) : before.at;
  const known = before.outputReported ? end : start;
  return known + share(position - from, after.at - from) * (after.measured - known);
}

/** The same before the oldest anchor that is at hand: in the head, or between the first report and that anchor. */
function beforeAnchors(position: number, { head, headUnits, at, measured }: Anchor): number {
  if (position <= headUnits) return -share(headUnits - position, headUnits) * head;
  return share(position - headUnits, at - headUnits) * measured;
}

/** Reasoning that was dropped later is no part of what is kept: positions behind it move closer to the end. */
function settled(anchor: Anchor, tokens: number, reasoning: number, newest: Anchor): number {
  return anchor.at >= newest.droppedFrom && anchor.at < newest.droppedBefore ? tokens - reasoning : tokens;
}

function share(part: number, whole: number): number {
  return whole > 0 ? Math.min(1, Math.max(0, part / whole)) : 0;
}

function freshRatio(anchor: Anchor): number {
  return ratioOf(anchor.models[anchor.prompt.model]);
}

/** Sizes between positions of one branch as the context stands now. */
export interface BranchSizes {
  /** tokens from `position` to the end of the branch; never below 0 */
  tail(position: number): number;
  /** tokens between two positions; never below 0 */
  between(from: number, to: number): number;
  /** the same in ledger tokens, as `Prompt.covered` and `Prompt.pruned` hold them */
  ledgerBetween(from: number, to: number): number;
}

/** The newest anchor as the next call will see it: without reasoning that its provider is going to drop. */
function asRead({ anchor, boundary }: Ledger): Anchor | null {
  const drops = anchor && dropsReasoning(anchor.models[anchor.prompt.model], boundary);
  if (!drops) return anchor;
  // A habit: every turn before was left without its reasoning.
  return {
    ...anchor,
    droppedFrom: Math.min(anchor.droppedFrom, anchor.liveSince),
    droppedBefore: anchorPosition(anchor),
  };
}

/**
 * Opens the sizes of a branch. `known` says whose tokens they are to be told in, and the scale when a counter spoke;
 * without it they are those of the model that reported last.
 */
export function branchSizes(
  ledger: Ledger,
  index: AnchorIndex,
  known?: Pick<KnownTokens, "factor" | "scale">,
): BranchSizes {
  const anchor = asRead(ledger);
  const traits = anchor?.models[anchor.prompt.model];
  const toTokens = (known?.factor ?? traits?.factor ?? 1) * (known?.scale ?? 1);
  const at = (position: number) => (anchor ? ledgerTokensAt(position, index, anchor) : position * ratioOf(traits));
  const end = at(ledger.end);
  const ledgerBetween = (from: number, to: number) => Math.max(0, at(to) - at(from));
  return {
    tail: (position) => Math.max(0, end - at(position)) * toTokens,
    between: (from, to) => ledgerBetween(from, to) * toTokens,
    ledgerBetween,
  };
}

/**
 * Index of the first of `positions` (ascending, units before each place where a cut may fall) from which the kept tail
 * fits `budget` tokens; `positions.length` when not even the last does.
 *
 * Strides double from the end until the budget is passed, then halve: how many sizes are read depends on how much is
 * kept and not on how much there is.
 */
export function findTailStart(sizes: BranchSizes, positions: readonly number[], budget: number): number {
  const fits = (index: number) => sizes.tail(positions[index]!) <= budget;
  let stride = 1;
  while (stride <= positions.length && fits(positions.length - stride)) stride *= 2;
  const low = Math.max(0, positions.length - stride);
  const high = positions.length - Math.floor(stride / 2);
  return low + firstIndex(high - low, (offset) => fits(low + offset));
}
