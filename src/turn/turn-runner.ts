/**
 * Runs one turn: calls the model step by step, hands the chunks out, and stores each step before the next one begins.
 *
 * Writes of a one-step turn: none while it streams (one per checkpoint after the first second), one entry and one
 * session row at its end. A step that runs server tools is stored once before they run and once after.
 */
import type { LanguageModel, UIMessageChunk } from "ai";
import type { ContextReport } from "../context/report.ts";
import { normaliseUsage } from "../context/usage.ts";
import { publicError, SessionError, type PublicError } from "../errors.ts";
import type { Entry, EntryState, ModelCall, OpenTurn } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { Answer, awaitsModel, isAnswered, isFinishReason, type AnswerStep } from "./answer.ts";
import type { Branch } from "./branch.ts";
import { addCall, callsOf, closeTurn } from "./closing.ts";
import type { Compactor } from "./compactor.ts";
import { modelId, type Configuration } from "./configuration.ts";
import { isContextOverflow } from "./context-overflow.ts";
import type { Moment } from "./context-reading.ts";
import { measured, sizeOf, type Reading } from "./gauge.ts";
import type { LiveStream } from "./live-stream.ts";
import { describeModelError, isUnusableFile } from "./model-error.ts";
import { modelStep, type ModelStepOutcome } from "./model-step.ts";
import { hasOldFiles, promptOf } from "./prompt.ts";
import { interruptedCall } from "./recovery.ts";
import { chunksOfNews, chunksOfParts } from "./replay.ts";
import { outputLimit } from "./room.ts";
import { shownMessages } from "./shown.ts";
import { answerMetadata, endingOf } from "./transcript.ts";
import { TurnContext } from "./turn-context.ts";

/** Time between two checkpoints of a growing step, in ms: what a crash may cost of what was streamed. */
const CHECKPOINT_INTERVAL_MS = 1_000;

export interface TurnSurroundings {
  store: SessionStore;
  branch: Branch;
  configuration: Configuration;
  compactor: Compactor;
  /** tells those who listen to the session how full the context is */
  publish: (report: ContextReport) => void;
  /** resolves a registry id; throws `model-unavailable` */
  languageModel: (id: string) => Exclude<LanguageModel, string>;
  /** ms since the epoch */
  clock: () => number;
  log: (event: string, details: Record<string, unknown>) => void;
}

/** How a turn ended. */
export type TurnEnding = { kind: "done" } | { kind: "aborted" } | { kind: "failed"; error: PublicError };

export class TurnRunner {
  readonly #turn: OpenTurn;
  readonly #live: LiveStream;
  readonly #around: TurnSurroundings;
  readonly #answer: Answer;
  /** steps that the message had before this turn */
  readonly #earlierSteps: number;
  readonly #abort = new AbortController();
  /** server tools that wait until their call is stored, by call id */
  readonly #waiting = new Map<string, () => void>();
  /** the branch as the call of a step saw it, once that has settled */
  readonly #readings = new Map<AnswerStep, Reading>();
  /** server tools that were let run, by call id */
  readonly #started = new Set<string>();
  #lastCheckpoint: number;
  #discarded = false;
  #showsOldFiles = true;
  /** whether the call at hand was found too long before */
  #relieved = false;
  /** once the turn runs */
  #context: TurnContext | undefined;
  /** the start of a step, held back until the step says something: a call that fails at once leaves no trace of one */
  #stepStart: UIMessageChunk | undefined;

  constructor(turn: OpenTurn, live: LiveStream, around: TurnSurroundings) {
    this.#turn = turn;
    this.#live = live;
    this.#around = around;
    this.#answer = new Answer(around.branch.answer(turn.messageId));
    this.#earlierSteps = this.#answer.steps.length;
    this.#lastCheckpoint = around.clock();
  }

  get turn(): OpenTurn {
    return this.#turn;
  }

  /** The context as it was read after the last step; `undefined` before the first. */
  get moment(): Moment | undefined {
    return this.#context?.moment;
  }

  abort(): void {
    this.#abort.abort();
  }

  /** Stops without storing anything more: the session is being erased. */
  discard(error: PublicError): void {
    this.#discarded = true;
    this.#live.fail(error);
    this.abort();
  }

