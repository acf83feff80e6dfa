/** What a cut truly left, and what any cut has to leave. */
import { pruned } from "../../src/compaction/prune.ts";
import type { CompactionTrigger, Entry, Overlay } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import { awaitsModel } from "../../src/turn/answer.ts";
import type { Branch } from "../../src/turn/branch.ts";
import { DEFAULT_MIN_TAIL_MESSAGES } from "../../src/turn/configuration.ts";
import { entryOf, type Scales, shownInParts } from "./scales.ts";
import type { Script } from "./script.ts";

export interface CutMade {
  overlay: Overlay;
  trigger: CompactionTrigger;
  /** the newest entry of the script when it was decided */
  leaf: number;
  /** the branch as it was shown then, and maybe longer */
  branch: Branch;
  store: SessionStore;
  scales: Scales;
  script: Script;
}

/** All in tokens. */
export interface TrueCut {
  /** what stayed verbatim */
  kept: number;
  /** what has to stay whatever is cut */
  least: number;
  /** whether reports told the session the size of the context at the cut */
  exact: boolean;
}

/** Triggers at which a turn goes on from the end of the branch. */
const DURING_TURNS: ReadonlySet<CompactionTrigger> = new Set(["before-turn", "between-steps", "no-room", "overflow"]);

export function trueCut({ overlay, trigger, leaf, branch, store, scales, script }: CutMade): TrueCut {
  const { until, pinned, pruning } = overlay;
  const weigh = (some: readonly Entry[]) =>
    scales.sum(some.flatMap((entry) => shownInParts(pruned(entry, pruning).parts)));
  const entries = branch.entries.filter(({ parts }) => entryOf(parts) <= leaf);
  const behind = pinned === null ? [] : [store.entry(pinned)].flatMap((entry) => entry ?? []);
  const tail = entries.filter(({ seq }) => seq > (until ?? 0));
  const newest = entries.findLast(({ role }) => role === "user") ?? behind[0];
  const [first] = tail;
  return {
    kept: weigh([...behind, ...tail]),
    least: weigh(leastOf(entries, newest, DURING_TURNS.has(trigger))),
    exact: first !== undefined && script.entries[entryOf(first.parts)]?.exact === true,
  };
}

/** The user's newest message, a step whose results the model has yet to read, and enough messages. */
function leastOf(entries: readonly Entry[], newest: Entry | undefined, turnRuns: boolean): Entry[] {
  const last = entries.at(-1);
  const isLive = last !== undefined && turnRuns && last.role === "assistant" && awaitsModel(last);
  const least = new Set([newest, isLive ? last : undefined].flatMap((entry) => entry ?? []));
  const messages = () => new Set([...least].map(({ messageId }) => messageId)).size;
  for (const entry of entries.toReversed()) {
    if (messages() >= DEFAULT_MIN_TAIL_MESSAGES) break;
    least.add(entry);
  }
  return [...least];
}
