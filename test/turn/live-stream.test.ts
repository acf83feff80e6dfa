import type { UIMessageChunk } from "ai";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { publicError, SessionError } from "../../src/errors.ts";
import { LiveStream, type StreamSink } from "../../src/turn/live-stream.ts";

/** What one follower was given, in order. */
class Follower implements StreamSink {
  readonly received: unknown[] = [];

  chunk(json: string): void {
    this.received.push(JSON.parse(json));
  }

  end(): void {
    this.received.push("end");
  }

  error({ code }: { code: string }): void {
    this.received.push(code);
  }
}

const delta = (n: number): UIMessageChunk => ({ type: "text-delta", id: "t", delta: String(n) });
const START: UIMessageChunk = { type: "start", messageId: "a" };

describe("following", () => {
  it("[WP3] every follower gets every chunk from the first, once and in order, whenever it comes", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(20), { maxLength: 8 }), fc.nat(20), (arrivals, count) => {
        const stream = new LiveStream();
        const followers: Follower[] = [];
        const sent = [START, ...Array.from({ length: count }, (_, index) => delta(index))];
        const arrive = (now: number) => {
          for (const at of arrivals) if (at === now) stream.follow(addTo(followers));
        };
        sent.forEach((chunk, index) => {
          arrive(index);
          stream.push(chunk);
        });
        for (let late = sent.length; late <= 20; late += 1) arrive(late);
        stream.end();
        stream.follow(addTo(followers));
        for (const { received } of followers) expect(received).toEqual([...sent, "end"]);
      }),
    );
  });

  it("[WP3] one that leaves gets nothing more, and the others go on", () => {
    const stream = new LiveStream();
    const [leaving, staying] = [new Follower(), new Follower()];
    const leave = stream.follow(leaving);
    stream.follow(staying);
    stream.push(START);
    leave();
    leave();
    stream.push(delta(1));
    stream.end();
    expect([leaving.received, staying.received]).toEqual([[START], [START, delta(1), "end"]]);
  });

  it("[WP3] one that leaves while it is given a chunk takes the chunk from no other", () => {
    const stream = new LiveStream();
    const other = new Follower();
    let leave = () => {};
    leave = stream.follow({ chunk: () => leave(), end: () => {}, error: () => {} });
    stream.follow(other);
    stream.push(START);
    expect(other.received).toEqual([START]);
  });

  it("[WP3] older steps are replayed behind the first chunk", () => {
    const stream = new LiveStream();
    const follower = new Follower();
    stream.push(START);
    stream.push(delta(1));
    stream.follow(follower, [{ type: "start-step" }]);
    stream.push(delta(2));
    expect(follower.received).toEqual([START, { type: "start-step" }, delta(1), delta(2)]);
  });

  it("[WP1] a stream ends once: what comes after its end changes nothing", () => {
    const stream = new LiveStream();
    const follower = new Follower();
    stream.follow(follower);
    expect(stream.ended).toBe(false);
    stream.end();
    stream.fail(publicError(new SessionError("model-failed", "late")));
    stream.end();
    expect([follower.received, stream.ended]).toEqual([["end"], true]);
  });

  it("[TN18] a failure reaches those who follow and those who come later", () => {
    const stream = new LiveStream();
    const [now, later] = [new Follower(), new Follower()];
    stream.follow(now);
    stream.push(START);
    stream.fail(publicError(new SessionError("model-failed", "no")));
    stream.follow(later);
    expect([now.received, later.received]).toEqual([
      [START, "model-failed"],
      [START, "model-failed"],
    ]);
  });

  it("[WP3] chunks are kept as they were when they were sent", () => {
    const stream = new LiveStream();
    const chunk = { type: "data-note" as const, data: { v: 1 } };
    stream.push(chunk);
    chunk.data.v = 2;
    const follower = new Follower();
    stream.follow(follower);
    expect(follower.received).toEqual([{ type: "data-note", data: { v: 1 } }]);
  });
});

function addTo(followers: Follower[]): Follower {
  const follower = new Follower();
  followers.push(follower);
  return follower;
}
