/** The recordings played through the ledger, and beside it the rules of others on the same calls. */
import type { Part } from "../src/records.ts";
import { anchorPosition } from "../src/context/anchor.ts";
import {
  estimateParts,
  estimateSystem,
  estimateText,
  type Family,
  familyOf,
  type Weights,
} from "../src/context/estimator.ts";
import { findTailStart } from "../src/context/tail.ts";
import { weightsFor, weightsFrom } from "../src/context/weights.ts";
import { Branch, promptOf } from "./branch.ts";
import { callOf, type Conversation, inputOf, nameOf, type RecordedMessage, type RecordedPart } from "./corpus.ts";
import { FOLDS, HALVES } from "./folds.ts";

/** One predicted and reported call. */
export interface PredictedCall {
  /** tokens the call read */
  actual: number;
  /** the project's prediction, and those of the rules it is measured beside */
  predicted: number;
  sumChars4: number;
  lastChars4: number;
  lastChars3: number;
  /** what no call had measured before: its true size and what the project took it for; `null` where the report cannot tell */
  segment: { actual: number; predicted: number } | null;
}

/** One cut through a conversation that was larger than the budget. */
export interface Cut {
  budget: number;
  /** true tokens kept by the cut and by the best cut there was */
  kept: number;
  ideal: number;
  /** the same by walking back with chars/4 */
  keptChars4: number;
  hit: boolean;
  /** whether the step that the best cut leaves out is below 5 % of the budget: only there can a budget be used up */
  fine: boolean;
}

export interface Trigger {
  /** largest true size of the context, and true size when known first passed the threshold; `null` if it never did */
  largest: number;
  fired: number | null;
  /** true size at the first step at which the true size had passed it */
  oracle: number | null;
}

export interface CompactionForecast {
  predicted: number;
  actual: number;
}

export interface Played {
  calls: PredictedCall[];
  cuts: Cut[];
  triggers: Trigger[];
  compactions: CompactionForecast[];
}

const TRIGGER = 100_000;

/** Weights for a conversation that were fitted without it: on the other half, or the shipped ones if it is in neither. */
export function unseenWeights(conversation: Conversation): (model: string) => Weights {
  const half = HALVES[nameOf(conversation)];
  if (half === undefined) return weightsFor;
  const fold = Object.fromEntries(
    Object.entries(FOLDS[half]!).map(([family, fitted]) => [family, weightsFrom(fitted)]),
  ) as Record<Family, Weights>;
  return (model) => fold[familyOf(model)];
}

/** A place where a cut may fall: before a step or a message, with the true size of the context there. */
interface Place {
  position: number;
  /** true tokens before it; `null` where no report tells */
  before: number | null;
  chars: number;
}

/** One stretch of a conversation between recorded compactions. */
class Stretch {
  readonly branch: Branch;
  readonly played: Played;
  places: Place[] = [];
  chars = 0;
  /** chars at the last report, its output included; the last report */
  reported: { chars: number; input: number; output: number } | null = null;
  trigger: Trigger = { largest: 0, fired: null, oracle: null };
  calls: Part[] = [];
  user = 0;
  largestStep = 0;

  constructor(branch: Branch, played: Played) {
    this.branch = branch;
    this.played = played;
  }

  message(item: RecordedMessage): void {
    const results = item.parts.filter((part) => part.t === "result");
    const rest = item.parts.filter((part) => part.t !== "result");
    if (results.length > 0) this.#results(results);
    if (rest.length > 0 && item.role !== "tool") {
      const { anchor } = this.branch;
      // Only right after an output that was really reported does a report tell the size before a message.
      const told = this.reported !== null && anchor?.outputReported && anchorPosition(anchor) === this.branch.end;
      const before = told ? this.reported!.input + this.reported!.output : null;
      if (item.role === "user") this.places.push({ position: this.branch.end, before, chars: this.chars });
      this.branch.say(item.role === "user" ? "user" : "assistant", partsOf(rest));
    }
    this.chars += charsOf(item.parts);
  }

