/**
 * How near the number is: `node bench/accuracy.ts <corpus> [--json]`.
 *
 * Plays the recordings and generated sessions through the project's own rules, and the rules of others on the same
 * calls. Every conversation is estimated with weights that were fitted without it: on the half of its recording that it
 * is not in (`folds.ts`), or the shipped ones where it belongs to neither half.
 */
import { canGenerate, playCuts, playEvents, playFirstCalls } from "./accuracy-generated.ts";
import { type Cut, play, type Played, type PredictedCall } from "./accuracy-recordings.ts";
import { measureDecision, measureSpeeds } from "./accuracy-speed.ts";
import { checkUsage } from "./accuracy-usage.ts";
import { HALVES } from "./folds.ts";
import { nameOf, quantile, readPages, readRecordings } from "./corpus.ts";

/** One measured figure, beside what it has to reach. */
interface Figure {
  what: string;
  value: number;
  unit: "%" | "" | "ms" | "MB/s" | "rows";
  /** largest (or, with `atLeast`, smallest) value that will do; absent for what is only shown */
  target?: number;
  atLeast?: boolean;
}

type Rule = Exclude<keyof PredictedCall, "segment">;

/** The rules of others: agents 0.32, pi and draft PR 1720, and the best simple one. */
const BASELINES = [
  ["sum of chars/4 (agents 0.32)", "sumChars4"],
  ["last usage + chars/4 (pi, draft PR 1720)", "lastChars4"],
  ["last usage + chars/3", "lastChars3"],
] as const satisfies readonly (readonly [string, Rule])[];

const figures: Figure[] = [];
const corpus = process.argv[2];
if (!corpus || corpus.startsWith("--")) throw new Error("usage: node bench/accuracy.ts <corpus> [--json]");
const recordings = readRecordings(corpus);
const conversations = recordings.flatMap((recording) => recording.conversations);
const pages = readPages(corpus);
for (const { name, conversations: own } of recordings) addRecording(name, play(own));
addGenerated();
addUsage();
addCosts();

const missed = figures.filter(isMissed).map((figure) => figure.what);
if (process.argv.includes("--json")) {
  const named = Object.fromEntries(figures.map(({ what, value }) => [what, Number.isFinite(value) ? value : null]));
  console.log(JSON.stringify({ figures: named, missed }, null, 2));
} else printTable();

function isMissed({ value, target, atLeast }: Figure): boolean {
  if (target === undefined) return false;
  return atLeast ? !(value >= target) : !(value <= target);
}

function addRecording(name: string, { calls, cuts, triggers, compactions }: Played): void {
  if (calls.length === 0) return;
  const add = adder(name);
  const chat = /airline|retail/.test(name);
  const by = (rule: Rule) => calls.map((call) => (Math.abs(call[rule] - call.actual) / call.actual) * 100);
  const own = by("predicted");
  const chars3 = by("lastChars3");
  add("predicted input, p50", quantile(own, 0.5), "%", 0.1);
  add("predicted input, p95", quantile(own, 0.95), "%", chat ? 0.7 : 0.5);
  add(
    "predicted input, p50 beside last usage + chars/3 (at most 1)",
    quantile(own, 0.5) / quantile(chars3, 0.5),
    "",
    1,
  );
  add(
    "predicted input, p95 beside last usage + chars/3 (at most 1)",
    quantile(own, 0.95) / quantile(chars3, 0.95),
    "",
    1,
  );
  const bias = calls.reduce((sum, call) => sum + (call.predicted - call.actual) / call.actual, 0) / calls.length;
  add("predicted input, bias (absolute)", Math.abs(bias * 100), "%", 0.1);
  for (const [label, rule] of BASELINES) {
    add(`baseline ${label}, p50`, quantile(by(rule), 0.5), "%");
    add(`baseline ${label}, p95`, quantile(by(rule), 0.95), "%");
  }
  const segments = calls
    .flatMap((call) => call.segment ?? [])
    .map(({ actual, predicted }) => (Math.abs(predicted - actual) / actual) * 100);
  add("new segment alone, median", quantile(segments, 0.5), "%", /entire/.test(name) ? 15 : 5);
  addCuts(
    add,
    "20,000",
    cuts.filter((cut) => cut.budget === 20_000),
  );
  addCuts(
    add,
    "15 % and 30 %",
    cuts.filter((cut) => cut.budget !== 20_000),
  );
  const large = triggers.filter(({ largest }) => largest > 115_000);
  if (large.length > 0) {
    add(
      `passed 115,000 and never fired at 100,000 (of ${large.length})`,
      large.filter(({ fired }) => fired === null).length,
      "",
      0,
    );
    const beside = large.flatMap(({ fired, oracle }) => (fired && oracle ? [(fired / oracle - 1) * 100] : []));
    add("size when fired, median above an oracle's", quantile(beside, 0.5), "%", 0.5);
    add(
      "size when fired / threshold, median",
      quantile(
        large.flatMap(({ fired }) => (fired ? [fired / 100_000] : [])),
        0.5,
      ),
      "",
    );
  }
  compactions.forEach(({ predicted, actual }, i) =>
    add(`input after recorded compaction ${i + 1}`, Math.abs(predicted / actual - 1) * 100, "%", 2),
  );
}

