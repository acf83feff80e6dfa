/**
 * Fits the estimator's weights and writes them: `node bench/fit.ts <corpus> [--dry]`.
 *
 * - `o200k`, `cl100k`: exact token counts of the recordings' parts, of pages in four languages and of error messages in
 *   many alphabets, by the public vocabularies; framing from the recorded calls of gpt-4.1.
 * - `claude`: differences of reported usage, because there is no public vocabulary; what the recordings do not contain
 *   (East Asian and other alphabets) follows `o200k`, scaled by how the two compare on English prose.
 *
 * Three fits are made: one from all conversations, which ships (`src/context/fitted.ts`), and one from each half of
 * them (`bench/folds.ts`), so that the bench scores every conversation with weights that never saw it.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { countTokens as countCl100k } from "gpt-tokenizer/encoding/cl100k_base";
import { countTokens as countO200k } from "gpt-tokenizer/encoding/o200k_base";
import { countFeatures, FEATURE_COUNT, FEATURES } from "../src/context/features.ts";
import type { FittedWeights, Frame } from "../src/context/weights.ts";
import {
  callOf,
  type Conversation,
  type Gap,
  gapsOf,
  nameOf,
  quantile,
  readPages,
  readRecordings,
  type RecordedMessage,
} from "./corpus.ts";
import { dot, fitRelative, type Sample } from "./regression.ts";

const FRAMES = [
  "message",
  "step",
  "call",
  "parameter",
  "results",
  "result",
] as const satisfies readonly (keyof Frame)[];
const SIZE = FEATURE_COUNT + FRAMES.length;

/** Every part is text to be read, special tokens included. */
const PLAIN = { disallowedSpecial: new Set<string>() };

/** Parts are read in pieces of this many characters, so that a long file is not one sample. */
const PIECE = 4_000;
/** A text shorter than this says more about its ends than about its content. */
const SHORTEST = 40;

interface Labelled extends Sample {
  features: Float64Array<ArrayBuffer>;
  fold: number;
  group: string;
  /** tokens of the text by o200k, framing aside */
  exact: number;
}

type Count = (text: string) => number;

function featuresOf(text: string, vector = new Float64Array(SIZE)): Float64Array<ArrayBuffer> {
  countFeatures(text, vector);
  return vector;
}

/** Samples of plain text with their exact count. */
function textSamples(conversations: Conversation[], pages: Record<string, string>, count: Count): Labelled[] {
  const samples: Labelled[] = [];
  const add = (text: string, fold: number, group: string, importance: number) => {
    for (let at = 0; at < text.length; at += PIECE) {
      const piece = text.slice(at, at + PIECE);
      if (piece.length < SHORTEST) continue;
      samples.push({ features: featuresOf(piece), tokens: count(piece), exact: 0, importance, fold, group });
    }
  };
  for (const { src, items, fold } of conversations) {
    for (const item of items) {
      if (item.k !== "msg" || item.role === "system") continue;
      for (const part of item.parts) add(part.s, fold, src, TEXT_IMPORTANCE[src] ?? 1);
    }
  }
  for (const [language, text] of Object.entries(pages)) {
    for (let at = 0; at < text.length; at += 1_000)
      add(text.slice(at, at + 1_000), Math.floor(at / 20_000) % 2, `pages ${language}`, 4);
  }
  localisedErrors().forEach((text, index) => add(text, index % 2, "alphabets", 4));
  return samples;
}

/** Coding sessions outnumber the chats a hundred to one; all kinds of conversation should be served. */
const TEXT_IMPORTANCE: Record<string, number> = { entire: 0.5 };
/** And of the calls, those of `entire` hold text that nobody recorded. */
const CALL_IMPORTANCE: Record<string, number> = { entire: 0.25 };

