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
  seq: Seq;
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
  settings: SessionSettings;
  turn: OpenTurn | null;
  /** newest last */
  finished: FinishedRequest[];
  totals: UsageTotals;
}
