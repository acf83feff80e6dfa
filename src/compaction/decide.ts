/**
 * Whether to compact, and what: from the one number to a plan or a reason. Pure; the same input gives the same plan.
 *
 * Fired means: above the threshold, or asked for, or no room for the next call. Whoever fires gets a plan that makes the
 * context smaller, or a reason that is recorded.
 */
import type { CompactionTrigger } from "../records.ts";
import { type Budget } from "./budget.ts";
import { type Cut, type CutRules, cutTail, ladder } from "./cut.ts";
import type { History } from "./history.ts";
import { planPrune, planShortening, type PrunePlan } from "./prune.ts";
import type { Standing } from "./standing.ts";

/** The one number, and what it is made of. All in model tokens. */
export interface Known {
  tokens: number;
  overhead: number;
  /** of the summary in force */
  summary: number;
}

/** The levers, as they hold for this decision. */
export interface DecisionSettings {
  trigger: CompactionTrigger;
  budget: Budget;
  /** messages kept at least; `insists` says whether even where the context stays above its threshold with them */
  minTailMessages: number;
  insists: boolean;
  /** newest model tokens whose tool outputs are left alone; `false` prunes nothing */
  prune: number | false;
  /** whether compacting is switched off, or left to the client */
  isOff: boolean;
  /** whether the provider compacts this conversation itself */
  providerCompacts: boolean;
  /** asked only where the number is above the threshold */
  standing: () => Standing;
  /** whether a forced one could be left out as well: then it is as any other to the standing */
  isOptional?: boolean;
  /** tokens that a prompt has to come below, where the next call has no room; absent otherwise */
  room?: number;
}

export type Decision =
  /** not fired: nothing is to be done */
  | { kind: "wait"; reason: WaitReason }
  /** fired, and nothing can be made smaller */
  | { kind: "no-progress"; reason: string }
  | { kind: "prune"; plan: PrunePlan }
  | { kind: "summarise"; cut: Cut };

export type WaitReason = "off" | "below-threshold" | "stopped" | "backing-off" | "provider-compacts";

/** Model tokens by which a compaction has to make the context smaller to be worth a call. */
const LEAST_GAIN = 64;

/** Share of what leaves that a summary is expected to have, and the tokens of the frame it is shown in. */
const SUMMARY_SHARE = 0.2;
const FRAME_TOKENS = 64;

/** Triggers that do not ask for the threshold: a person wants it, or the model cannot be called without. */
const FORCED: ReadonlySet<CompactionTrigger> = new Set(["manual", "no-room", "overflow"]);

export function decide(known: Known, settings: DecisionSettings, history: () => History): Decision {
  const reason = waitReason(known, settings);
  if (reason) return { kind: "wait", reason };
  if (settings.providerCompacts) {
    return { kind: "no-progress", reason: "The provider compacts this conversation itself." };
  }
  const seen = history();
  const prune = prunePlan(known, settings, seen);
  if (prune) return { kind: "prune", plan: prune };
  const cut = chooseCut(known, settings, seen);
  if (cut) return { kind: "summarise", cut };
  const isUnsendable = settings.room !== undefined || settings.trigger === "overflow";
  const shortening = planShortening(seen, shorteningNeed(known, settings), isUnsendable);
  if (shortening) return { kind: "prune", plan: shortening };
  // It was said twice already, and nothing was spent on it.
  if (isAutomatic(settings) && settings.standing().kind === "stopped") return { kind: "wait", reason: "stopped" };
  return { kind: "no-progress", reason: whyNothing(known, seen) };
}

/** Why nothing is done, where nothing was asked for; `undefined` when it fires. */
function waitReason({ tokens }: Known, settings: DecisionSettings): WaitReason | undefined {
  const { trigger, budget, isOff, providerCompacts } = settings;
  if (trigger === "manual") return undefined;
  if (isOff) return "off";
  if (FORCED.has(trigger)) return settings.isOptional ? standingReason(settings) : undefined;
  if (budget.threshold === null) return "off";
  if (tokens <= budget.threshold) return "below-threshold";
  if (providerCompacts) return "provider-compacts";
  return standingReason(settings);
}

function standingReason(settings: DecisionSettings): WaitReason | undefined {
  const standing = settings.standing();
  if (standing.kind === "open" || (standing.kind === "stopped" && standing.isFree)) return undefined;
  return standing.kind;
}

function isAutomatic({ trigger, isOptional }: DecisionSettings): boolean {
  return isOptional || !FORCED.has(trigger);
}

/** A person who asks for a compaction wants a summary. */
function prunePlan(
  { tokens }: Known,
  { trigger, budget, prune, room }: DecisionSettings,
  history: History,
): PrunePlan | null {
  const limit = room ?? budget.threshold;
  if (trigger === "manual" || prune === false || limit === null) return null;
  // A provider may refuse what stands below the threshold: then that much is too long.
  return planPrune(history, { known: tokens, threshold: Math.min(limit, tokens), protect: prune });
}

function chooseCut(known: Known, settings: DecisionSettings, history: History): Cut | null {
  const { budget, trigger, insists } = settings;
  const rules: CutRules = {
    budget: budget.tail,
    minMessages: settings.minTailMessages,
    most: mostKept(known, settings),
  };
  const gains = (cut: Cut | null): cut is Cut => cut !== null && gainOf(cut, known, budget) >= LEAST_GAIN;
  const first = cutTail(history, rules);
  if (gains(first)) return first;
  // A person can wait until there is more to compact; a model that has to be called cannot.
  const floors = insists || trigger === "manual" ? [rules.minMessages] : [rules.minMessages, 1];
  for (const minMessages of floors) {
    for (const cut of ladder(history, { ...rules, minMessages })) if (gains(cut)) return cut;
  }
  return null;
}

/** Model tokens that the least number of messages may have: what still leaves the context below its threshold. */
function mostKept({ overhead }: Known, { budget, insists }: DecisionSettings): number {
  if (insists || budget.threshold === null) return Infinity;
  return Math.max(budget.tail, budget.threshold - overhead - budget.summary - FRAME_TOKENS);
}

/** Model tokens by which the context becomes smaller, with a summary of the size that is to be expected. */
function gainOf({ leaving }: Cut, { summary }: Known, budget: Budget): number {
  const expected = Math.min(budget.summary, summary + leaving * SUMMARY_SHARE) + FRAME_TOKENS;
  return leaving + summary - expected;
}

/** Model tokens that have to go for the next call, or for the threshold. */
function shorteningNeed({ tokens }: Known, { room, budget, trigger }: DecisionSettings): number {
  if (trigger === "manual") return LEAST_GAIN;
  return Math.max(LEAST_GAIN, tokens - (room ?? budget.threshold ?? 0));
}

function whyNothing({ tokens, overhead }: Known, { blocks, pinned }: History): string {
  if (blocks.length === 0 && !pinned) return "Nothing has been said since the last compaction, or at all.";
  const user = blocks.findLast(({ role }) => role === "user") ?? pinned;
  const rest = Math.max(0, tokens - overhead - (user?.tokens ?? 0));
  return `Of ${tokens} tokens, ${Math.round(overhead)} are system prompt and tools, ${Math.round(user?.tokens ?? 0)} the newest message and ${Math.round(rest)} what must stay or is too little to summarise.`;
}
