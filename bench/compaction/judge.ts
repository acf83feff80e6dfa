/** From what was played to figures. */
import { quantile } from "../corpus.ts";
import type { Figures, Row } from "./figures.ts";
import { playIdeal } from "./ideal.ts";
import type { DecisionRecord, PlayRecord, RefusalRecord, Setting, WaitRecord } from "./records.ts";
import type { Script } from "./script.ts";

export interface Played {
  script: Script;
  setting: Setting;
  record: PlayRecord;
}

/** A kept tail is over its budget from this share on. */
const TOLERANCE = 1.01;

/** Something that happened, and where. */
type Found<T> = T & { where: string };

/** The figures of one recording, over all ways in which it was played; and a row for each of them. */
export function judge(name: string, played: readonly Played[], figures: Figures): void {
  for (const way of new Set(played.map(({ setting }) => setting.name)))
    figures.addWay(`${name}, ${way}`, rowOf(played.filter(({ setting }) => setting.name === way)));
  const add: Figures["add"] = (what, ...rest) => figures.add(`${name}: ${what}`, ...rest);
  const count: Count = (what, cases) => add(what, cases.length, "", 0, cases);
  const told: Told = (of) =>
    found(played, (record) => of(record).map((sentence) => ({ sentence }))).map(
      ({ where, sentence }) => `${where}: ${sentence}`,
    );
  addPrompts(played, { add, count, told });
  addTails(played, { add, count });
  addForecasts(add, proofsOf(played));
  addCounts(add, countsOf(played));
  addWaits(played, { add, count });
}

type Count = (what: string, cases: readonly string[]) => void;
type Told = (of: (record: PlayRecord) => readonly string[]) => string[];

interface Pens {
  add: Figures["add"];
  /** a figure whose target is 0 */
  count: Count;
  /** sentences, with where they were said */
  told: Told;
}

function addPrompts(played: readonly Played[], { add, count, told }: Pens): void {
  const refused = refusalsOf(played);
  const fitting = refused.filter(({ prompt, window }) => prompt <= window);
  const unforeseen = total(played, ({ record }) => record.unforeseen);
  count(
    "fired and neither shrank nor said why",
    told((record) => [...record.silent, ...notSmaller(record)]),
  );
  count(
    "prompts over the window that were sent",
    told(({ oversized }) => oversized),
  );
  add("prompts over the window before any call had reported", unforeseen, "");
  add("pasted, twice what the window holds", played.filter(({ setting }) => setting.pastes).length, "");
  count(
    "pasted and not refused with prompt-too-large before any call",
    told(({ paste }) => (paste ? [paste] : [])),
  );
  add("turns refused with prompt-too-large", refused.length, "");
  add("turns refused although the window holds their prompt", fitting.length, "");
  count(
    "turns that failed otherwise",
    told(({ failures }) => failures),
  );
  count(
    "orphans and broken role order",
    told(({ disorders }) => disorders),
  );
  add(
    "summariser inputs over its window",
    total(played, ({ record }) => record.summariser.refused),
    "",
    0,
  );
}

function addTails(played: readonly Played[], { add, count }: Pick<Pens, "add" | "count">): void {
  const legal = cutsOf(played).filter(({ least, budget }) => least <= budget);
  add("cuts where a legal one keeps the budget", legal.length, "");
  count("kept tails over the budget although a legal cut keeps it", legal.filter(isOver).map(cutCase));
}

function rowOf(played: readonly Played[]): Row {
  const decisions = found(played, ({ decisions: all }) => all);
  const outcomes = (outcome: DecisionRecord["outcome"]) =>
    decisions.filter((decision) => decision.outcome === outcome).length;
  const legal = cutsOf(played).filter(({ least, budget }) => least <= budget);
  const errors = proofsOf(played).map(({ error }) => error);
  const counts = countsOf(played);
  const waits = waitsOf(played);
  return {
    calls: total(played, ({ record }) => record.calls),
    applied: outcomes("applied"),
    pruned: outcomes("pruned"),
    "ideal's": total(counts, ({ idealSummaries }) => idealSummaries),
    "and pruned": total(counts, ({ ideal, idealSummaries }) => ideal - idealSummaries),
    "no progress": outcomes("no-progress"),
    failed: outcomes("failed") + outcomes("cancelled"),
    refused: refusalsOf(played).length,
    cuts: legal.length,
    over: legal.filter(isOver).length,
    "kept/budget": quantile(
      legal.filter(({ budget }) => budget > 0).map(({ kept, budget }) => kept / budget),
      0.5,
    ),
    "after p50 %": quantile(errors, 0.5),
    "p95 %": quantile(errors, 0.95),
    waits: waits.length,
    meanwhile: total(played, ({ record }) => record.meanwhile),
    crowded: total(played, ({ record }) => record.crowded),
  };
}

function total<T>(all: readonly T[], of: (one: T) => number): number {
  return all.reduce((sum, one) => sum + of(one), 0);
}

function found<T extends object>(played: readonly Played[], of: (record: PlayRecord) => readonly T[]): Found<T>[] {
  return played.flatMap(({ setting, record }) =>
    of(record).map((one) => ({ ...one, where: `${record.name}, ${setting.name}` })),
  );
}

