/** Entries, calls and tool parts as the session stores them, with what a test cares about on top. */
import type { DynamicToolUIPart, LanguageModelUsage, ToolUIPart } from "ai";
import type { CompactionEntry, Entry, ModelCall, NewEntry, OpenTurn, Overlay, Part } from "../../src/records.ts";

/** A moment; tests that need another one add to it. */
export const NOON = 1_800_000_000_000;

export function newEntry(overrides: Partial<NewEntry> = {}): NewEntry {
  return {
    parent: null,
    messageId: "message",
    version: 0,
    step: 0,
    role: "user",
    state: "done",
    parts: [{ type: "text", text: "hello" }],
    unitsBefore: 0,
    unitsSaid: 1,
    unitsReturned: 0,
    createdAt: NOON,
    ...overrides,
  };
}

export function entry(seq: number, overrides: Partial<NewEntry> = {}): Entry {
  return { ...newEntry({ parent: seq > 1 ? seq - 1 : null, messageId: `m${seq}`, ...overrides }), seq };
}

/** A user message that stands at `seq`. */
export function asked(seq: number, text: string, overrides: Partial<NewEntry> = {}): Entry {
  return entry(seq, { parts: [{ type: "text", text }], ...overrides });
}

/** A finished step of the message `answer` that stands at `seq`. */
export function step(seq: number, parts: Part[], overrides: Partial<NewEntry> = {}): Entry {
  return entry(seq, {
    role: "assistant",
    messageId: "answer",
    parts: [{ type: "step-start" }, ...parts],
    call: call(),
    ...overrides,
  });
}

export function call(overrides: Partial<ModelCall> = {}): ModelCall {
  return { purpose: "turn", model: "mirror", finishReason: "stop", startedAt: NOON, durationMs: 5, ...overrides };
}

export function usage(inputTokens: number, outputTokens: number): LanguageModelUsage {
  return {
    inputTokens,
    inputTokenDetails: { noCacheTokens: inputTokens, cacheReadTokens: undefined, cacheWriteTokens: undefined },
    outputTokens,
    outputTokenDetails: { textTokens: outputTokens, reasoningTokens: undefined },
    totalTokens: inputTokens + outputTokens,
  };
}

export function openTurn(overrides: Partial<OpenTurn> = {}): OpenTurn {
  return {
    id: "turn",
    requestId: "request",
    trigger: "submit",
    messageId: "answer",
    parent: 1,
    leafIfSilent: 1,
    startedAt: NOON,
    interruptions: 0,
    ...overrides,
  };
}

/** An overlay that changes nothing. */
export function overlay(overrides: Partial<Overlay> = {}): Overlay {
  return {
    id: 1,
    until: null,
    head: [],
    pinned: null,
    summary: null,
    rangeTokens: 0,
    pinnedTokens: 0,
    summaryTokens: 0,
    pruning: null,
    ...overrides,
  };
}

/** A compaction that brought nothing. */
export function compactionEntry(id: number, overrides: Partial<CompactionEntry> = {}): CompactionEntry {
  return {
    id,
    outcome: "no-progress",
    reason: null,
    trigger: "after-turn",
    tokensBefore: 1_000,
    tokensAfter: null,
    reportedAfter: null,
    coveredMessages: 0,
    summaryUsage: null,
    model: null,
    durationMs: 0,
    createdAt: NOON,
    summary: null,
    undone: false,
    at: 1,
    threshold: 900,
    sessionModel: "mirror",
    progress: null,
    ...overrides,
  };
}

/** A compaction that put an overlay in force. */
export function appliedEntry(shown: Overlay, overrides: Partial<CompactionEntry> = {}): CompactionEntry {
  const outcome = shown.until === null ? "pruned" : "applied";
  return compactionEntry(shown.id, { outcome, tokensAfter: 100, overlay: shown, summary: shown.summary, ...overrides });
}

/** A call of the tool `look` whose input is known and whose output is not. */
export function toolCall(toolCallId: string, overrides: object = {}): ToolUIPart {
  // SAFETY: overrides move the call to another state together with the fields that state has.
  return {
    type: "tool-look",
    toolCallId,
    state: "input-available",
    input: { at: toolCallId },
    ...overrides,
  } as ToolUIPart;
}

export function dynamicCall(toolCallId: string, overrides: object = {}): DynamicToolUIPart {
  // SAFETY: as in `toolCall`.
  return {
    type: "dynamic-tool",
    toolName: "found",
    toolCallId,
    state: "input-available",
    input: { at: toolCallId },
    ...overrides,
  } as DynamicToolUIPart;
}

export const answeredWith = (output: unknown) => ({ state: "output-available", output });
export const failedWith = (errorText: string) => ({ state: "output-error", errorText });
export const awaitingApproval = (id: string) => ({ state: "approval-requested", approval: { id } });
export const decided = (id: string, approved: boolean, reason?: string) => ({
  state: "approval-responded",
  approval: { id, approved, ...(reason !== undefined && { reason }) },
});

export function text(said: string, overrides: object = {}): Part {
  return { type: "text", text: said, state: "done", ...overrides } as Part;
}

export function reasoning(thought: string, overrides: object = {}): Part {
  return { type: "reasoning", text: thought, state: "done", ...overrides } as Part;
}

/** The value as it is after a round through JSON: what `undefined` leaves out is gone. */
export function asJson<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}
