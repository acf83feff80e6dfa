/**
 * The event socket: a session's news for any client (docs/protocol.md, "The event socket").
 *
 * Server to client: `hello`, `event`, `error`. A client says nothing here. Sockets outlive the object, which hibernates
 * beneath them, so the list of them is the platform's and nothing here has to be brought back after a wake.
 */
import { publicError, SessionError } from "../errors.ts";
import type { NewsItem, SessionNews } from "../turn/news.ts";
import type { FrameSocket } from "./ai-sdk-socket.ts";

const NOTHING_TO_SAY = new SessionError(
  "invalid-frame",
  "Nothing can be sent on this socket; turns have the one at /sessions/:id.",
);

export class EventSocket {
  readonly #news: SessionNews;
  readonly #sockets: () => Iterable<FrameSocket>;
  /** ids of the sockets that have had a `hello` with a cursor of this object */
  readonly #greeted = new Set<string>();
  /** the place behind the newest event that was told */
  #cursor: string;

  /** `sockets` gives those that are open, also those that an object before this one had connected */
  constructor(news: SessionNews, sockets: () => Iterable<FrameSocket>) {
    this.#news = news;
    this.#sockets = sockets;
    this.#cursor = news.cursor;
    news.follow((item) => this.#tell(item));
  }

  /** A new socket. `cursor` is the newest its client has seen, `null` if it never had one. */
  connect(socket: FrameSocket, cursor: string | null): void {
    const { replayed, cursor: place, missed } = this.#news.since(cursor);
    this.#greet(socket, place, replayed);
    for (const item of missed) deliver(socket, eventFrame(item));
  }

  /** The socket is gone. */
  closed(socketId: string): void {
    this.#greeted.delete(socketId);
  }

  #tell(item: NewsItem): void {
    const frame = eventFrame(item);
    for (const socket of this.#sockets()) {
      // It slept with the object before this one. It is told only now, so that waking alone makes no client read.
      if (!this.#greeted.has(socket.id)) this.#greet(socket, this.#cursor, false);
      deliver(socket, frame);
    }
    this.#cursor = item.cursor;
  }

  #greet(socket: FrameSocket, cursor: string, replayed: boolean): void {
    this.#greeted.add(socket.id);
    deliver(socket, JSON.stringify({ type: "hello", cursor, replayed }));
  }
}

/** Answers whatever a client sends. It is not parsed. */
export function refuseEventFrame(socket: FrameSocket): void {
  sendEventError(socket, NOTHING_TO_SAY);
}

/** Tells a client why it hears nothing. */
export function sendEventError(socket: FrameSocket, error: unknown): void {
  const { code, message } = publicError(error);
  deliver(socket, JSON.stringify({ type: "error", code, errorText: `${code}: ${message}` }));
}

function eventFrame({ cursor, json }: NewsItem): string {
  return `{"type":"event","cursor":${JSON.stringify(cursor)},"event":${json}}`;
}

function deliver(socket: FrameSocket, frame: string): void {
  try {
    socket.send(frame);
  } catch {
    // The socket has closed; its close event does the rest.
  }
}
