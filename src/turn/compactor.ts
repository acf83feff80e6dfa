/**
 * Compacts a session: one compaction at a time, beside turns and not in their way.
 *
 * The decision is made where the number is read, at once. A summary is then written in the background, and takes effect in
 * one transaction if the branch still is what it was written for. Whatever comes of it is recorded and told.
 */
import type { LanguageModel } from "ai";
import type { Cut } from "../compaction/cut.ts";
import type { Decision } from "../compaction/decide.ts";
import { needsMore, STANDING_DEPTH, standingOf, STRIKES, type Standing } from "../compaction/standing.ts";
import { SessionError } from "../errors.ts";
import type { CompactionNews } from "../events.ts";
import type { Compaction, CompactionEntry, CompactionTrigger, ModelCall, Overlay } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import type { Branch } from "./branch.ts";
import { addCall } from "./closing.ts";
import { planAt } from "./compaction-plan.ts";
import { compactionEntry, listed, type Beginning, type Ending } from "./compaction-record.ts";
import { summaryFor, type Written } from "./compaction-work.ts";
import { modelId } from "./configuration.ts";
import { budgetAt, type Moment } from "./context-reading.ts";
import { readGauge, type Reading } from "./gauge.ts";
import { prunedOverlay, summaryOverlay } from "./new-overlay.ts";

/** Triggers that ask for the threshold. */
const AUTOMATIC: ReadonlySet<CompactionTrigger> = new Set(["after-turn", "before-turn", "between-steps", "import"]);

/** An application that declined a compaction is asked again when the context has grown by a twentieth. */
const DECLINED_GROWTH = 1.05;

export interface CompactorSurroundings {
  store: SessionStore;
  /** the active branch as it is shown now */
  branch: () => Branch;
  /** whether compacting is switched off by now, whatever it was when a turn began */
  isOff: () => boolean;
  /** resolves a registry id; throws `model-unavailable` */
  languageModel: (id: string) => Exclude<LanguageModel, string>;
  /** ms since the epoch */
  clock: () => number;
  /** keeps the object awake until the work has settled */
  keepAwake: (work: Promise<unknown>) => void;
  tell: (news: CompactionNews) => void;
  log: (event: string, details: Record<string, unknown>) => void;
}

/** What made it look, and where. */
export interface Occasion {
  trigger: CompactionTrigger;
  /** whether a turn goes on from the end of the branch */
  turnRuns: boolean;
  /** whether the call that has no room can be made without it, with a shorter answer */
  isOptional?: boolean;
  /** what the summary should heed, from whoever asked */
  instructions?: string;
}

/** What a decision led to. */
export type Begun =
  | { kind: "nothing" }
  | { kind: "settled"; compaction: Compaction }
  | { kind: "running"; done: Promise<Compaction> };

/** A compaction that was decided. */
interface Draft extends Occasion, Beginning {}

export class Compactor {
  /** the session is being erased */
  isDiscarded = false;
  readonly #around: CompactorSurroundings;
  #running: { done: Promise<Compaction>; abort: AbortController } | undefined;
  /** the newest compactions, newest first, once they were read */
  #newest: CompactionEntry[] | undefined;
  /** what the token counter said before the newest compaction took effect */
  #countedBefore: number | undefined;
  /** model tokens above which an application that declined is asked again */
  #declinedUntil = 0;
  /** the overlay whose first report is known to be stored */
  #judged: number | undefined;

  constructor(around: CompactorSurroundings) {
    this.#around = around;
  }

  /** The compaction that is being written, if one is. Never rejects. */
  get running(): Promise<Compaction> | undefined {
    return this.#running?.done;
  }

