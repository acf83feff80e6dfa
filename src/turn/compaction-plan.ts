/** A moment as a compaction decides on it: what the branch weighs piece by piece, and what the session allows. */
import type { Budget } from "../compaction/budget.ts";
import { type Decision, type DecisionSettings, decide } from "../compaction/decide.ts";
import type { Block, History } from "../compaction/history.ts";
import { isPrunable, outputLength, pruned } from "../compaction/prune.ts";
import type { Standing } from "../compaction/standing.ts";
import { promptRoom } from "../context/usage.ts";
import type { CompactionTrigger, Entry } from "../records.ts";
import { awaitsModel, isAnswered, isToolPart } from "./answer.ts";
import type { Branch } from "./branch.ts";
import { DEFAULT_MIN_TAIL_MESSAGES, modelId } from "./configuration.ts";
import { budgetAt, type Moment } from "./context-reading.ts";
import { anchorOf, omittedShare, sizeOf, sizesOf, wholeOf } from "./gauge.ts";
import { holdsProviderCompaction } from "./provider-compaction.ts";

/** What is asked at a moment. */
export interface Question {
  trigger: CompactionTrigger;
  /** whether a turn goes on from the end of the branch, so that the results there have yet to be read */
  turnRuns: boolean;
  /** whether the call can be made without it */
  isOptional?: boolean;
  standing: () => Standing;
}

/** Decides once. Reads as much of the branch as it keeps, and a few entries more. */
export function planAt(moment: Moment, { trigger, turnRuns, isOptional, standing }: Question): Decision {
  const { branch, configuration, known, limits } = moment;
  const { minTailMessages, prune } = configuration.compaction;
  const budget = withReserve(withoutHead(moment, budgetAt(moment)));
  const settings: DecisionSettings = {
    trigger,
    budget,
    minTailMessages: minTailMessages ?? DEFAULT_MIN_TAIL_MESSAGES,
    insists: minTailMessages !== undefined,
    prune: prune ?? budget.tail,
    isOff: configuration.compactAfter === "off" || configuration.compactMode === "suggest",
    providerCompacts: isCompactedByProvider(branch),
    standing,
    ...(isOptional && { isOptional }),
    ...(trigger === "no-room" && { room: promptRoom(limits) }),
  };
  return decide(known, settings, () => historyAt(moment, budget.tail, turnRuns));
}

/**
 * Share of the tail budget that a cut leaves unused: what lies between two reports is interpolated, and a budget is not to be
 * exceeded. On recorded conversations of one model it is off by 1 to 2 % where a tail begins inside such a stretch.
 */
const RESERVE = 0.02;

function withReserve(budget: Budget): Budget {
  return { ...budget, tail: budget.tail * (1 - RESERVE) };
}

/** The head is kept, so it is charged to the tail: to half of it at most, or nothing newer would stay. */
function withoutHead(moment: Moment, budget: Budget): Budget {
  const { branch, configuration, known, reading } = moment;
  const { protectHead = 0 } = configuration.compaction;
  if (protectHead === 0) return budget;
  const sizes = sizesOf(reading.ledger, branch.loaded, known);
  const head = headOf(branch, protectHead).reduce((sum, entry) => sum + wholeOf(entry, sizes), 0);
  return { ...budget, tail: Math.max(budget.tail / 2, budget.tail - head * known.factor * known.scale) };
}

/** Whether what is shown holds a compaction of the provider's own. Looks at what is in memory: what it made is near the end. */
function isCompactedByProvider(branch: Branch): boolean {
  return branch.loaded.some((entry) => entry.role === "assistant" && holdsProviderCompaction(entry.parts));
}

/** What is shown behind the summary, as far back as `tail` model tokens and the user's newest message. */
function historyAt(moment: Moment, tail: number, turnRuns: boolean): History {
  const { branch, known } = moment;
  const blocks = blocksBackTo(moment, tail, turnRuns);
  const pinned = pinnedBlock(moment);
  const shown = sumTokens(blocks) + (pinned?.tokens ?? 0);
  const olderTokens = branch.isComplete ? 0 : Math.max(1, known.tokens - known.overhead - known.summary - shown);
  return { blocks, olderTokens, pinned };
}

/** The newest blocks, with more than `tail` tokens together unless that is all. What is left out of outputs does not count. */
function blocksBackTo(moment: Moment, tail: number, turnRuns: boolean): Block[] {
  const { branch, configuration, reading } = moment;
  for (let passed = tail; ; passed = Math.max(1, passed * 2)) {
    loadTail(moment, passed);
    const head = new Set(headOf(branch, configuration.compaction.protectHead ?? 0).map(({ seq }) => seq));
    const shownBehind = branch.loaded.filter(({ seq }) => !head.has(seq));
    const blocks = blocksOf(moment, shownBehind, turnRuns);
    // What stands before the oldest anchor in memory is not known exactly yet.
    const measured = reading.ledger.anchor ? branch.loaded.findIndex(anchorOf) : 0;
    if (branch.isComplete || sumTokens(blocks.slice(measured)) > tail) return blocks;
  }
}

