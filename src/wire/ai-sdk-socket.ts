/**
 * The AI SDK's WebSocket chat protocol, as `WebSocketChatTransport` of `ai` speaks it (docs/protocol.md).
 *
 * Client to server: `send`, `resume`, `abort`. Server to client: `start`, `chunk`, `end`, `error`, `no-active`, each
 * with the request's id. That client closes its socket on a type it does not know, so nothing else is ever sent here.
 */
import { z } from "zod";
import { publicError, SessionError, type PublicError } from "../errors.ts";
import type { StreamSink } from "../turn/live-stream.ts";
import type { Session } from "../turn/session.ts";
import type { Following } from "../turn/turn-line.ts";
import { ReplayAllowance } from "./replay-allowance.ts";

const REQUEST_ID = z.string().min(1).max(256);

const FRAME = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("send"),
    requestId: REQUEST_ID,
    trigger: z.enum(["submit-message", "regenerate-message"]),
    messageId: z.string().min(1).max(256).optional(),
    messages: z.array(z.unknown()),
    body: z.looseObject({ clientTools: z.unknown().optional() }).optional(),
  }),
  z.object({ type: z.literal("resume"), requestId: REQUEST_ID }),
  z.object({ type: z.literal("abort"), requestId: REQUEST_ID }),
]);

/** What is needed of a frame that is refused. */
const ANY_FRAME = z.object({ requestId: z.string() });

type SendFrame = Extract<z.infer<typeof FRAME>, { type: "send" }>;

/** What is needed of a socket. `send` throws when it is closed. */
export interface FrameSocket {
  id: string;
  send(text: string): void;
}

export class AiSdkSocket {
  readonly #session: Session;
  /** what each socket follows, by request id */
  readonly #followings = new Map<string, Map<string, Following>>();
  readonly #replays: ReplayAllowance;

  /** `clock` gives ms since the epoch */
  constructor(session: Session, clock: () => number) {
    this.#session = session;
    this.#replays = new ReplayAllowance(clock);
  }

  /** Handles one frame. Never throws: what goes wrong is an `error` frame on the request it belongs to. */
  async receive(socket: FrameSocket, data: unknown): Promise<void> {
    try {
      await this.#handle(socket, this.#read(data));
    } catch (error) {
      refuseFrame(socket, data, error);
      if (!(error instanceof SessionError)) console.error("frame failed", error);
    }
  }

  /** The socket is gone. Its turns go on. */
  closed(socketId: string): void {
    for (const following of this.#followings.get(socketId)?.values() ?? []) following.leave();
    this.#followings.delete(socketId);
    this.#replays.forget(socketId);
  }

  async #handle(socket: FrameSocket, frame: z.infer<typeof FRAME>): Promise<void> {
    switch (frame.type) {
      case "send":
        return this.#send(socket, frame);
      case "resume":
        return this.#resume(socket, frame.requestId);
      case "abort":
        return this.#followings.get(socket.id)?.get(frame.requestId)?.abort();
    }
  }

  async #send(socket: FrameSocket, { requestId, trigger, messageId, messages, body }: SendFrame): Promise<void> {
    const request = { requestId, trigger, messageId, messages, clientTools: body?.clientTools };
    this.#leave(socket.id, requestId);
    const sink = new RequestSink(socket, requestId, () => this.#forget(socket.id, requestId));
    this.#remember(socket.id, requestId, sink, await this.#session.line.submit(request, sink));
  }

  #resume(socket: FrameSocket, requestId: string): void {
    this.#replays.take(socket.id);
    this.#leave(socket.id, requestId);
    const sink = new RequestSink(socket, requestId, () => this.#forget(socket.id, requestId));
    // `start` has to come before the replay and only if there is one, and following replays at once.
    sink.openWith({ type: "start", requestId });
    const following = this.#session.line.resume(sink);
    if (following) this.#remember(socket.id, requestId, sink, following);
    else deliver(socket, { type: "no-active", requestId });
  }

