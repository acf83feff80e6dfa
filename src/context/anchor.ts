/**
 * The anchor: what one reported call leaves behind, as one JSON column on the row of the step it produced.
 *
 * An anchor stands on a branch after a step's output and before its results. With the estimator units that every row
 * carries, the newest anchor is enough to know the context, and the two anchors around a position are enough to know
 * where in the context it lies. Rows are never rewritten: all that is learned later stands on later anchors.
 *
 * **Ledger tokens.** Sizes on anchors are kept on one scale, the tokens of the model that reported first. Another model's
 * tokens are ledger tokens × its factor. In a session with one model, which is most of them, the two are the same.
 */

/** What a prompt was built from besides the messages. Two prompts with equal versions differ by their messages alone. */
export interface Prompt {
  /** registry id of the model */
  model: string;
  /** system prompt, tools and context blocks, as a hash: tells that they changed */
  overheadKey: string;
  /** units of the system prompt, context blocks included */
  systemUnits: number;
  /** units of the tool descriptions */
  toolsUnits: number;
  /** names the overlay in force; `null` for none */
  overlay: number | string | null;
  /** ledger tokens of the messages the overlay covers (`Ledger.coverage`) */
  covered: number;
  /** ledger tokens of the summary that stands for them */
  summary: number;
  /** names the set of pruned and deleted content; empty for none */
  pruneKey: string;
  /** ledger tokens that pruning and deleting take out, placeholders already counted back in */
  pruned: number;
  /** the share of `pruned` that stands on the branch and is not sent, and how often that happened; absent for none */
  omitted?: number;
  omissions?: number;
  /**
   * tokens of `model` for one token of the model before it, expected from the content (`compareFamilies`); only read
   * at a model's first call
   */
  rescale?: number;
}

/** What a session learns of one model. */
export interface ModelTraits {
  /** tokens of this model for one ledger token */
  factor: number;
  /** measured tokens and their units, older ones fading: their quotient is the model's own tokens per unit */
  measuredTokens: number;
  measuredUnits: number;
  /** whether reasoning was seen to leave the prompt at the next step of a turn, and at the next turn */
  dropsAtStep?: boolean;
  dropsAtTurn?: boolean;
  /** how often small output figures proved right (up) or placeholders (down) by the next report; -3 to 3, absent at 0 */
  outputTrust?: number;
}

/** How good the predictions have been. */
export interface Accuracy {
  /** calls that were predicted and reported */
  calls: number;
  /** signed errors of the newest of them in percent of the reported input, oldest first; at most `RECENT_ERRORS` */
  recent: number[];
  last: { predicted: number; actual: number } | null;
}

/** Predictions an anchor remembers: enough for a 95th percentile, small enough for a row. */
export const RECENT_ERRORS = 40;

export interface Anchor {
  /** units on the branch before the step's output, and units of that output */
  at: number;
  said: number;
  /** tokens the call read, Iₙ, as its model reported them */
  input: number;
  /** tokens it put out, Ôₙ: reported, or estimated where the report was a placeholder */
  output: number;
  outputReported: boolean;
  /** the figure that was taken for a placeholder; absent where the report was believed */
  placeholder?: number;
  /** ledger tokens between the first report's input and this one's: the measured cumulative total */
  measured: number;
  /** ledger tokens and units of the messages before the first report */
  head: number;
  headUnits: number;
  /** input of the first report while the overhead is still that report's; `null` once something else corrected it */
  headInput: number | null;
  /** ledger tokens of system prompt, tools and all else that belongs to no message */
  overhead: number;
  /** ledger tokens by which the context is smaller (negative) or larger than overhead and messages explain */
  rebase: number;
  /** ledger tokens of reasoning before this step that the provider may still drop, and of this step's own */
  liveReasoning: number;
  ownReasoning: number;
  /** units on the branch where that reasoning began; equal to `at` while there is none */
  liveSince: number;
  /** units on the branch between which reasoning was dropped, the end exclusive; both 0 if never */
  droppedFrom: number;
  droppedBefore: number;
  prompt: Prompt;
  /** by registry id; the models that reported in this session, at most `REMEMBERED_MODELS` */
  models: Record<string, ModelTraits>;
  accuracy: Accuracy;
}

/** Models an anchor remembers the traits of, newest last. */
export const REMEMBERED_MODELS = 6;

export const NO_ACCURACY: Accuracy = Object.freeze({ calls: 0, recent: [], last: null });

/** Whether two prompts differ in nothing but their messages. */
export function sameVersion(a: Prompt, b: Prompt): boolean {
  return a.model === b.model && a.overheadKey === b.overheadKey && a.overlay === b.overlay && a.pruneKey === b.pruneKey;
}

/** Units on the branch where an anchor stands: after the step's output, before its results. */
export function anchorPosition(anchor: Anchor): number {
  return anchor.at + anchor.said;
}

/** Tokens of the context right after the call, Iₙ + Ôₙ, in its model's tokens. */
export function contextAfter(anchor: Anchor): number {
  return anchor.input + anchor.output;
}
