/**
 * An HTTP server on a free port of this machine, for tests and scripts: just enough to stand in for a model provider.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface LoopbackServer {
  /** `http://127.0.0.1:<port>`, without a trailing slash */
  url: string;
  close(): Promise<void>;
}

export interface LoopbackRequest {
  method: string;
  /** decoded path without the query */
  path: string;
  query: URLSearchParams;
  /** the parsed JSON body, `null` when there is none */
  body: unknown;
}

export type Handler = (request: LoopbackRequest, response: ServerResponse) => void | Promise<void>;

/** Starts a server; port 0 takes any free one. */
export async function startLoopbackServer(handle: Handler, port = 0): Promise<LoopbackServer> {
  const server = createServer((incoming, response) => {
    answer(handle, incoming, response).catch((cause: unknown) => fail(response, cause));
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${address.port}`,
    async close() {
      server.close();
      // a stalled stream would otherwise keep the server, and the test run, alive
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

async function answer(handle: Handler, incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(incoming.url ?? "/", "http://loopback");
  await handle(
    {
      method: incoming.method ?? "GET",
      path: decodeURIComponent(url.pathname),
      query: url.searchParams,
      body: await readJson(incoming),
    },
    response,
  );
}

async function readJson(incoming: IncomingMessage): Promise<unknown> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece as Buffer);
  const text = Buffer.concat(pieces).toString("utf8");
  return text === "" ? null : (JSON.parse(text) as unknown);
}

function fail(response: ServerResponse, cause: unknown): void {
  const message = cause instanceof Error ? cause.message : String(cause);
  if (response.headersSent) response.destroy();
  else sendJson(response, 500, { error: { message: `loopback server: ${message}` } });
}

export function sendJson(
  response: ServerResponse,
  status: number,
  value: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(value));
}

export function openEventStream(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
}

/** Sends one `data:` payload and waits while the reader is slower than we are. False once the reader has gone. */
export async function sendEvent(response: ServerResponse, data: string): Promise<boolean> {
  if (response.destroyed) return false;
  if (!response.write(`data: ${data}\n\n`)) await Promise.race([once(response, "drain"), once(response, "close")]);
  return !response.destroyed;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The objects of a list; anything else in it, or anything else than a list, is left out. */
export function records(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.filter(isRecord) : [];
}
