/**
 * The durable shapes of a session, and nothing that acts on them.
 *
 * A session is a tree of **entries**. An entry is what one side said in one go: a user or system message, or one
 * *step* (one model call with its tool results) of an assistant message. An assistant message of three steps is three
 * entries with one `messageId`, so a cut, a usage report or a checkpoint never touches more than the step it concerns.
 * Every entry points at the entry before it; a branch is the chain from one leaf back to the root.
 */
import type { FinishReason, LanguageModelUsage, UIMessage } from "ai";

export type Role = UIMessage["role"];
export type Part = UIMessage["parts"][number];

/** Position of an entry in its session: a positive integer in order of storing, never a clock. */
export type Seq = number;

/**
 * How an entry stands.
 * - `streaming`: a checkpoint of a step that is still being generated
 * - `done`: complete
 * - `aborted`: a client stopped it; the parts are what had arrived
 * - `failed`: the model failed during it; the parts are what had arrived
 * - `interrupted`: the object died during it; the parts are the last checkpoint
 * - `deleted`: its content is gone, its place in the chain and its usage stay
 */
export type EntryState = "streaming" | "done" | "aborted" | "failed" | "interrupted" | "deleted";

/** Why a model was called. Only `turn` calls say anything about the size of the context. */
export type CallPurpose = "turn" | "summary";

/** One model call as it was billed: booked when the call settles, whatever becomes of its answer. */
export interface ModelCall {
  purpose: CallPurpose;
  /** registry id, `provider/model` */
  model: string;
  /** AI SDK finish reason; `aborted` and `interrupted` are ours */
  finishReason: FinishReason | "aborted" | "interrupted";
  /** as the AI SDK normalised it, with the provider's own object in `raw`; absent when nothing was reported */
  usage?: LanguageModelUsage;
  /** ms since the epoch */
  startedAt: number;
  /** ms from the request to the last chunk */
  durationMs: number;
  /** tokens the context room expected this call to read, before it was made */
  predictedTokens?: number;
  /** model calls that are booked as this one: a long history is summarised in chunks; absent for one */
  calls?: number;
}

/** What the caller knows of an entry before it is stored. */
export interface NewEntry {
  /** the entry before it on its branch; `null` at the root */
  parent: Seq | null;
  /** the AI SDK message id, as clients see it */
  messageId: string;
  /** 0 for the first text under this id, one more for each edit; siblings share the id */
  version: number;
  /** 0-based step within its message; always 0 unless the role is `assistant` */
  step: number;
  role: Role;
  state: EntryState;
  /** in order, each `step-start` at the head of its entry, so that joining entries gives the message */
  parts: Part[];
  /** the message's metadata as a client or an import sent it; on the first entry of a message only */
  metadata?: unknown;
  /** the model call that produced it; absent for what no model said here */
  call?: ModelCall;
  /** what the call measured, for the context room alone (`Anchor`); absent where nothing usable was reported */
  anchor?: object;
  /** estimator units of everything before it on its branch; written once */
  unitsBefore: number;
  /** estimator units of what was said: a whole message, or a step's output without its tool results */
  unitsSaid: number;
  /** estimator units of the tool results that came back to this step */
  unitsReturned: number;
  /** ms since the epoch */
  createdAt: number;
}

/** A stored entry. */
export interface Entry extends NewEntry {
  seq: Seq;
}

/** An entry without its content: enough to walk a branch and to size it. */
export type EntryHead = Omit<Entry, "parts" | "metadata" | "call" | "anchor">;

/** What makes a turn run. */
export type TurnTrigger = "submit" | "regenerate" | "continue";