// ── shrinking ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** Compactions that are said to have made the context smaller, and did not. */
function notSmaller({ decisions }: PlayRecord): string[] {
  return decisions
    .filter(({ after, trueAfter, trueBefore }) => after !== null && trueAfter !== null && trueAfter >= trueBefore)
    .map(({ id, trueBefore, trueAfter }) => `compaction ${id} made ${trueAfter} of ${trueBefore} tokens`);
}

function refusalsOf(played: readonly Played[]): Found<RefusalRecord>[] {
  return found(played, ({ refusals }) => refusals).filter(({ code }) => code === "prompt-too-large");
}

// ── the kept tail ──────────────────────────────────────────────────────────────────────────────────────────────────

type Cut = Found<DecisionRecord> & { kept: number };

function cutsOf(played: readonly Played[]): Cut[] {
  return found(played, ({ decisions }) => decisions).flatMap((decision) =>
    decision.kept === null ? [] : [{ ...decision, kept: decision.kept }],
  );
}

function isOver({ kept, budget }: Cut): boolean {
  return kept > budget * TOLERANCE;
}

function cutCase({ where, id, trigger, kept, toldKept, budget, exact }: Cut): string {
  const place = exact ? "" : ", at a place no report tells";
  return `${where}, compaction ${id} (${trigger}): kept ${kept} of ${budget}, taken for ${toldKept}${place}`;
}

// ── the number afterwards ──────────────────────────────────────────────────────────────────────────────────────────

type Proof = Found<DecisionRecord> & { error: number };

/** How far what was foretold of a compaction is from its first prompt, in percent. */
function proofsOf(played: readonly Played[]): Proof[] {
  return found(played, ({ decisions }) => decisions).flatMap((decision) => {
    const { after, trueAfter } = decision;
    return after === null || trueAfter === null ? [] : [{ ...decision, error: Math.abs(after / trueAfter - 1) * 100 }];
  });
}

function addForecasts(add: Figures["add"], proofs: readonly Proof[]): void {
  if (proofs.length === 0) return;
  const errors = proofs.map(({ error }) => error);
  const worst = proofs.toSorted((one, other) => other.error - one.error).map(proofCase);
  add("compactions that a prompt was built with", errors.length, "");
  add("predicted after / what that prompt had, median", quantile(errors, 0.5), "%", 2, worst);
  add("predicted after / what that prompt had, p95", quantile(errors, 0.95), "%", 4, worst);
}

function proofCase({ where, id, outcome, trigger, before, after, trueBefore, trueAfter, error }: Proof): string {
  return `${where}, compaction ${id} (${trigger}, ${outcome}): ${before} to ${after}, truly ${trueBefore} to ${trueAfter}: ${error.toFixed(1)} %`;
}

// ── how often ──────────────────────────────────────────────────────────────────────────────────────────────────────

interface Counts {
  where: string;
  own: number;
  summaries: number;
  ideal: number;
  idealSummaries: number;
}

/** Where a turn was refused, the session said less than the recording, so there is nothing to compare. */
function countsOf(played: readonly Played[]): Counts[] {
  return played
    .filter(({ record }) => record.refusals.length === 0)
    .map(({ script, setting, record }) => {
      const summaries = record.decisions.filter(({ outcome }) => outcome === "applied");
      const pruned = record.decisions.filter(({ outcome }) => outcome === "pruned");
      const ideal = playIdeal(
        script,
        setting,
        summaries.map(({ summary }) => summary),
      );
      return {
        where: `${record.name}, ${setting.name}`,
        own: summaries.length + pruned.length,
        summaries: summaries.length,
        ideal: ideal.summaries + ideal.prunes,
        idealSummaries: ideal.summaries,
      };
    });
}

function addCounts(add: Figures["add"], counts: readonly Counts[]): void {
  const excess = ({ own, ideal }: Counts) => own - ideal;
  const cases = counts
    .filter((one) => excess(one) > 0)
    .toSorted((one, other) => excess(other) - excess(one))
    .map(({ where, own, summaries, ideal, idealSummaries }) => {
      return `${where}: ${own}, ${summaries} of them summaries; ideal ${ideal} and ${idealSummaries}`;
    });
  const more = (own: number, ideal: number) => (ideal === 0 ? own * 100 : (own / ideal - 1) * 100);
  const all = more(
    total(counts, ({ own }) => own),
    total(counts, ({ ideal }) => ideal),
  );
  const summaries = more(
    total(counts, (one) => one.summaries),
    total(counts, (one) => one.idealSummaries),
  );
  add("compactions more than an ideal's", all, "%", 5, cases);
  add("summaries more than an ideal's", summaries, "%", 5, cases);
}

// ── waiting ────────────────────────────────────────────────────────────────────────────────────────────────────────

function addWaits(played: readonly Played[], { add, count }: Pick<Pens, "add" | "count">): void {
  const waits = waitsOf(played);
  add(
    "calls that began while a summary was written",
    total(played, ({ record }) => record.meanwhile),
    "",
  );
  add("calls that waited for a summary", waits.length, "");
  count("calls that waited although prompt and reserved answer fit the window", waits.filter(isNeedless).map(waitCase));
}

function waitsOf(played: readonly Played[]): Found<WaitRecord>[] {
  return found(played, ({ waits }) => waits);
}

function isNeedless({ prompt, room }: WaitRecord): boolean {
  return prompt <= room;
}

function waitCase({ where, prompt, known, room }: Found<WaitRecord>): string {
  return `${where}: a prompt of ${prompt} tokens, taken for ${known}, had room for ${room}`;
}
