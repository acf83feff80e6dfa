/** Requests to sessions: what is checked before an object is touched, and how it is reached. */
import { getAgentByName } from "agents";
import { Hono } from "hono";
import type { ChatSession } from "./chat-session.ts";
import { SessionError } from "./errors.ts";
import { respond } from "./wire/http-api.ts";

const SESSION_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** Paths below a session that are sockets: that of turns is the session's own. */
const EVENTS = "events";
const SOCKETS = new Set(["", EVENTS]);

/** Characters of a cursor; ours have about 50. */
const CURSOR_LENGTH = 128;

/** A header by which a client would hand start-up properties to an object that is not running. */
const FRAMEWORK_HEADER = "x-agents-lifecycle-props";

export interface WorkerEnvironment {
  ChatSession: DurableObjectNamespace<ChatSession>;
}

export function createWorker(): ExportedHandler<WorkerEnvironment> {
  const app = new Hono<{ Bindings: WorkerEnvironment }>();
  app.get("/health", (c) => c.json({ status: "ok" }));
  app.get("/", (c) =>
    c.text("Tidemark chat sessions. Connect a WebSocket to /sessions/:id, or read /sessions/:id/messages.\n"),
  );
  app.all("/sessions/:id{.+}", (c) => forward(c.req.raw, c.env));
  app.notFound((c) => respond(c, new SessionError("not-found", `There is nothing at ${c.req.path}.`)));
  app.onError((error, c) => respond(c, error));
  return { fetch: (request, env, ctx) => app.fetch(request, env, ctx) };
}

async function forward(request: Request, env: WorkerEnvironment): Promise<Response> {
  const url = new URL(request.url);
  const [, , id = "", ...route] = url.pathname.split("/");
  if (!SESSION_ID.test(id)) {
    throw new SessionError("invalid-session-id", "A session id is 1 to 128 characters of A-Z, a-z, 0-9, _ and -.");
  }
  const upgrade = request.headers.get("upgrade")?.toLowerCase() === "websocket";
  refuseWrongTransport(upgrade, route.join("/"), url.pathname);
  if (upgrade) url.search = socketQuery(url.searchParams);
  const headers = new Headers(request.headers);
  headers.delete(FRAMEWORK_HEADER);
  return ask(env, id, new Request<unknown, CfProperties>(url, new Request(request, { headers })));
}

/** Sockets and routes have paths of their own. */
function refuseWrongTransport(upgrade: boolean, route: string, pathname: string): void {
  if (upgrade && !SOCKETS.has(route)) throw new SessionError("not-found", `There is no socket at ${pathname}.`);
  if (!upgrade && route === EVENTS) {
    throw new SessionError("bad-request", `${pathname} is a WebSocket; ask for it with "Upgrade: websocket".`);
  }
}

/**
 * Of a socket's query a cursor is left. By the others a client would steer the agent framework (`_pk`,
 * `__agents_transport`); and the framework keeps the address with the socket, where it fails above 16 kB, with a stack.
 */
function socketQuery(asked: URLSearchParams): string {
  const cursor = asked.get("cursor");
  return cursor && cursor.length <= CURSOR_LENGTH ? new URLSearchParams({ cursor }).toString() : "";
}

/**
 * An object may end under a request: it was deleted, or replaced. Without a body the request goes to the next object;
 * one with a body cannot be sent twice, and whether it took effect is not known.
 */
async function ask(env: WorkerEnvironment, id: string, request: Request): Promise<Response> {
  const session = await getAgentByName(env.ChatSession, id);
  try {
    return await session.fetch(request.body ? request : request.clone());
  } catch (error) {
    console.warn(JSON.stringify({ session: id, event: "object ended", error: String(error) }));
    if (request.body)
      throw new SessionError("session-ended", "The session ended during this request. Look and try again.");
    return (await getAgentByName(env.ChatSession, id)).fetch(request);
  }
}
