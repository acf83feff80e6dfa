/**
 * How well sessions are compacted: `node bench/compaction.ts <corpus> [--json] [--quick]`.
 *
 * Plays the recordings step by step through real sessions on a local runtime: their storage, their ledger, their
 * decisions and overlays. Models are doubles that say what was recorded and report what they were really sent
 * (`compaction/recorded-sizes.ts` says how that is known), and summaries are always the same of the same.
 */
import { readRecordings } from "./corpus.ts";
import { Figures } from "./compaction/figures.ts";
import { judge, type Played } from "./compaction/judge.ts";
import { addLongHistories } from "./compaction/long-histories.ts";
import type { PlayRecord, RowsRecord, Setting } from "./compaction/records.ts";
import type { Script } from "./compaction/script.ts";
import { scriptsOf } from "./compaction/scripts.ts";
import { settingsFor } from "./compaction/settings.ts";
import { Stages } from "./compaction/stages.ts";

const USAGE = "usage: node bench/compaction.ts <corpus> [--json] [--quick]";

/** Conversations of each recording that `--quick` plays, and messages it stores. */
const QUICK_CONVERSATIONS = 3;
const QUICK_MESSAGES = 10_000;

const MESSAGES = 100_000;
/** Rows that a decision may read beside the tail that it keeps. */
const ROWS_BESIDE = 20;

/** Runtimes at once. */
const STAGES = 2;

const PREFACE = [
  "Weights never saw what they are scored on: fitted on the other half of a recording, or shipped and the conversation in",
  "neither half. What is true is what the recorded model reported; a span between two of its reports that contradicts what",
  "was said in it is weighed by a tokenizer instead. A stretch ends where the recorded client compacted.",
];

const [corpus] = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
if (!corpus) throw new Error(USAGE);
const isQuick = process.argv.includes("--quick");
const recordings = readRecordings(corpus).map(({ name, conversations }) => ({
  name,
  conversations: isQuick ? conversations.slice(0, QUICK_CONVERSATIONS) : conversations,
}));
const figures = new Figures();
const notes: string[] = [];
const stages = await Stages.open(STAGES);
try {
  const [rows] = await Promise.all([Promise.all([countRows(true), countRows(false)]), addAll()]);
  addRows(rows.flat());
} finally {
  await stages.close();
}
if (process.argv.includes("--json")) console.log(figures.json());
else console.log([...PREFACE, ...notes, "", figures.table()].join("\n"));

async function addAll(): Promise<void> {
  for (const { name, conversations } of recordings) await addRecording(name, conversations.flatMap(scriptsOf));
  const all = recordings.flatMap(({ conversations }) => conversations);
  await addLongHistories(stages, all, figures);
}

/** Every conversation in each way that suits its length. */
async function addRecording(name: string, scripts: readonly Script[]): Promise<void> {
  const played = await Promise.all(
    scripts.flatMap((script) => settingsFor(script).map((setting) => play(script, setting))),
  );
  judge(name, played, figures);
  const sum = (of: (script: Script) => number) => scripts.reduce((total, script) => total + of(script), 0);
  const told = `${sum(({ contradictions }) => contradictions)} of ${sum(({ spans }) => spans)} spans contradict their text`;
  notes.push(`  ${name}: ${scripts.length} stretches, ${told}`);
}

async function play(script: Script, setting: Setting): Promise<Played> {
  // SAFETY: the Worker answers this path with this record.
  const record = (await stages.perform("/play", { script, setting })) as PlayRecord;
  return { script, setting, record };
}

async function countRows(reported: boolean): Promise<RowsRecord[]> {
  // SAFETY: as above.
  return (await stages.perform("/rows", { messages: isQuick ? QUICK_MESSAGES : MESSAGES, reported })) as RowsRecord[];
}

function addRows(rows: readonly RowsRecord[]): void {
  const beside = rows.map(({ read, kept }) => read - kept);
  const stored = (isQuick ? QUICK_MESSAGES : MESSAGES).toLocaleString("en");
  figures.add(`rows at ${stored} messages: kept tail, at most`, Math.max(...rows.map(({ kept }) => kept)), "rows");
  figures.add(
    `rows at ${stored} messages: read beside it, first compaction`,
    beside[0] ?? Number.NaN,
    "rows",
    ROWS_BESIDE,
  );
  figures.add(`rows at ${stored} messages: read beside it, at most`, Math.max(...beside), "rows", ROWS_BESIDE);
}