/** A turn that was accepted and is not finished. Stored before anything else happens, with every id it will use. */
export interface OpenTurn {
  /** also the id under which its stream is kept */
  id: string;
  /** `requestId` of the frame that asked for it; sent again, it is answered and not repeated */
  requestId: string;
  trigger: TurnTrigger;
  /** the answer's message id: new, or for `continue` the message that goes on */
  messageId: string;
  /** entry that the first step of this turn follows */
  parent: Seq;
  /** the active leaf if the turn stores nothing: a regenerate that fails gives the old answer back */
  leafIfSilent: Seq | null;
  /** client-side tools offered with the request, by name */
  clientTools?: ClientTool[];
  /** ms since the epoch */
  startedAt: number;
  /** times the object died while it was open */
  interruptions: number;
  /** calls of server tools that were let run after an approval and have no output yet; never run again */
  running?: string[];
}

/** A finished request, kept so that the same request sent again is answered and not repeated. */
export interface FinishedRequest {
  requestId: string;
  messageId: string;
  /** how the turn failed, if it did */
  error?: { code: string; message: string };
}

/**
 * What a client asks for, read from its frame: only what is new in it.
 * - `submit`: new user messages, or with `target` another text of an earlier one
 * - `regenerate`: another answer; to the message `target`, or to the newest when absent
 * - `continue`: outputs and approvals for tool calls of the message `target`
 */
export interface TurnRequest {
  requestId: string;
  trigger: TurnTrigger;
  /** user messages in order; empty unless `submit` */
  messages: UIMessage[];
  target?: string;
  /** whether the client says that it edits `target`; without it the message may just have been sent again */
  edits?: true;
  toolAnswers?: ToolAnswer[];
  /** steps of the target that the client has, when it continues one: it is sent what comes after them */
  stepsKnown?: number;
  /** the message whose calls are answered, when that is not the target */
  answeredMessage?: string;
  clientTools?: ClientTool[];
}

/** What a client says about one open tool call. */
export type ToolAnswer =
  | { toolCallId: string; kind: "output"; output: unknown }
  | { toolCallId: string; kind: "error"; errorText: string }
  | { toolCallId: string; kind: "approval"; approvalId: string; approved: boolean; reason?: string };

/** A request that waits for the turn before it. Its entries are made when its turn starts. */
export interface QueuedTurn {
  /** order of arrival */
  position: number;
  request: TurnRequest;
}

/** A tool that runs in the client: the model sees its name, description and schema; the output comes back in a frame. */
export interface ClientTool {
  name: string;
  description?: string;
  /** JSON Schema of the input */
  inputSchema: Record<string, unknown>;
}

/** Settings of one session that override what `configure` gave; `null` in a patch removes one. */
export interface SessionSettings {
  /** registry id */
  model?: string;
  systemPrompt?: string;
  /** tokens, a percentage of the window such as `80%`, `auto`, or `off` */
  compactAfter?: number | `${number}%` | "auto" | "off";
  /** model tokens */
  tailTokenBudget?: number;
}

/**
 * What made a session look whether to compact.
 * - `after-turn`, `before-turn`, `between-steps`, `import`: the number was read there and stood above the threshold
 * - `no-room`: the next call and the answer it reserves would not fit the window
 * - `overflow`: the provider refused a prompt as too long
 * - `manual`: somebody asked
 */
export type CompactionTrigger =
  | "after-turn"
  | "before-turn"
  | "between-steps"
  | "import"
  | "no-room"
  | "overflow"
  | "manual";

/**
 * What became of a compaction.
 * - `applied`: a summary stands for the older part of the branch
 * - `pruned`: old tool outputs are left out or shortened; nothing was summarised
 * - `no-progress`: nothing could be made smaller
 * - `failed`: no summary came of it; nothing was changed
 * - `cancelled`: the application declined it, or the branch changed meanwhile; nothing was changed
 */
export type CompactionOutcome = "applied" | "pruned" | "no-progress" | "failed" | "cancelled";

/** A tool output that is shown cut at both ends. */
export interface ShortenedOutput {
  seq: Seq;
  toolCallId: string;
  /** UTF-16 code units of it that are still shown */
  length: number;
}

/** What is left out of tool outputs on a branch, in prompts only. */
export interface Pruning {
  /** a line stands for every long output of the entries up to this one; 0 for none */
  until: Seq;
  shortened: ShortenedOutput[];
  /** ledger tokens by which this makes what is shown smaller */
  tokens: number;
}