  #remember(socketId: string, requestId: string, sink: RequestSink, following: Following): void {
    if (sink.done) return following.leave();
    const known = this.#followings.get(socketId) ?? new Map<string, Following>();
    this.#followings.set(socketId, known.set(requestId, following));
  }

  /** A request id that is used again is a new request: the old one is not answered any more. */
  #leave(socketId: string, requestId: string): void {
    this.#followings.get(socketId)?.get(requestId)?.leave();
    this.#forget(socketId, requestId);
  }

  #forget(socketId: string, requestId: string): void {
    const known = this.#followings.get(socketId);
    known?.delete(requestId);
    if (known?.size === 0) this.#followings.delete(socketId);
  }

  #read(data: unknown): z.infer<typeof FRAME> {
    if (typeof data !== "string") throw new SessionError("invalid-frame", "Frames are JSON text; this one was binary.");
    const { frameLength } = this.#session.configuration.limits;
    if (data.length > frameLength) {
      throw new SessionError(
        "frame-too-large",
        `The frame has ${data.length} characters; at most ${frameLength} are allowed. Send only new messages with prepareSendMessagesRequest.`,
      );
    }
    const frame = FRAME.safeParse(parseJson(data));
    if (frame.success) return frame.data;
    const issue = frame.error.issues[0];
    const where = issue?.path.map(String).join(".");
    throw new SessionError("invalid-frame", `The frame is not valid: ${where ? `${where}: ` : ""}${issue?.message}`);
  }
}

/** Numbers the chunks of one response. The number counts what this socket was sent, so a replay has no gaps either. */
class RequestSink implements StreamSink {
  done = false;
  readonly #socket: FrameSocket;
  readonly #prefix: string;
  readonly #requestId: string;
  readonly #onDone: () => void;
  #opening: object | undefined;
  #sequence = 0;

  constructor(socket: FrameSocket, requestId: string, onDone: () => void) {
    this.#socket = socket;
    this.#requestId = requestId;
    this.#onDone = onDone;
    this.#prefix = `{"type":"chunk","requestId":${JSON.stringify(requestId)},"sequence":`;
  }

  /** Sends this frame before the first one, whatever that is. */
  openWith(frame: object): void {
    this.#opening = frame;
  }

  chunk(json: string): void {
    this.#open();
    deliver(this.#socket, `${this.#prefix}${this.#sequence},"chunk":${json}}`);
    this.#sequence += 1;
  }

  end(): void {
    this.#open();
    deliver(this.#socket, { type: "end", requestId: this.#requestId });
    this.#finish();
  }

  error(error: PublicError): void {
    this.#open();
    sendError(this.#socket, this.#requestId, error);
    this.#finish();
  }

  #open(): void {
    if (!this.#opening) return;
    deliver(this.#socket, this.#opening);
    this.#opening = undefined;
  }

  #finish(): void {
    this.done = true;
    this.#onDone();
  }
}

/** Answers a frame with the error that came of it, on the request it belongs to. */
export function refuseFrame(socket: FrameSocket, data: unknown, error: unknown): void {
  const refusal = publicError(error);
  const parse = refusal.code !== "frame-too-large";
  sendError(socket, requestIdIn(data, parse), refusal);
}

/** Stock clients show `errorText` alone, so the code stands in it too. */
function sendError(socket: FrameSocket, requestId: string, { code, message }: PublicError): void {
  deliver(socket, { type: "error", requestId, code, errorText: `${code}: ${message}` });
}

function deliver(socket: FrameSocket, frame: object | string): void {
  try {
    socket.send(typeof frame === "string" ? frame : JSON.stringify(frame));
  } catch {
    // The socket has closed; its close event does the rest.
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new SessionError("invalid-frame", "The frame is not JSON.");
  }
}

/**
 * The id a refused frame was sent under. In one that cannot be parsed it is looked for near the front, where stock
 * clients write it. Empty when it cannot be told.
 */
function requestIdIn(data: unknown, parse: boolean): string {
  if (typeof data !== "string") return "";
  const atFront = /"requestId"\s*:\s*"([^"\\]{1,256})"/.exec(data.slice(0, 1_024))?.[1] ?? "";
  if (!parse) return atFront;
  try {
    return ANY_FRAME.parse(JSON.parse(data)).requestId;
  } catch (error) {
    return error instanceof SyntaxError ? atFront : "";
  }
}
