/**
 * The chunks of one running turn, kept in memory for replay and handed to everyone who follows it.
 *
 * A follower always gets every chunk from the first: AI SDK clients rebuild the message from the beginning. Chunks
 * are serialised once, whatever the number of followers.
 */
import type { UIMessageChunk } from "ai";
import type { PublicError } from "../errors.ts";

/** One client's view of one stream. Must not throw; a client that is gone takes nothing. */
export interface StreamSink {
  /** `json` is one serialised `UIMessageChunk` */
  chunk(json: string): void;
  end(): void;
  error(error: PublicError): void;
}

/** How a stream ended; `null` while it runs. */
type Ending = { kind: "end" } | { kind: "error"; error: PublicError } | null;

export class LiveStream {
  readonly #chunks: string[] = [];
  readonly #sinks = new Set<StreamSink>();
  #ending: Ending = null;

  get ended(): boolean {
    return this.#ending !== null;
  }

  push(chunk: UIMessageChunk): void {
    const json = JSON.stringify(chunk);
    this.#chunks.push(json);
    for (const sink of this.#sinks) sink.chunk(json);
  }

  end(): void {
    this.#finish({ kind: "end" });
  }

  fail(error: PublicError): void {
    this.#finish({ kind: "error", error });
  }

  /**
   * Replays what there is, then follows. Returns the function that stops following.
   * `earlier` is replayed behind the first chunk: the steps that a continued message had before this stream.
   */
  follow(sink: StreamSink, earlier: Iterable<UIMessageChunk> = []): () => void {
    const [start, ...rest] = this.#chunks;
    if (start !== undefined) sink.chunk(start);
    for (const chunk of earlier) sink.chunk(JSON.stringify(chunk));
    for (const json of rest) sink.chunk(json);
    if (this.#ending) deliver(this.#ending, sink);
    else this.#sinks.add(sink);
    return () => this.#sinks.delete(sink);
  }

  #finish(ending: NonNullable<Ending>): void {
    if (this.#ending) return;
    this.#ending = ending;
    for (const sink of this.#sinks) deliver(ending, sink);
    this.#sinks.clear();
  }
}

function deliver(ending: NonNullable<Ending>, sink: StreamSink): void {
  if (ending.kind === "end") sink.end();
  else sink.error(ending.error);
}