/**
 * How a branch is shown to a model from some point on: the one in force says all of it. Entries themselves never change.
 * A prompt is the head, the summary, the pinned message and everything after `until`.
 */
export interface Overlay {
  /** the compaction that made it; names it in prompt versions */
  id: number;
  /** the last entry that the summary stands for; `null` where nothing is summarised */
  until: Seq | null;
  /** entries shown in front of the summary, in order: instructions, and the protected head */
  head: Seq[];
  /** the user's newest message when it stands before `until`: shown behind the summary */
  pinned: Seq | null;
  summary: string | null;
  /** ledger tokens of everything behind the head up to `until`, the pinned message included */
  rangeTokens: number;
  /** ledger tokens of the pinned message; 0 for none */
  pinnedTokens: number;
  /** ledger tokens of the summary as it is sent */
  summaryTokens: number;
  pruning: Pruning | null;
}

/** One compaction as clients see it. Tokens are those of the session's model. */
export interface Compaction {
  /** 1, 2, 3 … in order */
  id: number;
  outcome: CompactionOutcome;
  /** why it came out so; `null` where there is nothing to say */
  reason: string | null;
  trigger: CompactionTrigger;
  /** the one number when it was decided */
  tokensBefore: number;
  /** the one number when it took effect, without what came after the decision; `null` when nothing changed */
  tokensAfter: number | null;
  /** input of the first call that was built with it; `null` until there is one */
  reportedAfter: number | null;
  /** messages that the summary stands for, in part or whole, those of earlier summaries included */
  coveredMessages: number;
  /** sum over its model calls; `null` where nothing was reported or no model was asked */
  summaryUsage: LanguageModelUsage | null;
  /** registry id of the model that wrote the summary; `null` where none was asked */
  model: string | null;
  /** ms from the decision to the outcome */
  durationMs: number;
  /** ms since the epoch, of the outcome */
  createdAt: number;
  summary: string | null;
  /** whether it was taken back */
  undone: boolean;
}

/** A compaction as it is stored. */
export interface CompactionEntry extends Compaction {
  /** the newest entry of the session when it ended: its place among the booked calls */
  at: Seq;
  /** what it was decided by: automatic compaction stops until one of them changes */
  threshold: number | null;
  sessionModel: string;
  /**
   * whether the first call that was built with it read less than the threshold, what came after the decision not counted;
   * `null` until there is one
   */
  progress: boolean | null;
  /** its model calls, booked as one */
  call?: ModelCall;
  /** what is in force from then on; absent unless `applied` or `pruned` */
  overlay?: Overlay;
}

/** Sums over every booked call of a session, summaries and failed calls included. All in tokens but `calls`. */
export interface UsageTotals {
  calls: number;
  inputTokens: number;
  outputTokens: number;
  reasoningTokens: number;
  cacheReadTokens: number;
  cacheWriteTokens: number;
}

/** One booked call as `GET /sessions/:id/usage` lists it. */
export interface UsageRecord extends ModelCall {
  /** the entry the call produced; for a summary the newest one when it was written */
  seq: Seq;
  /** the compaction that a summary was written for */
  compaction?: number;
  /** the message the call produced, absent for a summary */
  messageId?: string;
  step?: number;
}

/** The session's own row. */
export interface SessionRecord {
  /** ms since the epoch */
  createdAt: number;
  /** ms since the epoch of the last message stored */
  activeAt: number;
  /** last entry of the active branch; `null` while empty */
  leaf: Seq | null;
  /** messages on all branches, deleted ones not counted */
  messages: number;
  /** entries whose content was erased, on all branches */
  erased: number;
  /** the newest entry, on any branch, that a call measured; `null` before the first report */
  measured: Seq | null;
  /** the overlay in force on the active branch; `null` while everything is shown as it is stored */
  overlay: number | null;
  /** compactions that took effect, those that were taken back included */
  compactions: number;
  settings: SessionSettings;
  turn: OpenTurn | null;
  /** newest last */
  finished: FinishedRequest[];
  totals: UsageTotals;
}
