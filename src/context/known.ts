/**
 * The one number: what the model would read if it were called now, in its own tokens.
 *
 * A ledger is rebuilt from the newest anchor on a branch and the units of the entries after it; nothing in it grows with
 * the transcript. Every rule here is numbered in `docs/accounting.md`.
 */
import { type Anchor, anchorPosition, contextAfter, type ModelTraits, type Prompt, sameVersion } from "./anchor.ts";
import { type Boundary, dropsReasoning, NEW_MODEL, ratioOf } from "./calibration.ts";

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
  /** tokens of the prompt's model for one ledger token: what sizes along the branch are multiplied by */
  factor: number;
  /** a further scale on them, so that cut and fire agree; 1 unless a counter spoke */
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
export function freshUnits({ anchor, end }: Ledger): number {
  return anchor ? Math.max(0, end - anchorPosition(anchor)) : end;
}

/** Traits of the model a prompt is for, with the factor expected of one that has not reported yet. */
export function traitsFor(ledger: Ledger, prompt: Prompt): ModelTraits {
  const anchor = ledger.anchor ?? ledger.kin;
  const known = anchor && Object.hasOwn(anchor.models, prompt.model) ? anchor.models[prompt.model] : undefined;
  if (known || !anchor) return known ?? NEW_MODEL;
  const before = anchor.models[anchor.prompt.model] ?? NEW_MODEL;
  // An unfitted model's ratio tells how far its estimates are off; the next model's are expected to be right.
  return { ...NEW_MODEL, factor: (before.factor * (prompt.rescale ?? 1)) / ratioOf(before) };
}

/** Ledger tokens of a prompt's overhead: what the anchor found, and the estimated difference where it changed since. */
export function overheadOf(anchor: Anchor | null, prompt: Prompt, traits: ModelTraits): number {
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
  return (
    shapeOf(overhead, { ...prompt, covered, summary, pruned }) -
    shapeOf(anchor.overhead, then) +
    settledRebase(anchor, prompt)
  );
}

/**
 * What leaves `rebase` when an overlay is put in force: the unexplained loss lay in old content, and the overlay covers
 * that. Ledger tokens.
 */
export function settledRebase(anchor: Anchor, prompt: Prompt): number {
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
  const parts = {
    overhead: overhead * traits.factor,
    summary: prompt.summary * traits.factor,
    fresh,
    factor: traits.factor,
    scale: 1,
  };
  if (!anchor) {
    const tokens = Math.max(0, shapeOf(overhead, prompt) * traits.factor + fresh);
    return { tokens: Math.round(tokens), basis: "estimated", ...parts };
  }
  const before = anchor.models[anchor.prompt.model]?.factor ?? 1;
  const change = changeSince(anchor, prompt, overhead);
  const drop = expectedDrop(anchor, ledger.boundary);
  const standing = contextAfter(anchor) / before - drop + change;
  // An overlay may cover what no call has measured yet, so what stands alone can be below zero.
  const tokens = Math.round(Math.max(0, standing * traits.factor + fresh));
  const untouched = fresh === 0 && drop === 0 && anchor.outputReported && sameVersion(anchor.prompt, prompt);
  return { tokens, basis: untouched ? "reported" : "anchored", ...parts };
}
