/** A branch as a compaction sees it: what each piece of it weighs and what may be taken from it. No content. */
import type { Role, Seq } from "../records.ts";

/** One entry that is shown to the model. Cuts fall between blocks, so a call never leaves its result. */
export interface Block {
  seq: Seq;
  messageId: string;
  role: Role;
  /** model tokens of it as it is shown now */
  tokens: number;
  /** whether it has to stay as it is: the model has not read its results, or a client has yet to answer its calls */
  live: boolean;
  /** the tool outputs in it that may be shown shorter */
  outputs: readonly Output[];
}

export interface Output {
  toolCallId: string;
  /** model tokens of it as it is shown now */
  tokens: number;
  /** UTF-16 code units of it as JSON, as it is shown now */
  length: number;
}

export interface History {
  /** the newest part of what is shown behind the summary, oldest first; at least as far back as the user's newest message */
  blocks: readonly Block[];
  /** model tokens of what is shown between the summary and the first block; 0 when there is nothing */
  olderTokens: number;
  /** the user's newest message where it is shown right behind the summary */
  pinned: Block | null;
}

/** Index of the user's newest message among the blocks; -1 where it is not among them. */
export function newestUserIndex({ blocks }: History): number {
  return blocks.findLastIndex(({ role }) => role === "user");
}
