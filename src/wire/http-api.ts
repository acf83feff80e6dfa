/** The HTTP routes of one session, below `/sessions/:id` (docs/http-api.md). Everything but turns. */
import { Hono, type Context } from "hono";
import { z } from "zod";
import { publicError, SessionError } from "../errors.ts";
import type { Session } from "../turn/session.ts";
import { readSettings } from "../turn/settings.ts";

const PAGE_LIMIT = 200;
const PAGE_DEFAULT = 50;

const PAGE = z.object({
  before: z.string().optional(),
  limit: z.coerce.number().int().min(1).max(PAGE_LIMIT).default(PAGE_DEFAULT),
});

const IMPORT = z.object({ messages: z.array(z.unknown()) });

/** What a person asks of a summary fits a few paragraphs. */
const INSTRUCTIONS_LENGTH = 8_192;

const COMPACT = z.strictObject({ instructions: z.string().trim().min(1).max(INSTRUCTIONS_LENGTH).optional() });

const LEAF = z.union([
  z.strictObject({ leaf: z.number().int().positive() }),
  z.strictObject({ messageId: z.string().min(1), version: z.number().int().nonnegative().optional() }),
]);

/** `erase` deletes the object's whole storage. */
export function httpApi(session: Session, erase: () => Promise<void>): Hono {
  const api = new Hono().basePath("/sessions/:id");
  api.get("/", async (c) => c.json(await session.summary()));
  api.patch("/", async (c) => {
    session.changeSettings(readSettings(await readBody(c, z.unknown(), session)));
    return c.json(await session.summary());
  });
  api.delete("/", async (c) => {
    session.line.discard();
    await erase();
    return c.json({ deleted: true });
  });
  api.get("/messages", (c) => {
    const { before, limit } = readQuery(c);
    return c.json(session.history.messages(before, limit));
  });
  api.post("/messages", (c) => importInto(session, c));
  api.delete("/messages/:messageId", (c) => c.json({ deleted: session.eraseMessage(c.req.param("messageId")) }));
  api.get("/context", async (c) => c.json(await session.context()));
  api.post("/compact", async (c) => c.json(await session.compact(await readInstructions(c, session))));
  api.get("/compactions", (c) => {
    const { before, limit } = readQuery(c);
    return c.json(session.history.compactions(before, limit));
  });
  api.delete("/compactions/:n", (c) => c.json(session.undoCompaction(readCompactionId(c))));
  api.get("/branches", (c) => c.json({ branches: session.history.branches() }));
  api.put("/leaf", async (c) => c.json({ leaf: session.switchTo(await readBody(c, LEAF, session)) }));
  api.get("/queue", (c) => c.json({ queue: session.line.waiting }));
  api.delete("/queue/:position", (c) => c.json({ removed: session.line.remove(readPosition(c)) }));
  api.post("/abort", (c) => c.json({ aborted: session.line.abort() }));
  api.get("/usage", (c) => {
    const { before, limit } = readQuery(c);
    return c.json(session.history.usage(before, limit));
  });
  api.get("/export", (c) => {
    const headers = {
      "content-type": "application/jsonl",
      "content-disposition": 'attachment; filename="session.jsonl"',
    };
    return c.body(streamOf(session.exportLines()), 200, headers);
  });
  api.notFound((c) => respond(c, notFound(c)));
  api.onError((error, c) => respond(c, error));
  return api;
}

/** An error as every route answers it. */
export function respond(c: Context, error: unknown): Response {
  const { code, message, status } = publicError(error);
  if (code === "internal") console.error("request failed", error);
  return c.json({ error: { code, message } }, status);
}

const ROUTES: ReadonlyMap<string, string> = new Map([
  ["", "GET, PATCH, DELETE"],
  ["messages", "GET, POST"],
  ["messages/", "DELETE"],
  ["branches", "GET"],
  ["context", "GET"],
  ["compact", "POST"],
  ["compactions", "GET"],
  ["compactions/", "DELETE"],
  ["leaf", "PUT"],
  ["queue", "GET"],
  ["queue/", "DELETE"],
  ["abort", "POST"],
  ["usage", "GET"],
  ["export", "GET"],
]);

function notFound(c: Context): SessionError {
  const [, , , route = "", rest, ...more] = c.req.path.split("/");
  const allowed = more.length ? undefined : ROUTES.get(rest ? `${route}/` : route);
  return allowed
    ? new SessionError("method-not-allowed", `${c.req.method} is not allowed here; use ${allowed}.`)
    : new SessionError("not-found", `There is nothing at ${c.req.path}.`);
}

async function importInto(session: Session, c: Context): Promise<Response> {
  const isArchive = c.req.header("content-type")?.startsWith("application/jsonl");
  if (isArchive) return c.json(await session.importArchive(await readText(c, session)));
  const { messages } = await readBody(c, IMPORT, session);
  return c.json(await session.importMessages(messages));
}

/** A compaction that asks for nothing has no body. */
async function readInstructions(c: Context, session: Session): Promise<string | undefined> {
  const text = await readText(c, session);
  return text.trim() === "" ? undefined : readJson(text, COMPACT).instructions;
}

function readCompactionId(c: Context): number {
  const text = c.req.param("n") ?? "";
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new SessionError("bad-request", `"${text}" is no compaction; list them with GET /sessions/:id/compactions.`);
}

function readPosition(c: Context): number {
  const text = c.req.param("position") ?? "";
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new SessionError("bad-request", `"${text}" is not a position; list them with GET /sessions/:id/queue.`);
}

function readQuery(c: Context): z.infer<typeof PAGE> {
  return parsed(PAGE, c.req.query(), "The query is not valid");
}

async function readBody<T>(c: Context, schema: z.ZodType<T>, session: Session): Promise<T> {
  return readJson(await readText(c, session), schema);
}

function readJson<T>(text: string, schema: z.ZodType<T>): T {
  try {
    return parsed(schema, JSON.parse(text), "The body is not valid");
  } catch (error) {
    throw error instanceof SyntaxError ? new SessionError("bad-request", "The body is not JSON.") : error;
  }
}

async function readText(c: Context, session: Session): Promise<string> {
  const { frameLength } = session.configuration.limits;
  const tooLarge = (length: number) =>
    new SessionError("body-too-large", `The body has ${length} characters; at most ${frameLength} are allowed.`);
  const announced = Number(c.req.header("content-length") ?? 0);
  // A code unit takes three bytes at most, so what announces more cannot fit.
  if (announced > frameLength * 3) {
    await c.req.raw.body?.cancel();
    throw tooLarge(announced);
  }
  const text = await c.req.text();
  if (text.length > frameLength) throw tooLarge(text.length);
  return text;
}

function parsed<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const where = issue?.path.map(String).join(".");
  throw new SessionError("bad-request", `${what}: ${where ? `${where}: ` : ""}${issue?.message}`);
}

function streamOf(lines: Generator<string>): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    pull(controller) {
      const { done, value } = lines.next();
      if (done) controller.close();
      else controller.enqueue(encoder.encode(value));
    },
  });
}
