/** A branch played through the project's own rules: what the turn and the storage would do, in memory. */
import type { Part } from "../src/records.ts";
import type { Anchor, Prompt } from "../src/context/anchor.ts";
import { estimateParts, estimateReasoning, type Weights } from "../src/context/estimator.ts";
import {
  anchorFor,
  type EntryUnits,
  type KnownTokens,
  knownTokens,
  type Ledger,
  openLedger,
} from "../src/context/ledger.ts";
import { anchorIndex, type BranchSizes, branchSizes } from "../src/context/tail.ts";
import type { ReportedUsage } from "../src/context/usage.ts";

export class Branch {
  readonly entries: EntryUnits[] = [];
  readonly anchors: Anchor[] = [];
  prompt: Prompt;
  readonly weightsOf: (model: string) => Weights;
  /** an anchor of the same session on another branch */
  readonly kin: Anchor | null;
  #afterAnchor = 0;

  constructor(prompt: Prompt, weightsOf: (model: string) => Weights, kin: Anchor | null = null) {
    this.prompt = prompt;
    this.weightsOf = weightsOf;
    this.kin = kin;
  }

  get anchor(): Anchor | null {
    return this.anchors.at(-1) ?? null;
  }

  get end(): number {
    const last = this.entries.at(-1);
    return last ? last.unitsBefore + last.unitsSaid + last.unitsReturned : 0;
  }

  get ledger(): Ledger {
    return openLedger(this.anchor, this.entries.slice(this.#afterAnchor), this.kin);
  }

  known(): KnownTokens {
    return knownTokens(this.ledger, this.prompt);
  }

  sizes(): BranchSizes {
    return branchSizes(this.ledger, anchorIndex(this.anchors));
  }

  /** Stores a user or system message, or a step without a report. */
  say(role: "user" | "system" | "assistant", parts: Part[]): EntryUnits {
    const { said, returned } = estimateParts(role, parts, this.weightsOf(this.prompt.model));
    const entry = { role, unitsBefore: this.end, unitsSaid: said, unitsReturned: returned };
    this.entries.push(entry);
    return entry;
  }

  /** Stores a step and its report; `prompt` is what its call was built from. */
  step(parts: Part[], usage: ReportedUsage, prompt = this.prompt): EntryUnits {
    const { ledger } = this;
    const weights = this.weightsOf(prompt.model);
    const entry = this.say("assistant", parts);
    const report = {
      prompt,
      usage,
      at: entry.unitsBefore,
      said: entry.unitsSaid,
      reasoningUnits: estimateReasoning(parts, weights),
    };
    const anchor = anchorFor(ledger, report);
    if (anchor) {
      this.anchors.push(anchor);
      this.#afterAnchor = this.entries.length - 1;
    }
    return entry;
  }

  /** Results that come back to the last step: the same parts, now with output. */
  results(parts: Part[]): void {
    const entry = this.entries.at(-1)!;
    entry.unitsReturned = estimateParts("assistant", parts, this.weightsOf(this.prompt.model)).returned;
  }
}

export function promptOf(model: string, change: Partial<Prompt> = {}): Prompt {
  return {
    model,
    overheadKey: "",
    systemUnits: 0,
    toolsUnits: 0,
    overlay: null,
    covered: 0,
    summary: 0,
    pruneKey: "",
    pruned: 0,
    ...change,
  };
}
