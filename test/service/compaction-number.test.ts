/** The number after a compaction: what the model then reads, whoever counts, and whatever happened meanwhile. */
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { CountedPrompt } from "../../src/context/counters.ts";
import { countMirrorTokens } from "../../src/models/mirror-tokenizer.ts";
import { compactionSession, scripted, THRESHOLD } from "./compaction-session.ts";
import { prose } from "./context-session.ts";
import { slowly } from "./scripted-model.ts";
import { eventually } from "./service.ts";
import { textOf, userMessage } from "./socket.ts";

describe("the number", () => {
  // traps 6, 10, 31, 34: nothing stale, the overhead once, one scale, and never "unknown" where it is known
  it("[CM15][CX1] after a compaction is what the model then reads, to two percent, also after an eviction", async () => {
    const session = await compactionSession("known", (builder) => builder.system(prose(120)));
    await session.talk(14);
    expect(await session.recorded(1)).toMatchObject([{ outcome: "applied" }]);
    const { sameWhenCold, knownError, firstError, secondError } = await session.aftermath();
    expect(sameWhenCold).toBe(true);
    expect([knownError, firstError, secondError].filter((error) => Math.abs(error) > 2)).toEqual([]);
  });

  // trap 11: what a compaction brought is what the next call says
  it("[CM8][CM15] `reportedAfter` is the input of the first call that was built with it, and stays", async () => {
    const session = await compactionSession("reported-after");
    const { id, reportedAfter } = await session.fillAndCompact();
    expect(reportedAfter).toBe(null);
    await session.say("One.", 10);
    const first = (await session.http.usage()).records[0]?.usage?.inputTokens;
    await session.say("Two.", 10);
    expect(await session.newest()).toMatchObject({ id, reportedAfter: first });
  });

  it("[CM15] and the prompt are the same after the object was evicted", async () => {
    const { model, session } = await scripted("evicted");
    await session.fillAndCompact();
    const warm = await session.context();
    await session.say("Same?", 10);
    const { prompt } = model.turns.at(-1) ?? {};
    await session.regenerate();
    expect(model.turns.at(-1)?.prompt).toEqual(prompt);
    await session.evict();
    await session.regenerate();
    expect(model.turns.at(-1)?.prompt).toEqual(prompt);
    const other = await scripted("evicted-number");
    await other.session.fillAndCompact();
    expect(await other.session.coldContext()).toEqual(warm);
  });

  // trap 6: the newest report is of a prompt that is not shown any more
  it("[CM15][CM16] is right where a compaction takes effect while a call without it is under way", async () => {
    const slow = slowly();
    const { model, session } = await scripted("in-flight", { script: [slow.summarise] });
    await session.fill();
    await eventually(
      "a summary under way",
      () => model.summaries.length,
      (asked) => asked === 1,
    );
    session.socket.submit("long", [userMessage("Meanwhile.\n/words 30\n/slow 10")]);
    await session.socket.streaming("long", 3);
    slow.release();
    const [compaction] = await session.recorded(1);
    await session.socket.reply("long");
    const actual = (await session.predictions())[0]?.actual;
    const { tokens, basis } = await session.context();
    expect([(actual ?? 0) > THRESHOLD, tokens < 0.8 * THRESHOLD, basis]).toEqual([true, true, "anchored"]);
    expect(compaction).toMatchObject({ outcome: "applied", reportedAfter: null });
    const { sameWhenCold, knownError } = await session.aftermath();
    expect([sameWhenCold, Math.abs(knownError) <= 3]).toEqual([true, true]);
    expect((await session.newest()).reportedAfter).toBe(model.read.at(-2));
  });

  // trap 21: a flat price for an image, and its bytes are nobody's tokens
  it("[CM15][CM22][AC14] is right where images leave, and no summariser is sent their bytes", async () => {
    const { model, session } = await scripted("images");
    const bytes = "iVBORw0KGgo".repeat(10_000);
    for (const name of ["pier.png", "gate.png"]) {
      const file = { type: "file", mediaType: "image/png", filename: name, url: `data:image/png;base64,${bytes}` };
      const { parts, ...message } = userMessage(`What is on ${name}?\n/words 20`);
      session.socket.submit(name, [{ ...message, parts: [...parts, file] }]);
      await session.socket.reply(name);
    }
    const compaction = await session.fillAndCompact();
    expect([compaction.outcome, model.asked[0]?.includes("[user, file] image/png, pier.png")]).toEqual([
      "applied",
      true,
    ]);
    expect(model.asked.filter((asked) => asked.includes("iVBORw0KGgo"))).toEqual([]);
    expect(Math.abs((await session.aftermath()).knownError)).toBeLessThanOrEqual(3);
  });

  // trap 40: everything in one millisecond is still in order
  it("[CM15][ST1] and the records are right where the clock stands still", async () => {
    const clock = vi.spyOn(Date, "now").mockReturnValue(Date.now());
    onTestFinished(() => clock.mockRestore());
    const { model, session } = await scripted("clock");
    await session.fillAndCompact();
    await session.say("One.", 10);
    await session.compact();
    await session.say("Two.", 10);
    const [second, first] = await session.list();
    expect(
      [first, second].map((compaction) => [compaction?.id, compaction?.reportedAfter, compaction?.durationMs]),
    ).toEqual([
      [1, model.read.at(-2), 0],
      [2, model.read.at(-1), 0],
    ]);
    const { records } = await session.http.usage();
    expect(records.slice(0, 4).map(({ purpose }) => purpose)).toEqual(["turn", "summary", "turn", "summary"]);
    expect((await session.errors()).slice(0, 2).filter((error) => Math.abs(error) > 3)).toEqual([]);
  });

  it("[CM15] is right where what leaves had never been read by a model", async () => {
    const { session } = await scripted("unread", { configure: (builder) => builder.compactAfter(20_000) });
    await session.say("Hello.", 10);
    const messages = Array.from({ length: 20 }, (_, index) => ({
      ...userMessage(`Message ${index}. ${prose(150, index)}`),
      role: index % 2 ? "assistant" : "user",
    }));
    await session.http.call("POST", "/messages", { messages });
    const before = await session.context();
    await session.http.call("PATCH", "", { tailTokenBudget: 600 });
    const { outcome, tokensAfter } = await session.compact();
    expect([before.basis, outcome, (tokensAfter ?? 0) < 1_200]).toEqual(["anchored", "applied", true]);
    const { tokens, breakdown } = await session.context();
    expect([tokens, breakdown.messages > 300]).toEqual([tokensAfter, true]);
    await session.say("And?", 10);
    // no report has said yet what this text weighs in mirror's tokens
    expect((await session.errors()).slice(0, 1).filter((error) => Math.abs(error) > 25)).toEqual([]);
  });
});

