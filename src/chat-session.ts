/**
 * The Durable Object: sockets, alarm and wiring. One object is one session.
 *
 * Extend it and override `configure`; export the class under the name your Durable Object binding has.
 */
import { Agent, type AgentContext, type Connection, type ConnectionContext } from "agents";
import type { Hono } from "hono";
import { publicError } from "./errors.ts";
import { createModels, type ModelEnvironment } from "./models/registry.ts";
import { SessionBuilder } from "./session-builder.ts";
import { SessionStore } from "./storage/session-store.ts";
import { Session } from "./turn/session.ts";
import { AiSdkSocket } from "./wire/ai-sdk-socket.ts";
import { httpApi } from "./wire/http-api.ts";

export class ChatSession<Env extends ModelEnvironment = ModelEnvironment> extends Agent<Env & Cloudflare.Env> {
  static override options = { sendIdentityOnConnect: false };

  readonly #store: SessionStore;
  #session: Session | undefined;
  #socket: AiSdkSocket | undefined;
  #api: Hono | undefined;

  constructor(ctx: AgentContext, env: Env & Cloudflare.Env) {
    super(ctx, env);
    this.#store = new SessionStore(ctx.storage);
  }

  /** Says what this class of sessions is: model, system prompt, tools, when to compact. The default is `mirror`. */
  configure(session: SessionBuilder): SessionBuilder {
    return session;
  }

  override onStart(): void {
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
    this.#session = session;
    this.#socket = new AiSdkSocket(session);
    this.#api = httpApi(session, () => this.destroy());
    session.start();
  }

  override onRequest(request: Request): Response | Promise<Response> {
    return this.#api?.fetch(request) ?? new Response(null, { status: 503 });
  }

  override onConnect(_connection: Connection, _context: ConnectionContext): void {}

  override async onMessage(connection: Connection, message: string | ArrayBuffer): Promise<void> {
    await this.#socket?.receive(connection, message);
  }

  override onClose(connection: Connection): void {
    this.#socket?.closed(connection.id);
  }

  /** Called for what nothing else caught. Answers without a stack, and logs the rest. */
  override onError(connectionOrError: unknown, error?: unknown): void {
    log(this.name, "uncaught", { error: error ?? connectionOrError });
    throw new Error(publicError(error).message);
  }

  /** The chat protocols of stock clients know no other frames, so the base class sends none of its own. */
  override shouldSendProtocolMessages(): boolean {
    return false;
  }

  /** Clients never write the agent's state. */
  override shouldConnectionBeReadonly(): boolean {
    return true;
  }

  get session(): Session | undefined {
    return this.#session;
  }
}

function log(session: string, event: string, { error, ...details }: Record<string, unknown>): void {
  const line = JSON.stringify({ session, event, ...details });
  if (error === undefined) console.log(line);
  else console.error(line, error);
}