  /** Runs to the end and leaves the turn closed in storage, whatever happens. */
  async run(): Promise<TurnEnding> {
    const metadata = this.#answer.steps.length > 0 && { messageMetadata: this.#metadata() };
    this.#live.push({ type: "start", messageId: this.#turn.messageId, ...metadata });
    // A client that continues a message has its steps. Another one may have answered calls of the last of them.
    for (const chunk of chunksOfNews(this.#answer.current?.parts ?? [])) this.#live.push(chunk);
    const ending = await this.#steps().catch((error: unknown) => this.#brokenOff(error));
    if (this.#discarded) return ending;
    const { store, clock } = this.#around;
    closeTurn(store, this.#turn, this.#entries, clock(), ending.kind === "failed" ? ending.error : undefined);
    this.#announceEnd(ending);
    return ending;
  }

  /** For clients that rebuild the message from this stream: the steps that are older than it. */
  earlierChunks(): Iterable<UIMessageChunk> {
    return chunksOfParts(this.#answer.steps.slice(0, this.#earlierSteps).flatMap((step) => step.parts));
  }

  async #steps(): Promise<TurnEnding> {
    const { configuration } = this.#around;
    const context = (this.#context = await TurnContext.open(this.#around, this.#turn.clientTools ?? []));
    for (let taken = this.#stepsTaken(); ;) {
      const moment = await context.ready(taken === 0, this.#abort.signal);
      if (this.#abort.signal.aborted) return { kind: "aborted" };
      // A compaction may have taken effect since it was read; from here on the prompt is what was read.
      if (!context.isCurrent(moment)) continue;
      const said = this.#answer.steps.length;
      const outcome = await this.#step(moment);
      await this.#report(context);
      if (outcome.kind === "aborted") return { kind: "aborted" };
      if (outcome.kind === "failed") {
        const ending = await this.#endingAfter(outcome.error, this.#answer.steps.length === said, context);
        if (ending) return ending;
        continue;
      }
      this.#relieved = false;
      taken += 1;
      if (!awaitsModel(this.#answer.current)) return { kind: "done" };
      if (taken >= configuration.maxSteps) return this.#stepLimit(configuration.maxSteps);
    }
  }

  /** How a failed call ends the turn; `undefined` when it is made once more. `isSilent`: it had said nothing yet. */
  async #endingAfter(error: unknown, isSilent: boolean, context: TurnContext): Promise<TurnEnding | undefined> {
    if (this.#canLeaveFilesOut(error)) return undefined;
    if (!isContextOverflow(error)) return this.#failure(error);
    const again = isSilent && !this.#relieved && (await context.relieve(this.#abort.signal));
    this.#relieved = true;
    return again ? undefined : this.#tooLong(error);
  }

  /** A file that was refused once would be refused at every later turn: then a line stands for it, and the turn goes on. */
  #canLeaveFilesOut(error: unknown): boolean {
    const leavesOut = this.#showsOldFiles && isUnusableFile(error) && hasOldFiles(shownMessages(this.#around.branch));
    if (leavesOut) this.#showsOldFiles = false;
    return leavesOut;
  }

  /** Steps that this turn has taken before its object died. */
  #stepsTaken(): number {
    return this.#answer.steps.filter((step) => step.entry && step.entry.seq > this.#turn.parent).length;
  }

  async #step({ reading, tools, ...moment }: Moment): Promise<ModelStepOutcome> {
    const { branch, configuration, clock } = this.#around;
    const shown = { oldFiles: this.#showsOldFiles };
    const prompt = await promptOf(shownMessages(branch), configuration.systemPrompt, tools, shown);
    const id = modelId(configuration.model);
    const chunks = modelStep({
      model: typeof configuration.model === "string" ? this.#around.languageModel(id) : configuration.model,
      modelId: id,
      prompt,
      tools,
      maxOutputTokens: outputLimit(moment),
      signal: this.#abort.signal,
      beforeTool: (toolCallId) => this.#beforeTool(toolCallId),
      clock,
    });
    const known = this.#answer.steps.length;
    for (;;) {
      const next = await chunks.next();
      if (next.done) return this.#settle(next.value, known, reading);
      this.#take(next.value);
    }
  }

  /** Tells clients how full the context is by now. */
  async #report(context: TurnContext): Promise<void> {
    if (this.#discarded) return;
    const { store, publish } = this.#around;
    const report = await context.read(callsOf(this.#turn, this.#entries).reduce(addCall, store.session.totals));
    this.#live.push({ type: "data-context", data: report, transient: true });
    publish(report);
  }

  /** The stored steps of the answer. */
  get #entries(): Entry[] {
    return this.#answer.steps.flatMap((step) => step.entry ?? []);
  }

  /** One chunk: into the message, out to the clients, and now and then to storage. */
  #take(chunk: UIMessageChunk): void {
    if (chunk.type === "finish-step") return;
    if (chunk.type === "start-step") {
      this.#stepStart = chunk;
      return;
    }
    this.#openStep();
    this.#hand(chunk);
    if (chunk.type === "tool-input-available") this.#releaseTool(chunk.toolCallId);
    const now = this.#around.clock();
    if (now - this.#lastCheckpoint < CHECKPOINT_INTERVAL_MS) return;
    this.#lastCheckpoint = now;
    this.#store();
  }

  #openStep(): void {
    const start = this.#stepStart;
    this.#stepStart = undefined;
    if (start) this.#hand(start);
  }

  #hand(chunk: UIMessageChunk): void {
    this.#answer.apply(chunk);
    this.#live.push(chunk);
  }

  /** Stores the step with its call. A call that ended before it said anything leaves a line in the log and no step. */
  #settle(outcome: ModelStepOutcome, stepsBefore: number, reading: Reading): ModelStepOutcome {
    if (outcome.kind === "done") this.#openStep();
    else {
      this.#stepStart = undefined;
      this.#answer.dropSilentStep();
      this.#closeRunningCalls();
    }
    const step = this.#answer.steps.length > stepsBefore ? this.#answer.current : undefined;
    if (step) {
      step.call = { ...outcome.call, predictedTokens: reading.known.tokens };
      if (outcome.kind === "done") this.#readings.set(step, reading);
      step.state = STATE_OF[outcome.kind];
      step.dirty = true;
      dropEmptyReasoning(step);
      if (outcome.kind !== "done") closeOpenParts(step);
    }
    this.#store();
    if (outcome.kind === "done")
      this.#around.compactor.reported(reading, normaliseUsage(outcome.call.usage).contextInput);
    this.#logCall(step?.call ?? outcome.call);
    if (step) this.#live.push({ type: "message-metadata", messageMetadata: this.#metadata() });
    if (step) this.#live.push({ type: "finish-step" });
    return outcome;
  }

  /** A tool that was let run and brought nothing back has an end now: the model is told, and nothing runs it again. */
  #closeRunningCalls(): void {
    for (const toolCallId of this.#started) {
      const call = this.#answer.toolCall(toolCallId);
      if (!call || isAnswered(call.part)) continue;
      const { parts } = call.step;
      parts[parts.indexOf(call.part)] = interruptedCall(call.part);
      call.step.dirty = true;
    }
  }

  async #beforeTool(toolCallId: string): Promise<void> {
    this.#started.add(toolCallId);
    const call = this.#answer.toolCall(toolCallId);
    if (call?.part.state === "approval-responded") return this.#noteRunning(toolCallId);
    if (call && call.part.state !== "input-streaming") return this.#store();
    await new Promise<void>((resolve) => this.#waiting.set(toolCallId, resolve));
  }

  #releaseTool(toolCallId: string): void {
    const release = this.#waiting.get(toolCallId);
    if (!release) return;
    this.#waiting.delete(toolCallId);
    this.#store();
    release();
  }

  /** An approved call stands in a stored step already; what is new is that it runs, and that goes to the turn. */
  #noteRunning(toolCallId: string): void {
    this.#turn.running = [...(this.#turn.running ?? []), toolCallId];
    this.#around.store.saveSession({ turn: this.#turn });
  }

  #store(): void {
    if (this.#discarded) return;
    const { store } = this.#around;
    store.transaction(() => {
      for (const [index, step] of this.#answer.steps.entries()) if (step.dirty) this.#storeStep(step, index);
    });
  }

  #storeStep(step: AnswerStep, index: number): void {
    const { store, branch, clock } = this.#around;
    const size = sizeOf("assistant", step.parts, modelId(this.#around.configuration.model));
    const unitsBefore = step.entry?.unitsBefore ?? branch.units;
    const anchor = this.#anchorOf(step, { ...size, unitsBefore, parts: step.parts });
    const content = { parts: step.parts, state: step.state, call: step.call, anchor, ...size };
    if (step.entry) store.update(Object.assign(step.entry, content));
    else {
      step.entry = store.insert({
        ...content,
        parent: branch.leaf?.seq ?? null,
        messageId: this.#turn.messageId,
        version: 0,
        step: index,
        role: "assistant",
        unitsBefore,
        createdAt: clock(),
      });
      branch.push(step.entry);
    }
    step.dirty = false;
  }

  /** What the step's call measured: once, when it has settled. */
  #anchorOf(step: AnswerStep, size: Parameters<typeof measured>[2]): object | undefined {
    const { call, entry } = step;
    const reading = this.#readings.get(step);
    return entry?.anchor ?? (reading && call && measured(reading, call, size));
  }

  #metadata(): unknown {
    const calls = this.#answer.steps.map((step) => step.call);
    return { ...answerMetadata(calls), ...endingOf(this.#answer.current?.state) };
  }

  /** Something here failed, not the model: its call is ended, and the step is not left as one that still grows. */
  #brokenOff(error: unknown): TurnEnding {
    this.#abort.abort();
    const step = this.#answer.current;
    if (step && (step.dirty || step.state === "streaming")) {
      Object.assign(step, { state: "failed", dirty: true });
      closeOpenParts(step);
      this.#store();
    }
    return this.#failure(error);
  }

  #failure(error: unknown): TurnEnding {
    this.#around.log("turn failed", { turn: this.#turn.id, error });
    if (error instanceof SessionError) return { kind: "failed", error: publicError(error) };
    return { kind: "failed", error: publicError(new SessionError("model-failed", describeModelError(error))) };
  }

  /** The provider's own words are about the prompt, which is what the reader can change. */
  #tooLong(error: unknown): TurnEnding {
    const message = `${describeModelError(error)} The prompt is too long for it and could not be made shorter; compact the session, or begin another.`;
    this.#around.log("prompt too large", { turn: this.#turn.id, error });
    return { kind: "failed", error: publicError(new SessionError("prompt-too-large", message)) };
  }

  #stepLimit(limit: number): TurnEnding {
    const message = `The turn was stopped after ${limit} model calls; raise maxSteps if it needs more.`;
    return { kind: "failed", error: publicError(new SessionError("step-limit", message)) };
  }

