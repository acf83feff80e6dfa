/** A deployed session whose providers are the recordings: what is said to it, what it stores, what the provider gets. */
import { runInDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import type { UIMessage, WebSocketChatTransportResponse } from "ai";
import type { ChatSession } from "../../src/chat-session.ts";
import type { ModelEnvironment } from "../../src/models/registry.ts";
import type { ClientTool, UsageRecord } from "../../src/records.ts";
import { userMessage } from "./provider-answer.ts";

// SAFETY: `exports` and `env` are typed by generated types, which this project does not keep; both are the Worker's.
const worker = (exports as unknown as { default: Pick<Fetcher, "fetch"> }).default;
const sessions = (env as unknown as { ChatSession: DurableObjectNamespace<ChatSession> }).ChatSession;

const ANSWER_TIMEOUT_MS = 10_000;

export interface SessionAnswer {
  /** text of the frame that ended the answer in failure; `null` when it ended well */
  error: string | null;
  /** the newest stored message */
  message: UIMessage;
}

export class RecordedSession {
  readonly #address: string;
  readonly #clientTools: ClientTool[];

  private constructor(id: string, toolNames: string[]) {
    this.#address = `http://recorded.test/sessions/${id}`;
    this.#clientTools = toolNames.map((name) => ({ name, inputSchema: { type: "object" } }));
  }

  /** A new session that speaks to `model`, a registry id. `url` is the recorded provider's. */
  static async open(url: string, model: string, toolNames: string[] = []): Promise<RecordedSession> {
    const id = `recorded-${crypto.randomUUID()}`;
    await runInDurableObject(sessions.getByName(id), (session: ChatSession) => openProviders(session, url));
    const recorded = new RecordedSession(id, toolNames);
    await recorded.use(model);
    return recorded;
  }

  /** Goes on with another model. */
  async use(model: string): Promise<void> {
    await this.#request("PATCH", "", { model });
  }

  /** Says a text and waits for the end of the answer. */
  say(text: string): Promise<SessionAnswer> {
    return this.#send({ ...userMessage(text), id: crypto.randomUUID() });
  }

  /** Returns tool outputs, as a client that goes on does. */
  goOn(answered: UIMessage): Promise<SessionAnswer> {
    return this.#send(answered);
  }

  async messages(): Promise<UIMessage[]> {
    const { messages } = (await this.#request("GET", "/messages?limit=200")) as { messages: UIMessage[] };
    return messages;
  }

  /** Booked calls, in the order they were made. */
  async calls(): Promise<UsageRecord[]> {
    const { records } = (await this.#request("GET", "/usage?limit=200")) as { records: UsageRecord[] };
    return records.toSorted((one, other) => one.seq - other.seq);
  }

  async #send(message: UIMessage): Promise<SessionAnswer> {
    const response = await worker.fetch(this.#address, { headers: { upgrade: "websocket" } });
    const socket = response.webSocket;
    if (!socket) throw new Error(`no socket: ${response.status} ${await response.text()}`);
    socket.accept();
    const error = await exchange(socket, {
      type: "send",
      requestId: crypto.randomUUID(),
      id: "recorded",
      trigger: "submit-message",
      messages: [message],
      headers: {},
      body: this.#clientTools.length > 0 ? { clientTools: this.#clientTools } : {},
    });
    socket.close();
    const newest = (await this.messages()).at(-1);
    if (newest === undefined) throw new Error(`nothing is stored; the answer ended with ${error}`);
    return { error, message: newest };
  }

  async #request(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await worker.fetch(this.#address + path, {
      method,
      ...(body !== undefined && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} answers ${response.status}: ${text}`);
    return JSON.parse(text) as unknown;
  }
}

/** The addresses are known only while tests run, so they cannot stand in a configuration file. */
function openProviders(session: ChatSession, url: string): void {
  const { env: variables } = session as unknown as { env: ModelEnvironment };
  Object.assign(variables, {
    ANTHROPIC_API_KEY: "none",
    ANTHROPIC_BASE_URL: `${url}/anthropic/v1`,
    OPENAI_API_KEY: "none",
    OPENAI_BASE_URL: `${url}/openai/v1`,
    GOOGLE_GENERATIVE_AI_API_KEY: "none",
    GOOGLE_BASE_URL: `${url}/google/v1beta`,
    OPENAI_COMPATIBLE_BASE_URL: `${url}/openai/v1`,
  } satisfies ModelEnvironment);
}

/** Sends one frame and resolves when its answer ends: with the error's text, or `null`. */
function exchange(socket: WebSocket, frame: object): Promise<string | null> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("the answer does not end")), ANSWER_TIMEOUT_MS);
    socket.addEventListener("message", ({ data }) => {
      const answer = JSON.parse(String(data)) as WebSocketChatTransportResponse;
      if (answer.type !== "end" && answer.type !== "error") return;
      clearTimeout(timer);
      resolve(answer.type === "error" ? (answer.errorText ?? "") : null);
    });
    socket.send(JSON.stringify(frame));
  });
}
