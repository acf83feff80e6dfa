/** The event socket: a session's news for any client. */
import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { afterAll, describe, expect, it, onTestFinished, vi } from "vitest";
import type { SessionEvent } from "../../src/events.ts";
import { SessionNews } from "../../src/turn/news.ts";
import { addressOf, errorOf, eventually, HttpSession, newSessionId, pause, request, stubOf } from "./service.ts";
import { openSocket, Socket, TRACES, upgrade, userMessage } from "./socket.ts";
import type { Service } from "./worker.ts";

/** Every object that starts listens to its session's news, so this sees them all. */
const listening = vi.spyOn(SessionNews.prototype, "follow");
afterAll(() => listening.mockRestore());

/** What the service sends on this socket. Which fields there are depends on `type`. */
interface EventFrame {
  type: string;
  cursor: string;
  replayed?: boolean;
  event?: SessionEvent;
  code?: string;
  errorText?: string;
}

const context = (tokens: number): SessionEvent => ({ type: "context", data: { tokens } });
const STARTED: SessionEvent = {
  type: "compaction",
  data: { phase: "started", id: 1, trigger: "after-turn", tokensBefore: 30_000 },
};

/** Opens an event socket and waits for its first frame; it closes with the test. */
async function openEvents(session: string, { cursor, service = "chat" }: { cursor?: string; service?: Service } = {}) {
  const query = cursor === undefined ? "" : `?cursor=${encodeURIComponent(cursor)}`;
  const socket = new Socket(await upgrade(addressOf(service, session, `/events${query}`)));
  onTestFinished(() => socket.close());
  await socket.nextFrame("a first frame");
  return socket;
}

function framesOf(socket: Socket): EventFrame[] {
  // SAFETY: tests assert the fields; an event socket sends no other frames, which they assert too.
  return socket.frames as unknown[] as EventFrame[];
}

/** Frames of an event socket, once there are so many; more that come at once are among them. */
async function received(socket: Socket, count: number): Promise<EventFrame[]> {
  await eventually(
    `${count} frames`,
    () => socket.frames,
    ({ length }) => length >= count,
  );
  await pause(30);
  return framesOf(socket);
}

/** The news of the session whose object started last. */
function newestNews(): SessionNews {
  // SAFETY: the method that is watched is one of SessionNews.
  const news = listening.mock.contexts.at(-1) as SessionNews | undefined;
  if (!news) throw new Error("no session has started");
  return news;
}

/** Tells events as the session itself does. Its object has to be the one that started last. */
async function publish(session: string, events: SessionEvent[], service: Service = "chat"): Promise<void> {
  const news = newestNews();
  await runInDurableObject(stubOf(service, session), () => {
    for (const event of events) news.publish(event);
  });
}

/** Cursor and tokens of each event, in order. */
function eventsIn(frames: EventFrame[]): unknown[] {
  return frames.flatMap(({ type, cursor, event }) => (type === "event" ? [[cursor, event]] : []));
}

/** The object is gone and another has started; sockets stay. Returns the place at which that one starts. */
async function hibernate(session: string): Promise<string> {
  await evictDurableObject(stubOf("chat", session));
  const before = newestNews();
  await new HttpSession("chat", session).summary();
  expect(newestNews()).not.toBe(before);
  return newestNews().cursor;
}

