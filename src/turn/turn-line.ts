/**
 * One turn at a time, in the order they were asked for.
 *
 * A request is answered in one of four ways: its turn starts now, it waits in the durable queue, it is the running turn
 * asked for again and follows its stream, or it was answered before and gets that answer. The open turn in storage
 * decides, not memory alone: what is found open at start-up is recovered first.
 */
import { isDeepEqualData, type LanguageModel } from "ai";
import { isErrorCode, publicError, SessionError } from "../errors.ts";
import type { Entry, FinishedRequest, OpenTurn, QueuedTurn, TurnRequest } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { admit, type Admission, type RunAdmission } from "./admission.ts";
import type { Branch } from "./branch.ts";
import { closeTurn } from "./closing.ts";
import { modelId, type Configuration } from "./configuration.ts";
import { Compactor } from "./compactor.ts";
import { readIncoming, type IncomingRequest } from "./incoming.ts";
import type { CompactionNews, SessionEvent } from "../events.ts";
import { LiveStream, type StreamSink } from "./live-stream.ts";
import { branchAt, branchOn } from "./overlay-in-force.ts";
import { planRecovery } from "./recovery.ts";
import { runsOnServer } from "./tool-set.ts";
import { chunksOfMessage } from "./replay.ts";
import { messageOf } from "./transcript.ts";
import { openTurn, updateEntries } from "./turn-opening.ts";
import { TurnRunner, type TurnEnding } from "./turn-runner.ts";

/** How long a stream that has ended can still be replayed to a client that missed its end, in ms. Memory only. */
const REPLAY_AFTER_END_MS = 60_000;

/** What the line needs from the object it lives in. */
export interface Surroundings {
  store: SessionStore;
  /** the configuration with this session's settings, as of now */
  configuration: () => Configuration;
  /** resolves a registry id; throws `model-unavailable` */
  languageModel: (id: string) => Exclude<LanguageModel, string>;
  /** ms since the epoch */
  clock: () => number;
  newId: () => string;
  /** keeps the object awake until the work has settled */
  keepAwake: (work: Promise<unknown>) => void;
  /** tells those who listen to the session */
  publish: (event: SessionEvent) => void;
  log: (event: string, details: Record<string, unknown>) => void;
}

/** A client's hold on a stream it follows. */
export interface Following {
  /** the client is gone; the turn goes on */
  leave(): void;
  /** the client asks the turn to stop, or takes a waiting one back */
  abort(): void;
}

/** A request that waits, as clients see it. */
export type WaitingRequest = Pick<QueuedTurn, "position"> & Pick<TurnRequest, "requestId" | "trigger" | "messages">;

/** An answer that is stored already, and how its turn failed, if it did. */
type Answered = Pick<FinishedRequest, "messageId" | "error">;

interface Running {
  runner: TurnRunner;
  live: LiveStream;
}

interface Ended extends Running {
  at: number;
}

export class TurnLine {
  readonly compactor: Compactor;
  readonly #around: Surroundings;
  #branch: Branch | undefined;
  #running: Running | undefined;
  #ended: Ended | undefined;
  /** the session is being erased: there is nothing left to go on with */
  #discarded = false;
  /** streams of waiting turns that someone follows, by position */
  readonly #waiting = new Map<number, LiveStream>();

  constructor(around: Surroundings) {
    this.#around = around;
    this.compactor = new Compactor({
      ...around,
      branch: () => this.branch,
      isOff: () => around.configuration().compactAfter === "off",
      tell: (news) => this.#tell(news),
    });
  }

  /** Recovers the turn that was open when the object died, then goes on with the queue. Call once at start-up. */
  start(): void {
    this.#recoverOpenTurn();
    this.#startNext();
  }

  get busy(): boolean {
    return this.#running !== undefined;
  }

