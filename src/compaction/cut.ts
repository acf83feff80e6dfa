/**
 * Where a branch is cut: what stays verbatim behind the summary.
 *
 * A cut falls between two entries, so between two steps, also inside a message; calls and their results, and signed reasoning, are
 * in one entry and stay together. The user's newest message always stays: behind the summary where the cut is after it.
 */
import type { Seq } from "../records.ts";
import { type Block, type History, newestUserIndex } from "./history.ts";

export interface Cut {
  /** the last entry that the summary stands for */
  until: Seq;
  /** the user's newest message where it stands before the cut */
  pinned: Seq | null;
  /** model tokens that stay: everything after `until`, and the pinned message */
  kept: number;
  /** model tokens that the summary replaces, an earlier summary aside */
  leaving: number;
  rung: Rung;
}

/** Which rule found the cut: the tail budget, or a step of the ladder where nothing was outside of it. */
export type Rung = "tail-budget" | "half-budget" | "last-turn" | "inside-last-turn";

export interface CutRules {
  /** model tokens that stay at most; only the user's newest message, live blocks and the least number of messages may exceed it */
  budget: number;
  /** messages that stay at least, whole or in part: the last step of an answer is enough of it */
  minMessages: number;
  /** model tokens up to which that many stay even above the budget */
  most: number;
}

/** The cut that keeps the most within the budget; `null` when everything fits, so that nothing would leave. */
export function cutTail(history: History, rules: CutRules): Cut | null {
  return tailWithin(new Tails(history), rules, "tail-budget");
}

/**
 * What may be cut where the budget holds everything, in fixed order: half the budget, the last turn only, inside the last
 * turn. Never fewer messages than the rules say.
 */
export function* ladder(history: History, rules: CutRules): Generator<Cut> {
  const tails = new Tails(history);
  const rungs = [
    () => tailWithin(tails, { ...rules, budget: rules.budget / 2 }, "half-budget"),
    () => tails.cut(Math.min(tails.last, Math.max(0, tails.user)), "last-turn"),
    () =>
      tailWithin(
        tails,
        { ...rules, budget: tails.asked + (tails.kept(tails.user + 1) - tails.asked) / 2 },
        "inside-last-turn",
      ),
  ];
  for (const rung of rungs) {
    const cut = rung();
    if (cut && tails.messages(tails.indexAfter(cut.until)) >= rules.minMessages) yield cut;
  }
}

function tailWithin(tails: Tails, { budget, minMessages, most }: CutRules, rung: Rung): Cut | null {
  let from = tails.last;
  while (from > 0 && tails.kept(from - 1) <= budget) from -= 1;
  while (from > 0 && tails.messages(from) < minMessages && tails.kept(from - 1) <= most) from -= 1;
  return tails.cut(from, rung);
}

/** Every tail a history could keep, by the index of its first block. */
class Tails {
  /** index of the user's newest message; -1 where it is not among the blocks */
  readonly user: number;
  /** model tokens of that message, wherever it is shown */
  readonly asked: number;
  /** the last index a tail may begin at: blocks that have to stay are never left out */
  readonly last: number;
  readonly #history: History;
  /** model tokens from each index to the end */
  readonly #sums: number[];

  constructor(history: History) {
    const { blocks, pinned } = history;
    this.#history = history;
    this.user = newestUserIndex(history);
    this.asked = blocks[this.user]?.tokens ?? pinned?.tokens ?? 0;
    const live = blocks.findIndex((block) => block.live);
    this.last = live < 0 ? blocks.length : live;
    this.#sums = [0];
    for (const { tokens } of blocks.toReversed()) this.#sums.push((this.#sums.at(-1) ?? 0) + tokens);
    this.#sums.reverse();
  }

  /** Model tokens that stay: the tail, and the user's newest message where it is not in it. */
  kept(from: number): number {
    return (this.#sums[from] ?? 0) + (this.user >= from ? 0 : this.asked);
  }

  /** Messages that stay, whole or in part. */
  messages(from: number): number {
    const ids = new Set(this.#history.blocks.slice(from).map(({ messageId }) => messageId));
    const asked = this.#asked;
    return asked ? ids.add(asked.messageId).size : ids.size;
  }

  indexAfter(until: Seq): number {
    return this.#history.blocks.findLastIndex(({ seq }) => seq <= until) + 1;
  }

  /** The cut whose tail begins at an index; `null` when nothing would leave. */
  cut(start: number, rung: Rung): Cut | null {
    const { blocks, olderTokens, pinned } = this.#history;
    // Right behind that message it stays as well, in its place: an edit of it then keeps the summary.
    const from = start === this.user + 1 && start > 1 ? this.user : start;
    const until = blocks[from - 1]?.seq;
    if (until === undefined) return null;
    const kept = this.kept(from);
    const leaving = (this.#sums[0] ?? 0) + olderTokens + (pinned?.tokens ?? 0) - kept;
    const behind = this.user >= from ? undefined : this.#asked;
    return leaving > 0 ? { until, pinned: behind?.seq ?? null, kept, leaving, rung } : null;
  }

  get #asked(): Block | undefined {
    return this.#history.blocks[this.user] ?? this.#history.pinned ?? undefined;
  }
}
