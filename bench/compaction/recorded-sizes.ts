/**
 * What every piece of a recorded stretch truly weighs.
 *
 * **The truth** is what the recorded model reported: between two of its calls in a row the context grew by the difference
 * of their inputs, and that is the size of what was said and came back between them. Where the output of the first was
 * reported as well, it is the size of what was said, and the rest is that of what came back. Within such a span a real
 * tokenizer (o200k, scaled to the recorded model by all its spans together) shares the tokens out; the ends stay exact.
 *
 * Not taken from reports: what stands before the first one (the tokenizer weighs it, the rest is overhead); spans across
 * a change of models; and spans that contradict what was added in them, which the tokenizer weighs as well. In those the
 * provider let something go, or the recording lacks what was sent (some of it is redacted), or a report was recorded at
 * another place than its own: a session, which has all that it sends, meets none of it. How many there are is counted.
 */
import { weightsFor } from "../../src/context/estimator.ts";
import type { ScriptedEntry } from "./script.ts";
import { countText } from "./tokens.ts";

/** One thing to be sized: a piece, or the result of a call. */
interface Share {
  /** tokens by the tokenizer, framing included, in o200k's */
  weight: number;
  /** whether the model put it out */
  said: boolean;
  set: (tokens: number) => void;
}

/** What stands between two reports. */
interface Span {
  shares: Share[];
  /** entries of it, the one that reported first */
  entries: ScriptedEntry[];
  /** absent at either end of the stretch */
  before?: Report;
  after?: Report;
}

/** What a recorded call reported. */
export interface Report {
  input: number;
  output: number;
  model: string;
}

/** An entry that has yet to be sized, with the report of its call. */
export interface RecordedEntry {
  entry: ScriptedEntry;
  report?: Report;
}

export interface Sizes {
  overhead: number;
  perToken: number;
  /** spans between two reports, and those of them that contradict their text */
  spans: number;
  contradictions: number;
}

/** Tokenizer and spans of a stretch. */
interface Measure {
  /** tokens of the recorded model for one of o200k's */
  perToken: number;
  /** shares of the tokenizer's count between which a report is believed */
  least: number;
  most: number;
  /** tokens that may come on top: clients add reminders and the like that are not in the recording */
  beside: number;
}

/** Where the tokenizer is another model's: no error of it or of any estimate is as large as this. */
const FOREIGN = { least: 0.5, most: 1.5, beside: 200 };

/** The same where the tokenizer is the model's own: there it gives what the reports give, up to this deviation. */
const OWN = { least: 0.8, most: 1.25, beside: 0 };
const OWN_DEVIATION = 0.02;

/** Below this share of what can be seen of it, a reported output is a placeholder. */
const PLACEHOLDER_SHARE = 0.5;

/** Sizes the pieces of all entries, and marks those before which the size of the context is told. */
export function sizeEntries(recorded: readonly RecordedEntry[], model: string): Sizes {
  const spans = spansOf(recorded, model);
  const measure = measureOf(spans);
  const { perToken } = measure;
  for (const span of spans) shareOut(span, measure);
  const measured = spans.filter((span) => growthOf(span) !== undefined);
  const [head] = spans;
  const content = (head?.shares ?? []).reduce((sum, { weight }) => sum + weight * perToken, 0);
  return {
    overhead: Math.max(0, Math.round((head?.after?.input ?? content) - content)),
    perToken,
    spans: measured.length,
    contradictions: measured.filter((span) => !isTold(span, measure)).length,
  };
}

/** The first span is what stands before the first report. */
function spansOf(recorded: readonly RecordedEntry[], model: string): Span[] {
  const spans: Span[] = [{ shares: [], entries: [] }];
  for (const { entry, report } of recorded) {
    if (report) {
      spans.at(-1)!.after = report;
      spans.push({ shares: [], entries: [], before: report });
    }
    const span = spans.at(-1)!;
    span.entries.push(entry);
    span.shares.push(...sharesOf(entry, model));
  }
  return spans;
}

