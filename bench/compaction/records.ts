/** What is played, how, and what came of it: the shapes that cross between the bench and its Worker. */
import type { CompactionOutcome, CompactionTrigger } from "../../src/records.ts";
import type { CompactAfter } from "../../src/turn/configuration.ts";

export interface Setting {
  name: string;
  compactAfter: CompactAfter;
  tailTokenBudget: number;
  contextWindow: number;
  /** most tokens of an answer, which are reserved; absent for the default */
  maxOutputTokens?: number;
  /** calls of turns that begin before a summary is done; where turns follow at once, `restless` */
  delay: number;
  /** whether the next turn begins without waiting for the summary, as users do who type fast */
  restless: boolean;
  /** whether in the end the user pastes twice as much as the window holds */
  pastes?: true;
}

/** A compaction, and the truth about it. All sizes in tokens. */
export interface DecisionRecord {
  id: number;
  trigger: CompactionTrigger;
  outcome: CompactionOutcome;
  reason: string | null;
  /** what the session knew */
  before: number;
  after: number | null;
  trueBefore: number;
  /** of the first prompt that was built with it, what came after the decision left out; `null` where none was */
  trueAfter: number | null;
  /** tail budget in force, as the session reduced it */
  budget: number;
  /** true size of what stayed verbatim; `null` unless a summary was put in force */
  kept: number | null;
  /** what the session took that for */
  toldKept: number;
  /** true size of what has to stay whatever is cut */
  least: number;
  /** whether reports told the session the size of the context at the cut */
  exact: boolean;
  /** true size of the summary */
  summary: number;
}

/** A call that was held back until a summary was done. */
export interface WaitRecord {
  /** true size of the prompt that could have been sent */
  prompt: number;
  /** what the session took it for */
  known: number;
  /** prompt plus reserved answer that the window holds */
  room: number;
}

/** A turn that ended without an answer. */
export interface RefusalRecord {
  code: string;
  message: string;
  /** true size of the prompt that was not sent */
  prompt: number;
  window: number;
}

export interface PlayRecord {
  name: string;
  /** calls of turns, and those that began while a summary was being written */
  calls: number;
  meanwhile: number;
  /** predicted and true input of each call */
  predictions: [predicted: number, actual: number][];
  decisions: DecisionRecord[];
  waits: WaitRecord[];
  refusals: RefusalRecord[];
  /** what became of what was pasted, if that was anything but a refusal before any call; `null` if all is well */
  paste: string | null;
  /** sentences: fired and nothing came of it, prompts over the window, prompts out of order, turns that failed */
  silent: string[];
  oversized: string[];
  disorders: string[];
  failures: string[];
  /** prompts over the window before any call had reported: the recordings lack most system prompts and tools */
  unforeseen: number;
  /** calls that asked for more output than the window has beside their prompt */
  crowded: number;
  summariser: SummariserRecord;
}

export interface SummariserRecord {
  calls: number;
  /** tokens of the largest input */
  largest: number;
  /** inputs above its window */
  refused: number;
}

export interface RowsRecord {
  /** rows read from the start of the decision until the cut was known */
  read: number;
  /** messages of the kept tail, each of which is a row */
  kept: number;
}

export interface LongHistoryRecord {
  outcome: CompactionOutcome;
  reason: string | null;
  /** UTF-16 code units of everything that was said */
  characters: number;
  /** tokens that the summariser reads at most */
  window: number;
  summariser: SummariserRecord;
}