  /** Takes a request and lets `sink` follow what becomes of it. Throws a `SessionError` when it is refused. */
  async submit(incoming: IncomingRequest, sink: StreamSink): Promise<Following> {
    const again = this.#sameRequest(incoming.requestId, sink);
    if (again) return again;
    const { clientTools, limits } = this.#around.configuration();
    const request = await readIncoming(incoming, (id) => this.#isKnown(id), limits, clientTools);
    return this.#sameRequest(request.requestId, sink) ?? this.#sameMessage(request, sink) ?? this.#take(request, sink);
  }

  /** Follows the running turn from its first chunk, or one that has just ended; `undefined` when there is none. */
  resume(sink: StreamSink): Following | undefined {
    if (this.#running) return this.#follow(this.#running, sink);
    if (!this.#ended || this.#around.clock() - this.#ended.at > REPLAY_AFTER_END_MS) return undefined;
    return this.#follow(this.#ended, sink);
  }

  /** Stops the running turn; what has arrived is kept. Answers whether there was one. */
  abort(): boolean {
    this.#running?.runner.abort();
    return this.#running !== undefined;
  }

  /** The requests that wait, in order: what a client that was reloaded needs to show them or take them back. */
  get waiting(): WaitingRequest[] {
    return this.#around.store.queue().map(({ position, request: { requestId, trigger, messages } }) => ({
      position,
      requestId,
      trigger,
      messages,
    }));
  }

  /** Takes a waiting request back. Throws `not-found` when none waits there. */
  remove(position: number): boolean {
    if (!this.#around.store.queue().some((queued) => queued.position === position)) {
      throw new SessionError("not-found", `No request waits at position ${position}.`);
    }
    const live = this.#waiting.get(position);
    if (live) this.#takeBack(position, live);
    else this.#around.store.dequeue(position);
    return true;
  }

  /** Stops everything without storing more: the session is about to be erased. */
  discard(): void {
    this.#discarded = true;
    this.compactor.discard();
    this.#running?.runner.discard(publicError(new SessionError("session-deleted", "The session was deleted.")));
    for (const live of this.#waiting.values())
      live.fail(publicError(new SessionError("session-deleted", "The session was deleted.")));
    this.#waiting.clear();
  }

  /** Throws `turn-open` while a turn runs: the history under it must not change. */
  refuseWhileBusy(): void {
    if (!this.busy) return;
    throw new SessionError("turn-open", "A turn is running; wait for its end or abort it first.");
  }

  /** The active branch under its overlay, read as it is asked. */
  get branch(): Branch {
    const { store } = this.#around;
    const { leaf } = store.session;
    if (!this.#branch || (!this.busy && (this.#branch.leaf?.seq ?? null) !== leaf)) {
      this.#branch = branchAt(store, leaf);
    }
    return this.#branch;
  }

  /** Forgets what memory holds of the branch and of the last answer: what is stored has changed. */
  forgetBranch(): void {
    this.#branch = undefined;
    this.#ended = undefined;
  }

  // ── taking requests ──────────────────────────────────────────────────────────────────────────────────────────────

  #isKnown(messageId: string): boolean {
    if (this.#around.store.versions(messageId).length > 0) return true;
    return this.#around.store.queue().some(({ request }) => request.messages.some(({ id }) => id === messageId));
  }

  #sameRequest(requestId: string, sink: StreamSink): Following | undefined {
    if (this.#running?.runner.turn.requestId === requestId) return this.#follow(this.#running, sink);
    const waiting = this.#around.store.queue().find((queued) => queued.request.requestId === requestId);
    if (waiting) return this.#wait(waiting, sink);
    const finished = this.#around.store.session.finished.find((done) => done.requestId === requestId);
    return finished && this.#answerAgain(finished, sink);
  }

  /** The newest message of a request that is running or waiting, sent again under another request id. */
  #sameMessage(request: TurnRequest, sink: StreamSink): Following | undefined {
    const messageId = request.messages.at(-1)?.id;
    if (request.trigger !== "submit" || messageId === undefined) return undefined;
    if (this.#running) {
      const asked = this.#around.store.entry(this.#running.runner.turn.parent);
      const same = asked?.messageId === messageId && this.#running.runner.turn.trigger !== "continue";
      if (same && isDeepEqualData(asked.parts, request.messages.at(-1)?.parts)) {
        return this.#follow(this.#running, sink);
      }
    }
    const waiting = this.#around.store
      .queue()
      .find((queued) => isDeepEqualData(queued.request.messages.at(-1), request.messages.at(-1)));
    return waiting && this.#wait(waiting, sink);
  }

