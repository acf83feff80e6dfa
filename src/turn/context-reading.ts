/**
 * The one number as a session acts on it and shows it: computed once per decision, by reports, a counter or an estimate.
 */
import type { ToolSet } from "ai";
import { countKnown, type CountedPrompt } from "../context/counters.ts";
import { contextReport, type ContextReport } from "../context/report.ts";
import { reservedOutput, usableContext, type ModelLimits } from "../context/usage.ts";
import { limitsOf } from "../models/catalogue.ts";
import type { UsageTotals } from "../records.ts";
import type { Branch } from "./branch.ts";
import { modelId, type CompactAfter, type Configuration } from "./configuration.ts";
import { describeTools, type Reading } from "./gauge.ts";
import { promptOf } from "./prompt.ts";
import { messagesOf } from "./transcript.ts";

export interface ContextRequest {
  reading: Reading;
  branch: Branch;
  configuration: Configuration;
  tools: ToolSet;
  totals: UsageTotals;
  log: (event: string, details: Record<string, unknown>) => void;
}

/** Reads the context once; a configured counter is asked once. */
export async function readContext(request: ContextRequest): Promise<ContextReport> {
  const { reading, configuration, totals } = request;
  const limits = limitsFor(configuration);
  const known = await counted(request);
  const report = contextReport({
    ledger: reading.ledger,
    prompt: reading.prompt,
    known,
    limits,
    threshold: thresholdOf(configuration.compactAfter, limits),
    suggests: configuration.compactMode === "suggest",
    totals,
    compactions: 0,
  });
  const warning = autoWarning(configuration.compactAfter, limits);
  return warning === undefined ? report : { ...report, warnings: [...report.warnings, warning] };
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

async function counted(request: ContextRequest): Promise<Reading["known"]> {
  const { reading, configuration, log } = request;
  const { tokenCounter } = configuration;
  if (!tokenCounter) return reading.known;
  const { known, failure } = await countKnown(tokenCounter, await countedPrompt(request), reading.known);
  if (failure !== undefined) log("token counter", { failure });
  return known;
}

async function countedPrompt({ branch, configuration, tools }: ContextRequest): Promise<CountedPrompt> {
  const { instructions, messages } = await promptOf(messagesOf(branch.entries), configuration.systemPrompt, tools);
  return { messages, system: instructions ?? "", tools: await describeTools(tools) };
}