  #results(results: RecordedPart[]): void {
    let next = this.calls.findIndex((part) => (part as { state: string }).state === "input-available");
    for (const { s } of results) {
      if (next < 0 || next >= this.calls.length) next = this.calls.push(callPart({ t: "call", s: "" })) - 1;
      this.calls[next] = { ...(this.calls[next] as object), state: "output-available", output: s } as Part;
      next++;
    }
    if (this.branch.entries.at(-1)?.role === "assistant") this.branch.results(this.calls);
    else this.branch.say("assistant", this.calls.slice(-results.length));
  }

  call(item: RecordedMessage): void {
    const input = inputOf(item.usage);
    if (this.reported) this.#score(input);
    this.places.push({ position: this.branch.end, before: input, chars: this.chars });
    this.#watch(input);
    this.branch.prompt = { ...this.branch.prompt, model: item.model ?? this.branch.prompt.model };
    const output = item.usage!.out;
    this.branch.step(partsOf(item.parts), { contextInput: input, contextOutput: output });
    this.calls = partsOf(item.parts).filter((part) => part.type === "dynamic-tool");
    this.chars += charsOf(item.parts);
    this.reported = { chars: this.chars, input, output };
  }

  #score(actual: number): void {
    const { branch, reported } = this;
    const anchor = branch.anchor!;
    const { tokens, fresh } = branch.known();
    const newer = this.chars - reported!.chars;
    const last = reported!.input + reported!.output;
    const spans = anchor.outputReported
      ? { actual: actual - last, predicted: fresh }
      : { actual: actual - anchor.input, predicted: fresh + anchor.output };
    this.played.calls.push({
      actual,
      predicted: tokens,
      sumChars4: this.chars / 4,
      lastChars4: last + newer / 4,
      lastChars3: last + newer / 3,
      segment: spans.actual > 0 && newer > 0 ? spans : null,
    });
    this.#cut(actual, tokens);
  }

  /** Cuts before the next report arrives; its input tells the truth about every place whose own is known. */
  #cut(actual: number, known: number): void {
    const sizes = this.branch.sizes();
    const places = this.places.filter((place): place is Place & { before: number } => place.before !== null);
    // Where the context once shrank, earlier places tell nothing of what was kept.
    const shrunk = places.findLastIndex((place, i) => i > 0 && place.before < places[i - 1]!.before);
    const usable = places.slice(Math.max(0, shrunk));
    const truth = usable.map((place) => actual - place.before);
    for (const budget of [20_000, Math.round(known * 0.15), Math.round(known * 0.3)]) {
      if ((truth[0] ?? 0) <= budget || truth.at(-1)! > budget) continue;
      const mine = findTailStart(
        sizes,
        usable.map((place) => place.position),
        budget,
      );
      const ideal = truth.findIndex((kept) => kept <= budget);
      const byChars = usable.findIndex((place) => (this.chars - place.chars) / 4 <= budget);
      this.played.cuts.push({
        budget,
        kept: truth[mine] ?? 0,
        ideal: truth[ideal]!,
        keptChars4: truth[byChars] ?? 0,
        hit: mine === ideal,
        fine: truth[ideal - 1]! - truth[ideal]! <= budget * 0.05,
      });
    }
  }

  #watch(input: number): void {
    const { trigger } = this;
    trigger.largest = Math.max(trigger.largest, input);
    if (trigger.oracle === null && input > TRIGGER) trigger.oracle = input;
    if (trigger.fired === null && this.branch.known().tokens > TRIGGER) trigger.fired = input;
  }

  /** What the next call should read once everything before the kept users is a summary, and `asked` was added. */
  forecast(usersKept: number, summary: string, asked: RecordedMessage[]): number {
    const { branch } = this;
    const position = branch.entries.filter((entry) => entry.role === "user").at(-usersKept)!.unitsBefore;
    const overlay = typeof branch.prompt.overlay === "number" ? branch.prompt.overlay + 1 : 1;
    const covered = branch.sizes().ledgerBetween(0, position);
    branch.prompt = {
      ...branch.prompt,
      overlay,
      covered,
      summary: estimateText(summary, branch.weightsOf(branch.prompt.model)),
    };
    this.chars = summary.length + this.chars - (this.places.find((place) => place.position >= position)?.chars ?? 0);
    const { tokens } = branch.known();
    return (
      tokens +
      asked.reduce(
        (sum, { parts }) => sum + estimateParts("user", partsOf(parts), branch.weightsOf(branch.prompt.model)).said,
        0,
      )
    );
  }

  /** Reports from before a compaction say nothing about the calls after it. */
  startOver(): void {
    this.reported = null;
    this.places = [];
    this.played.triggers.push(this.trigger);
    this.trigger = { largest: 0, fired: null, oracle: null };
  }
}

