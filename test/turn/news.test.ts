import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import type { SessionEvent } from "../../src/events.ts";
import { SessionNews, type NewsItem } from "../../src/turn/news.ts";

const event = (tokens: number): SessionEvent => ({ type: "context", data: { tokens } });
const tokensOf = (items: readonly NewsItem[]) => items.map(({ json }) => JSON.parse(json).data.tokens);
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index);

function told(count: number, epoch = "now"): SessionNews {
  const news = new SessionNews(epoch);
  for (const tokens of range(1, count)) news.publish(event(tokens));
  return news;
}

describe("those who follow", () => {
  it("[EV1] get every event from then on, in order, each with a cursor of its own", () => {
    const news = told(2);
    const items: NewsItem[] = [];
    news.follow((item) => items.push(item));
    for (const tokens of [3, 4, 5]) news.publish(event(tokens));
    expect(items).toEqual(
      [3, 4, 5].map((tokens) => ({ cursor: `now.${tokens}`, json: `{"type":"context","data":{"tokens":${tokens}}}` })),
    );
  });

  it("[EV1] get an event as it was when it was told", () => {
    const news = told(0);
    const data = { tokens: 1 };
    news.publish({ type: "context", data });
    data.tokens = 2;
    expect(tokensOf(news.since("now.0").missed)).toEqual([1]);
  });

  it("[EV1] take nothing from each other when one leaves or throws", () => {
    const log = vi.spyOn(console, "error").mockImplementation(() => {});
    const news = told(0);
    const heard: string[] = [];
    const leave = news.follow(({ cursor }) => {
      heard.push(`leaving ${cursor}`);
      leave();
    });
    news.follow(({ cursor }) => {
      heard.push(`failing ${cursor}`);
      throw new Error("no");
    });
    news.follow(({ cursor }) => heard.push(`staying ${cursor}`));
    news.publish(event(1));
    news.publish(event(2));
    expect(heard).toEqual(["leaving now.1", "failing now.1", "staying now.1", "staying now.2"]);
    expect(log.mock.calls.map(([line]) => line)).toEqual(["a listener of the session's news failed"]);
    log.mockRestore();
  });
});

describe("a cursor", () => {
  it("[EV2] continues without gap or repeat, wherever it was taken and however much was told since", () => {
    fc.assert(
      fc.property(fc.nat(130), fc.nat(130), (before, after) => {
        const news = told(before);
        const { cursor } = news;
        for (const tokens of range(before + 1, before + after)) news.publish(event(tokens));
        const { replayed, missed, cursor: place } = news.since(cursor);
        const kept = after <= 100;
        expect({ replayed, place, missed: tokensOf(missed) }).toEqual({
          replayed: kept,
          place: kept ? cursor : news.cursor,
          missed: kept ? range(before + 1, before + after) : [],
        });
      }),
    );
  });

  it("[EV2] of the hundredth event before the newest still continues, an older one does not", () => {
    const news = told(250);
    expect(tokensOf(news.since("now.150").missed)).toEqual(range(151, 250));
    expect(news.since("now.149")).toEqual({ replayed: false, cursor: "now.250", missed: [] });
  });

  it("[EV2] at the newest event continues with nothing", () => {
    expect(told(3).since("now.3")).toEqual({ replayed: true, cursor: "now.3", missed: [] });
    expect(told(0).since("now.0")).toEqual({ replayed: true, cursor: "now.0", missed: [] });
  });

  it.each(["then.2", "now.4", "now.-1", "now.02", "now.2.0", "now", "2", "", null])(
    "[EV2] that was never given, %j, tells nothing of what was missed",
    (cursor) => {
      expect(told(3).since(cursor)).toEqual({ replayed: false, cursor: "now.3", missed: [] });
    },
  );
});