function sumTokens(blocks: readonly Block[]): number {
  return blocks.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** The user's newest message where it stands before the cut. It was weighed when it was pinned. */
function pinnedBlock({ branch, known }: Moment): Block | null {
  const [entry] = branch.kept.pinned;
  if (!entry) return null;
  const { seq, messageId, role } = entry;
  const tokens = (branch.overlay?.pinnedTokens ?? 0) * known.factor * known.scale;
  return { seq, messageId, role, tokens, live: false, outputs: [] };
}

/**
 * What no summary replaces: the system messages that open the branch, which are instructions, and the first messages as
 * many as are protected. Once a summary exists, what it left. Without protected messages, only what is in memory is looked at.
 */
function headOf(branch: Branch, protectHead: number): readonly Entry[] {
  if (branch.overlay?.until) return branch.kept.head;
  if (protectHead === 0 && !branch.isComplete) return [];
  return headAmong(branch.entries, protectHead);
}

/** The head of entries that begin at the root. */
export function headAmong(oldestFirst: Iterable<Entry>, protectHead: number): Entry[] {
  const head: Entry[] = [];
  const messages = new Set<string>();
  for (const entry of oldestFirst) {
    const isInstruction = entry.role === "system" && messages.size === 0;
    if (!isInstruction) messages.add(entry.messageId);
    if (messages.size > protectHead) break;
    head.push(entry);
  }
  return head;
}

/** Reads back until the tail is passed, the user's newest message is found, and an anchor before both says what they weigh. */
function loadTail({ branch, reading, known }: Moment, tail: number): void {
  let user = false;
  let anchored = false;
  let passed = 0;
  for (const entry of branch.backwards()) {
    // A prompt that was built has everything in memory already.
    if (branch.isComplete) return;
    if (passed > 0 && user && (anchored || !reading.ledger.anchor)) return;
    // One that is pinned may be older than one that is not loaded yet.
    user ||= entry.role === "user";
    const isPassed = sizesOf(reading.ledger, branch.loaded, known).tail(entry.unitsBefore) > tail;
    if (isPassed) passed += 1;
    anchored ||= passed > 0 && anchorOf(entry) !== null;
  }
}

function blocksOf(
  { reading, known, configuration, branch }: Moment,
  entries: readonly Entry[],
  turnRuns: boolean,
): Block[] {
  const sizes = sizesOf(reading.ledger, branch.loaded, known);
  const model = modelId(configuration.model);
  const toTokens = known.factor * known.scale;
  const leaf = branch.leaf?.seq;
  return entries.map((entry): Block => {
    const shown = pruned(entry, branch.overlay?.pruning ?? null);
    const whole = wholeOf(entry, sizes) * toTokens;
    const returned = sizes.between(entry.unitsBefore + entry.unitsSaid, endOf(entry));
    const isLeaf = entry.seq === leaf;
    const kept = entry.unitsReturned > 0 && shown !== entry ? returnedShare(entry, shown, model) : 1;
    const unsent = isLeaf ? 0 : omittedShare(entry, model) * Math.max(0, whole - returned);
    const tokens = entry.state === "deleted" ? 0 : Math.max(0, whole - unsent - returned * (1 - kept));
    const outputs = outputsOf(shown, returned * kept);
    return {
      seq: entry.seq,
      messageId: entry.messageId,
      role: entry.role,
      tokens,
      live: isLeaf && isLive(entry, turnRuns),
      outputs,
    };
  });
}

function endOf({ unitsBefore, unitsSaid, unitsReturned }: Entry): number {
  return unitsBefore + unitsSaid + unitsReturned;
}

/** Share of an entry's results that is shown. */
function returnedShare(entry: Entry, shown: Entry, model: string): number {
  return Math.min(1, sizeOf(shown.role, shown.parts, model).unitsReturned / entry.unitsReturned);
}

/** The outputs of an entry that may be shown shorter, with what came back shared out by length. */
function outputsOf({ parts }: Entry, tokens: number): Block["outputs"] {
  const outputs = parts.filter(isPrunable).map((part) => ({ toolCallId: part.toolCallId, length: outputLength(part) }));
  const all = outputs.reduce((sum, { length }) => sum + length, 0);
  return outputs.map((output) => ({ ...output, tokens: all > 0 ? (tokens * output.length) / all : 0 }));
}

/** Whether an entry at the end of the branch must not leave: a client answers its calls, or the model goes on from them. */
function isLive(entry: Entry, turnRuns: boolean): boolean {
  if (entry.role !== "assistant") return false;
  if (turnRuns && entry.state === "streaming") return true;
  return awaitsModel(entry) || entry.parts.some((part) => isToolPart(part) && !isAnswered(part));
}
