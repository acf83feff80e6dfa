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
import { anchorIndex, branchSizes } from "../context/tail.ts";
import { normaliseUsage } from "../context/usage.ts";
import type { Entry, ModelCall, Part, Role } from "../records.ts";
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

/** `kin` is an anchor of another branch, asked for when this one has none. */
export function readGauge(
  branch: Branch,
  overhead: Overhead,
  model: string,
  kin: () => Anchor | null,
  policy: ContextPolicy = DEFAULT_POLICY,
): Reading {
  const { entries } = branch;
  const at = entries.findLastIndex((entry) => entry.anchor !== undefined);
  const anchor = anchorOf(entries[at]);
  const since = entries.slice(Math.max(0, at));
  const ledger = openLedger(anchor, since, anchor ? null : kin());
  const rescale = expectedRescale(anchor ?? ledger.kin, entries, model);
  const prompt = {
    ...BARE_PROMPT,
    ...takenOut(branch, ledger, since, model),
    ...overheadIn(overhead),
    ...rescale,
    model,
  };
  return { ledger, prompt, known: knownByPolicy(ledger, prompt, policy) };
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
export function newestAnchorOf({ entries }: Branch): Anchor | null {
  return anchorOf(entries.findLast((entry) => entry.anchor !== undefined));
}

/**
 * The end of a branch without erased entries, newest first, as far back as `readGauge` asks: the same is known from it
 * as from the whole. `measured` says whether any call of the session left an anchor.
 */
export function* endOfBranch(newestFirst: Iterable<Entry>, model: string, measured: boolean): Generator<Entry> {
  let anchor: Anchor | null = null;
  const comparison = new Comparison();
  for (const entry of newestFirst) {
    yield entry;
    // Without anchors the last entry alone says how much there is.
    if (!measured) return;
    anchor ??= anchorOf(entry);
    comparison.add(entry);
    if (anchor && (!isRescaled(anchor, model) || comparison.isEnough)) return;
  }
}

/** The anchor on an entry, if a call left one there. */
export function anchorOf(entry: Pick<Entry, "anchor"> | undefined): Anchor | null {
  // SAFETY: the column is written by `measured` alone.
  return (entry?.anchor as Anchor | undefined) ?? null;
}

/** A prompt with nothing taken out of the branch and nothing put in its place. */
const BARE_PROMPT = { overlay: null, covered: 0, summary: 0, pruneKey: "", pruned: 0 };

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
function expectedRescale(anchor: Anchor | null, entries: readonly Entry[], model: string): { rescale?: number } {
  if (!anchor || !isRescaled(anchor, model)) return {};
  const families = [weightsFor(anchor.prompt.model), weightsFor(model)] as const;
  const comparison = new Comparison();
  for (const entry of entries.toReversed()) comparison.add(entry);
  return { rescale: compareFamilies(comparison.texts, ...families) };
}

/** Whether content is to be compared: another family's model that has not reported in this session. */
function isRescaled({ prompt, models }: Anchor, model: string): boolean {
  return prompt.model !== model && !Object.hasOwn(models, model) && weightsFor(prompt.model) !== weightsFor(model);
}

/**
 * What stands on the branch and is not in the prompt. Erased messages are known wherever they stand; what else is not sent
 * is found in what came since the last call, whose own prompt says what had been left out before.
 */
function takenOut(
  { entries, erased }: Branch,
  ledger: Ledger,
  since: readonly Entry[],
  model: string,
): Pick<PromptVersion, "pruneKey" | "pruned" | "omitted" | "omissions"> {
  const left = since.slice(0, -1).map((entry) => [entry, omittedShare(entry, model)] as const);
  const fresh = left.filter(([, share]) => share > 0);
  const { omitted: before = 0, omissions: count = 0 } = ledger.anchor?.prompt ?? {};
  if (erased.length + fresh.length + count === 0) return { pruneKey: "", pruned: 0 };
  const sizes = branchSizes(ledger, anchorIndex(entries.flatMap((entry) => anchorOf(entry) ?? [])));
  const sizeOfSaid = ({ unitsBefore, unitsSaid }: Entry) => sizes.ledgerBetween(unitsBefore, unitsBefore + unitsSaid);
  const omitted = fresh.reduce((sum, [entry, share]) => sum + sizeOfSaid(entry) * share, before);
  const pruned = erased.reduce((sum, { unitsBefore, unitsSaid, unitsReturned }) => {
    return sum + sizes.ledgerBetween(unitsBefore, unitsBefore + unitsSaid + unitsReturned);
  }, omitted);
  const omissions = count + fresh.length;
  return { pruneKey: `${erased.length}:${omissions}`, pruned, ...(omissions > 0 && { omitted, omissions }) };
}

/** How much of what an entry said is not sent once others follow it, from 0 to 1. */
function omittedShare(entry: Entry, model: string): number {
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
