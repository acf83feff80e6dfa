/** A session whose context is watched: what it says of itself, and what its model reads indeed. */
import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { isDeepEqualData } from "ai";
import { onTestFinished, vi } from "vitest";
import type { ContextReport } from "../../src/context/report.ts";
import { measureMirrorPrompt } from "../../src/models/mirror-prompt.ts";
import type { SessionBuilder } from "../../src/session-builder.ts";
import { configureSession } from "./configured-sessions.ts";
import { HttpSession, newSessionId, stubOf } from "./service.ts";
import { openSocket, userMessage, type Reply, type Socket } from "./socket.ts";
import { CountedSession, type Service } from "./worker.ts";

/** What a call was expected to read, and what it read. */
export interface Prediction {
  predicted: number;
  actual: number;
}

/** How an event was seen: before the next call, at it, and at the one after. Errors in percent of what was read. */
export interface Aftermath {
  /** whether the report was the same after the object was evicted */
  sameWhenCold: boolean;
  /** the number, before the next call */
  known: number;
  /** what the model would have read then */
  truth: number;
  knownError: number;
  firstError: number;
  secondError: number;
}

export class ContextSession {
  readonly id: string;
  readonly http: HttpSession;
  readonly socket: Socket;

  constructor(http: HttpSession, socket: Socket) {
    this.id = http.id;
    this.http = http;
    this.socket = socket;
  }

  context(): Promise<ContextReport> {
    return this.http.get("/context");
  }

  /** Says a text that is to be answered with so many words. */
  async say(text: string, words = 100, more: object = {}): Promise<Reply> {
    const requestId = crypto.randomUUID();
    this.socket.submit(requestId, [userMessage(`${text}\n/words ${words}`)], more);
    return this.socket.reply(requestId);
  }

  /** The newest booked calls that reported, the newest first. */
  async predictions(): Promise<Prediction[]> {
    const { records } = await this.http.usage();
    return records.flatMap(({ predictedTokens, usage }) =>
      predictedTokens === undefined || !usage?.inputTokens || usage.inputTokens < 0
        ? []
        : [{ predicted: predictedTokens, actual: usage.inputTokens }],
    );
  }

  /** Errors of those calls in percent, the newest first. */
  async errors(): Promise<number[]> {
    return (await this.predictions()).map(({ predicted, actual }) => percent(predicted, actual));
  }

  /** The report of the session after its object was evicted. */
  async coldContext(): Promise<ContextReport> {
    await evictDurableObject(stubOf(this.http.service, this.id));
    return this.context();
  }

  /** Rows that this costs; for sessions that count. */
  async coldRows(): Promise<number> {
    await this.coldContext();
    const { rowsRead } = await runInDurableObject(stubOf(this.http.service, this.id), (object) => {
      if (!(object instanceof CountedSession)) throw new TypeError("this session does not count");
      return object.takeCounts();
    });
    return rowsRead;
  }

  /** Reads the number, warm and cold, then says two things more. `scale`: the model's tokens for one of mirror's. */
  async aftermath({ scale = 1, more = {} }: { scale?: number; more?: object } = {}): Promise<Aftermath> {
    const warm = await this.context();
    const cold = await this.coldContext();
    const known = warm.tokens;
    await this.say(NEXT[0], 100, more);
    const [first] = await this.predictions();
    await this.say(NEXT[1], 100, more);
    const [second] = await this.predictions();
    if (!first || !second) throw new Error("the calls after the event reported nothing");
    const truth = first.actual - Math.round(costOf(`${NEXT[0]}\n/words 100`) * scale);
    return {
      sameWhenCold: isDeepEqualData(cold, warm),
      known,
      truth,
      knownError: percent(known, truth),
      firstError: percent(first.predicted, first.actual),
      secondError: percent(second.predicted, second.actual),
    };
  }
}

/** Opens a session; `configure` is for sessions of the class `configured`. */
export async function contextSession(
  topic: string,
  { service = "chat", configure }: { service?: Service; configure?: (session: SessionBuilder) => SessionBuilder } = {},
): Promise<ContextSession> {
  const id = newSessionId(topic);
  if (configure) configureSession(id, configure);
  const name = configure ? "configured" : service;
  return new ContextSession(new HttpSession(name, id), await openSocket(name, id));
}

/** Lines of one event that a session logs from here to the end of the test. */
export function logged(): (session: string, event: string) => Record<string, unknown>[] {
  const log = vi.spyOn(console, "log").mockImplementation(() => {});
  onTestFinished(() => log.mockRestore());
  return (session, event) =>
    log.mock.calls
      .map(([line]): Record<string, unknown> => JSON.parse(String(line)))
      .filter((line) => line.session === session && line.event === event);
}

/** What `mirror` reads of a user message, framing included. */
function costOf(text: string): number {
  const call = measureMirrorPrompt([]).total;
  return measureMirrorPrompt([{ role: "user", content: [{ type: "text", text }] }]).total - call;
}

/** Signed error in percent: above 0 when too much was expected. */
function percent(predicted: number, actual: number): number {
  return Math.round(((predicted - actual) / actual) * 10_000) / 100;
}

/** Prose, in which mirror's tokens are not those the estimator was fitted on. */
export function prose(words: number, from = 0): string {
  return Array.from({ length: words }, (_, index) => {
    const word = WORDS[(from + index * 7) % WORDS.length] ?? "";
    return (index + 1) % 14 === 0 ? `${word}.` : word;
  }).join(" ");
}

const WORDS = (
  "the harbour keeps an old record of every storm and each vessel that came back from it with rope torn or cargo " +
  "missing while captains argued about insurance because nobody remembered whose lantern had been burning when fog " +
  "arrived over the breakwater and the pilots waited patiently beside their boats for information from the station"
).split(" ");

const NEXT = [prose(60, 3), prose(70, 11)] as const;
