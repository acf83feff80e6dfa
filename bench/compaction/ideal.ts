/**
 * The same policy with true sizes: how often it compacts a script is how often one has to.
 *
 * It decides where the session does, by the session's own rules; a summary takes as many calls, and is as large as those
 * that were really written.
 */
import { budgetFor } from "../../src/compaction/budget.ts";
import type { Cut } from "../../src/compaction/cut.ts";
import { decide, type Decision } from "../../src/compaction/decide.ts";
import type { Block } from "../../src/compaction/history.ts";
import { PRUNABLE_LENGTH, type PrunePlan } from "../../src/compaction/prune.ts";
import { STANDING_DEPTH, standingOf } from "../../src/compaction/standing.ts";
import type { CompactionEntry, CompactionTrigger, ModelCall } from "../../src/records.ts";
import { DEFAULT_MIN_TAIL_MESSAGES } from "../../src/turn/configuration.ts";
import { ASSISTANT_BEGINS } from "../../src/turn/role-order.ts";
import type { Setting } from "./records.ts";
import { type Script, type ScriptedPiece, sizeOfEntry } from "./script.ts";
import { roomIn } from "./settings.ts";
import { countText } from "./tokens.ts";

/** What an ideal did. */
export interface IdealPlay {
  summaries: number;
  prunes: number;
}

/** A placeholder in the recorded model's tokens, for one of o200k's. */
const PLACEHOLDER_TOKENS = 22;

/** What a compaction is stored with as long as nothing else is known of it. */
const NO_COMPACTION: Omit<CompactionEntry, "trigger" | "outcome"> = {
  id: 0,
  reason: null,
  tokensBefore: 0,
  tokensAfter: null,
  reportedAfter: null,
  coveredMessages: 0,
  summaryUsage: null,
  model: null,
  durationMs: 0,
  createdAt: 0,
  summary: null,
  undone: false,
  at: 0,
  threshold: null,
  sessionModel: "",
  progress: null,
};

const SUMMARY_CALL: ModelCall = { purpose: "summary", model: "", finishReason: "stop", startedAt: 0, durationMs: 0 };

/** Compactions that one call is worth at most, as in a session. */
const TRIES = 4;

export function playIdeal(script: Script, setting: Setting, summaries: readonly number[]): IdealPlay {
  return new Ideal(script, setting, summaries).play();
}

/** A summary that is being written. */
interface Pending {
  trigger: CompactionTrigger;
  cut: Cut;
  /** calls and tokens when it was decided */
  calls: number;
  tokens: number;
}

class Ideal {
  readonly #script: Script;
  readonly #setting: Setting;
  readonly #summaries: readonly number[];
  /** tokens that a prompt may have beside the answer that is reserved */
  readonly #usable: number;
  readonly #played: IdealPlay = { summaries: 0, prunes: 0 };
  /** what is shown behind the summary, by entry; and the pinned message */
  #blocks: Block[] = [];
  #pinned: Block | null = null;
  #summary = 0;
  #message = 0;
  #calls = 0;
  #pending: Pending | undefined;
  /** newest first, as far as a session looks at them */
  #entries: CompactionEntry[] = [];

  constructor(script: Script, setting: Setting, summaries: readonly number[]) {
    this.#script = script;
    this.#setting = setting;
    this.#summaries = summaries;
    this.#usable = roomIn(setting, script);
  }