export function play(conversations: Conversation[], weightsFor = unseenWeights): Played {
  const played: Played = { calls: [], cuts: [], triggers: [], compactions: [] };
  for (const conversation of conversations) playOne(conversation, played, weightsFor(conversation));
  return played;
}

function playOne(conversation: Conversation, played: Played, weightsOf: (model: string) => Weights): void {
  const { items, model } = conversation;
  let stretch = new Stretch(new Branch(promptOf(model), weightsOf), played);
  for (const [index, item] of items.entries()) {
    if (item.k === "compaction") {
      const forecast = forecastOf(items.slice(0, index), items.slice(index + 1), item.meta, item.summary, stretch);
      if (forecast) {
        played.compactions.push(forecast);
        stretch.startOver();
        continue;
      }
      played.triggers.push(stretch.trigger);
      stretch = new Stretch(
        new Branch({ ...promptOf(stretch.branch.prompt.model), overlay: index }, weightsOf, stretch.branch.anchor),
        played,
      );
      stretch.branch.say("user", [{ type: "text", text: item.summary }]);
      stretch.chars += item.summary.length;
    } else if (item.role === "system") {
      const system = item.parts.map((part) => part.s).join("\n");
      stretch.branch.prompt = {
        ...stretch.branch.prompt,
        systemUnits: estimateSystem(system, weightsOf(model)),
        overheadKey: "system",
      };
    } else if (item.role === "assistant" && inputOf(item.usage) > 0) stretch.call(item);
    else stretch.message(item);
  }
  played.triggers.push(stretch.trigger);
}

/**
 * A recorded compaction as the project would have committed it. pi names its first kept entry by an index that also
 * counts what is no message; in both recorded cases that is the newest user message at or before it.
 */
function forecastOf(
  before: Conversation["items"],
  after: Conversation["items"],
  meta: unknown,
  summary: string,
  stretch: Stretch,
): CompactionForecast | null {
  const kept = (meta as { firstKeptEntryIndex?: number }).firstKeptEntryIndex;
  if (kept === undefined) return null;
  const first = before.findLastIndex((item, i) => i <= kept && item.k === "msg" && item.role === "user");
  const usersKept = before.slice(first).filter((item) => item.k === "msg" && item.role === "user").length;
  const end = after.findIndex((item) => item.k === "msg" && inputOf(item.usage) > 0);
  const next = after[end];
  if (next?.k !== "msg") return null;
  const asked = after.slice(0, end).filter((item): item is RecordedMessage => item.k === "msg" && item.role === "user");
  return { predicted: stretch.forecast(usersKept, summary, asked), actual: inputOf(next.usage) };
}

function charsOf(parts: RecordedPart[]): number {
  return parts.reduce((sum, part) => sum + part.s.length, 0);
}

function partsOf(parts: RecordedPart[]): Part[] {
  return parts.map((part): Part => {
    if (part.t === "think") return { type: "reasoning", text: part.s };
    if (part.t === "image") return { type: "file", mediaType: "image/png", url: "" };
    return part.t === "text" ? { type: "text", text: part.s } : callPart(part);
  });
}

function callPart({ s }: RecordedPart): Part {
  const call = callOf(s);
  const toolName = call?.name ?? s;
  return { type: "dynamic-tool", toolCallId: "", toolName, state: "input-available", input: call?.input ?? {} };
}
