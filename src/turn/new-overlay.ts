/** The overlay that a plan makes of a branch, with what it weighs by the ledger. */
import type { Cut } from "../compaction/cut.ts";
import { mergePrunes, type PrunePlan } from "../compaction/prune.ts";
import { summaryMessageText } from "../compaction/summary-prompt.ts";
import { ratioOf } from "../context/calibration.ts";
import { estimateText, weightsFor } from "../context/estimator.ts";
import { traitsFor } from "../context/known.ts";
import type { BranchSizes } from "../context/tail.ts";
import type { Entry, Overlay, Pruning, Seq } from "../records.ts";
import type { Branch } from "./branch.ts";
import { anchorOf, prunedTokens, sizesOf, wholeOf, type Reading } from "./gauge.ts";

/** Where an overlay is made: a branch, and what is known of it now. */
export interface OverlayPlace {
  branch: Branch;
  reading: Reading;
  /** registry id of the session's model */
  model: string;
}

/** A summary in the place of everything up to a cut. */
export interface WrittenSummary {
  id: number;
  cut: Pick<Cut, "until" | "pinned">;
  /** entries shown in front of it */
  head: readonly Entry[];
  text: string;
  /** tokens of the session's model that its writer reported; `undefined` where another model wrote it, or said nothing */
  tokens: number | undefined;
}

/** Covers everything up to the cut; what was left out of outputs behind it stays left out. */
export function summaryOverlay(place: OverlayPlace, { id, cut, head, text, tokens }: WrittenSummary): Overlay {
  const { branch } = place;
  const before = branch.overlay;
  const sizes = sizesFrom(oldestOf(place, cut, head), place);
  const untilEnd = endOf(branch.loaded.find(({ seq }) => seq === cut.until));
  const start = before?.until ? firstPosition(branch) : endOf(head.at(-1));
  const pinned = branch.loaded.find(({ seq }) => seq === cut.pinned);
  const overlay: Overlay = {
    id,
    until: cut.until,
    head: head.map(({ seq }) => seq),
    pinned: cut.pinned,
    summary: text,
    rangeTokens: (before?.until ? before.rangeTokens : 0) + sizes.ledgerBetween(start, untilEnd),
    pinnedTokens: cut.pinned === null ? 0 : pinned ? wholeOf(pinned, sizes) : (before?.pinnedTokens ?? 0),
    summaryTokens: summaryTokens(place, text, tokens),
    pruning: null,
  };
  return { ...overlay, pruning: pruningBehind(place, before?.pruning ?? null, cut.until, head, sizes) };
}

/** Outputs left out or shortened, and everything else as it was. */
export function prunedOverlay(place: OverlayPlace, id: number, plan: PrunePlan): Overlay {
  const { branch } = place;
  const before = branch.overlay ?? NOTHING;
  const pruning = mergePrunes(before.pruning, plan);
  const shown = [...branch.kept.head, ...branch.entries];
  return { ...before, id, pruning: weighed(place, pruning, sizesFrom(before.until ?? 0, place), shown) };
}

const NOTHING: Overlay = {
  id: 0,
  until: null,
  head: [],
  pinned: null,
  summary: null,
  rangeTokens: 0,
  pinnedTokens: 0,
  summaryTokens: 0,
  pruning: null,
};

/** Ledger tokens of a summary as it is shown. Its writer knows its tokens, and we what we put around it. */
function summaryTokens({ reading, model }: OverlayPlace, text: string, reported: number | undefined): number {
  const weights = weightsFor(model);
  const traits = traitsFor(reading.ledger, reading.prompt);
  const ratio = ratioOf(traits);
  const shown = estimateText(summaryMessageText(text), weights) * ratio + weights.frame.message;
  const said = estimateText(text, weights) * ratio;
  const isPlausible = reported !== undefined && reported > said / PLAUSIBLE && reported < said * PLAUSIBLE;
  return (isPlausible ? shown - said + reported : shown) / traits.factor;
}

/** A report further from the estimate is a placeholder, or counts what is no part of the text. */
const PLAUSIBLE = 2;

function pruningBehind(
  place: OverlayPlace,
  before: Pruning | null,
  until: Seq,
  head: readonly Entry[],
  sizes: BranchSizes,
): Pruning | null {
  if (!before) return null;
  const shortened = before.shortened.filter(({ seq }) => seq > until);
  const isMoot = before.until <= until && shortened.length === 0 && head.length === 0;
  if (isMoot) return null;
  const shown = [...head, ...place.branch.entries.filter(({ seq }) => seq > until)];
  return weighed(place, { until: before.until, shortened }, sizes, shown);
}

function weighed(
  { model }: OverlayPlace,
  pruning: Pick<Pruning, "until" | "shortened">,
  sizes: BranchSizes,
  shown: readonly Entry[],
): Pruning {
  return { ...pruning, tokens: prunedTokens(shown, pruning, sizes, model) };
}

/** The oldest entry whose place has to be known: the overlay goes on from there, or begins there. */
function oldestOf({ branch, reading }: OverlayPlace, cut: WrittenSummary["cut"], head: readonly Entry[]): Seq {
  if (branch.overlay?.until) return branch.overlay.until;
  const last = head.at(-1);
  const isMeasured = last && endOf(last) > headUnits(reading);
  return Math.min(cut.until, cut.pinned ?? cut.until, isMeasured ? last.seq : cut.until);
}

/** Sizes that are as exact as reports make them from an entry on: with the anchor before it, if there was a report by then. */
function sizesFrom(oldest: Seq, { branch, reading }: OverlayPlace): BranchSizes {
  const read: Entry[] = [];
  for (const entry of branch.history()) {
    read.push(entry);
    if (entry.seq <= oldest && (anchorOf(entry) || entry.unitsBefore <= headUnits(reading))) break;
  }
  return sizesOf(reading.ledger, read.reverse());
}

/** Where on the branch the first report stands: there is no anchor before. */
function headUnits({ ledger }: Reading): number {
  return ledger.anchor?.headUnits ?? Infinity;
}

/** Where what is in memory begins: right behind the overlay in force. */
function firstPosition({ entries, units }: Branch): number {
  return entries[0]?.unitsBefore ?? units;
}

function endOf(entry: Entry | undefined): number {
  return entry ? entry.unitsBefore + entry.unitsSaid + entry.unitsReturned : 0;
}