  play(): IdealPlay {
    for (const act of this.#script.acts) {
      this.#message += 1;
      if (act.kind === "import") {
        this.#say(act.entry);
        this.#consider("import");
      } else {
        for (const entry of act.asked) this.#say(entry);
        this.#message += 1;
        for (const [index, entry] of act.steps.entries()) {
          this.#makeRoom(index === 0 ? "before-turn" : "between-steps");
          this.#call();
          this.#say(entry);
        }
        this.#consider("after-turn");
      }
      if (!this.#setting.restless) this.#finish();
    }
    this.#finish();
    return this.#played;
  }

  #say(index: number): void {
    const entry = this.#script.entries[index]!;
    this.#blocks.push({
      seq: index + 1,
      messageId: entry.role === "assistant" ? String(this.#message) : `said-${index}`,
      role: entry.role,
      tokens: sizeOfEntry(entry),
      live: false,
      outputs: entry.pieces.flatMap((piece, place) => outputOf(piece, place)),
    });
  }

  get #tokens(): number {
    const shown = [...this.#blocks, ...(this.#pinned ? [this.#pinned] : [])];
    const { overhead, perToken, frame } = this.#script;
    const begins = this.#summary === 0 && this.#blocks[0]?.role === "assistant";
    const line = begins ? countText(ASSISTANT_BEGINS) * perToken + frame : 0;
    return shown.reduce((sum, { tokens }) => sum + tokens, overhead + line + this.#summary);
  }

  get #threshold(): number {
    const { compactAfter } = this.#setting;
    return compactAfter === "auto" ? this.#usable : Number(compactAfter);
  }

  #makeRoom(trigger: CompactionTrigger): void {
    if (this.#tokens <= this.#usable) this.#consider(trigger);
    for (let tries = 0; tries < TRIES && this.#tokens > this.#usable; tries += 1) {
      if (this.#pending) this.#finish();
      else if (!this.#consider("no-room")) return;
    }
  }

  #call(): void {
    const [newest] = this.#entries;
    if (newest?.progress === null && newest.tokensAfter !== null)
      newest.progress = newest.tokensAfter <= this.#threshold;
    this.#calls += 1;
    if (this.#pending && this.#calls - this.#pending.calls >= this.#setting.delay) this.#finish();
  }

  /** Answers whether something becomes smaller. */
  #consider(trigger: CompactionTrigger): boolean {
    if (this.#pending) return false;
    const decision = this.#decide(trigger);
    const tokens = this.#tokens;
    if (decision.kind === "no-progress") this.#book({ trigger, outcome: "no-progress", reason: decision.reason });
    if (decision.kind === "summarise") this.#pending = { trigger, cut: decision.cut, calls: this.#calls, tokens };
    if (decision.kind === "prune") {
      this.#prune(decision.plan);
      this.#book({ trigger, outcome: "pruned", tokensAfter: this.#tokens });
    }
    return decision.kind === "prune" || decision.kind === "summarise";
  }

  /** Puts the summary in force, unless it made nothing smaller. */
  #finish(): void {
    if (!this.#pending) return;
    const { trigger, cut, tokens } = this.#pending;
    const grown = this.#tokens - tokens;
    const summary = this.#summaries[Math.min(this.#played.summaries, this.#summaries.length - 1)] ?? 0;
    this.#pending = undefined;
    if (summary >= cut.leaving + this.#summary) {
      this.#book({ trigger, outcome: "no-progress", call: SUMMARY_CALL });
      return;
    }
    this.#cut(cut, summary);
    this.#book({ trigger, outcome: "applied", tokensAfter: this.#tokens - grown });
  }

  #book(known: Pick<CompactionEntry, "trigger" | "outcome"> & Partial<CompactionEntry>): void {
    const entry = { ...NO_COMPACTION, threshold: this.#threshold, sessionModel: this.#script.model, ...known };
    this.#entries = [entry, ...this.#entries].slice(0, STANDING_DEPTH);
  }

  #decide(trigger: CompactionTrigger): Decision {
    const { tailTokenBudget } = this.#setting;
    const { overhead } = this.#script;
    const budget = budgetFor({ threshold: this.#threshold, usable: this.#usable, tailTokenBudget, overhead });
    const inTurn = trigger === "before-turn" || trigger === "between-steps" || trigger === "no-room";
    const last = this.#blocks.length - 1;
    const blocks = this.#blocks.map((block, index) => ({
      ...block,
      live: inTurn && index === last && block.role === "assistant",
    }));
    return decide(
      { tokens: this.#tokens, overhead, summary: this.#summary },
      {
        trigger,
        budget,
        minTailMessages: DEFAULT_MIN_TAIL_MESSAGES,
        insists: false,
        prune: budget.tail,
        isOff: false,
        providerCompacts: false,
        standing: () =>
          standingOf(this.#entries, { threshold: this.#threshold, model: this.#script.model, now: Infinity }),
        ...(trigger === "no-room" && { room: this.#usable }),
      },
      () => ({ blocks, olderTokens: 0, pinned: this.#pinned }),
    );
  }

  #cut({ until, pinned }: Cut, summary: number): void {
    const asked = [...this.#blocks, ...(this.#pinned ? [this.#pinned] : [])].find(({ seq }) => seq === pinned);
    this.#pinned = asked ?? null;
    this.#blocks = this.#blocks.filter(({ seq }) => seq > until);
    this.#summary = summary;
    this.#played.summaries += 1;
  }

  #prune({ until, shortened }: PrunePlan): void {
    const placeholder = PLACEHOLDER_TOKENS * this.#script.perToken;
    this.#played.prunes += 1;
    this.#blocks = this.#blocks.map((block) => {
      const outputs = block.outputs.map((output) => {
        const cut = shortened.find(({ seq, toolCallId }) => seq === block.seq && toolCallId === output.toolCallId);
        if (cut)
          return { ...output, length: cut.length, tokens: (output.tokens * cut.length) / output.length + placeholder };
        if (block.seq > until || output.length <= PRUNABLE_LENGTH) return output;
        return { ...output, length: 0, tokens: placeholder };
      });
      const saved = block.outputs.reduce((sum, { tokens }, index) => sum + tokens - outputs[index]!.tokens, 0);
      return { ...block, outputs, tokens: block.tokens - saved };
    });
  }
}

function outputOf({ tool }: ScriptedPiece, place: number): Block["outputs"] {
  return tool ? [{ toolCallId: String(place), tokens: tool.outputTokens, length: tool.output.length }] : [];
}
