/** When a session compacts by itself no more: for a while after a failure, and until something changes after two that brought nothing. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { scripted, THRESHOLD } from "./compaction-session.ts";
import { prose } from "./context-session.ts";
import { saysNothing } from "./scripted-model.ts";

describe("after a failure", () => {
  /** ms by which the clock of the service is ahead */
  let skipped = 0;
  afterEach(() => {
    skipped = 0;
    vi.restoreAllMocks();
  });

  function later(seconds: number): void {
    skipped += seconds * 1_000;
    vi.spyOn(Date, "now").mockImplementation(() => performance.timeOrigin + performance.now() + skipped);
  }

  it("[CM10] none is begun for 30 seconds, then one, and for 60 after another failure", async () => {
    const { model, session } = await scripted("backs-off", { script: [saysNothing, saysNothing] });
    await session.fill();
    await session.recorded(1);
    await session.say("One.", 5);
    await session.evict();
    await session.say("Two.", 5);
    expect([(await session.list()).length, model.summaries.length]).toEqual([1, 1]);
    later(31);
    await session.say("Three.", 5);
    expect((await session.recorded(2)).map(({ outcome }) => outcome)).toEqual(["failed", "failed"]);
    later(31);
    await session.say("Four.", 5);
    expect(model.summaries).toHaveLength(2);
    later(61);
    await session.say("Five.", 5);
    expect((await session.recorded(3))[0]).toMatchObject({ outcome: "applied" });
  });

  it("[CM10] a person need not wait, and what works ends the waiting", async () => {
    const { session } = await scripted("manual", { script: [saysNothing] });
    await session.fill();
    await session.recorded(1);
    expect(await session.compact()).toMatchObject({ id: 2, outcome: "applied" });
    expect(await session.fillAndCompact()).toMatchObject({ id: 3, outcome: "applied", trigger: "after-turn" });
  });
});

// traps 1 and 11
describe("two compactions without progress", () => {
  const STOPPED = /^Automatic compaction has stopped: the last 2 did not bring the context below 3000 tokens\./;
  const FOUND_NOTHING = /there was nothing to take away; it is looked for again as the conversation goes on/;

  it("[CM8] that found nothing are not recorded a third time, and the report says so also after an eviction", async () => {
    const { model, session } = await scripted("strikes", { configure: (builder) => builder.system(prose(2_500)) });
    await session.say("One.", 5);
    await session.say("Two.", 5);
    expect((await session.list()).map(({ outcome }) => outcome)).toEqual(["no-progress", "no-progress"]);
    const stopped = async () => (await session.context()).warnings.filter((warning) => FOUND_NOTHING.test(warning));
    expect(await stopped()).toEqual([expect.stringContaining("are system prompt and tools")]);
    await session.evict();
    expect(await stopped()).toHaveLength(1);
    await session.say("Three.", 5);
    expect([(await session.list()).length, model.summaries.length]).toEqual([2, 0]);
    expect(await session.compact()).toMatchObject({ id: 3, trigger: "manual" });
    expect(await stopped()).toEqual([]);
    await session.say("Four.", 5);
    expect((await session.recorded(4))[0]?.trigger).not.toBe("manual");
  });

  it("[CM8] that found nothing hold nothing off: what can be taken away later is", async () => {
    const { session } = await scripted("paste");
    await session.say(prose(2_800), 5);
    expect((await session.list()).map(({ outcome }) => outcome)).toEqual(["no-progress", "no-progress"]);
    await session.say("What does it say?", 5);
    expect((await session.recorded(3))[0]).toMatchObject({ outcome: "applied" });
    expect((await session.context()).tokens).toBeLessThan(THRESHOLD);
  });

  it("[CM8] are judged by what the model then read, and a change of the threshold lifts them", async () => {
    const { session } = await scripted("judged", { configure: (builder) => builder.system(prose(2_250)) });
    for (let turn = 0; turn < 4; turn += 1) await session.say(`Turn ${turn}.`, 300);
    const [second, first, ...more] = await session.list();
    expect([first?.outcome, (first?.reportedAfter ?? 0) > THRESHOLD]).toEqual(["applied", true]);
    expect([second?.outcome, more]).toEqual(["no-progress", []]);
    expect((await session.context()).warnings.filter((warning) => STOPPED.test(warning))).toHaveLength(1);
    await session.http.call("PATCH", "", { compactAfter: 3_500 });
    expect((await session.context()).warnings.filter((warning) => STOPPED.test(warning))).toEqual([]);
    await session.say("On.", 5);
    expect((await session.recorded(3))[0]).toMatchObject({ outcome: "applied" });
  });
});