describe("a counter", () => {
  const asked: number[] = [];

  /** Two tokens for each of mirror's: on another scale than what the model reports. */
  function twice({ messages, system }: CountedPrompt): number {
    asked.push(messages.length);
    const texts = messages.map(({ content }) =>
      typeof content === "string" ? content : content.map((part) => (part.type === "text" ? part.text : "")).join("\n"),
    );
    return 2 * [system, ...texts].reduce((sum, text) => sum + 4 + countMirrorTokens(text), 3);
  }

  // traps 1 and 2: one number for fire and cut, whatever the scale, and a counter is asked of whole prompts
  it("[AC21][CM7] that gives the last usage is not acted on a second time before it has counted anew", async () => {
    let usage = 1;
    const { session } = await scripted("last-usage", {
      configure: (builder) => builder.compactAfter(THRESHOLD, { tokenCounter: () => usage }),
    });
    await session.talk(8);
    usage = THRESHOLD + 100;
    await session.say("One.", 5);
    expect((await session.recorded(1))[0]).toMatchObject({ outcome: "applied", tokensBefore: usage });
    await session.say("Two.", 5);
    expect(await session.list()).toHaveLength(1);
    usage += 1;
    await session.say("Three.", 5);
    expect((await session.recorded(2))[0]).toMatchObject({ tokensBefore: usage });
  });

  it("[AC21][CM3][CM1] decides when it fires, and the tail is as long in its tokens as it was asked to be", async () => {
    const { model, session } = await scripted("counter", {
      configure: (builder) =>
        builder.compactAfter(2 * THRESHOLD, { tokenCounter: twice }).compaction({ tailTokenBudget: 2_000 }),
    });
    const compaction = await session.fillAndCompact(2 * THRESHOLD);
    expect(compaction).toMatchObject({ outcome: "applied", trigger: "after-turn" });
    expect(compaction.tokensBefore).toBeGreaterThan(2 * THRESHOLD);
    expect(model.read.at(-1)).toBeLessThan(1.1 * THRESHOLD);
    expect(asked.filter((messages) => messages === 1).length).toBeLessThan(4);
    const { tokens, basis, breakdown } = await session.context();
    expect([basis, Math.abs(tokens - (compaction.tokensAfter ?? 0)) < 0.05 * tokens]).toEqual(["counter", true]);
    const kept = (await session.http.messages()).slice(compaction.coveredMessages);
    const weight = 2 * kept.reduce((sum, message) => sum + 4 + countMirrorTokens(textOf(message)), 0);
    expect([weight <= 2_000 * 1.03, weight > 1_000, breakdown.messages > 1_000]).toEqual([true, true, true]);
  });
});

// trap 24
describe("another model", () => {
  it("[CM17][CM23][CX4] with a smaller window makes the next turn wait for a summary, which is written in chunks", async () => {
    const { model, session } = await scripted("downshift", {
      configure: (builder) => builder.contextWindow(200_000).compactAfter(150_000),
    });
    const messages = Array.from({ length: 30 }, (_, index) => ({
      ...userMessage(`Message ${index}. ${prose(1_000, index)}`, `m-${index}`),
      role: index % 2 ? "assistant" : "user",
    }));
    await session.http.call("POST", "/messages", { messages });
    await session.say("Hello.", 10);
    expect(await session.list()).toEqual([]);
    await session.http.call("PATCH", "", { model: "mirror" });
    const reply = await session.say("And now?", 10);
    expect([reply.ending, reply.text.split(" ").length, model.turns.length]).toEqual(["end", 10, 1]);
    const [compaction] = await session.recorded(1);
    expect(compaction).toMatchObject({ outcome: "applied", model: "mirror" });
    const { records } = await session.http.usage();
    expect(records.find(({ purpose }) => purpose === "summary")?.calls).toBeGreaterThan(1);
    expect((await session.context()).tokens).toBeLessThan(27_904);
    await session.http.call("PATCH", "", { model: null });
    expect((await session.say("And back?", 10)).ending).toBe("end");
    expect(model.shown[0]).toMatch(/^<summary>/);
  });
});
