/** Branches as a compaction sees them, written by hand or generated, and what a decision makes of them. */
import fc from "fast-check";
import { type Budget, budgetFor } from "../../src/compaction/budget.ts";
import type { Decision, DecisionSettings, Known } from "../../src/compaction/decide.ts";
import { type Block, type History, newestUserIndex, type Output } from "../../src/compaction/history.ts";
import type { PrunePlan } from "../../src/compaction/prune.ts";
import type { Standing } from "../../src/compaction/standing.ts";
import type { CompactionTrigger } from "../../src/records.ts";

/** A block that stands at `seq`: the user's, unless it says otherwise. */
export function block(seq: number, tokens: number, overrides: Partial<Block> = {}): Block {
  return { seq, messageId: `m${seq}`, role: "user", tokens, live: false, outputs: [], ...overrides };
}

/** A step of the message `messageId`. */
export function stepBlock(seq: number, tokens: number, overrides: Partial<Block> = {}): Block {
  return block(seq, tokens, { role: "assistant", ...overrides });
}

/** `lengthPerToken` UTF-16 code units of JSON for each token. */
export function output(toolCallId: string, tokens: number, lengthPerToken = 4): Output {
  return { toolCallId, tokens, length: tokens * lengthPerToken };
}

export function historyOf(blocks: readonly Block[], overrides: Partial<History> = {}): History {
  return { blocks, olderTokens: 0, pinned: null, ...overrides };
}

export function sumTokens(weighed: readonly { tokens: number }[]): number {
  return weighed.reduce((sum, { tokens: each }) => sum + each, 0);
}

/** Model tokens of all that is shown behind the summary. */
export function shownTokens({ blocks, olderTokens, pinned }: History): number {
  return sumTokens(blocks) + olderTokens + (pinned?.tokens ?? 0);
}

/** What is known of a prompt with this history. */
export function knownOf(history: History, { overhead = 0, summary = 0 }: Partial<Known> = {}): Known {
  return { tokens: Math.round(overhead + summary + shownTokens(history)), overhead, summary };
}

/** Levers that fire wherever the number is above the threshold. */
export function settings(overrides: Partial<DecisionSettings> = {}): DecisionSettings {
  return {
    trigger: "after-turn",
    budget: { threshold: 1_000, tail: 500, summary: 256, warnings: [] },
    minTailMessages: 2,
    insists: false,
    prune: false,
    isOff: false,
    providerCompacts: false,
    standing: () => ({ kind: "open" }),
    ...overrides,
  };
}

/** Index of the first block that has to stay because it is live; the number of blocks where there is none. */
export function firstLive({ blocks }: History): number {
  const index = blocks.findIndex(({ live }) => live);
  return index < 0 ? blocks.length : index;
}

/** The user's newest message, wherever it is shown. */
export function newestUser(history: History): Block | undefined {
  return history.blocks[newestUserIndex(history)] ?? history.pinned ?? undefined;
}

/** Where the live blocks begin. */
export function liveSeq(history: History): number {
  return history.blocks[firstLive(history)]?.seq ?? Number.POSITIVE_INFINITY;
}

/** Messages that are shown, whole or in part. */
export function messages({ blocks, pinned }: History): number {
  return new Set([...blocks, ...(pinned ? [pinned] : [])].map(({ messageId }) => messageId)).size;
}

// ── what a decision makes of it ──────────────────────────────────────────────────────────────────────────────────────

/** Model tokens of a placeholder and of the frame of a summary, about. */
const PLACEHOLDER = 24;
const FRAME = 64;

/** The size a summary is to be expected to have. */
function expectedSummary(leaving: number, { summary }: Known, budget: Budget): number {
  return Math.min(budget.summary, summary + leaving * 0.2) + FRAME;
}

/** The number after a decision took effect, with a summary of the size that is to be expected. */
export function projected(known: Known, decision: Decision, budget: Budget): number {
  if (decision.kind === "prune") return known.tokens - decision.plan.saved;
  if (decision.kind !== "summarise") return known.tokens;
  const { leaving } = decision.cut;
  return known.tokens - leaving - known.summary + expectedSummary(leaving, known, budget);
}

/** What is shown after a decision took effect. */
export function applied(history: History, decision: Decision): History {
  if (decision.kind === "prune") return withoutOutputs(history, decision.plan);
  if (decision.kind !== "summarise") return history;
  const { until, pinned } = decision.cut;
  const all = history.pinned ? [history.pinned, ...history.blocks] : history.blocks;
  return {
    blocks: history.blocks.filter(({ seq }) => seq > until),
    olderTokens: 0,
    pinned: all.find(({ seq }) => seq === pinned) ?? null,
  };
}

function withoutOutputs(history: History, { until, shortened }: Pick<PrunePlan, "until" | "shortened">): History {
  const blocks = history.blocks.map((each) => {
    const outputs = each.outputs.map((out): Output => {
      const cut = shortened.find(({ seq, toolCallId }) => seq === each.seq && toolCallId === out.toolCallId);
      if (cut && out.length > 2 * cut.length) {
        return {
          ...out,
          tokens: Math.min(out.tokens, (out.tokens * cut.length) / out.length + PLACEHOLDER),
          length: 2_100,
        };
      }
      if (each.seq > until || out.length <= 400) return out;
      return { ...out, tokens: Math.min(out.tokens, PLACEHOLDER), length: 100 };
    });
    return { ...each, outputs, tokens: each.tokens - sumTokens(each.outputs) + sumTokens(outputs) };
  });
  return { ...history, blocks };
}

