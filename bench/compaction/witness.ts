/**
 * Watches a session while it is played, and keeps what the figures are made of. What it knows of the session it knows by
 * its events, its log and what is stored; the sizes are the script's.
 */
import type { LanguageModelV4CallOptions } from "@ai-sdk/provider";
import { budgetFor } from "../../src/compaction/budget.ts";
import { summaryMessageText } from "../../src/compaction/summary-prompt.ts";
import { STANDING_DEPTH, standingOf } from "../../src/compaction/standing.ts";
import type { ContextReport } from "../../src/context/report.ts";
import type { CompactionNews, SessionEvent } from "../../src/events.ts";
import type { Compaction } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import type { Branch } from "../../src/turn/branch.ts";
import type { CompactionProposal } from "../../src/turn/configuration.ts";
import type { Session } from "../../src/turn/session.ts";
import { shownMessages } from "../../src/turn/shown.ts";
import type { Pace } from "./pace.ts";
import type { DecisionRecord, PlayRecord, Setting } from "./records.ts";
import { faultsOf } from "./role-order.ts";
import { entryOf, type Scales, type Shown, shownInParts } from "./scales.ts";
import type { Script } from "./script.ts";
import { roomIn } from "./settings.ts";
import { trueCut } from "./true-cut.ts";

export interface Scene {
  script: Script;
  setting: Setting;
  store: SessionStore;
  session: Session;
  scales: Scales;
  pace: Pace;
}

/** What was true when a compaction was decided. */
interface Decided {
  trueBefore: number;
  /** the newest entry of the script by then */
  leaf: number;
  budget: number;
}

/** A call as it began, until its prediction is logged. */
interface BegunCall {
  tokens: number;
  /** whether a compaction was being written, or had come to something since the call before, or the session had said why not */
  answered: boolean;
}

export class Witness {
  readonly record: Omit<PlayRecord, "name" | "calls" | "meanwhile" | "paste" | "summariser"> = {
    predictions: [],
    decisions: [],
    waits: [],
    refusals: [],
    silent: [],
    oversized: [],
    disorders: [],
    failures: [],
    unforeseen: 0,
    crowded: 0,
  };
  /** grows with everything that happens: while it stands still, the session waits */
  activity = 0;
  readonly #scene: Scene;
  readonly #decided = new Map<number, Decided>();
  #report: ContextReport | undefined;
  #begun: BegunCall | undefined;
  /** compactions that came to an end since the last call began */
  #ended = 0;
  /** tokens that stay by the cut that was decided last, as the session has it */
  #toldKept = 0;
  /** the newest compaction whose first prompt has yet to be seen */
  #unproved: { id: number; summary: string | null } | undefined;

  constructor(scene: Scene) {
    this.#scene = scene;
  }

  hear(event: SessionEvent): void {
    this.activity += 1;
    // SAFETY: the session publishes its report under this name and nothing else.
    if (event.type === "context") this.#report = event.data as ContextReport;
    else this.#hearOf(event.data);
  }

