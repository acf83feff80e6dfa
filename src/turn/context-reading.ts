/**
 * The one number as a session acts on it and shows it: computed once per decision, by reports, a counter or an estimate.
 */
import type { ToolSet } from "ai";
import { budgetFor, type Budget } from "../compaction/budget.ts";
import type { Anchor } from "../context/anchor.ts";
import { countKnown, type CountedPrompt } from "../context/counters.ts";
import type { KnownTokens } from "../context/known.ts";
import { knownByPolicy } from "../context/policy.ts";
import { contextReport, type ContextReport } from "../context/report.ts";
import { promptRoom, reservedOutput, usableContext, type ModelLimits } from "../context/usage.ts";
import { limitsOf } from "../models/catalogue.ts";
import type { SessionRecord } from "../records.ts";
import type { Branch } from "./branch.ts";
import { modelId, type CompactAfter, type Configuration } from "./configuration.ts";
import { describeTools, readGauge, type Overhead, type Reading } from "./gauge.ts";
import { promptOf } from "./prompt.ts";
import { shownMessages } from "./shown.ts";

/** Where the number is read: a branch as it is shown, and what a call on it would have. */
export interface ContextPlace {
  branch: Branch;
  configuration: Configuration;
  tools: ToolSet;
  overhead: Overhead;
  /** an anchor of another branch, asked for when this one has none */
  kin: () => Anchor | null;
  /** of the session */
  session: Pick<SessionRecord, "measured" | "erased" | "totals" | "compactions">;
  log: (event: string, details: Record<string, unknown>) => void;
}

/** The one number, read once: it goes to the decision, the cut, the report and the record. */
export interface Moment extends ContextPlace {
  /** what the ledger says, whatever is shown of it: what a call is predicted to read */
  reading: Reading;
  /** the one number, by policy and counter */
  known: KnownTokens;
  limits: ModelLimits;
}

/** Reads the context once; a configured counter is asked once. */
export async function readMoment(place: ContextPlace): Promise<Moment> {
  const { branch, configuration, overhead, kin, session, log } = place;
  const reading = readGauge(branch, { overhead, model: modelId(configuration.model), kin, session });
  const { tokenCounter } = configuration;
  const shown = knownByPolicy(reading.ledger, reading.prompt, configuration.context);
  const limits = limitsFor(configuration);
  if (!tokenCounter) return { ...place, reading, known: shown, limits };
  const { known, failure } = await countKnown(tokenCounter, await countedPrompt(place), shown);
  if (failure !== undefined) log("token counter", { failure });
  return { ...place, reading, known, limits };
}

/** What holds of the configured sizes at a moment. */
export function budgetAt({ configuration, known, limits }: Moment): Budget {
  return budgetFor({
    threshold: thresholdOf(configuration.compactAfter, limits),
    usable: promptRoom(limits),
    tailTokenBudget: configuration.tailTokenBudget,
    overhead: Math.round(known.overhead),
  });
}

/** The report of a moment. `notices`: what else a reader should know. */
export function reportOf(moment: Moment, notices: readonly string[] = []): ContextReport {
  const { reading, known, configuration, limits, session } = moment;
  const budget = budgetAt(moment);
  const report = contextReport({
    ledger: reading.ledger,
    prompt: reading.prompt,
    known,
    limits,
    threshold: budget.threshold,
    suggests: configuration.compactMode === "suggest",
    totals: session.totals,
    compactions: session.compactions,
  });
  const warning = autoWarning(configuration.compactAfter, limits);
  return { ...report, warnings: [...report.warnings, ...(warning ? [warning] : []), ...budget.warnings, ...notices] };
}

/** Why `auto` never fires here; `undefined` where it can, or where nothing is known of the window. */
function autoWarning(compactAfter: CompactAfter, limits: ModelLimits): string | undefined {
  const { contextWindow, maxOutput } = limits;
  if (compactAfter !== "auto" || !contextWindow || thresholdOf(compactAfter, limits) !== null) return undefined;
  const reserved = reservedOutput(maxOutput);
  return `The window of ${contextWindow} tokens leaves nothing beside the ${reserved} reserved for the answer, so "auto" never fires; set MAX_OUTPUT_TOKENS, or tokens or a share to compact after.`;
}

/** What the model can hold: as configured, else by the catalogue. */
function limitsFor({ model, contextWindow, maxOutputTokens }: Configuration): ModelLimits {
  const known = limitsOf(modelId(model));
  return {
    contextWindow: contextWindow ?? known.contextWindow,
    maxOutput: maxOutputTokens ?? known.maxOutputTokens,
  };
}

/** Tokens above which a compaction is wanted; `null` for never, and where it depends on a window that is unknown. */
function thresholdOf(compactAfter: CompactAfter, limits: ModelLimits): number | null {
  if (compactAfter === "off") return null;
  if (typeof compactAfter === "number") return compactAfter;
  const { contextWindow, maxOutput } = limits;
  if (!contextWindow) return null;
  if (compactAfter !== "auto") return Math.floor((contextWindow * Number.parseFloat(compactAfter)) / 100);
  const usable = usableContext(contextWindow, maxOutput);
  return usable !== undefined && usable > 0 ? usable : null;
}

async function countedPrompt({ branch, configuration, tools }: ContextPlace): Promise<CountedPrompt> {
  const { instructions, messages } = await promptOf(shownMessages(branch), configuration.systemPrompt, tools);
  return { messages, system: instructions ?? "", tools: await describeTools(tools) };
}