  #announceEnd(ending: TurnEnding): void {
    if (ending.kind === "failed") return this.#live.fail(ending.error);
    if (ending.kind === "aborted") this.#live.push({ type: "abort" });
    else {
      const reason = this.#answer.current?.call?.finishReason;
      this.#live.push({ type: "finish", ...(isFinishReason(reason) && { finishReason: reason }) });
    }
    this.#live.end();
  }

  #logCall(call: ModelCall): void {
    const { inputTokens, outputTokens } = call.usage ?? {};
    // What stood in the context. `inputTokens` is what was billed: more, where the provider read its prompt twice.
    const { contextInput } = normaliseUsage(call.usage);
    this.#around.log("model call", {
      turn: this.#turn.id,
      model: call.model,
      finishReason: call.finishReason,
      inputTokens,
      outputTokens,
      predictedTokens: call.predictedTokens,
      actualTokens: contextInput,
      errorPercent: errorPercent(call, contextInput),
      durationMs: call.durationMs,
    });
  }
}

const STATE_OF = { done: "done", aborted: "aborted", failed: "failed" } as const satisfies Record<
  ModelStepOutcome["kind"],
  EntryState
>;

function dropEmptyReasoning(step: AnswerStep): void {
  const kept = step.parts.filter((part) => part.type !== "reasoning" || part.text !== "" || part.providerMetadata);
  // In place: the stored entry and the branch hold the same array.
  step.parts.splice(0, step.parts.length, ...kept);
}

/** What is broken off will not be completed, so clients need not show it as being written. */
function closeOpenParts(step: AnswerStep): void {
  for (const part of step.parts) {
    if ((part.type === "text" || part.type === "reasoning") && part.state === "streaming") part.state = "done";
  }
}

/** How far the prediction was off, in percent of what the call read. */
function errorPercent({ predictedTokens }: ModelCall, actual: number | undefined): number | undefined {
  if (predictedTokens === undefined || !actual) return undefined;
  return Math.round(((predictedTokens - actual) / actual) * 10_000) / 100;
}