/** Error messages of zod in every language it knows: the text of other alphabets that is at hand wherever this runs. */
function localisedErrors(): string[] {
  const folder = join(dirname(createRequire(import.meta.url).resolve("zod")), "v4/locales");
  return readdirSync(folder)
    .filter((file) => /^[a-z]{2,3}\.js$/.test(file) && !/^(en|ja|ko)\.js$/.test(file))
    .map((file) => [...readFileSync(join(folder, file), "utf8").matchAll(/"([^"\n]{4,})"|`([^`\n]{8,})`/g)])
    .map((strings) => strings.map((match) => match[1] ?? match[2]).join(" "));
}

/** Features and framing of what a call was given anew. */
function freshFeatures(fresh: RecordedMessage[], vector: Float64Array<ArrayBuffer>): Float64Array<ArrayBuffer> {
  let results = 0;
  for (const { parts } of fresh) {
    for (const part of parts) {
      featuresOf(part.s, vector);
      if (part.t === "result") results++;
    }
    if (parts.some((part) => part.t === "text")) vector[frame("message")]!++;
  }
  vector[frame("result")]! += results;
  if (results > 0) vector[frame("results")]!++;
  return vector;
}

/** Features of what a step put out; a call's input parameter by parameter where the family writes it so. */
function spokenFeatures(
  { parts }: RecordedMessage,
  vector: Float64Array<ArrayBuffer>,
  writesParameters: boolean,
): Float64Array<ArrayBuffer> {
  for (const part of parts) {
    if (part.t === "call") vector[frame("call")]!++;
    const call = part.t === "call" && writesParameters ? callOf(part.s) : undefined;
    if (!call) featuresOf(part.s, vector);
    for (const [name, value] of Object.entries(call?.input ?? {})) {
      featuresOf(name, vector);
      featuresOf(typeof value === "string" ? value : JSON.stringify(value), vector);
      vector[frame("parameter")]!++;
    }
    if (call) featuresOf(call.name, vector);
  }
  vector[frame("step")]!++;
  return vector;
}

function frame(name: keyof Frame): number {
  return FEATURE_COUNT + FRAMES.indexOf(name);
}

/** Characters an output token stands for at most. A recorded output that claims more is a placeholder. */
const CHARS_PER_TOKEN = 4.5;

function reportsOutput({ output, step }: Gap): boolean {
  return output >= step.parts.reduce((sum, part) => sum + part.s.length, 0) / CHARS_PER_TOKEN;
}

/** Whether a conversation's output figures can be learned from: placeholders are rare in it. */
function reportsOutputs(gaps: Gap[]): boolean {
  return gaps.filter(reportsOutput).length > 0.8 * gaps.length;
}

/** Samples of reported differences: what came in between, what was said, or both where the output is a placeholder. */
function gapSamples(conversations: Conversation[]): Labelled[] {
  const samples: Labelled[] = [];
  for (const conversation of conversations) {
    const writesParameters = /claude/.test(conversation.model);
    const gaps = gapsOf(conversation);
    const speaks = reportsOutputs(gaps);
    const importance = CALL_IMPORTANCE[conversation.src] ?? 1;
    for (const gap of gaps) {
      const thinks = gap.step.parts.some((part) => part.t === "think");
      const foreign = gap.fresh.some(
        ({ role, parts }) => role === "assistant" || parts.some((part) => part.t === "image"),
      );
      const add = (
        kind: "new" | "said" | "both",
        features: Float64Array<ArrayBuffer>,
        tokens: number,
        importance: number,
      ) => {
        const messages = [...(kind === "new" ? [] : [gap.step]), ...(kind === "said" ? [] : gap.fresh)];
        const exact = messages.flatMap(({ parts }) => parts).reduce((sum, { s }) => sum + countO200k(s, PLAIN), 0);
        const group = `${conversation.src.slice(0, 22)} ${kind}`;
        if (tokens > 0 && messages.length > 0)
          samples.push({ features, tokens, exact, importance, fold: conversation.fold, group });
      };
      if (reportsOutput(gap)) {
        if (!foreign)
          add("new", freshFeatures(gap.fresh, new Float64Array(SIZE)), gap.next - gap.input - gap.output, importance);
        if (!thinks && speaks)
          add("said", spokenFeatures(gap.step, new Float64Array(SIZE), writesParameters), gap.output, 0.3 * importance);
      } else if (!thinks && !foreign && !speaks) {
        add(
          "both",
          freshFeatures(gap.fresh, spokenFeatures(gap.step, new Float64Array(SIZE), writesParameters)),
          gap.next - gap.input,
          0.3 * importance,
        );
      }
    }
  }
  return samples;
}

/** Framing alone, from recorded calls of a model whose vocabulary is public: its text is counted exactly. */
function fitFrames(samples: Labelled[]): number[] {
  const bare = samples.map((sample) => ({
    ...sample,
    features: sample.features.slice(FEATURE_COUNT),
    known: sample.exact,
  }));
  return fitRelative(
    bare,
    FRAMES.map((name) => (name === "parameter" ? 0 : 4)),
    FRAMES.map(() => 1e-3),
  );
}

function report(title: string, samples: Labelled[], weights: number[]): void {
  for (const group of [...new Set(samples.map((sample) => sample.group))].toSorted()) {
    const members = samples.filter((sample) => sample.group === group);
    const errors = members.map(({ features, tokens }) => Math.abs(dot(features, weights) - tokens) / tokens);
    const sum = members.reduce((total, { features }) => total + dot(features, weights), 0);
    const truth = members.reduce((total, { tokens }) => total + tokens, 0);
    const cells = [quantile(errors, 0.5), quantile(errors, 0.9), sum / truth - 1].map((share) =>
      `${(share * 100).toFixed(2)} %`.padStart(9),
    );
    console.log(`  ${title.padEnd(26)}${group.padEnd(20)}${String(members.length).padStart(6)}${cells.join("")}`);
  }
}

function named(weights: number[]): FittedWeights {
  const round = (value: number) => Math.round(value * 1_000) / 1_000;
  return {
    text: Object.fromEntries(FEATURES.map((feature, i) => [feature, round(weights[i]!)])) as FittedWeights["text"],
    frame: Object.fromEntries(FRAMES.map((name) => [name, round(weights[frame(name)]!)])) as unknown as Frame,
  };
}

/** Weights from the samples that are not in `fold`; from all of them without one. */
function outside(samples: Labelled[], fold: number | undefined): Labelled[] {
  return fold === undefined ? samples : samples.filter((sample) => sample.fold !== fold);
}

const corpus = process.argv[2];
if (!corpus) throw new Error("usage: node bench/fit.ts <corpus> [--dry]");
const conversations = readRecordings(corpus).flatMap((recording) => recording.conversations);
const pages = readPages(corpus);
const byGpt = conversations.filter(({ model }) => /gpt/.test(model));
const byClaude = conversations.filter(({ model }) => /claude/.test(model));
const o200k = textSamples(conversations, pages, (text) => countO200k(text, PLAIN));
const cl100k = textSamples(conversations, pages, (text) => countCl100k(text, PLAIN));
const gptGaps = gapSamples(byGpt);
const claudeGaps = gapSamples(byClaude);

/** How many Claude tokens stand for one of o200k in English prose: 1.15 to 1.3 by the recordings; only unseen features use it. */
const CLAUDE_SCALE = 1.2;

/** How strongly a weight is held to its prior: hardly, where there is text enough. */
const PULLS = FEATURES.map(() => 1e-4);

/** The recorded Claude sessions are in English: what other scripts weigh is held to the prior. */
const UNHEARD = new Set<string>(["accents", "otherLetters", "han", "kana", "hangul", "astral"]);
const CLAUDE_PULLS = [...FEATURES, ...FRAMES].map((name) => (UNHEARD.has(name) ? 1e3 : 3e-3));

function fitAll(fold: number | undefined): Record<string, number[]> {
  const flat = FEATURES.map(() => 0.5);
  const texts = {
    o200k: fitRelative(outside(o200k, fold), flat, PULLS),
    cl100k: fitRelative(outside(cl100k, fold), flat, PULLS),
  };
  const frames = fitFrames(outside(gptGaps, fold));
  const prior = [...texts.o200k.map((weight) => weight * CLAUDE_SCALE), ...frames];
  return {
    claude: fitRelative(outside(claudeGaps, fold), prior, CLAUDE_PULLS),
    o200k: [...texts.o200k, ...frames],
    cl100k: [...texts.cl100k, ...frames],
  };
}

const folds = [fitAll(0), fitAll(1)];
const all = fitAll(undefined);
console.log(
  `  ${"scored on the other fold".padEnd(26)}${"source".padEnd(20)}${"n".padStart(6)}${"median".padStart(9)}${"p90".padStart(9)}${"sum".padStart(9)}`,
);
for (const fold of [0, 1]) {
  const inside = (samples: Labelled[]) => samples.filter((sample) => sample.fold === fold);
  report(`o200k text, fold ${fold}`, inside(o200k), folds[fold]!.o200k!);
  report(`cl100k text, fold ${fold}`, inside(cl100k), folds[fold]!.cl100k!);
  report(`gpt-4.1 calls, fold ${fold}`, inside(gptGaps), folds[fold]!.o200k!);
  report(`claude calls, fold ${fold}`, inside(claudeGaps), folds[fold]!.claude!);
}
const print = (value: unknown) =>
  JSON.stringify(value, null, 2)
    .replaceAll(/"(\w+)":/g, "$1:")
    .replaceAll(/([\d}])\n/g, "$1,\n");
const namedAll = (fitted: Record<string, number[]>) =>
  Object.fromEntries(Object.entries(fitted).map(([family, weights]) => [family, named(weights)]));
if (process.argv.includes("--dry")) console.log(print(namedAll(all)));
else {
  const source = "Written by `node bench/fit.ts <corpus>`; never edited.";
  writeFileSync(
    join(import.meta.dirname, "../src/context/fitted.ts"),
    `/** The fitted weights, in tokens per occurrence, from all conversations of the corpus. ${source} */\nexport const FITTED = ${print(namedAll(all))};\n`,
  );
  const halves = Object.fromEntries(conversations.map((conversation) => [nameOf(conversation), conversation.fold]));
  writeFileSync(
    join(import.meta.dirname, "folds.ts"),
    `/** The same fit from each half of the conversations: \`FOLDS[0]\` never saw those of fold 0. ${source} */\nexport const FOLDS = ${print(folds.map(namedAll))};\n\n` +
      `/** The conversations that were fitted on, by a hash of their source and id, and the half each is in. */\nexport const HALVES: Record<string, number> = ${JSON.stringify(halves)};\n`,
  );
}
