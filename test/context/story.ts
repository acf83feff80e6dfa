/** A branch told in numbers: messages by their units, calls by what they reported. */
import type { Anchor, Prompt } from "../../src/context/anchor.ts";
import {
  anchorFor,
  type EntryUnits,
  type KnownTokens,
  knownTokens,
  type Ledger,
  openLedger,
} from "../../src/context/ledger.ts";
import { anchorIndex, type BranchSizes, branchSizes } from "../../src/context/tail.ts";
import type { ReportedUsage } from "../../src/context/usage.ts";

export function prompt(change: Partial<Prompt> = {}): Prompt {
  return {
    model: "anthropic/claude-sonnet-4-5",
    overheadKey: "first",
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

export class Story {
  entries: EntryUnits[] = [];
  anchors: Anchor[] = [];
  prompt: Prompt;
  kin: Anchor | null = null;

  constructor(change: Partial<Prompt> = {}) {
    this.prompt = prompt(change);
  }

  get end(): number {
    const last = this.entries.at(-1);
    return last ? last.unitsBefore + last.unitsSaid + last.unitsReturned : 0;
  }

  get anchor(): Anchor | null {
    return this.anchors.at(-1) ?? null;
  }

  get ledger(): Ledger {
    return openLedger(this.anchor, this.entries, this.kin);
  }

  known(): KnownTokens {
    return knownTokens(this.ledger, this.prompt);
  }

  sizes(): BranchSizes {
    return branchSizes(this.ledger, anchorIndex(this.anchors));
  }

  user(units: number): this {
    this.entries.push({ role: "user", unitsBefore: this.end, unitsSaid: units, unitsReturned: 0 });
    return this;
  }

  /** A step that put out `said` units; what it reported; units of the results that came back. */
  step(
    said: number,
    usage: ReportedUsage,
    returned = 0,
    options: { prompt?: Prompt; reasoningUnits?: number } = {},
  ): this {
    const anchor = anchorFor(this.ledger, {
      prompt: options.prompt ?? this.prompt,
      usage,
      at: this.end,
      said,
      reasoningUnits: options.reasoningUnits ?? 0,
    });
    this.entries.push({ role: "assistant", unitsBefore: this.end, unitsSaid: said, unitsReturned: returned });
    if (anchor) this.anchors.push(anchor);
    return this;
  }
}

/** A call that read `input` and put out `output`, some of it reasoning. */
export function reported(input: number, output: number, reasoning?: number): ReportedUsage {
  return { contextInput: input, contextOutput: output, ...(reasoning === undefined ? {} : { reasoning }) };
}
