import { describe, expect, it } from "vitest";
import { SessionError } from "../../src/errors.ts";
import type { SessionEvent } from "../../src/events.ts";
import { SessionNews } from "../../src/turn/news.ts";
import { EventSocket, refuseEventFrame, sendEventError } from "../../src/wire/event-socket.ts";

/** A socket that notes what it was sent. One that is closed throws, as a real one does. */
class Listener {
  readonly frames: unknown[] = [];
  readonly id: string;
  open = true;

  constructor(id: string) {
    this.id = id;
  }

  send(text: string): void {
    if (!this.open) throw new TypeError("the socket is closed");
    this.frames.push(JSON.parse(text));
  }
}

const context = (tokens: number): SessionEvent => ({ type: "context", data: { tokens } });
const hello = (cursor: string, replayed = false) => ({ type: "hello", cursor, replayed });
const told = (cursor: string, tokens: number) => ({ type: "event", cursor, event: context(tokens) });

/** An object that has the sockets of the one before it. */
function started(epoch: string, sockets: Listener[]) {
  const news = new SessionNews(epoch);
  const events = new EventSocket(news, () => sockets);
  const connect = (id: string, cursor: string | null = null) => {
    const socket = new Listener(id);
    sockets.push(socket);
    events.connect(socket, cursor);
    return socket;
  };
  return { news, events, connect };
}

describe("an event socket", () => {
  it("[EV1] opens with a hello, then has every event in order", () => {
    const { news, connect } = started("e", []);
    news.publish(context(1));
    const socket = connect("a");
    news.publish(context(2));
    news.publish(context(3));
    expect(socket.frames).toEqual([hello("e.1"), told("e.2", 2), told("e.3", 3)]);
  });

  it("[EV2] that comes with a cursor stands there and is sent what it missed, then what is new", () => {
    const { news, connect } = started("e", []);
    for (const tokens of [1, 2, 3]) news.publish(context(tokens));
    const socket = connect("a", "e.1");
    news.publish(context(4));
    expect(socket.frames).toEqual([hello("e.1", true), told("e.2", 2), told("e.3", 3), told("e.4", 4)]);
  });

  it("[EV3] of an object that is gone is greeted with its first event, once, and told everything from then on", () => {
    const sockets: Listener[] = [];
    const socket = started("before", sockets).connect("a");
    const { news, connect } = started("after", sockets);
    const other = connect("b");
    expect(socket.frames).toEqual([hello("before.0")]);
    news.publish(context(1));
    news.publish(context(2));
    expect(socket.frames).toEqual([hello("before.0"), hello("after.0"), told("after.1", 1), told("after.2", 2)]);
    expect(other.frames).toEqual([hello("after.0"), told("after.1", 1), told("after.2", 2)]);
  });

  it("[EV3] is greeted at the place before the event that it is told first", () => {
    const sockets: Listener[] = [];
    const { news } = started("e", sockets);
    news.publish(context(1));
    const late = new Listener("late");
    sockets.push(late);
    news.publish(context(2));
    expect(late.frames).toEqual([hello("e.1"), told("e.2", 2)]);
  });

  it("[EV1] that is closed takes nothing from the others", () => {
    const { news, events, connect } = started("e", []);
    const [closed, open] = [connect("a"), connect("b")];
    closed.open = false;
    news.publish(context(1));
    events.closed("a");
    news.publish(context(2));
    expect([closed.frames, open.frames]).toEqual([[hello("e.0")], [hello("e.0"), told("e.1", 1), told("e.2", 2)]]);
  });

  it("[EV4] is answered with an error when it sends something, or when the session cannot be opened", () => {
    const socket = new Listener("a");
    refuseEventFrame(socket);
    sendEventError(socket, new SessionError("misconfigured", "No."));
    sendEventError(socket, new Error("at secret.ts:1"));
    expect(socket.frames).toEqual([
      {
        type: "error",
        code: "invalid-frame",
        errorText: "invalid-frame: Nothing can be sent on this socket; turns have the one at /sessions/:id.",
      },
      { type: "error", code: "misconfigured", errorText: "misconfigured: No." },
      {
        type: "error",
        code: "internal",
        errorText: "internal: The session failed to handle this request; it has been logged.",
      },
    ]);
    socket.open = false;
    expect(() => refuseEventFrame(socket)).not.toThrow();
  });
});
