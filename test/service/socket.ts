/** A client that speaks the chat protocol frame by frame, so that it can also speak it wrongly. */
import type { UIMessage, UIMessageChunk } from "ai";
import { onTestFinished } from "vitest";
import { addressOf, request } from "./service.ts";
import type { Service } from "./worker.ts";

/** What the service sent. Which fields there are depends on `type`. */
export interface Frame {
  type: string;
  requestId: string;
  sequence?: number;
  chunk?: UIMessageChunk;
  code?: string;
  errorText?: string;
}

/** Everything that came under one request id, up to its last frame. */
export interface Reply {
  frames: Frame[];
  chunks: UIMessageChunk[];
  /** `type` of the last frame */
  ending: string;
  /** of an `error` frame */
  code?: string;
  errorText?: string;
  text: string;
}

const LAST = new Set(["end", "error", "no-active"]);
const TIMEOUT_MS = 5_000;

export class Socket {
  readonly frames: Frame[] = [];
  closed = false;
  readonly #socket: WebSocket;
  readonly #waiting = new Set<() => void>();
  /** frames that `nextFrame` has handed out */
  #taken = 0;

  constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      this.frames.push(JSON.parse(String(data)));
      this.#wake();
    });
    for (const event of ["close", "error"] as const) {
      socket.addEventListener(event, () => {
        this.closed = true;
        this.#wake();
      });
    }
    socket.accept();
  }

  send(frame: object | string): void {
    this.#socket.send(typeof frame === "string" ? frame : JSON.stringify(frame));
  }

  sendBytes(bytes: Uint8Array): void {
    this.#socket.send(bytes);
  }

  /** A `send` frame, as the stock transport makes it. */
  submit(requestId: string, messages: readonly object[], more: object = {}): void {
    this.send({
      type: "send",
      requestId,
      id: "chat",
      trigger: "submit-message",
      messages,
      headers: {},
      body: {},
      ...more,
    });
  }

  /** Says something and waits for the whole answer. */
  async ask(text: string, { requestId = crypto.randomUUID(), id = crypto.randomUUID() } = {}): Promise<Reply> {
    this.submit(requestId, [userMessage(text, id)]);
    return this.reply(requestId);
  }

  /** The next frame, or the next that `matches`; those before it are passed over. */
  async nextFrame(what = "a frame", matches: (frame: Frame) => boolean = () => true): Promise<Frame> {
    await this.#until(what, () => this.frames.slice(this.#taken).some(matches));
    const index = this.frames.findIndex((frame, position) => position >= this.#taken && matches(frame));
    this.#taken = index + 1;
    // SAFETY: the wait before found it.
    return this.frames[index] as Frame;
  }

  /** All frames of a request, once its last one is here. */
  async reply(requestId: string, timeoutMs = TIMEOUT_MS): Promise<Reply> {
    const frames = () => this.frames.filter((frame) => frame.requestId === requestId);
    await this.#until(`the end of ${requestId}`, () => LAST.has(frames().at(-1)?.type ?? ""), timeoutMs);
    return replyOf(frames());
  }

  /** Waits until so many text deltas of a request have come. */
  async streaming(requestId: string, deltas = 1): Promise<void> {
    const count = () =>
      this.frames.filter((frame) => frame.requestId === requestId && frame.chunk?.type === "text-delta").length;
    await this.#until(`${deltas} words of ${requestId}`, () => count() >= deltas);
  }

  close(): void {
    try {
      this.#socket.close(1000, "done");
    } catch {
      // It has closed already.
    }
  }

  async #until(what: string, done: () => boolean, timeoutMs = TIMEOUT_MS): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    while (!done()) {
      const left = deadline - Date.now();
      if (left <= 0 || this.closed) {
        const why = this.closed ? "the socket closed" : `${timeoutMs} ms passed`;
        throw new Error(`${why} while waiting for ${what}; received ${describe(this.frames)}`);
      }
      await this.#change(left);
    }
  }

  #change(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timeout);
        this.#waiting.delete(wake);
        resolve();
      };
      const timeout = setTimeout(wake, ms);
      this.#waiting.add(wake);
    });
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
  }
}

/** Opens a socket to a session; it closes with the test. */
export async function openSocket(service: Service, session: string): Promise<Socket> {
  const socket = new Socket(await upgrade(addressOf(service, session)));
  onTestFinished(() => socket.close());
  return socket;
}

/** The client's end of a new WebSocket. Throws with the answer when the service refuses it. */
export async function upgrade(address: string, headers: Record<string, string> = {}): Promise<WebSocket> {
  const response = await request(address, { headers: { ...headers, upgrade: "websocket" } });
  if (!response.webSocket) throw new Error(`no socket but ${response.status}: ${await response.text()}`);
  return response.webSocket;
}

export function userMessage(text: string, id: string = crypto.randomUUID()): UIMessage {
  return { id, role: "user", parts: [{ type: "text", text }] };
}

/** The text that a stream of chunks spells. */
export function textOfChunks(chunks: readonly UIMessageChunk[]): string {
  return chunks.map((chunk) => (chunk.type === "text-delta" ? chunk.delta : "")).join("");
}

/** The text of a message. */
export function textOf(message: UIMessage | undefined): string {
  return message?.parts.map((part) => (part.type === "text" ? part.text : "")).join("") ?? "";
}

/** The numbers of the chunks in a reply. */
export function sequences(reply: Reply): number[] {
  return reply.frames.flatMap((frame) => frame.sequence ?? []);
}

/** 0, 1, 2 and so on: what sequences should be. */
export function counted(length: number): number[] {
  return Array.from({ length }, (_, index) => index);
}

/** What shows where an error came from, and must not leave the service. */
export const TRACES = /\bat \S+ \(|\bat (async )?\S+:\d+|node_modules|\/src\/|\.ts:\d|SELECT |INSERT |SQLITE/;

function replyOf(frames: Frame[]): Reply {
  const chunks = frames.flatMap((frame) => (frame.chunk ? [frame.chunk] : []));
  const { type = "", code, errorText } = frames.at(-1) ?? {};
  return { frames, chunks, ending: type, code, errorText, text: textOfChunks(chunks) };
}

function describe(frames: readonly Frame[]): string {
  if (frames.length === 0) return "nothing";
  const shown = frames.slice(-12).map((frame) => JSON.stringify(frame).slice(0, 160));
  return `${frames.length} frames, the last of them\n${shown.join("\n")}`;
}
