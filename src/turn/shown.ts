/** A branch as a model is shown it: under its overlay, as messages. */
import type { UIMessage } from "ai";
import { pruned } from "../compaction/prune.ts";
import { summaryMessageText } from "../compaction/summary-prompt.ts";
import type { Branch } from "./branch.ts";
import { messagesOf } from "./transcript.ts";

/** The head, the summary, the pinned message and everything after it. The summary is made here and stored nowhere. */
export function shownMessages(branch: Branch): UIMessage[] {
  const { overlay, kept, entries } = branch;
  const pruning = overlay?.pruning ?? null;
  return [
    ...messagesOf(kept.head.map((entry) => pruned(entry, pruning))),
    ...(overlay?.summary ? [summaryMessage(overlay.summary)] : []),
    ...messagesOf(kept.pinned),
    ...messagesOf(entries.map((entry) => pruned(entry, pruning))),
  ];
}

function summaryMessage(summary: string): UIMessage {
  return { id: "summary", role: "user", parts: [{ type: "text", text: summaryMessageText(summary) }] };
}
