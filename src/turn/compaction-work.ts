/** What a compaction has to do between its decision and its end: gather what leaves, ask the application, have it summarised. */
import type { LanguageModel } from "ai";
import type { Cut } from "../compaction/cut.ts";
import { LONGEST_SUMMARY } from "../compaction/summary.ts";
import { ratioOf } from "../context/calibration.ts";
import { traitsFor } from "../context/known.ts";
import { limitsOf } from "../models/catalogue.ts";
import type { CompactionTrigger, Entry, ModelCall, Overlay, Seq } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { headAmong } from "./compaction-plan.ts";
import {
  type CompactionProposal,
  type CompactionVerdict,
  DEFAULT_SUMMARY_TIMEOUT_MS,
  modelId,
} from "./configuration.ts";
import { budgetAt, type Moment } from "./context-reading.ts";
import { withTimeout, writeSummary } from "./summariser.ts";
import { messagesOf } from "./transcript.ts";

export interface WorkSurroundings {
  store: SessionStore;
  /** resolves a registry id; throws `model-unavailable` */
  languageModel: (id: string) => Exclude<LanguageModel, string>;
  /** ms since the epoch */
  clock: () => number;
}

export interface WorkOrder {
  moment: Moment;
  cut: Cut;
  trigger: CompactionTrigger;
  /** of whoever asked for it */
  instructions: string | undefined;
  signal: AbortSignal;
}

/** What came of it. `call` is booked in every case. */
export type Written =
  | { kind: "summary"; text: string; tokens: number | undefined; leaving: Leaving; call?: ModelCall }
  | { kind: "failed" | "cancelled"; reason: string; call?: ModelCall };

/** Does the work. Throws only for what is broken here. */
export async function summaryFor(order: WorkOrder, around: WorkSurroundings): Promise<Written> {
  const { moment, cut, signal } = order;
  const { compaction } = moment.configuration;
  const leaving = new Leaving(around.store, moment.branch.overlay, cut, compaction.protectHead ?? 0);
  const instructions = [compaction.instructions, order.instructions].flatMap((wish) => wish ?? []);
  const verdict = await verdictOf(order, leaving, instructions).catch((error: unknown) => {
    // Who stopped it, or let it wait too long, is no fault of the hook's.
    if (signal.aborted || isTimeout(error)) return { cancel: "onCompaction gave no answer in time." };
    throw error;
  });
  if (signal.aborted) return { kind: "cancelled", reason: "It was stopped." };
  if (verdict && "cancel" in verdict) return { kind: "cancelled", reason: clipped(verdict.cancel) };
  if (verdict && "summary" in verdict) return given(verdict.summary, leaving);
  return written(order, around, leaving, instructions);
}

function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === "TimeoutError";
}

/** UTF-16 code units of a reason that are recorded. */
export const LONGEST_REASON = 2_000;

function clipped(reason: string): string {
  return String(reason).slice(0, LONGEST_REASON).toWellFormed();
}

/** A summary of the application's own. Without text in it, what it stands for would be gone. */
function given(text: string, leaving: Leaving): Written {
  const isUsable = typeof text === "string" && text.trim() !== "" && text.length <= LONGEST_SUMMARY;
  if (isUsable) return { kind: "summary", text: text.toWellFormed(), tokens: undefined, leaving };
  const reason = `onCompaction gave no summary: it must be a text of 1 to ${LONGEST_SUMMARY} characters.`;
  return { kind: "failed", reason };
}

async function written(
  { moment, signal }: WorkOrder,
  { languageModel, clock }: WorkSurroundings,
  leaving: Leaving,
  instructions: readonly string[],
): Promise<Written> {
  const { configuration, limits, reading, branch } = moment;
  const choice = configuration.compaction.model ?? configuration.model;
  const id = modelId(choice);
  const isOwn = id === modelId(configuration.model);
  const { contextWindow, maxOutputTokens } = limitsOf(id);
  const outcome = await writeSummary({
    model: typeof choice === "string" ? languageModel(id) : choice,
    modelId: id,
    limits: isOwn ? limits : { contextWindow, maxOutput: maxOutputTokens },
    ratio: isOwn ? ratioOf(traitsFor(reading.ledger, reading.prompt)) : 1,
    entries: () => leaving.entries(),
    previousSummary: branch.overlay?.summary ?? null,
    instructions,
    targetTokens: budgetAt(moment).summary,
    timeoutMs: configuration.compaction.timeoutMs ?? DEFAULT_SUMMARY_TIMEOUT_MS,
    signal,
    clock,
  });
  if (outcome.kind === "failed") return { ...outcome, kind: signal.aborted ? "cancelled" : "failed" };
  return { ...outcome, tokens: isOwn ? outcome.tokens : undefined, leaving };
}

async function verdictOf(
  { moment, cut, trigger, signal }: WorkOrder,
  leaving: Leaving,
  instructions: readonly string[],
): Promise<CompactionVerdict> {
  const { configuration, known, branch } = moment;
  const { onCompaction, timeoutMs = DEFAULT_SUMMARY_TIMEOUT_MS } = configuration.compaction;
  if (!onCompaction) return;
  const proposal: CompactionProposal = {
    trigger,
    contextTokens: known.tokens,
    threshold: budgetAt(moment).threshold,
    keptTokens: Math.round(cut.kept),
    leavingTokens: Math.round(cut.leaving),
    previousSummary: branch.overlay?.summary ?? null,
    instructions,
    messages: () => messagesOf(leaving.entries()),
    signal,
  };
  return withTimeout(timeoutMs, signal, async () => onCompaction(proposal));
}

/** The entries that a cut takes away from what is shown: never what an earlier summary stands for, and never the head. */
export class Leaving {
  readonly #store: SessionStore;
  readonly #before: Overlay | null;
  readonly #cut: Cut;
  readonly #seqs: readonly Seq[];
  readonly #messages = new Set<string>();
  #isRead = false;
  /** shown in front of the summary */
  readonly head: readonly Entry[];

  constructor(store: SessionStore, before: Overlay | null, cut: Cut, protectHead: number) {
    const after = before?.until ?? null;
    const seqs = store.chain(after, cut.until);
    this.#store = store;
    this.#before = before;
    this.#cut = cut;
    this.head =
      after === null
        ? headAmong(store.entriesAt(seqs), protectHead)
        : (before?.head ?? []).flatMap((seq) => store.entry(seq) ?? []);
    this.#seqs = after === null ? seqs.slice(this.head.length) : seqs;
  }

  /** Oldest first; the message that was pinned until now, and the one that is pinned from now on, in their places. */
  *entries(): Generator<Entry> {
    const { pinned } = this.#before ?? {};
    const released = pinned && pinned !== this.#cut.pinned ? this.#store.entry(pinned) : undefined;
    if (released) yield released;
    for (const entry of this.#store.entriesAt(this.#seqs)) {
      if (entry.state !== "deleted" && entry.seq !== this.#cut.pinned) this.#messages.add(entry.messageId);
      yield entry;
    }
    if (released) this.#messages.add(released.messageId);
    this.#isRead = true;
  }

  /** Messages among them, in part or whole, without the pinned one and without one that an earlier summary stands for in part. */
  get messages(): number {
    if (!this.#isRead) for (const _ of this.entries());
    const before = this.#before?.until ? this.#store.entry(this.#before.until)?.messageId : undefined;
    return this.#messages.size - (before !== undefined && this.#messages.has(before) ? 1 : 0);
  }
}
