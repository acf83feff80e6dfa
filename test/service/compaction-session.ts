/** A session that is compacted, from outside. */
import { evictDurableObject } from "cloudflare:test";
import type { UIMessage } from "ai";
import { onTestFinished } from "vitest";
import type { CompactionNews, SessionEvent } from "../../src/events.ts";
import type { Compaction } from "../../src/records.ts";
import type { SessionBuilder } from "../../src/session-builder.ts";
import { configureSession } from "./configured-sessions.ts";
import { ContextSession, prose } from "./context-session.ts";
import { addressOf, eventually, HttpSession, newSessionId, stubOf } from "./service.ts";
import { ScriptedModel, type Summarising } from "./scripted-model.ts";
import { openSocket, Socket, upgrade, userMessage, type Reply } from "./socket.ts";

/** Tokens that these sessions compact after, where a test does not say otherwise. */
export const THRESHOLD = 3_000;

export class CompactionSession extends ContextSession {
  /** Compactions, newest first. */
  async list(query = "?limit=200"): Promise<Compaction[]> {
    return (await this.http.get<{ compactions: Compaction[] }>(`/compactions${query}`)).compactions;
  }

  /** Compactions, newest first, once there are so many; more would be among them. */
  async recorded(count: number): Promise<Compaction[]> {
    return eventually(
      `${count} compactions`,
      () => this.list(),
      ({ length }) => length >= count,
    );
  }

  /** The newest compaction, which has to be there. */
  async newest(): Promise<Compaction> {
    const [newest] = await this.list();
    if (!newest) throw new Error("the session has no compaction");
    return newest;
  }

  async compact(instructions?: string): Promise<Compaction> {
    const { status, body } = await this.http.call("POST", "/compact", instructions && { instructions });
    if (status !== 200) throw new Error(`POST /compact answered ${status}: ${JSON.stringify(body)}`);
    // SAFETY: the documented answer of the route; tests assert its values.
    return body as Compaction;
  }

  async undo(id: number): Promise<Compaction> {
    const { status, body } = await this.http.call("DELETE", `/compactions/${id}`);
    if (status !== 200) throw new Error(`DELETE /compactions/${id} answered ${status}: ${JSON.stringify(body)}`);
    // SAFETY: as above.
    return body as Compaction;
  }

  /** So many turns of about 240 tokens each. */
  async talk(turns: number): Promise<void> {
    for (let turn = 0; turn < turns; turn += 1) await this.say(`Turn ${turn}. ${prose(100, turn * 5)}`, 100);
  }

  /** Talks, about 320 tokens a turn, until an answer brings the number above a threshold: so it is after that turn that it fires. */
  async fill(threshold = THRESHOLD): Promise<void> {
    for (let turn = 0; turn < 100; turn += 1) {
      const { tokens } = await this.context();
      if (tokens > threshold - 400) {
        await this.say("Go on.", 450);
        return;
      }
      await this.say(`Turn ${turn}. ${prose(150, turn * 5)}`, 100);
    }
    throw new Error(`a hundred turns did not bring the context near ${threshold} tokens`);
  }

  /** Talks until a compaction is recorded that was not before. */
  async fillAndCompact(threshold = THRESHOLD): Promise<Compaction> {
    const before = (await this.list()).length;
    await this.fill(threshold);
    const [newest] = await this.recorded(before + 1);
    if (!newest) throw new Error("no compaction was recorded");
    return newest;
  }

  /** Says another text under a known id. */
  async edit(messageId: string, text: string): Promise<Reply> {
    const requestId = crypto.randomUUID();
    this.socket.submit(requestId, [userMessage(text, messageId)], { messageId });
    return this.socket.reply(requestId);
  }

  /** Has it look whether to compact, as after an import: of a message that it knows, so that nothing changes. */
  async reconsider(): Promise<void> {
    const [known] = await this.http.messages();
    await this.http.call("POST", "/messages", { messages: [known] });
  }

  /** Has an answer given again; the newest where no message is named. */
  async regenerate(messageId?: string): Promise<Reply> {
    const requestId = crypto.randomUUID();
    this.socket.submit(requestId, [], { trigger: "regenerate-message", ...(messageId !== undefined && { messageId }) });
    return this.socket.reply(requestId);
  }

  evict(): Promise<void> {
    return evictDurableObject(stubOf(this.http.service, this.id));
  }

  /** News of the session from here on. */
  async listen(): Promise<Listener> {
    const socket = new Socket(await upgrade(addressOf(this.http.service, this.id, "/events")));
    onTestFinished(() => socket.close());
    await socket.nextFrame("a first frame");
    return new Listener(socket);
  }
}

/** What an event socket has told. */
export class Listener {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  get events(): SessionEvent[] {
    // SAFETY: an event socket sends `hello`, `event` and `error` frames; only the second has an `event`.
    return this.#socket.frames.flatMap((frame) => (frame as { event?: SessionEvent }).event ?? []);
  }

  /** News of compactions, once there are so many. */
  async compactions(count: number): Promise<CompactionNews[]> {
    return eventually(
      `${count} pieces of news`,
      () => this.events.flatMap((event) => (event.type === "compaction" ? [event.data] : [])),
      ({ length }) => length >= count,
    );
  }
}

/** Opens a session that compacts after 3,000 tokens, and is otherwise what `configure` says. */
export async function compactionSession(
  topic: string,
  configure: (session: SessionBuilder) => SessionBuilder = (session) => session,
): Promise<CompactionSession> {
  const id = newSessionId(topic);
  configureSession(id, (session) => configure(session.compactAfter(THRESHOLD)));
  return new CompactionSession(new HttpSession("configured", id), await openSocket("configured", id));
}

export interface Scripted {
  model: ScriptedModel;
  session: CompactionSession;
}

/** A session as above, with a double that is directed and is said to have mirror's limits. */
export async function scripted(
  topic: string,
  {
    script = [],
    configure = (session) => session,
  }: { script?: readonly Summarising[]; configure?: (session: SessionBuilder) => SessionBuilder } = {},
): Promise<Scripted> {
  const model = new ScriptedModel();
  model.script.push(...script);
  const session = await compactionSession(topic, (builder) =>
    configure(builder.model(model).contextWindow(32_000).maxOutputTokens(4_096)),
  );
  return { model, session };
}

/** The newest report in a stream. */
export function lastReport({ chunks }: Reply): { tokens: number } {
  const report = chunks.findLast(({ type }) => type === "data-context");
  if (report?.type !== "data-context") throw new Error("the stream has no report");
  // SAFETY: the report is what the service puts into the part; the tests assert its values.
  return report.data as { tokens: number };
}

/** News of compactions in a stream. */
export function newsIn({ chunks }: Reply): CompactionNews[] {
  // SAFETY: as above.
  return chunks.flatMap((chunk) => (chunk.type === "data-compaction" ? [chunk.data as CompactionNews] : []));
}

/** What is byte for byte the same as long as nothing was lost or changed. */
export function bytesOf(messages: readonly UIMessage[]): string {
  return JSON.stringify(messages);
}
