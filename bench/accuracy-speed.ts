/** What the number costs: the estimator on one core, and the rows and time of one decision. */
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import type { Anchor } from "../src/context/anchor.ts";
import { estimateText, weightsFor } from "../src/context/estimator.ts";
import { knownTokens, openLedger } from "../src/context/ledger.ts";
import { type AnchorIndex, anchorIndex, branchSizes, findTailStart } from "../src/context/tail.ts";
import { Branch, promptOf } from "./branch.ts";
import type { Conversation } from "./corpus.ts";

/** MB of UTF-8 a second. */
export interface Speeds {
  estimator: number;
  lengthOver4: number;
  tokenizer: number;
}

export function measureSpeeds(conversations: Conversation[]): Speeds {
  const texts = conversations.flatMap(({ items }) =>
    items.flatMap((item) => (item.k === "msg" ? item.parts.map((part) => part.s) : [])),
  );
  const some = texts.filter((_text, index) => index % 8 === 0);
  const weights = weightsFor("claude");
  return {
    estimator: speedOf(texts, (text) => estimateText(text, weights)),
    lengthOver4: speedOf(texts, (text) => text.length / 4),
    tokenizer: speedOf(some, (text) => countTokens(text, { disallowedSpecial: new Set() })),
  };
}

function speedOf(texts: string[], count: (text: string) => number): number {
  const bytes = texts.reduce((sum, text) => sum + new TextEncoder().encode(text).length, 0);
  let best = 0;
  for (let round = 0; round < 3; round++) {
    const start = performance.now();
    for (const text of texts) count(text);
    best = Math.max(best, bytes / 1_000 / (performance.now() - start));
  }
  return best;
}

export interface Decision {
  messages: number;
  /** anchors that were asked for: each is a row when it is not in memory */
  rows: number;
  milliseconds: number;
}

/** Reads the number and the cut at 20,000 tokens on a branch of so many messages. */
export function measureDecision(messages: number): Decision {
  const branch = new Branch(promptOf("anthropic/claude-sonnet-4-5"), weightsFor);
  const text = "The quick brown fox jumps over the lazy dog, and then it files a report about it. ".repeat(22);
  let input = 3_000;
  for (let i = 0; i < messages / 2; i++) {
    branch.say("user", [{ type: "text", text }]);
    branch.step([{ type: "text", text }], { contextInput: (input += 800), contextOutput: 395 });
  }
  const entries = branch.entries.slice(-1);
  const positions = branch.entries.map((entry) => entry.unitsBefore);
  let rows = 1;
  const index = counting(anchorIndex(branch.anchors), () => rows++);
  const start = performance.now();
  const ledger = openLedger(branch.anchor, entries);
  knownTokens(ledger, branch.prompt);
  findTailStart(branchSizes(ledger, index), positions, 20_000);
  return { messages, rows, milliseconds: performance.now() - start };
}

/** Counts the rows an index would read; the same anchor twice is one row. */
function counting(index: AnchorIndex, count: () => void): AnchorIndex {
  const seen = new Set<Anchor>();
  const read = (anchor: Anchor | undefined) => {
    if (anchor && !seen.has(anchor)) {
      seen.add(anchor);
      count();
    }
    return anchor;
  };
  return { before: (position) => read(index.before(position)), after: (position) => read(index.after(position)) };
}
