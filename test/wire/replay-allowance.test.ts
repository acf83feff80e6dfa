import { describe, expect, it } from "vitest";
import { SessionError } from "../../src/errors.ts";
import { ReplayAllowance } from "../../src/wire/replay-allowance.ts";

function allowance() {
  const time = { now: 1_000 };
  const replays = new ReplayAllowance(() => time.now);
  const take = (socket: string): string => {
    try {
      replays.take(socket);
    } catch (error) {
      if (error instanceof SessionError) return error.code;
      throw error;
    }
    return "taken";
  };
  return {
    time,
    replays,
    take,
    takeMany: (socket: string, count: number) => Array.from({ length: count }, () => take(socket)),
  };
}

const TAKEN = Array.from({ length: 10 }, () => "taken");

describe("the replays of a socket", () => {
  it("[WP11] are ten, and the eleventh within ten seconds is refused", () => {
    const { time, take, takeMany } = allowance();
    expect(takeMany("a", 11)).toEqual([...TAKEN, "too-many-requests"]);
    time.now += 9_999;
    expect(take("a")).toBe("too-many-requests");
  });

  it("[WP11] come back one by one, ten seconds after each was taken; a refused one costs nothing", () => {
    const { time, take, takeMany } = allowance();
    take("a");
    time.now += 4_000;
    takeMany("a", 9);
    time.now += 6_000;
    expect(takeMany("a", 3)).toEqual(["taken", "too-many-requests", "too-many-requests"]);
    time.now += 4_000;
    expect(takeMany("a", 10)).toEqual([...TAKEN.slice(1), "too-many-requests"]);
  });

  it("[WP11] are each socket's own, and end with it", () => {
    const { replays, take, takeMany } = allowance();
    takeMany("a", 11);
    expect(take("b")).toBe("taken");
    replays.forget("a");
    expect(takeMany("a", 11)).toEqual([...TAKEN, "too-many-requests"]);
  });
});