  /** A line of the session's log. */
  note(event: string, details: Record<string, unknown>): void {
    this.activity += 1;
    if (event !== "model call" || !this.#begun) return;
    const { predictedTokens, actualTokens } = details;
    const { tokens, answered } = this.#begun;
    this.#begun = undefined;
    if (typeof predictedTokens !== "number") return;
    if (actualTokens !== undefined) this.record.predictions.push([predictedTokens, tokens]);
    if (this.#isAbove(predictedTokens) && !answered) this.record.silent.push(`a call began at ${predictedTokens}`);
  }

  /** A call of a turn begins. */
  call(options: LanguageModelV4CallOptions, shown: readonly Shown[], tokens: number): void {
    const { contextWindow } = this.#scene.setting;
    this.activity += 1;
    this.record.disorders.push(...faultsOf(options.prompt));
    if (tokens > contextWindow) this.#oversized(tokens);
    if (tokens + (options.maxOutputTokens ?? 0) > contextWindow) this.record.crowded += 1;
    this.#begun = { tokens, answered: this.#isAnswered };
    this.#ended = 0;
    this.#prove(shown, tokens);
  }

  /** A summary is about to be written. */
  proposed({ keptTokens }: CompactionProposal): void {
    this.#toldKept = keptTokens;
  }

  /** Before any call has said what it read, nobody knows of system prompt and tools that are not in the recording. */
  #oversized(tokens: number): void {
    if (this.record.predictions.length === 0) {
      this.record.unforeseen += 1;
      return;
    }
    const { tokens: known, calculation } = this.#report ?? {};
    const { contextWindow } = this.#scene.setting;
    this.record.oversized.push(
      `${tokens} tokens, window ${contextWindow}, taken for ${known}, ${calculation?.newSince} of them unmeasured`,
    );
  }

  /** A turn has ended, and what it led to is decided. */
  turnEnded(): void {
    const known = this.#report?.tokens ?? 0;
    if (this.#isAbove(known) && !this.#isAnswered) this.record.silent.push(`a turn ended at ${known}`);
  }

  /** The session waits for a summary. */
  waits(): void {
    const { setting, session, script } = this.#scene;
    this.record.waits.push({
      prompt: Math.round(this.#trueSize(session.line.branch)),
      known: this.#report?.tokens ?? 0,
      room: roomIn(setting, script),
    });
  }

  refused({ code, message }: { code: string; message: string }): void {
    this.activity += 1;
    if (code !== "prompt-too-large") this.record.failures.push(`${code}: ${message}`);
    const { session, setting } = this.#scene;
    const prompt = Math.round(this.#trueSize(session.line.branch));
    this.record.refusals.push({ code, message, prompt, window: setting.contextWindow });
  }

  get #isAnswered(): boolean {
    return this.#scene.pace.isWriting || this.#ended > 0 || this.#hasSaidWhy;
  }

  #isAbove(known: number): boolean {
    return this.#report?.threshold != null && known > this.#report.threshold;
  }

  /** Whether the session has stopped compacting, or pauses, for a reason that is stored. */
  get #hasSaidWhy(): boolean {
    const { store, script } = this.#scene;
    const newest = store.compactions.list(Number.MAX_SAFE_INTEGER, STANDING_DEPTH);
    const threshold = this.#report?.threshold ?? null;
    const { kind } = standingOf(newest, { threshold, model: script.model, now: Date.now() });
    return (
      kind !== "open" && newest.every(({ outcome, reason }) => outcome === "applied" || outcome === "pruned" || reason)
    );
  }

  #hearOf(news: CompactionNews): void {
    const { pace, session } = this.#scene;
    if (news.phase === "started") {
      pace.begin();
      this.#decided.set(news.id, this.#decide(session.line.branch));
      return;
    }
    const { compaction } = news;
    pace.end();
    this.#ended += 1;
    const decided = this.#decided.get(compaction.id) ?? this.#decide(session.line.branch);
    this.record.decisions.push(this.#recordOf(compaction, decided));
    if (compaction.tokensAfter !== null) this.#unproved = { id: compaction.id, summary: compaction.summary };
    if (compaction.tokensAfter === null && !compaction.reason)
      this.record.silent.push(`compaction ${compaction.id} is ${compaction.outcome} without a reason`);
    this.#decided.set(compaction.id, decided);
  }

  #decide(branch: Branch): Decided {
    const { setting, script } = this.#scene;
    const { breakdown, threshold = null } = this.#report ?? {};
    const { tail } = budgetFor({
      threshold,
      usable: roomIn(setting, script),
      tailTokenBudget: setting.tailTokenBudget,
      overhead: (breakdown?.system ?? 0) + (breakdown?.tools ?? 0),
    });
    return { trueBefore: this.#trueSize(branch), leaf: entryOf(branch.leaf?.parts ?? []), budget: tail };
  }

  #recordOf(compaction: Compaction, { trueBefore, leaf, budget }: Decided): DecisionRecord {
    const { store, scales, script, session } = this.#scene;
    const { id, trigger, outcome, reason, tokensBefore, tokensAfter, summary } = compaction;
    const overlay = outcome === "applied" ? store.compactions.get(id)?.overlay : undefined;
    const cut = overlay && trueCut({ overlay, trigger, leaf, store, scales, script, branch: session.line.branch });
    return {
      id,
      trigger,
      outcome,
      reason,
      before: tokensBefore,
      after: tokensAfter,
      trueBefore: Math.round(trueBefore),
      trueAfter: null,
      budget,
      kept: cut ? Math.round(cut.kept) : null,
      toldKept: this.#toldKept,
      least: Math.round(cut?.least ?? 0),
      exact: cut?.exact ?? false,
      summary: summary === null ? 0 : Math.round(scales.sum([{ text: summaryMessageText(summary), isResult: false }])),
    };
  }

  /** The first prompt that is built with a compaction tells what that has brought. */
  #prove(shown: readonly Shown[], tokens: number): void {
    const { store, scales } = this.#scene;
    if (!this.#unproved) return;
    const { id, summary } = this.#unproved;
    const isShown = summary === null || shown.some(({ place, text }) => !place && text.includes(summary));
    if (!isShown || store.session.overlay !== id) return;
    this.#unproved = undefined;
    const leaf = this.#decided.get(id)?.leaf ?? -1;
    const newer = scales.sum(shown.filter(({ place }) => place && place.entry > leaf));
    const decision = this.record.decisions.find((one) => one.id === id);
    if (decision) decision.trueAfter = Math.round(tokens - newer);
  }

  /** What a prompt of the branch would weigh now. */
  #trueSize(branch: Branch): number {
    return this.#scene.scales.prompt(shownMessages(branch).flatMap(({ parts }) => shownInParts(parts)));
  }
}
