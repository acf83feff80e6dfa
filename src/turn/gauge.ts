/**
 * Known context tokens of a branch: the turn's side of the context room.
 *
 * The context room is arithmetic over numbers. This file tells it where those numbers stand: entries carry units,
 * answered steps carry anchors, and a prompt is described by what it is built from besides the messages.
 */
import { asSchema, type ToolSet } from "ai";
import type { Anchor, Prompt as PromptVersion } from "../context/anchor.ts";
import {
  compareFamilies,
  estimateParts,
  estimateReasoning,
  estimateSystem,
  estimateTools,
  weightsFor,
  type ToolDescription,
} from "../context/estimator.ts";
import { anchorFor, openLedger, type KnownTokens, type Ledger } from "../context/ledger.ts";
import { DEFAULT_POLICY, knownByPolicy, type ContextPolicy } from "../context/policy.ts";
import { anchorIndex, branchSizes, type BranchSizes } from "../context/tail.ts";
import { normaliseUsage } from "../context/usage.ts";
import { pruned } from "../compaction/prune.ts";
import type { Entry, ModelCall, Overlay, Part, Pruning, Role, Seq } from "../records.ts";
import type { Branch } from "./branch.ts";
import { shownLater } from "./prompt.ts";

/** Units of one entry, as it stores them. */
export interface EntrySize {
  unitsSaid: number;
  unitsReturned: number;
}

/** `model` is the registry id whose family's weights are used. */
export function sizeOf(role: Role, parts: readonly Part[], model: string): EntrySize {
  const { said, returned } = estimateParts(role, parts, weightsFor(model));
  return { unitsSaid: said, unitsReturned: returned };
}

/** What belongs to no message: system prompt and tools, weighed and named. */
export interface Overhead {
  key: string;
  systemUnits: number;
  toolsUnits: number;
}

/**
 * What a call has beside its messages. System prompt, server tools and client tools are named apart, because each changes
 * on its own, and the client's are known only while a request brings them.
 */
export async function overheadOf(
  systemPrompt: string | undefined,
  server: ToolSet,
  all: ToolSet,
  model: string,
): Promise<Overhead> {
  const described = await describeTools(all);
  const brought = described.filter(({ name }) => !Object.hasOwn(server, name));
  const own = described.filter(({ name }) => Object.hasOwn(server, name));
  const weights = weightsFor(model);
  const names = await Promise.all([
    fingerprint(systemPrompt ?? ""),
    fingerprint(own),
    brought.length ? fingerprint(brought) : "",
  ]);
  return {
    key: names.join(KEY_SEPARATOR),
    systemUnits: estimateSystem(systemPrompt, weights),
    toolsUnits: estimateTools(described, weights),
  };
}

const KEY_SEPARATOR = ":";

/**
 * The overhead between requests: the next one is expected to bring the client tools that the `last` call had, unless the
 * server's own tools changed. `own` is the overhead without any.
 */
export function restingOverhead(own: Overhead, last: PromptVersion | undefined): Overhead {
  const [systemPrompt, serverTools] = own.key.split(KEY_SEPARATOR);
  const [, serverToolsThen, clientTools] = last?.overheadKey.split(KEY_SEPARATOR) ?? [];
  if (!last || !clientTools || serverToolsThen !== serverTools) return own;
  const key = [systemPrompt, serverTools, clientTools].join(KEY_SEPARATOR);
  return { key, systemUnits: own.systemUnits, toolsUnits: last.toolsUnits };
}

export function describeTools(tools: ToolSet): Promise<ToolDescription[]> {
  return Promise.all(Object.entries(tools).map(describe));
}

/** The branch as a call sees it, and what its prompt is built from. Taken before a call, read again when it settles. */
export interface Reading {
  ledger: Ledger;
  prompt: PromptVersion;
  known: KnownTokens;
}

/** What a reading needs beside the branch. */
export interface ReadingSource {
  overhead: Overhead;
  /** registry id */
  model: string;
  /** an anchor of another branch, asked for when this one has none */
  kin: () => Anchor | null;
  /** of the session: whether any call of it left an anchor, and entries whose content was erased */
  session: { measured: Seq | null; erased: number };
  policy?: ContextPolicy;
}