function sharesOf({ role, pieces }: ScriptedEntry, model: string): Share[] {
  const { frame } = weightsFor(model);
  const isAnswer = role === "assistant";
  const firstCall = pieces.find(({ tool }) => tool !== undefined);
  return pieces.flatMap((piece): Share[] => {
    const set = (tokens: number) => (piece.tokens = tokens);
    const { kind, text, tool } = piece;
    if (kind === "image") return [{ weight: IMAGE_TOKENS, said: isAnswer, set }];
    if (!tool) return [{ weight: countText(text) + (isAnswer ? 0 : frame.message), said: isAnswer, set }];
    const around = frame.result + (piece === firstCall ? frame.results : 0);
    return [
      { weight: countText(tool.name + text) + frame.call, said: true, set },
      { weight: countText(tool.output) + around, said: false, set: (tokens) => (tool.outputTokens = tokens) },
    ];
  });
}

/** An image of 1024 × 1024 in high detail, as OpenAI counts it. */
const IMAGE_TOKENS = 765;

function measureOf(spans: readonly Span[]): Measure {
  const ratios = spans.flatMap((span) => {
    const [grown, weight] = [growthOf(span), weightOf(span.shares)];
    return grown && grown > 0 && weight > 0 ? [{ ratio: grown / weight, weight }] : [];
  });
  const perToken = medianOf(ratios) ?? 1;
  const deviation = medianOf(ratios.map(({ ratio, weight }) => ({ ratio: Math.abs(ratio - 1), weight }))) ?? 1;
  return { perToken, ...(deviation < OWN_DEVIATION ? OWN : FOREIGN) };
}

/** The ratio below which half of the weight lies. */
function medianOf(ratios: readonly { ratio: number; weight: number }[]): number | undefined {
  const half = ratios.reduce((sum, { weight }) => sum + weight, 0) / 2;
  let passed = 0;
  return ratios.toSorted((one, other) => one.ratio - other.ratio).find(({ weight }) => (passed += weight) >= half)
    ?.ratio;
}

/** Tokens by which the context grew over a span; `undefined` where no two reports of one model tell. */
function growthOf({ before, after }: Span): number | undefined {
  return before && after && before.model === after.model ? after.input - before.input : undefined;
}

function weightOf(shares: readonly Share[]): number {
  return shares.reduce((sum, { weight }) => sum + weight, 0);
}

/** Whether the reports around a span tell its size. */
function isTold(span: Span, { perToken, least, most, beside }: Measure): boolean {
  const grown = growthOf(span) ?? 0;
  const weighed = weightOf(span.shares) * perToken;
  return grown >= weighed * least && grown <= weighed * most + beside;
}

function shareOut(span: Span, measure: Measure): void {
  const { perToken, least } = measure;
  const { shares, entries, before } = span;
  const weighed = (some: readonly Share[]) => weightOf(some) * perToken;
  const said = shares.filter((share) => share.said);
  const returned = shares.filter((share) => !share.said);
  const told = isTold(span, measure) ? (growthOf(span) ?? 0) : weighed(shares);
  const output = before?.output ?? 0;
  const rest = told - output;
  const isReported = output > 0 && output >= weighed(said) * PLACEHOLDER_SHARE;
  const splits = isReported && returned.length > 0 && rest >= weighed(returned) * least;
  if (splits) {
    give(said, output);
    give(returned, rest);
  } else give(shares, told);
  const [step, next] = entries;
  if (step && before) step.exact = true;
  if (splits && next && step?.pieces.every(({ tool }) => tool === undefined)) next.exact = true;
}

function give(shares: readonly Share[], tokens: number): void {
  const all = weightOf(shares);
  for (const { weight, set } of shares) set(all > 0 ? (tokens * weight) / all : 0);
}
