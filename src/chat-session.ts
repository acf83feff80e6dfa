/**
 * The Durable Object: sockets, alarm and wiring. One object is one session.
 *
 * Extend it and override `configure`; export the class under the name your Durable Object binding has.
 */
import { Agent, callable, type AgentContext, type Connection, type ConnectionContext } from "agents";
import type { Hono } from "hono";
import { publicError, SessionError } from "./errors.ts";
import { createModels, type ModelEnvironment } from "./models/registry.ts";
import type { ContextReport } from "./context/report.ts";
import type { Compaction } from "./records.ts";
import { SessionBuilder } from "./session-builder.ts";
import { SessionStore } from "./storage/session-store.ts";
import { Session } from "./turn/session.ts";
import { AiSdkSocket, refuseFrame } from "./wire/ai-sdk-socket.ts";
import { EventSocket, refuseEventFrame, sendEventError } from "./wire/event-socket.ts";
import { httpApi } from "./wire/http-api.ts";

export class ChatSession<Env extends ModelEnvironment = ModelEnvironment> extends Agent<Env & Cloudflare.Env> {
  static override options = { sendIdentityOnConnect: false };

  readonly #store: SessionStore;
  #rooms: Rooms | undefined;
  #started = false;
  /** set when the session was deleted: the object is about to end, and what still reaches it would be lost */
  #deleted = false;

  constructor(ctx: AgentContext, env: Env & Cloudflare.Env) {
    super(ctx, env);
    // The base class puts a handler of its own before ours that answers its frames (state, calls). Stock chat clients
    // close on such answers, so only the method of the class is left.
    Reflect.deleteProperty(this, "onMessage");
    this.#store = new SessionStore(ctx.storage);
  }

  /** Says what this class of sessions is: model, system prompt, tools, when to compact. The default is `mirror`. */
  configure(session: SessionBuilder): SessionBuilder {
    return session;
  }

  /** How full the context is, and why: the same report that `GET /sessions/:id/context` gives. */
  @callable()
  getContext(): Promise<ContextReport> {
    return this.#open().session.context();
  }

  /** Compacts now, whatever the threshold; the summary heeds `instructions`. The same as `POST /sessions/:id/compact`. */
  @callable()
  compact(instructions?: string): Promise<Compaction> {
    return this.#open().session.compact(instructions);
  }

  /** Compactions, newest first. The same as `GET /sessions/:id/compactions`. */
  @callable()
  getCompactions(before?: string, limit = 50): { compactions: Compaction[]; cursor: string | null } {
    return this.#open().session.history.compactions(before, limit);
  }

  /** Takes the compaction in force back. The same as `DELETE /sessions/:id/compactions/:n`. */
  @callable()
  undoCompaction(id: number): Compaction {
    return this.#open().session.undoCompaction(id);
  }

  /** A failure is not thrown: the framework would answer with its stack. The next request tries again. */
  override onStart(): void {
    try {
      this.#open();
    } catch (error) {
      log(this.name, "start failed", { error });
    }
  }

  /** Answers as the framework does, except that what it failed to handle leaves as an error without a stack. */
  override async fetch(request: Request): Promise<Response> {
    const response = await super.fetch(request);
    const leaked = response.status === 500 && !response.headers.get("content-type")?.includes("json");
    return leaked ? refusal(new Error("the framework failed to handle a request")) : response;
  }