/** Reads the end of a branch, back to its newest anchor: the same is known from it as from the whole. */
export function readGauge(branch: Branch, source: ReadingSource): Reading {
  const { overhead, model, kin, session, policy = DEFAULT_POLICY } = source;
  const since = sinceAnchor(branch, session.measured !== null);
  const anchor = anchorOf(since[0]);
  const ledger = openLedger(anchor, since, anchor ? null : kin());
  const rescale = expectedRescale(anchor ?? ledger.kin, branch, model);
  const prompt = {
    ...shapeOf(branch.overlay),
    ...takenOut(branch, ledger, since, { model, erased: session.erased > 0 }),
    ...overheadIn(overhead),
    ...rescale,
    model,
  };
  return { ledger, prompt, known: knownByPolicy(ledger, prompt, policy) };
}

/** The entry of the newest anchor and all after it, oldest first. Without anchors the leaf alone says how much there is. */
function sinceAnchor(branch: Branch, isMeasured: boolean): Entry[] {
  const { leaf } = branch;
  // The session row learns of a turn's anchors when it ends; what is in memory has them before.
  if (!isMeasured && !branch.loaded.some(anchorOf)) return leaf ? [leaf] : [];
  const since: Entry[] = [];
  for (const entry of branch.history()) {
    since.push(entry);
    if (anchorOf(entry)) break;
  }
  return since.reverse();
}

/** What a settled call measured, for the entry of its step; `undefined` when its report says nothing. */
export function measured(
  reading: Reading,
  call: ModelCall,
  step: Pick<Entry, "unitsBefore" | "unitsSaid" | "parts">,
): Anchor | undefined {
  const anchor = anchorFor(reading.ledger, {
    prompt: reading.prompt,
    usage: normaliseUsage(call.usage),
    at: step.unitsBefore,
    said: step.unitsSaid,
    reasoningUnits: estimateReasoning(step.parts, weightsFor(call.model)),
  });
  return anchor ?? undefined;
}

/** The newest anchor of a branch. */
export function newestAnchorOf(branch: Branch, isMeasured: boolean): Anchor | null {
  return anchorOf(sinceAnchor(branch, isMeasured)[0]);
}

/** The anchor on an entry, if a call left one there. */
export function anchorOf(entry: Pick<Entry, "anchor"> | undefined): Anchor | null {
  // SAFETY: the column is written by `measured` alone.
  return (entry?.anchor as Anchor | undefined) ?? null;
}

/** What an overlay takes out of the branch and puts in its place. */
function shapeOf(overlay: Overlay | null): Pick<PromptVersion, "overlay" | "covered" | "summary"> {
  if (!overlay) return { overlay: null, covered: 0, summary: 0 };
  return {
    overlay: overlay.id,
    covered: Math.max(0, overlay.rangeTokens - overlay.pinnedTokens),
    summary: overlay.summaryTokens,
  };
}

function overheadIn({
  key,
  systemUnits,
  toolsUnits,
}: Overhead): Pick<PromptVersion, "overheadKey" | "systemUnits" | "toolsUnits"> {
  return { overheadKey: key, systemUnits, toolsUnits };
}

/** Characters of content that tell the ratio of two model families to a percent. */
const COMPARED_LENGTH = 100_000;

/** Entries of it at most, because a session that is not in memory reads them: four batches of a walk. */
const COMPARED_ENTRIES = 60;

/** The newest content, by which two model families are compared. */
class Comparison {
  readonly texts: string[] = [];
  #length = 0;

  get isEnough(): boolean {
    return this.#length > COMPARED_LENGTH || this.texts.length >= COMPARED_ENTRIES;
  }

  add({ parts }: Entry): void {
    if (this.isEnough) return;
    const text = JSON.stringify(parts);
    this.#length += text.length;
    this.texts.push(text);
  }
}

/** What a change of models is expected to do to the content, asked once: at the first call of a model not seen before. */
function expectedRescale(anchor: Anchor | null, branch: Branch, model: string): { rescale?: number } {
  if (!anchor || !isRescaled(anchor, model)) return {};
  const families = [weightsFor(anchor.prompt.model), weightsFor(model)] as const;
  const comparison = new Comparison();
  for (const entry of branch.backwards()) {
    comparison.add(entry);
    if (comparison.isEnough) break;
  }
  return { rescale: compareFamilies(comparison.texts, ...families) };
}

/** Whether content is to be compared: another family's model that has not reported in this session. */
function isRescaled({ prompt, models }: Anchor, model: string): boolean {
  return prompt.model !== model && !Object.hasOwn(models, model) && weightsFor(prompt.model) !== weightsFor(model);
}

