/** The AI SDK's own chat, as a page would use it: the stock transport, the stock state machine, state in memory. */
import {
  AbstractChat,
  WebSocketChatTransport,
  type ChatInit,
  type ChatState,
  type ChatStatus,
  type UIMessage,
  type WebSocketChatTransportInitOptions,
} from "ai";
import { onTestFinished } from "vitest";
import { addressOf, request } from "./service.ts";
import type { Service } from "./worker.ts";

type SocketConstructor = NonNullable<WebSocketChatTransportInitOptions<UIMessage>["webSocket"]>;
type StockSocket = InstanceType<SocketConstructor>;

class MemoryState implements ChatState<UIMessage> {
  status: ChatStatus = "ready";
  error: Error | undefined = undefined;
  messages: UIMessage[];

  constructor(messages: UIMessage[]) {
    this.messages = messages;
  }

  pushMessage = (message: UIMessage): void => {
    this.messages = [...this.messages, message];
  };

  popMessage = (): void => {
    this.messages = this.messages.slice(0, -1);
  };

  replaceMessage = (index: number, message: UIMessage): void => {
    this.messages = this.messages.with(index, message);
  };

  snapshot = <T>(thing: T): T => structuredClone(thing);
}

/** A chat that answers nothing by itself: each call is awaited by the test. */
export class ChatClient extends AbstractChat<UIMessage> {
  readonly #sockets: OpenSocket[];
  readonly #stock: WebSocketChatTransport<UIMessage>;

  constructor(service: Service, session: string, init: ChatInit<UIMessage> & { body?: object } = {}) {
    const sockets: OpenSocket[] = [];
    const { messages = [], body, ...rest } = init;
    const transport = new WebSocketChatTransport<UIMessage>({
      url: addressOf(service, session),
      webSocket: socketConstructor(sockets),
      ...(body && { body }),
    });
    super({ ...rest, id: session, transport, state: new MemoryState(messages) });
    this.#sockets = sockets;
    this.#stock = transport;
    onTestFinished(() => this.close());
  }

  /** The connection breaks, as when a tunnel swallows a train. */
  dropConnection(): void {
    for (const socket of this.#sockets) socket.drop();
  }

  close(): void {
    this.#stock.close();
  }
}

/** Waits for what a chat does, and says what it holds when it does not. */
export async function within<T>(what: string, work: Promise<T>, chat: ChatClient, timeoutMs = 5_000): Promise<T> {
  let timeout: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timeout = setTimeout(() => {
      const held = JSON.stringify(chat.messages).slice(-800);
      reject(new Error(`waited ${timeoutMs} ms for ${what}; the chat is ${chat.status} and holds ${held}`));
    }, timeoutMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timeout);
  }
}

interface OpenSocket {
  drop(): void;
}

/** A `WebSocket` constructor whose sockets lead to the Worker under test. */
function socketConstructor(opened: OpenSocket[]): SocketConstructor {
  return class implements StockSocket, OpenSocket {
    readyState = 0;
    onopen: StockSocket["onopen"] = null;
    onmessage: StockSocket["onmessage"] = null;
    onerror: StockSocket["onerror"] = null;
    onclose: StockSocket["onclose"] = null;
    #socket: WebSocket | undefined;

    constructor(url: string | URL) {
      opened.push(this);
      this.#open(String(url).replace(/^ws/, "http")).catch((error: unknown) => this.onerror?.(error));
    }

    send(data: string | Uint8Array | ArrayBuffer): void {
      this.#socket?.send(data);
    }

    close(code?: number, reason?: string): void {
      this.#leave(code ?? 1000, reason ?? "");
    }

    drop(): void {
      this.#leave(4000, "the connection broke");
    }

    async #open(address: string): Promise<void> {
      const { webSocket, status } = await request(address, { headers: { upgrade: "websocket" } });
      if (!webSocket) throw new Error(`no socket but ${status}`);
      this.#socket = webSocket;
      webSocket.addEventListener("message", ({ data }) => this.readyState === 1 && this.onmessage?.({ data }));
      webSocket.addEventListener("close", ({ code, reason }) => this.#ended(code, reason));
      webSocket.addEventListener("error", () => this.#ended(1006, "error"));
      webSocket.accept();
      this.readyState = 1;
      this.onopen?.({});
    }

    #leave(code: number, reason: string): void {
      try {
        this.#socket?.close(code, reason);
      } catch {
        // It has closed already.
      }
      this.#ended(code, reason);
    }

    #ended(code: number, reason: string): void {
      if (this.readyState === 3) return;
      this.readyState = 3;
      this.onclose?.({ code, reason });
    }
  };
}