describe("a listener", () => {
  it("[EV1] is greeted with a place, then told every event in order, each with the place behind it", async () => {
    const id = newSessionId("events");
    const socket = await openEvents(id);
    await publish(id, [STARTED, context(2)]);
    await publish(id, [context(3)]);
    const epoch = newestNews().cursor.replace(/\.3$/, "");
    expect(await received(socket, 4)).toEqual([
      { type: "hello", cursor: `${epoch}.0`, replayed: false },
      { type: "event", cursor: `${epoch}.1`, event: STARTED },
      { type: "event", cursor: `${epoch}.2`, event: context(2) },
      { type: "event", cursor: `${epoch}.3`, event: context(3) },
    ]);
  });

  it("[EV1] hears how full the context is after a turn that it does not follow", async () => {
    const id = newSessionId("report");
    const [chat, listener] = [await openSocket("chat", id), await openEvents(id)];
    const { chunks } = await chat.ask("hello");
    const reports = chunks.flatMap((chunk) => (chunk.type === "data-context" ? [chunk.data] : []));
    expect(reports).toHaveLength(1);
    const [, event] = await received(listener, 2);
    expect(event).toEqual({
      type: "event",
      cursor: newestNews().cursor,
      event: { type: "context", data: reports[0] },
    });
  });

  it("[EV1] hears of a compaction that starts, ends, and leaves another context", async () => {
    const id = newSessionId("compaction");
    const http = new HttpSession("chat", id);
    const chat = await openSocket("chat", id);
    await http.call("PATCH", "", { tailTokenBudget: 200 });
    for (const topic of ["one", "two", "three", "four"]) await chat.ask(`About ${topic}.\n/words 120`);
    const listener = await openEvents(id);
    const { body } = await http.call("POST", "/compact");
    const events = (await received(listener, 4)).map(({ event }) => event);
    expect(events).toEqual([
      undefined,
      { type: "compaction", data: { phase: "started", id: 1, trigger: "manual", tokensBefore: expect.any(Number) } },
      { type: "compaction", data: { phase: "finished", compaction: body } },
      { type: "context", data: await http.get("/context") },
    ]);
  });

  it("[EV1] that closes mid-way takes nothing from another, and sessions do not hear each other", async () => {
    const strangers = await openEvents(newSessionId("elsewhere"));
    const id = newSessionId("two");
    const [leaving, staying] = [await openEvents(id), await openEvents(id)];
    await publish(id, [context(1)]);
    await received(leaving, 2);
    leaving.close();
    await publish(id, [context(2)]);
    await eventually(
      "the close",
      () => leaving.closed,
      (closed) => closed,
    );
    await publish(id, [context(3)]);
    expect((await received(staying, 4)).map(({ event }) => event)).toEqual([
      undefined,
      context(1),
      context(2),
      context(3),
    ]);
    expect(framesOf(leaving).filter(({ event }) => event)[0]?.event).toEqual(context(1));
    expect(strangers.frames).toHaveLength(1);
  });

  it("[EV2] that comes back with its cursor is told what it missed and nothing twice", async () => {
    const id = newSessionId("cursor");
    const first = await openEvents(id);
    await publish(id, [context(1), context(2)]);
    const { cursor } = (await received(first, 3))[1] ?? { cursor: "" };
    first.close();
    await publish(id, [context(3)]);
    const second = await openEvents(id, { cursor });
    await publish(id, [context(4)]);
    const frames = await received(second, 4);
    expect(frames[0]).toEqual({ type: "hello", cursor, replayed: true });
    expect(frames.slice(1).map(({ event }) => event)).toEqual([context(2), context(3), context(4)]);
    const third = await openEvents(id, { cursor: frames.at(-1)?.cursor });
    expect(await received(third, 1)).toEqual([{ type: "hello", cursor: newestNews().cursor, replayed: true }]);
  });

  it("[EV2] whose cursor is too old, of another object or none of ours is told to read the state again", async () => {
    const id = newSessionId("stale");
    const { cursor = "" } = framesOf(await openEvents(id))[0] ?? {};
    await publish(
      id,
      Array.from({ length: 101 }, (_, index) => context(index)),
    );
    const stale = { type: "hello", cursor: newestNews().cursor, replayed: false };
    for (const unknown of [cursor, "x", "", `${stale.cursor}0`, "y".repeat(20_000)]) {
      expect(await received(await openEvents(id, { cursor: unknown }), 1)).toEqual([stale]);
    }
    const place = await hibernate(id);
    const other = await openEvents(id, { cursor: stale.cursor });
    expect(await received(other, 1)).toEqual([{ type: "hello", cursor: place, replayed: false }]);
  });

  it("[EV3] whose object hibernated is greeted anew by the next event, not before, and told everything", async () => {
    const id = newSessionId("hibernated");
    const socket = await openEvents(id);
    await publish(id, [context(1)]);
    const before = await received(socket, 2);
    const place = await hibernate(id);
    expect(await received(socket, 2)).toHaveLength(2);
    const late = await openEvents(id);
    await publish(id, [context(2), context(3)]);
    const news = newestNews()
      .since(place)
      .missed.map(({ cursor }) => cursor);
    const hello = { type: "hello", cursor: place, replayed: false };
    const events = [
      { type: "event", cursor: news[0], event: context(2) },
      { type: "event", cursor: news[1], event: context(3) },
    ];
    expect(await received(socket, 5)).toEqual([...before.slice(0, 2), hello, ...events]);
    expect(await received(late, 3)).toEqual([hello, ...events]);
    await hibernate(id);
    await publish(id, [context(4)]);
    expect((await received(socket, 7)).slice(5).map(({ type }) => type)).toEqual(["hello", "event"]);
  });

  it("[EV3] whose object hibernated and that closes then is answered", async () => {
    const id = newSessionId("closing");
    const socket = await upgrade(addressOf("chat", id, "/events"));
    const closed = new Promise<number>((resolve) => {
      socket.addEventListener("close", ({ code }) => resolve(code));
    });
    socket.accept();
    await evictDurableObject(stubOf("chat", id));
    socket.close();
    const late = new Promise<string>((resolve) => setTimeout(() => resolve("never closed"), 3_000));
    expect(await Promise.race([closed, late])).toBe(1000);
  });
});