/**
 * What stands on the branch behind the overlay and is not in the prompt: what was pruned, what was erased, and what is not
 * sent. The last is found in what came since the last call, whose own prompt says what had been left out before; under
 * another overlay than that call's it is looked for anew.
 */
function takenOut(
  branch: Branch,
  ledger: Ledger,
  since: readonly Entry[],
  { model, erased }: { model: string; erased: boolean },
): Pick<PromptVersion, "pruneKey" | "pruned" | "omitted" | "omissions"> {
  const { overlay } = branch;
  const then = ledger.anchor?.prompt;
  const isSame = (then?.overlay ?? null) === (overlay?.id ?? null);
  const shown = isSame ? since.filter(({ seq }) => seq > (overlay?.until ?? 0)) : branch.entries;
  const left = shown.slice(0, -1).map((entry) => [entry, omittedShare(entry, model)] as const);
  const fresh = left.filter(([, share]) => share > 0);
  const { omitted: before = 0, omissions: count = 0 } = isSame && then ? then : {};
  const gone = erased ? branch.erased : [];
  const pruning = overlay?.pruning?.tokens ?? 0;
  if (gone.length + fresh.length + count === 0 && pruning === 0) return { pruneKey: "", pruned: 0 };
  const sizes = sizesOf(ledger, erased || !isSame ? branch.entries : since);
  const omitted = fresh.reduce((sum, [entry, share]) => sum + saidOf(entry, sizes) * share, before);
  const pruned = gone.reduce((sum, entry) => sum + wholeOf(entry, sizes), omitted + pruning);
  const omissions = count + fresh.length;
  const pruneKey = `${overlay ? `${overlay.id}/` : ""}${gone.length}:${omissions}`;
  return { pruneKey, pruned, ...(omissions > 0 && { omitted, omissions }) };
}

/** Sizes along a branch, by the anchors on some of its entries. */
export function sizesOf(ledger: Ledger, entries: readonly Entry[], known?: KnownTokens): BranchSizes {
  const anchors = entries.flatMap((entry) => anchorOf(entry) ?? []);
  // The newest may stand on what an overlay covers; without any, everything would weigh nothing.
  return branchSizes(ledger, anchorIndex(anchors.length > 0 || !ledger.anchor ? anchors : [ledger.anchor]), known);
}

function saidOf({ unitsBefore, unitsSaid }: Entry, sizes: BranchSizes): number {
  return sizes.ledgerBetween(unitsBefore, unitsBefore + unitsSaid);
}

/** Ledger tokens of an entry, its results included. */
export function wholeOf({ unitsBefore, unitsSaid, unitsReturned }: Entry, sizes: BranchSizes): number {
  return sizes.ledgerBetween(unitsBefore, unitsBefore + unitsSaid + unitsReturned);
}

/** Ledger tokens by which a prune makes entries smaller. */
export function prunedTokens(
  entries: readonly Entry[],
  pruning: Pick<Pruning, "until" | "shortened">,
  sizes: BranchSizes,
  model: string,
): number {
  return entries.reduce((sum, entry) => {
    const shown = pruned(entry, pruning);
    if (shown === entry || entry.unitsReturned === 0) return sum;
    const end = entry.unitsBefore + entry.unitsSaid + entry.unitsReturned;
    const share = 1 - sizeOf(entry.role, shown.parts, model).unitsReturned / entry.unitsReturned;
    return sum + sizes.ledgerBetween(end - entry.unitsReturned, end) * Math.max(0, share);
  }, 0);
}

/** How much of what an entry said is not sent once others follow it, from 0 to 1. */
export function omittedShare(entry: Entry, model: string): number {
  const shown = shownLater(entry);
  if (entry.state === "deleted" || entry.unitsSaid === 0 || shown.length === entry.parts.length) return 0;
  return Math.max(0, 1 - sizeOf(entry.role, shown, model).unitsSaid / entry.unitsSaid);
}

async function describe([name, { description, inputSchema }]: [string, ToolSet[string]]): Promise<ToolDescription> {
  return {
    name,
    description: typeof description === "string" ? description : undefined,
    inputSchema: await asSchema(inputSchema).jsonSchema,
  };
}

async function fingerprint(value: unknown): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify(value)));
  return Array.from(new Uint8Array(digest, 0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