  override async onRequest(request: Request): Promise<Response> {
    // Never answered: it fails when the object ends, and the Worker asks the next object.
    if (this.#deleted) return new Promise(() => {});
    try {
      const response = await this.#open().api.fetch(request);
      // The session was deleted while the request was read: what went wrong then is that.
      return this.#deleted && response.status === 500 ? refusal(SESSION_ENDED) : response;
    } catch (error) {
      log(this.name, "request failed", { error });
      return refusal(error);
    }
  }

  /** What is thrown here would reach the client with its stack. */
  override onConnect(connection: Connection<SocketState>, { request }: ConnectionContext): void {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname.split("/")[3] !== "events") return;
    connection.setState({ protocol: "events" });
    if (this.#deleted) return;
    try {
      this.#open().events.connect(connection, searchParams.get("cursor"));
    } catch (error) {
      log(this.name, "socket refused", { error });
      sendEventError(connection, error);
    }
  }

  override async onMessage(connection: Connection<SocketState>, message: string | ArrayBuffer): Promise<void> {
    if (this.#deleted) return;
    if (hearsEvents(connection)) return refuseEventFrame(connection);
    let rooms: Rooms;
    try {
      rooms = this.#open();
    } catch (error) {
      log(this.name, "frame refused", { error });
      refuseFrame(connection, message, error);
      return;
    }
    await rooms.socket.receive(connection, message);
  }

  override onClose(connection: Connection, code: number): void {
    this.#rooms?.socket.closed(connection.id);
    this.#rooms?.events.closed(connection.id);
    // A client that gives no code waits for an answer to its close, and no code cannot be echoed.
    if (code === NO_STATUS) connection.close(NORMAL_CLOSURE);
  }

  /** Called for what nothing else caught. Answers without a stack, and logs the rest. */
  override onError(connectionOrError: unknown, error?: unknown): void {
    log(this.name, "uncaught", { error: error ?? connectionOrError });
    throw new Error(publicError(error).message);
  }

  /** Sessions have no children. Without this a client makes one by asking for `…/sub/class/name`. */
  override async onBeforeSubAgent(request: Request): Promise<Response> {
    return refusal(new SessionError("not-found", `There is nothing at ${new URL(request.url).pathname}.`));
  }

  /** The chat protocols of stock clients know no other frames, so the base class sends none of its own. */
  override shouldSendProtocolMessages(): boolean {
    return false;
  }

  /** Clients never write the agent's state. */
  override shouldConnectionBeReadonly(): boolean {
    return true;
  }

  #open(): Rooms {
    this.#rooms ??= this.#build();
    // Starting may fail half-way, with a recovered turn running already: the same session is started again, not another.
    if (!this.#started) this.#rooms.session.start();
    this.#started = true;
    return this.#rooms;
  }

  #build(): Rooms {
    const models = createModels(this.env);
    const session = new Session({
      id: this.name,
      store: this.#store,
      configuration: this.configure(new SessionBuilder()).build(),
      languageModel: (id) => models.languageModel(id),
      clock: () => Date.now(),
      newId: () => crypto.randomUUID(),
      keepAwake: (work) => this.ctx.waitUntil(this.keepAliveWhile(() => work)),
      log: (event, details) => log(this.name, event, details),
    });
    const api = httpApi(session, () => this.#delete());
    const socket = new AiSdkSocket(session, () => Date.now());
    return { session, socket, events: new EventSocket(session.news, () => this.#eventSockets()), api };
  }

  *#eventSockets(): Generator<Connection> {
    for (const connection of this.getConnections<SocketState>()) if (hearsEvents(connection)) yield connection;
  }

  async #delete(): Promise<void> {
    this.#deleted = true;
    try {
      await this.destroy();
    } catch (error) {
      this.#deleted = false;
      throw error;
    }
  }
}

const SESSION_ENDED = new SessionError("session-ended", "The session was deleted meanwhile; send the request again.");

/** Close codes of RFC 6455, section 7.4.1. */
const NORMAL_CLOSURE = 1000;
const NO_STATUS = 1005;

/** What one running object consists of. */
interface Rooms {
  session: Session;
  socket: AiSdkSocket;
  events: EventSocket;
  api: Hono;
}

/** What is kept with a socket while the object hibernates. Sockets of the AI SDK have none. */
interface SocketState {
  protocol: "events";
}

function hearsEvents({ state }: Connection<SocketState>): boolean {
  return state?.protocol === "events";
}

function refusal(error: unknown): Response {
  const { code, message, status } = publicError(error);
  return Response.json({ error: { code, message } }, { status });
}

function log(session: string, event: string, { error, ...details }: Record<string, unknown>): void {
  const line = JSON.stringify({ session, event, ...details });
  if (error === undefined) console.log(line);
  else console.error(line, error);
}