  #take(request: TurnRequest, sink: StreamSink): Following {
    const { store } = this.#around;
    this.#recoverOpenTurn();
    this.#startNext();
    if (!this.busy) return this.#begin(request, sink);
    const { queueLength, queueSize } = this.#around.configuration().limits;
    if (store.queue().length >= queueLength) {
      throw new SessionError("queue-full", `${queueLength} turns are waiting already; try again when one has ended.`);
    }
    if (store.queueSize + JSON.stringify(request).length > queueSize) {
      throw new SessionError(
        "queue-full",
        `What waits has ${queueSize} characters at most; try again when a turn has ended.`,
      );
    }
    return this.#wait(store.enqueue(request), sink);
  }

  #wait(queued: QueuedTurn, sink: StreamSink): Following {
    const { position } = queued;
    const live = this.#waiting.get(position) ?? new LiveStream();
    this.#waiting.set(position, live);
    const leave = live.follow(sink);
    const ahead = this.#around.store.queue().findIndex((other) => other.position === position);
    sink.chunk(JSON.stringify({ type: "data-queued", data: { ahead: ahead + 1 }, transient: true }));
    return { leave, abort: () => this.#takeBack(position, live) };
  }

  #takeBack(position: number, live: LiveStream): void {
    if (this.#running?.live === live) return this.#running.runner.abort();
    if (!this.#waiting.delete(position)) return;
    this.#around.store.dequeue(position);
    live.push({ type: "abort" });
    live.end();
  }

  #answerAgain(answer: Answered, sink: StreamSink, stepsKnown?: number): Following {
    const live = new LiveStream();
    this.#replayInto(live, answer, stepsKnown);
    return { leave: live.follow(sink), abort: () => {} };
  }

  /** A stored answer as a stream of its own. It may stand on another branch by now. */
  #replayInto(live: LiveStream, { messageId, error }: Answered, stepsKnown?: number): void {
    const onBranch = this.branch.answer(messageId);
    const entries = onBranch.length ? onBranch : this.#around.store.entriesOf(messageId);
    const last = entries.at(-1);
    if (last) for (const chunk of chunksOfMessage(messageOf(entries), last, stepsKnown)) live.push(chunk);
    if (error && isErrorCode(error.code)) live.fail(publicError(new SessionError(error.code, error.message)));
    else live.end();
  }

  #follow({ runner, live }: Running, sink: StreamSink): Following {
    return { leave: live.follow(sink, runner.earlierChunks()), abort: () => runner.abort() };
  }

  // ── running turns ────────────────────────────────────────────────────────────────────────────────────────────────

  #begin(request: TurnRequest, sink: StreamSink): Following {
    const live = new LiveStream();
    const admission = this.#admit(request);
    if (admission.kind !== "run") {
      return this.#answerAgain({ messageId: this.#settleWithoutTurn(admission) }, sink, request.stepsKnown);
    }
    const leave = live.follow(sink);
    const turn = this.#open(request, admission);
    const running = this.#run(turn, live);
    return { leave, abort: () => running.runner.abort() };
  }

  #admit(request: TurnRequest): Admission {
    const { store } = this.#around;
    const { branch } = this;
    return admit(
      request,
      {
        leaf: branch.leaf,
        // An unknown id would be looked for along the whole branch.
        onBranch: (id) => (store.versions(id).length > 0 ? branch.message(id) : []),
        newest: (role) => branch.newest(role),
        answerTo: (seq) => branch.answerTo(seq),
        versions: (id) => store.versions(id),
        entry: (seq) => store.entry(seq),
      },
      this.#around.configuration().tools,
    );
  }

  #settleWithoutTurn(admission: Exclude<Admission, { kind: "run" }>): string {
    if (admission.kind === "wait-for-client") this.#update(admission.update);
    return admission.messageId;
  }

  /** Memory of the branch is changed along with storage, so it is forgotten when storage refuses. */
  #open(request: TurnRequest, admission: RunAdmission, position?: number): OpenTurn {
    try {
      const opening = openTurn({ ...this.#around, model: this.#model() }, this.#branch, request, admission, position);
      this.#branch = opening.branch;
      return opening.turn;
    } catch (error) {
      this.#branch = undefined;
      throw error;
    }
  }

  #update(entries: readonly Entry[]): void {
    updateEntries(this.#around.store, this.#branch, entries, this.#model());
  }

  #model(): string {
    return modelId(this.#around.configuration().model);
  }

  #run(turn: OpenTurn, live: LiveStream): Running {
    const { store, clock, languageModel, log } = this.#around;
    const runner = new TurnRunner(turn, live, {
      store,
      branch: this.#branch ?? this.#branchOf(turn),
      configuration: this.#around.configuration(),
      languageModel,
      compactor: this.compactor,
      publish: (report) => this.#around.publish({ type: "context", data: report }),
      clock,
      log,
    });
    const running = { runner, live };
    this.#running = running;
    this.#ended = undefined;
    this.#around.keepAwake(
      runner.run().then(
        (ending) => this.#endOf(running, ending),
        (error: unknown) => this.#brokenOff(running, error),
      ),
    );
    return running;
  }

  /** Storage refused the end of a turn. There it is still open, so the next request recovers it as after a crash. */
  #brokenOff(running: Running, error: unknown): void {
    this.#around.log("turn broken off", { turn: running.runner.turn.id, error });
    running.live.fail(publicError(error));
    this.#running = undefined;
    this.#branch = undefined;
  }

  #endOf(running: Running, ending: TurnEnding): void {
    if (this.#discarded) return;
    // What failed may have left memory and storage apart; storage is right.
    if (ending.kind === "failed") this.#branch = undefined;
    this.#running = undefined;
    this.#ended = { ...running, at: this.#around.clock() };
    if (ending.kind !== "failed") this.#considerAfter(running.runner);
    this.#startNext();
  }

  /** The turn has ended well, whatever becomes of this. */
  #considerAfter({ moment, turn }: TurnRunner): void {
    try {
      if (moment) this.compactor.consider(moment, { trigger: "after-turn", turnRuns: false });
    } catch (error) {
      this.#around.log("compaction not considered", { turn: turn.id, error });
    }
  }

  #startNext(): void {
    const [next] = this.#around.store.queue();
    if (!next || this.busy) return;
    const live = this.#waiting.get(next.position) ?? new LiveStream();
    this.#waiting.delete(next.position);
    try {
      const admission = this.#admit(next.request);
      if (admission.kind === "run") {
        this.#run(this.#open(next.request, admission, next.position), live);
        return;
      }
      this.#around.store.dequeue(next.position);
      this.#replayInto(live, { messageId: this.#settleWithoutTurn(admission) }, next.request.stepsKnown);
    } catch (error) {
      this.#around.log("queued turn refused", { position: next.position, error });
      this.#around.store.dequeue(next.position);
      live.fail(publicError(error));
    }
    this.#startNext();
  }

  /** News of a compaction: in the stream of the turn that runs, and to all who listen. */
  #tell(news: CompactionNews): void {
    const live = this.#running?.live;
    if (live && !live.ended) live.push({ type: "data-compaction", data: news, transient: true });
    this.#around.publish({ type: "compaction", data: news });
  }

  /** A turn that is open in storage while none runs: its object died, or storage refused its end. */
  #recoverOpenTurn(): void {
    const { store, clock, log, configuration } = this.#around;
    const { turn } = store.session;
    if (!turn || this.busy) return;
    const branch = this.#branchOf(turn);
    this.#branch = branch;
    const plan = planRecovery(turn, branch.answer(turn.messageId), (name) => runsOnServer(configuration().tools, name));
    log("turn found open", { turn: turn.id, plan: plan.kind, interruptions: turn.interruptions + 1 });
    if (plan.kind === "run-again") {
      const again = { ...turn, interruptions: turn.interruptions + 1 };
      store.saveSession({ turn: again });
      this.#run(again, new LiveStream());
      return;
    }
    store.transaction(() => {
      this.#update(plan.repaired.map((entry) => this.#withInterruptedCall(entry)));
      closeTurn(store, turn, branch.answer(turn.messageId), clock());
    });
  }

  /** The call that was cut off is booked as far as it is known: it is paid for, and nobody reported what it cost. */
  #withInterruptedCall(entry: Entry): Entry {
    if (entry.call) return entry;
    const call = { purpose: "turn", model: this.#model(), finishReason: "interrupted" } as const;
    return { ...entry, call: { ...call, startedAt: entry.createdAt, durationMs: 0 } };
  }

  /** The branch as the turn left it: its steps were stored behind the leaf that the session still names. */
  #branchOf(turn: OpenTurn): Branch {
    const { store } = this.#around;
    let leaf = turn.parent;
    for (const { seq, messageId, parent } of store.entries(turn.parent)) {
      if (messageId === turn.messageId && parent === leaf) leaf = seq;
    }
    return branchOn(store, leaf);
  }
}