  /** Decides, and begins what is decided: a summary in the background, anything else at once. */
  consider(moment: Moment, occasion: Occasion): Begun {
    if (this.#running || this.isDiscarded || !this.#isCurrent(moment)) return { kind: "nothing" };
    if (occasion.trigger !== "manual" && this.#around.isOff()) return { kind: "nothing" };
    if (AUTOMATIC.has(occasion.trigger) && this.#isHeldOff(moment)) return { kind: "nothing" };
    const decision = planAt(moment, { ...occasion, standing: () => this.#standing(moment) });
    if (decision.kind === "wait") return { kind: "nothing" };
    return this.#begin(moment, occasion, decision);
  }

  /** Whether what is shown is what was read: another branch may be active, or another overlay in force. */
  #isCurrent({ branch, reading }: Moment): boolean {
    return branch === this.#around.branch() && reading.prompt.overlay === (branch.overlay?.id ?? null);
  }

  /** Whether it would only be asked again what was answered: by a counter that has not counted since, or by a hook. */
  #isHeldOff({ known }: Moment): boolean {
    if (known.basis === "counter" && known.tokens === this.#countedBefore) return true;
    return known.tokens < this.#declinedUntil;
  }

  /** Stops what is being written: what it was written for is gone. */
  abort(): void {
    this.#running?.abort.abort();
  }

  /** Stops everything without storing more: the session is about to be erased. */
  discard(): void {
    this.isDiscarded = true;
    this.abort();
  }

  /** What a reader of the report should know. Reads the newest records only where the number is above the threshold. */
  noticesAt(moment: Moment): string[] {
    const { threshold } = budgetAt(moment);
    if (threshold === null || moment.known.tokens <= threshold) return [];
    const standing = this.#standing(moment);
    return standing.kind === "stopped" ? [standing.reason] : [];
  }

  /** A call reported: the first one that was built with an overlay says what that has brought. */
  reported({ prompt, known }: Reading, input: number | undefined): void {
    const { overlay: id } = prompt;
    if (typeof id !== "number" || id === this.#judged || !input) return;
    this.#judged = id;
    const entry = this.#around.store.compactions.get(id);
    if (!entry || entry.reportedAfter !== null) return;
    const grown = Math.max(0, known.tokens - (entry.tokensAfter ?? known.tokens));
    const progress = entry.threshold === null ? null : input - grown <= entry.threshold;
    this.#around.store.compactions.setReportedAfter(id, input, progress);
    this.#newest = undefined;
  }

  /** Forgets what memory holds of earlier compactions: they were changed from outside. */
  forget(): void {
    this.#newest = undefined;
    this.#judged = undefined;
  }

  #begin(moment: Moment, occasion: Occasion, decision: Exclude<Decision, { kind: "wait" }>): Begun {
    const { store, clock } = this.#around;
    const draft = { ...occasion, id: store.compactions.nextId, moment, startedAt: clock() };
    switch (decision.kind) {
      case "no-progress":
        return {
          kind: "settled",
          compaction: this.#record(draft, { outcome: "no-progress", reason: decision.reason }),
        };
      case "prune": {
        const overlay = prunedOverlay(this.#place(draft), draft.id, decision.plan);
        const ending: Ending = {
          outcome: "pruned",
          reason: null,
          coveredMessages: this.#coveredBy(moment.branch.overlay),
        };
        return { kind: "settled", compaction: this.#commit(draft, overlay, ending) };
      }
      case "summarise":
        return { kind: "running", done: this.#start(draft, decision.cut) };
    }
  }

  #start(draft: Draft, cut: Cut): Promise<Compaction> {
    const { id, trigger, moment } = draft;
    const abort = new AbortController();
    this.#around.tell({ phase: "started", id, trigger, tokensBefore: moment.known.tokens });
    const done = this.#summarise(draft, cut, abort.signal)
      .catch((error: unknown) => this.#broken(draft, error))
      .finally(() => (this.#running = undefined));
    this.#running = { done, abort };
    this.#around.keepAwake(done);
    return done;
  }

  async #summarise(draft: Draft, cut: Cut, signal: AbortSignal): Promise<Compaction> {
    const { moment, trigger, instructions } = draft;
    const before = moment.branch.overlay?.id ?? null;
    const written = await summaryFor({ moment, cut, trigger, instructions, signal }, this.#around);
    if (written.kind === "cancelled" && !signal.aborted) this.#declinedUntil = moment.known.tokens * DECLINED_GROWTH;
    if (written.kind !== "summary") return this.#record(draft, endingOf(written));
    if (signal.aborted || !this.#stands(cut, before)) {
      const reason = "The branch changed while the summary was written.";
      return this.#record(draft, { outcome: "cancelled", reason, ...billOf(written) });
    }
    const { text, tokens, leaving } = written;
    const overlay = summaryOverlay(this.#place(draft), { id: draft.id, cut, head: leaving.head, text, tokens });
    const coveredMessages = this.#coveredBy(moment.branch.overlay) + leaving.messages;
    return this.#commit(draft, overlay, { outcome: "applied", reason: null, coveredMessages, ...billOf(written) });
  }

  /** Messages that an overlay's summary stands for. */
  #coveredBy(overlay: Overlay | null): number {
    return overlay ? (this.#around.store.compactions.get(overlay.id)?.coveredMessages ?? 0) : 0;
  }

  /** Whether what a summary was written for is still there: the same overlay in force, and the cut on the active branch. */
  #stands({ until, pinned }: Cut, before: number | null): boolean {
    const branch = this.#around.branch();
    return (branch.overlay?.id ?? null) === before && branch.has(until) && (pinned === null || branch.has(pinned));
  }

  /** Puts an overlay in force, in one transaction, if it makes the context smaller. */
  #commit(draft: Draft, overlay: Overlay, ending: Ending): Compaction {
    const branch = this.#around.branch();
    const { tokens, scale } = draft.moment.known;
    const now = this.#reading(draft, branch).known.tokens;
    const then = this.#reading(draft, branch.under(overlay)).known.tokens;
    const tokensAfter = Math.max(0, Math.round(tokens - (now - then) * scale));
    if (then >= now) {
      const reason = `The context would have ${tokensAfter} tokens instead of ${tokens}: what stands for the old part is no smaller.`;
      return this.#record(draft, { outcome: "no-progress", reason, ...(ending.call && { call: ending.call }) });
    }
    const compaction = this.#record(draft, { ...ending, tokensAfter, overlay, summary: overlay.summary });
    branch.show(overlay);
    this.#countedBefore = draft.moment.known.basis === "counter" ? tokens : undefined;
    return compaction;
  }

  /** Stores what came of it and tells it. */
  #record(draft: Draft, ending: Ending): Compaction {
    const { store, tell, log } = this.#around;
    const entry = compactionEntry(draft, ending, store.lastSeq, this.#around.clock());
    if (this.isDiscarded) return listed(entry);
    store.transaction(() => {
      store.compactions.insert(entry);
      const { session } = store;
      if (!entry.overlay && !entry.call) return;
      store.saveSession({
        ...(entry.overlay && { overlay: entry.id, compactions: session.compactions + 1 }),
        ...(entry.call && { totals: addCall(session.totals, entry.call) }),
      });
    });
    this.#newest = undefined;
    const compaction = listed(entry);
    const { summary: _, ...line } = compaction;
    log("compaction", line);
    tell({ phase: entry.outcome === "failed" || entry.outcome === "cancelled" ? "failed" : "finished", compaction });
    return compaction;
  }

  /** Something here failed, not the model. Nothing was changed; it is recorded if storage lets it be. */
  #broken(draft: Draft, error: unknown): Compaction {
    if (!this.isDiscarded) this.#around.log("compaction broken off", { id: draft.id, error });
    const reason = error instanceof SessionError ? error.message : "The session failed to compact; it has been logged.";
    const ending: Ending = { outcome: "failed", reason };
    try {
      return this.#record(draft, ending);
    } catch {
      return listed(compactionEntry(draft, ending, 0, this.#around.clock()));
    }
  }

  #standing(moment: Moment): Standing {
    const { store, clock } = this.#around;
    this.#newest ??= newestOf(store);
    const { threshold } = budgetAt(moment);
    return standingOf(this.#newest, { threshold, model: modelId(moment.configuration.model), now: clock() });
  }

  #place(draft: Draft): { branch: Branch; reading: Reading; model: string } {
    const branch = this.#around.branch();
    return { branch, reading: this.#reading(draft, branch), model: modelId(draft.moment.configuration.model) };
  }

  #reading({ moment: { configuration, overhead, kin } }: Draft, branch: Branch): Reading {
    const { session } = this.#around.store;
    return readGauge(branch, { overhead, model: modelId(configuration.model), kin, session });
  }
}

/** The newest compactions that say how the session stands, newest first: two, where those do. */
function newestOf({ compactions }: SessionStore): CompactionEntry[] {
  const newest = compactions.list(Number.MAX_SAFE_INTEGER, STRIKES);
  return needsMore(newest) ? compactions.list(Number.MAX_SAFE_INTEGER, STANDING_DEPTH) : newest;
}

function endingOf(written: Exclude<Written, { kind: "summary" }>): Ending {
  return { outcome: written.kind, reason: written.reason, ...billOf(written) };
}

function billOf({ call }: { call?: ModelCall }): { call?: ModelCall } {
  return call ? { call } : {};
}