// ── generated ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Model tokens of anything: next to nothing, a paragraph, a file, a book; measured sizes are no whole numbers. */
const tokens = fc.oneof(
  fc.integer({ min: 0, max: 60 }),
  fc.integer({ min: 60, max: 4_000 }),
  fc.double({ min: 0.01, max: 3_000, noNaN: true }),
  fc.integer({ min: 20_000, max: 400_000 }),
);

/** UTF-16 code units of an output for each of its tokens. */
const density = fc.double({ min: 0.5, max: 8, noNaN: true });

const outputs = fc.array(fc.record({ tokens, density }), { maxLength: 3 });

const message = fc.oneof(
  { weight: 3, arbitrary: fc.record({ role: fc.constant("user" as const), said: tokens }) },
  {
    weight: 4,
    arbitrary: fc.record({
      role: fc.constant("assistant" as const),
      steps: fc.array(fc.record({ said: tokens, outputs }), { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ role: fc.constant("system" as const), said: tokens }) },
);

/**
 * Any branch: messages of several steps, calls with outputs, a leaf that is live, a message shown behind the summary, and
 * a part that is not loaded, which is older than the user's newest message.
 */
export const histories: fc.Arbitrary<History> = fc
  .record({
    messages: fc.array(message, { maxLength: 14 }),
    live: fc.boolean(),
    pinned: fc.option(tokens, { freq: 2 }),
    olderTokens: fc.oneof(fc.constant(0), tokens),
  })
  .map(({ messages, live, pinned, olderTokens }) => {
    const blocks: Block[] = [];
    for (const [index, each] of messages.entries()) {
      const messageId = `m${index}`;
      const at = () => 10 + 3 * blocks.length + (blocks.length % 3);
      if (each.role !== "assistant") blocks.push(block(at(), each.said, { messageId, role: each.role }));
      else {
        for (const step of each.steps) {
          const out = step.outputs.map((one, call) => output(`c${call}`, one.tokens, one.density));
          const whole = step.said + sumTokens(out);
          blocks.push(stepBlock(at(), whole, { messageId, outputs: out.map(wholeLength) }));
        }
      }
    }
    const last = blocks.at(-1);
    if (live && last?.role === "assistant") blocks[blocks.length - 1] = { ...last, live: true };
    const shown = { blocks, pinned: pinned === null ? null : block(5, pinned, { messageId: "pinned" }) };
    const isLoaded = newestUser({ ...shown, olderTokens: 0 }) === undefined;
    return { ...shown, olderTokens: isLoaded ? 0 : olderTokens };
  });

const wholeLength = (out: Output): Output => ({ ...out, length: Math.ceil(out.length) });

const TRIGGERS: readonly CompactionTrigger[] = [
  "after-turn",
  "before-turn",
  "between-steps",
  "import",
  "no-room",
  "overflow",
  "manual",
];

const STANDINGS: readonly Standing[] = [
  { kind: "open" },
  { kind: "open" },
  { kind: "open" },
  { kind: "stopped", reason: "Stopped." },
  { kind: "stopped", reason: "Stopped.", isFree: true },
  { kind: "backing-off", until: 5 },
];

/** Everything a decision is made from. */
export interface Situation {
  known: Known;
  settings: DecisionSettings;
  history: History;
}

/** Levers for a history, near what makes them matter: thresholds around the number, budgets reduced or not. */
export const situations: fc.Arbitrary<Situation> = fc
  .record({
    history: histories,
    trigger: fc.constantFrom(...TRIGGERS),
    overhead: tokens,
    summary: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 5_000 })),
    threshold: fc.oneof(
      { weight: 5, arbitrary: fc.double({ min: 0.02, max: 1.3, noNaN: true }) },
      { weight: 1, arbitrary: fc.constant(null) },
    ),
    nudge: fc.integer({ min: -1, max: 1 }),
    usable: fc.option(fc.double({ min: 0.3, max: 2, noNaN: true })),
    tailTokenBudget: fc.oneof(fc.constant(20_000), fc.integer({ min: 1, max: 40_000 })),
    minTailMessages: fc.integer({ min: 1, max: 6 }),
    insists: fc.boolean(),
    prune: fc.oneof(fc.constant(false as const), fc.constant(undefined), fc.integer({ min: 0, max: 60_000 })),
    offs: fc.integer({ min: 0, max: 9 }),
    standing: fc.constantFrom(...STANDINGS),
  })
  .map(({ history, trigger, threshold, nudge, usable, tailTokenBudget, prune, offs, standing, ...rest }): Situation => {
    const known = knownOf(history, rest);
    const share = (part: number) => Math.max(1, Math.floor(known.tokens * part) + nudge);
    const budget = budgetFor({
      threshold: threshold === null ? null : share(threshold),
      usable: usable === null ? undefined : share(usable),
      tailTokenBudget,
      overhead: Math.round(known.overhead),
    });
    return {
      known,
      history,
      settings: {
        trigger,
        budget,
        minTailMessages: rest.minTailMessages,
        insists: rest.insists,
        prune: prune ?? budget.tail,
        isOff: offs === 0,
        providerCompacts: offs === 1,
        standing: () => standing,
        ...(trigger === "no-room" && { room: Math.min(share(usable ?? 0.5), known.tokens - 1) }),
      },
    };
  });
