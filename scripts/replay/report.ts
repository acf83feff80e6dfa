/** What the replay prints: a line for each conversation, and the totals. */
import type { Played } from "./player.ts";

export interface ConversationReport extends Omit<Played, "predictions"> {
  name: string;
  sessions: number;
  /** recorded calls without any content, left out */
  empty: number;
  /** tool results no model was shown, left out */
  unsent: number;
  predictions: Played["predictions"];
  seconds: number;
}

interface Accuracy {
  calls: number;
  /** sum of the predicted input of the calls that have a prediction */
  predicted: number;
  /**
   * Of |predicted − reported| / reported, a session's first call left out: tool schemas and proxies' prompts are in
   * no recording, only in its count. Null without predictions.
   */
  medianError: number | null;
  p95Error: number | null;
}

export function mergePlayed(
  name: string,
  played: Played[],
  left: { empty: number; unsent: number },
  seconds: number,
): ConversationReport {
  const sum = (pick: (one: Played) => number): number => played.reduce((total, one) => total + pick(one), 0);
  return {
    name,
    sessions: played.length,
    turns: sum(({ turns }) => turns),
    steps: sum(({ steps }) => steps),
    stored: sum(({ stored }) => stored),
    imported: sum(({ imported }) => imported),
    shortened: sum(({ shortened }) => shortened),
    reported: sum(({ reported }) => reported),
    predictions: played.flatMap(({ predictions }) => predictions),
    differences: played.flatMap(({ differences }, index) =>
      differences.map((text) => (played.length > 1 ? `session ${index}: ${text}` : text)),
    ),
    empty: left.empty,
    unsent: left.unsent,
    seconds,
  };
}

/** Machine-readable: the same figures, predictions summed up. */
export function asJson({ predictions, ...report }: ConversationReport): Record<string, unknown> {
  return { ...report, ...accuracyOf(predictions) };
}

export function lineOf(report: ConversationReport): string {
  const { calls, predicted, medianError } = accuracyOf(report.predictions);
  return [
    report.name,
    `${report.turns} turns`,
    `${report.steps} steps`,
    `${report.stored} messages`,
    `${report.imported} imported`,
    ...(report.sessions > 1 ? [`${report.sessions} sessions`] : []),
    ...(report.empty > 0 ? [`${report.empty} empty calls left out`] : []),
    ...(report.unsent > 0 ? [`${report.unsent} unsent results left out`] : []),
    ...(report.shortened > 0 ? [`${report.shortened} shortened prompts`] : []),
    `reported ${grouped(report.reported)}`,
    calls === 0
      ? "nothing predicted"
      : `predicted ${grouped(predicted)} (${calls} calls, median error ${percent(medianError)})`,
    report.differences.length === 0 ? "ok" : `DIFFERS: ${report.differences[0]}`,
  ].join(" · ");
}

export function totalsOf(reports: ConversationReport[]): Record<string, number | null> {
  const sum = (pick: (one: ConversationReport) => number): number =>
    reports.reduce((total, one) => total + pick(one), 0);
  const { calls, ...accuracy } = accuracyOf(reports.flatMap(({ predictions }) => predictions));
  return {
    conversations: reports.length,
    ok: reports.filter(({ differences }) => differences.length === 0).length,
    turns: sum(({ turns }) => turns),
    steps: sum(({ steps }) => steps),
    stored: sum(({ stored }) => stored),
    imported: sum(({ imported }) => imported),
    shortened: sum(({ shortened }) => shortened),
    reported: sum(({ reported }) => reported),
    predictedCalls: calls,
    ...accuracy,
    seconds: Math.round(sum(({ seconds }) => seconds) * 10) / 10,
  };
}

export function totalsLine(reports: ConversationReport[]): string {
  const totals = totalsOf(reports);
  const figures = ["turns", "steps", "stored", "imported", "reported", "predicted"].map(
    (name) => `${name} ${grouped(totals[name] ?? 0)}`,
  );
  const errors = `median error ${percent(totals["medianError"])}, 95th percentile ${percent(totals["p95Error"])} over ${totals["predictedCalls"]} calls, first ones apart`;
  return [
    `${totals["ok"]} of ${totals["conversations"]} conversations ok`,
    ...figures,
    errors,
    `${totals["seconds"]} s`,
  ].join(" · ");
}

function accuracyOf(predictions: Played["predictions"]): Accuracy {
  const errors = predictions
    .filter(({ first }) => !first)
    .map(({ reported, predicted }) => Math.abs(predicted - reported) / reported)
    .toSorted((a, b) => a - b);
  return {
    calls: predictions.length,
    predicted: predictions.reduce((total, { predicted }) => total + predicted, 0),
    medianError: quantile(errors, 0.5),
    p95Error: quantile(errors, 0.95),
  };
}

/** The nearest-rank quantile of sorted values. */
function quantile(sorted: number[], share: number): number | null {
  return sorted[Math.max(Math.ceil(sorted.length * share) - 1, 0)] ?? null;
}

function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(2)} %`;
}

function grouped(count: number): string {
  return Math.round(count).toLocaleString("en-US");
}