function addCuts(add: ReturnType<typeof adder>, budget: string, cuts: Cut[]): void {
  if (cuts.length === 0) return;
  const shares = (chosen: Cut[]) => chosen.map((cut) => cut.kept / cut.budget);
  add(
    `tail ${budget}: over by more than 1 % (of ${cuts.length} cuts)`,
    (cuts.filter((cut) => cut.kept > cut.budget * 1.01).length / cuts.length) * 100,
    "%",
    1,
  );
  const fine = cuts.filter((cut) => cut.fine);
  if (fine.length > 0)
    add(`tail ${budget}: kept / budget where steps are small, median`, quantile(shares(fine), 0.5), "", 0.95, true);
  add(`tail ${budget}: kept / budget, median`, quantile(shares(cuts), 0.5), "");
  add(
    `tail ${budget}: baseline walk by chars/4, median`,
    quantile(
      cuts.map((cut) => cut.keptChars4 / cut.budget),
      0.5,
    ),
    "",
  );
  add(`tail ${budget}: ideal cut hit`, (cuts.filter((cut) => cut.hit).length / cuts.length) * 100, "%", 95, true);
}

function addGenerated(): void {
  if (!canGenerate(conversations, pages)) return;
  const add = adder("generated");
  for (const { event, first, second } of playEvents(conversations, pages)) {
    add(`${event}: first prediction, median`, quantile(first, 0.5) * 100, "%", 3);
    add(`${event}: first prediction, p95`, quantile(first, 0.95) * 100, "%", 3);
    add(`${event}: second prediction, median`, quantile(second, 0.5) * 100, "%", 0.5);
    add(`${event}: second prediction, p95`, quantile(second, 0.95) * 100, "%");
  }
  for (const [kind, errors] of Object.entries(playFirstCalls(conversations, pages))) {
    add(`first call in ${kind}, median`, quantile(errors, 0.5) * 100, "%", 10);
  }
  const cuts = playCuts(conversations, pages);
  add(
    `tail: over by more than 1 % (of ${cuts.length} cuts)`,
    (cuts.filter((cut) => cut.kept > cut.budget * 1.01).length / cuts.length) * 100,
    "%",
    1,
  );
  add(
    "tail: kept / budget, median",
    quantile(
      cuts.map((cut) => cut.kept / cut.budget),
      0.5,
    ),
    "",
  );
  add("tail: ideal cut hit", (cuts.filter((cut) => cut.hit).length / cuts.length) * 100, "%", 95, true);
}

function addUsage(): void {
  const check = checkUsage(corpus!);
  if (!check) return;
  adder("usage")(`shapes read exactly (of ${check.total})`, check.right, "", check.total, true);
  for (const fault of check.faults) console.error(fault);
}

function addCosts(): void {
  const add = adder("cost");
  const { estimator, lengthOver4, tokenizer } = measureSpeeds(conversations);
  add("estimator", estimator, "MB/s", 10, true);
  add("baseline length / 4", lengthOver4, "MB/s");
  add("baseline o200k tokenizer", tokenizer, "MB/s");
  measureDecision(100); // the first run compiles
  const [small, large] = [measureDecision(100), measureDecision(100_000)];
  add("number and cut, rows at 100,000 messages beyond those at 100", large.rows - small.rows, "rows", 3);
  add("number and cut at 100,000 messages", large.milliseconds, "ms", 1);
}

function adder(group: string) {
  return (what: string, value: number, unit: Figure["unit"], target?: number, atLeast?: boolean) => {
    figures.push({ what: `${group}: ${what}`, value, unit, target, atLeast });
  };
}

function printTable(): void {
  console.log("Weights never saw what they are scored on: fitted on the other half of a recording, or shipped and the");
  console.log("conversation in neither half. Conversations per recording and half:");
  for (const { name, conversations: own } of recordings) {
    const inHalf = (half?: number) => own.filter((conversation) => HALVES[nameOf(conversation)] === half).length;
    console.log(`  ${name}: ${inHalf(0)} and ${inHalf(1)}, ${inHalf()} in neither`);
  }
  console.log("");
  for (const figure of figures) console.log(lineOf(figure));
  console.log(
    missed.length === 0 ? "\nevery target was reached" : `\nnot reached: ${missed.length}\n  ${missed.join("\n  ")}`,
  );
}

function lineOf(figure: Figure): string {
  const { what, value, unit, target, atLeast } = figure;
  const digits = unit === "rows" || Number.isInteger(value) ? 0 : value < 1 ? 4 : 2;
  const goal = target === undefined ? "" : `${atLeast ? "≥" : "≤"} ${target} ${unit}`.trim();
  return `${what.padEnd(100)}${value.toFixed(digits).padStart(10)} ${unit.padEnd(5)}${goal.padEnd(12)}${isMissed(figure) ? "missed" : ""}`;
}