describe("what a client sends on an event socket", () => {
  const REFUSED = {
    type: "error",
    code: "invalid-frame",
    errorText: "invalid-frame: Nothing can be sent on this socket; turns have the one at /sessions/:id.",
  };

  it("[EV4][EV5] is refused frame by frame, asks for no turn, and stops no events", async () => {
    const id = newSessionId("refused");
    const socket = await openEvents(id, { service: "tight" });
    socket.send("not json");
    socket.send({ type: "hello" });
    socket.send({ type: "cf_agent_state", state: { admin: true } });
    socket.submit("r", [userMessage("hello")]);
    socket.send("y".repeat(20_000));
    socket.sendBytes(new Uint8Array([1, 2]));
    await received(socket, 7);
    await publish(id, [context(1)], "tight");
    const frames = await received(socket, 8);
    expect(frames.slice(1, 7)).toEqual([REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED]);
    expect(eventsIn(frames)).toEqual([[newestNews().cursor, context(1)]]);
    expect(await new HttpSession("tight", id).messages()).toEqual([]);
  });

  it("[EV4] is refused by an object that has just woken, too", async () => {
    const id = newSessionId("woken");
    const socket = await openEvents(id);
    await evictDurableObject(stubOf("chat", id));
    socket.send({ type: "resume", requestId: "r" });
    expect((await received(socket, 2)).slice(1)).toEqual([REFUSED]);
  });

  it("[EV4] need not be anything to learn that the session is misconfigured", async () => {
    const socket = await openEvents(newSessionId("broken"), { service: "misconfigured" });
    const [frame, ...more] = await received(socket, 1);
    expect([frame?.type, frame?.code, more]).toEqual(["error", "misconfigured", []]);
    expect(JSON.stringify(frame)).not.toMatch(TRACES);
    socket.send("anything");
    expect((await received(socket, 2))[1]).toEqual(REFUSED);
  });
});

describe("two protocols on one session", () => {
  it("[EV5][WP8] keep to themselves, also after the object hibernated", async () => {
    const id = newSessionId("apart");
    const [chat, listener] = [await openSocket("chat", id), await openEvents(id)];
    for (const round of [1, 2]) {
      chat.submit(`r-${round}`, [userMessage("/words 10\n/slow 10")]);
      await chat.streaming(`r-${round}`, 2);
      await publish(id, [context(round)]);
      expect((await chat.reply(`r-${round}`)).ending).toBe("end");
      if (round === 1) await hibernate(id);
    }
    expect([...new Set(chat.frames.map(({ type }) => type))].toSorted()).toEqual(["chunk", "end"]);
    expect(JSON.stringify(chat.frames)).not.toContain('"type":"context"');
    const frames = await received(listener, 4);
    expect([...new Set(frames.map(({ type }) => type))]).toEqual(["hello", "event"]);
    expect(frames.filter(({ type }) => type === "hello")).toHaveLength(2);
    expect(new Set(frames.map(({ event }) => event?.type ?? "hello"))).toEqual(new Set(["hello", "context"]));
    expect(frames.map(({ event }) => event)).toEqual(expect.arrayContaining([context(1), context(2)]));
  });

  it("[EV5] a session that is called events has both, under their own paths", async () => {
    const chat = await openSocket("configured", "events");
    chat.send({ type: "resume", requestId: "r" });
    expect((await chat.reply("r")).ending).toBe("no-active");
    const listener = await openEvents("events", { service: "configured" });
    expect(framesOf(listener).map(({ type }) => type)).toEqual(["hello"]);
    expect(chat.frames).toHaveLength(1);
  });
});

describe("the way there", () => {
  it.each(["/events/", "/events/more", "/event", "/Events", "/messages"])(
    "[EV1] an upgrade at %s finds no socket",
    async (path) => {
      const response = await request(addressOf("chat", newSessionId("path"), path), {
        headers: { upgrade: "websocket" },
      });
      expect(response.webSocket).toBe(null);
      expect(await errorOf(response)).toMatchObject({ status: 404, code: "not-found" });
    },
  );

  it.each(["GET", "POST"])("[EV1] a %s that asks for no upgrade is told to", async (method) => {
    const id = newSessionId("plain");
    expect(await errorOf(await request(addressOf("chat", id, "/events"), { method }))).toEqual({
      status: 400,
      code: "bad-request",
      message: `/sessions/${id}/events is a WebSocket; ask for it with "Upgrade: websocket".`,
    });
  });

  it.each(["", "/events"])("[WP9] an address of 20,000 characters at %j opens a socket and no stack", async (path) => {
    const address = `${addressOf("chat", newSessionId("long"), path)}?x=${"y".repeat(20_000)}`;
    const socket = new Socket(await upgrade(address));
    onTestFinished(() => socket.close());
    socket.send({ type: "resume", requestId: "r" });
    await eventually(
      "an answer",
      () => socket.frames,
      (frames) => frames.some(({ type }) => ["no-active", "error"].includes(type)),
    );
    expect(JSON.stringify(socket.frames)).not.toMatch(TRACES);
    expect(socket.closed).toBe(false);
  });

  it("[HT4] ends when the session is deleted", async () => {
    const id = newSessionId("deleted");
    const socket = await openEvents(id);
    await new HttpSession("chat", id).send("DELETE", "");
    await eventually(
      "the close",
      () => socket.closed,
      (closed) => closed,
    );
    expect(socket.frames).toHaveLength(1);
  });
});
