/** How a test reaches a session: over HTTP, and through its Durable Object. */
import { runInDurableObject } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import type { UIMessage } from "ai";
import type { ChatSession } from "../../src/chat-session.ts";
import type { SessionRecord, UsageRecord, UsageTotals } from "../../src/records.ts";
import { bindingOf, type Service, type ServiceEnvironment } from "./worker.ts";

// SAFETY: `exports` is typed by generated types, which this project does not keep; its default is the Worker of worker.ts.
const worker = (exports as unknown as { default: Pick<Fetcher, "fetch"> }).default;

let sessions = 0;

/** A session id of its own for every test. */
export function newSessionId(topic: string): string {
  sessions += 1;
  return `${topic}-${sessions}-${crypto.randomUUID().slice(0, 8)}`;
}

export function addressOf(service: Service, session: string, path = ""): string {
  return `http://${service}.test/sessions/${session}${path}`;
}

/** One request to the Worker. */
export function request(address: string, init?: RequestInit): Promise<Response> {
  return worker.fetch(address, init);
}

/** The status and the error of a response that refuses something. */
export async function errorOf(response: Response): Promise<{ status: number; code: string; message: string }> {
  // SAFETY: the caller asserts the fields; a body without an error fails here and says so.
  const { error } = (await response.json()) as { error: { code: string; message: string } };
  return { status: response.status, ...error };
}

/** One session over HTTP. Every body is JSON, but for archives. */
export class HttpSession {
  readonly id: string;
  readonly service: Service;

  constructor(service: Service, id: string) {
    this.service = service;
    this.id = id;
  }

  send(method: string, path: string, body?: unknown): Promise<Response> {
    return request(addressOf(this.service, this.id, path), {
      method,
      ...(body !== undefined && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
  }

  /** Status and parsed body. */
  async call(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }> {
    const response = await this.send(method, path, body);
    return { status: response.status, body: await response.json() };
  }

  /** The status and the error of a request that is refused. */
  async refused(
    method: string,
    path: string,
    body?: unknown,
  ): Promise<{ status: number; code: string; message: string }> {
    const { status, body: answer } = await this.call(method, path, body);
    // SAFETY: the caller asserts the fields; a body without an error shows as undefined there.
    const { code, message } = (answer as { error?: { code: string; message: string } }).error ?? {};
    return { status, code: code ?? "", message: message ?? JSON.stringify(answer) };
  }

  async get<T>(path: string): Promise<T> {
    const { status, body } = await this.call("GET", path);
    if (status !== 200) throw new Error(`GET ${path} answered ${status}: ${JSON.stringify(body)}`);
    // SAFETY: the caller names the documented shape of the route and asserts its values.
    return body as T;
  }

  summary(): Promise<Summary> {
    return this.get("");
  }

  async messages(query = "?limit=200"): Promise<UIMessage[]> {
    return (await this.get<{ messages: UIMessage[] }>(`/messages${query}`)).messages;
  }

  usage(query = "?limit=200"): Promise<{ records: UsageRecord[]; totals: UsageTotals; cursor: string | null }> {
    return this.get(`/usage${query}`);
  }

  async branches(): Promise<{ leaf: number; active: boolean; messageId: string; messages: number }[]> {
    const { branches } = await this.get<{ branches: Awaited<ReturnType<HttpSession["branches"]>> }>("/branches");
    return branches;
  }
}

interface Summary extends Pick<SessionRecord, "messages" | "settings"> {
  id: string;
  model: string;
  tokens: number;
  lastActivity: number;
  createdAt: number;
  turn: { messageId: string; startedAt: number } | null;
  queued: number;
  usage: UsageTotals;
}

/** The stub of a session's object, as the Worker addresses it. */
export function stubOf(service: Service, session: string): DurableObjectStub<ChatSession> {
  // SAFETY: the environment of these tests is that of wrangler.toml beside them.
  const bindings = env as unknown as ServiceEnvironment;
  const namespace = bindings[bindingOf(service)];
  return namespace.get(namespace.idFromName(session));
}

/** The object dies as if its machine did: nothing is drained, nothing more is stored. */
export async function crash(service: Service, session: string): Promise<void> {
  const outcome = runInDurableObject(stubOf(service, session), (_object, state) => {
    state.abort("crash on behalf of a test");
  });
  await outcome.catch(() => {});
}

/** Asks again and again until `done` holds. Prints the last value when it never does. */
export async function eventually<T>(
  what: string,
  look: () => Promise<T> | T,
  done: (value: T) => boolean,
  timeoutMs = 5_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await look();
    if (done(value)) return value;
    if (Date.now() > deadline)
      throw new Error(`waited ${timeoutMs} ms for ${what}; last seen: ${JSON.stringify(value)}`);
    await pause(20);
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
