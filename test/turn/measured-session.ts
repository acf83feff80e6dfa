/** A session whose calls report what its messages truly have, so that what the ledger says of them can be checked. */
import fc from "fast-check";
import { summaryMessageText } from "../../src/compaction/summary-prompt.ts";
import type { Entry, ModelCall, Overlay, Part, Seq } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import { Branch } from "../../src/turn/branch.ts";
import { measured, readGauge, sizeOf, type Overhead, type Reading } from "../../src/turn/gauge.ts";
import type { OverlayPlace } from "../../src/turn/new-overlay.ts";
import { answeredWith, appliedEntry, call, newEntry, text, toolCall, usage } from "./entries.ts";

export const MODEL = "anthropic/claude-sonnet-4-5";

/** System prompt and tools, by estimate and in truth. */
export const OVERHEAD: Overhead = { key: "k", systemUnits: 400, toolsUnits: 0 };
const OVERHEAD_TOKENS = 470;

/** Text of about so many tokens. */
export const words = (count: number): string => "word ".repeat(count).trim();

/** A call with its output. */
export const looked = (toolCallId: string, output: unknown): Part => toolCall(toolCallId, answeredWith(output));

/** What somebody said. `ratio`: its true tokens for each that the estimator expects. */
export interface Said {
  ratio?: number;
}

export class MeasuredSession {
  readonly store: SessionStore;
  branch: Branch;
  /** true tokens of each entry: what was said, and what came back */
  readonly #truth = new Map<Seq, { said: number; returned: number }>();
  /** true tokens of the summary in force, as it is shown */
  #summaryTokens = 0;
  #messages = 0;

  constructor(store: SessionStore) {
    this.store = store;
    this.branch = new Branch(store, null);
  }

  user(said: string, { ratio = 1 }: Said = {}): Entry {
    return this.#insert("user", [{ type: "text", text: said }], ratio, ratio);
  }

  system(said: string): Entry {
    return this.#insert("system", [{ type: "text", text: said }], 1, 1);
  }

  /** A step of the answer, `goesOn` says whether of the same message as the last; its call reports the truth. */
  step(
    parts: Part[],
    { ratio = 1, outputs = ratio, goesOn = false }: Said & { outputs?: number; goesOn?: boolean } = {},
  ) {
    return this.#insert("assistant", [{ type: "step-start" }, ...parts], ratio, outputs, goesOn);
  }

  /** True tokens of a prompt that shows the branch as it is. */
  get shownTokens(): number {
    const { overlay, kept, entries } = this.branch;
    const shown = [...kept.head, ...kept.pinned, ...entries];
    return OVERHEAD_TOKENS + (overlay?.summary ? this.#summaryTokens : 0) + this.tokensOf(shown);
  }

  /** True tokens of entries, their results included. */
  tokensOf(entries: readonly Pick<Entry, "seq">[]): number {
    return entries.reduce((sum, { seq }) => {
      const { said, returned } = this.#truth.get(seq) ?? { said: 0, returned: 0 };
      return sum + said + returned;
    }, 0);
  }

  returnedTokens(seq: Seq): number {
    return this.#truth.get(seq)?.returned ?? 0;
  }

  reading(branch: Branch = this.branch): Reading {
    const { session } = this.store;
    return readGauge(branch, { overhead: OVERHEAD, model: MODEL, kin: () => null, session });
  }

  /** Gives an entry another call. */
  settle(entry: Entry, settled: ModelCall): void {
    const changed = { ...entry, call: settled };
    this.store.update(changed);
    this.branch.replace(changed);
  }

  /** Where an overlay is made now, on the branch in memory or on one that is read anew. */
  place(branch: Branch = this.branch): OverlayPlace {
    return { branch, reading: this.reading(branch), model: MODEL };
  }

  /** The branch as it is read after the object was evicted. */
  evicted(): Branch {
    const { leaf } = this.store.session;
    return new Branch(this.store, leaf, this.branch.overlay);
  }

  /** Puts an overlay in force. */
  show(overlay: Overlay, summaryTokens = this.#summaryTokens): void {
    this.store.compactions.insert(appliedEntry(overlay));
    const { compactions } = this.store.session;
    this.store.saveSession({ overlay: overlay.id, compactions: compactions + 1 });
    this.branch.show(overlay);
    this.#summaryTokens = summaryTokens;
  }

  #insert(role: Entry["role"], parts: Part[], ratio: number, outputs: number, goesOn = false): Entry {
    const size = sizeOf(role, parts, MODEL);
    const truth = { said: Math.round(size.unitsSaid * ratio), returned: Math.round(size.unitsReturned * outputs) };
    const unitsBefore = this.branch.units;
    const { leaf } = this.branch;
    if (!goesOn) this.#messages += 1;
    const billed = call({ model: MODEL, usage: usage(this.shownTokens, truth.said) });
    const anchor =
      role === "assistant"
        ? measured(this.reading(), billed, { unitsBefore, unitsSaid: size.unitsSaid, parts })
        : undefined;
    const entry = this.store.insert(
      newEntry({
        parent: leaf?.seq ?? null,
        messageId: `m${this.#messages}`,
        step: goesOn ? (leaf?.step ?? 0) + 1 : 0,
        role,
        parts,
        ...size,
        unitsBefore,
        ...(anchor && { call: billed, anchor }),
      }),
    );
    this.#truth.set(entry.seq, truth);
    this.branch.push(entry);
    this.store.saveSession({ leaf: entry.seq, ...(anchor && { measured: entry.seq }) });
    return entry;
  }
}

/** True tokens of a summary as it is shown, where its writer reported `reported`: what is around it is as estimated. */
export function shownSummaryTokens(text: string, reported: number): number {
  const around = sizeOf("user", [{ type: "text", text: summaryMessageText(text) }], MODEL).unitsSaid;
  const said = sizeOf("user", [{ type: "text", text }], MODEL).unitsSaid;
  return around - said + reported;
}

const ratio = fc.double({ min: 0.7, max: 1.4, noNaN: true });

/** Any conversation: turns of several steps, whose texts and outputs are denser or less dense than the estimator expects. */
export const turns = fc.array(
  fc.record({
    asked: fc.integer({ min: 3, max: 300 }),
    ratio,
    steps: fc.array(
      fc.record({ said: fc.integer({ min: 3, max: 200 }), returned: fc.nat(800), ratio, outputs: ratio }),
      { minLength: 1, maxLength: 4 },
    ),
  }),
  { minLength: 4, maxLength: 10 },
);

export type Turn = typeof turns extends fc.Arbitrary<(infer T)[]> ? T : never;

/** Plays turns. The first message of all, and the first after a compaction, are short: no two reports stand around what they have. */
export function play(session: MeasuredSession, played: readonly Turn[]): void {
  for (const [index, { asked, ratio: dense, steps }] of played.entries()) {
    session.user(words(index === 0 ? 4 : asked), { ratio: index === 0 ? 1 : dense });
    for (const [at, step] of steps.entries()) {
      const goesOn = at < steps.length - 1;
      const parts: Part[] = [text(words(step.said)), ...(goesOn ? [looked(`c${at}`, words(step.returned))] : [])];
      session.step(parts, { ratio: step.ratio, outputs: step.outputs, goesOn: at > 0 });
    }
  }
}
