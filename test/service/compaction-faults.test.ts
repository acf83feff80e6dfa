/** Everything that goes wrong while a session compacts: nothing is lost, and the next turn works. */
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { bytesOf, compactionSession, scripted, THRESHOLD, type Scripted } from "./compaction-session.ts";
import { logged, prose } from "./context-session.ts";
import {
  callsATool,
  echoes,
  hangs,
  reachesItsLimit,
  refusal,
  says,
  saysNothing,
  ScriptedModel,
  slowly,
  throws,
  type Summarising,
} from "./scripted-model.ts";
import { crash, eventually } from "./service.ts";
import { openSocket } from "./socket.ts";

/** A session with a summary under way that nobody answers yet. */
async function underway(topic: string): Promise<Scripted & { release: () => void; before: string }> {
  const slow = slowly();
  const { model, session } = await scripted(topic, { script: [slow.summarise] });
  await session.fill();
  await eventually(
    "a summary under way",
    () => model.summaries.length,
    (asked) => asked === 1,
  );
  return { model, session, release: slow.release, before: bytesOf(await session.http.messages()) };
}

/** That everything is still there, and that the next turn is shown all of it. */
async function expectWhole({ model, session }: Scripted, before: string): Promise<void> {
  const messages = await session.http.messages();
  expect(bytesOf(messages)).toBe(before);
  expect((await session.context()).breakdown.summary).toBe(0);
  const reply = await session.say("And?", 5);
  expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 5]);
  expect(model.shown).toHaveLength(messages.length + 1);
}

function isSummarised({ model }: Scripted): boolean {
  return model.shown[0]?.startsWith("<summary>") ?? false;
}

const LATE: readonly Summarising[] = [hangs];

// traps 18 and 36: nothing of it is committed, and what it cost is booked
describe("a summariser that", () => {
  it.each<[string, readonly Summarising[], string]>([
    ["throws", [throws(new Error("out of ink"))], "The model failed: out of ink."],
    ["is refused", [throws(refusal(401, "bad key sk-1234"))], "The model failed: its provider refused the key."],
    ["says nothing", [saysNothing], "The model wrote no summary."],
    ["calls a tool", [callsATool], "The model called a tool instead of writing a summary."],
    ["stops at its length limit", [reachesItsLimit], "The summary was cut off at the model's output limit."],
    ["echoes the prompt", [echoes], "The model repeated the conversation instead of summarising it."],
    ["is late", LATE, "The summary was not written within 80 ms."],
  ])("[CM24] %s changes nothing, is booked, and the next turn works", async (_what, script, reason) => {
    const { model, session } = await scripted("faulty", {
      script,
      configure: (builder) => builder.compaction({ timeoutMs: 80 }),
    });
    await session.http.call("PATCH", "", { compactAfter: "off" });
    await session.fill();
    const before = bytesOf(await session.http.messages());
    const { usage } = await session.http.summary();
    await session.http.call("PATCH", "", { compactAfter: null });
    await session.reconsider();
    expect(await session.recorded(1)).toMatchObject([{ outcome: "failed", reason, tokensAfter: null, summary: null }]);
    const after = await session.http.usage();
    expect(after.totals.calls - usage.calls).toBe(1);
    expect(after.records[0]).toMatchObject({ purpose: "summary", compaction: 1, finishReason: "error" });
    await expectWhole({ model, session }, before);
    expect(await session.list()).toHaveLength(1);
  });

  it("[CM24] has no key is named, and nothing is stored", async () => {
    logged();
    const { model, session } = await scripted("keyless", {
      configure: (builder) => builder.compaction({ model: "openai/gpt-5-mini" }),
    });
    await session.fill();
    const [compaction] = await session.recorded(1);
    expect(compaction).toMatchObject({ outcome: "failed", reason: expect.stringContaining("OPENAI_API_KEY") });
    await expectWhole({ model, session }, bytesOf(await session.http.messages()));
  });

  // trap 19
  it("[CM23] finds a chunk too long is given shorter ones", async () => {
    const { model, session } = await scripted("overflows", {
      script: [throws(refusal(400, "prompt is too long: 40000 tokens > 32000 maximum"))],
    });
    const compaction = await session.fillAndCompact();
    expect(compaction).toMatchObject({ outcome: "applied", reason: null });
    expect(model.asked.length).toBeGreaterThan(1);
  });

  // traps 25 and 6: a turn reports more than the context then has, and the number knows it
  it("[CM17][CM16][CM15] is slower than the next three turns does not hold them up, and then takes effect", async () => {
    const { model, session, release } = await underway("slow");
    for (let turn = 0; turn < 3; turn += 1) {
      expect((await session.say(`Meanwhile ${turn}.`, 60)).ending).toBe("end");
      expect([isSummarised({ model, session }), (await session.list()).length]).toEqual([false, 0]);
    }
    const { tokens } = await session.context();
    release();
    const [compaction] = await session.recorded(1);
    expect(compaction).toMatchObject({ id: 1, outcome: "applied", reportedAfter: null });
    const after = await session.context();
    expect([tokens > THRESHOLD, after.tokens < 0.8 * THRESHOLD]).toEqual([true, true]);
    expect(after.tokens).toBeGreaterThan(compaction?.tokensAfter ?? 0);
    await session.say("And?", 5);
    expect(isSummarised({ model, session })).toBe(true);
    expect((await session.errors()).slice(0, 1).filter((error) => Math.abs(error) > 2)).toEqual([]);
    expect(model.summaries).toHaveLength(1);
  });
});

// trap 31: what is compared is the same number, before and after
it("[CM7][CM24] a summary that is no smaller than what it stands for changes nothing, and is booked", async () => {
  const { model, session } = await scripted("larger", { script: [says(`Goal: ${prose(2_500)}`)] });
  const compaction = await session.fillAndCompact();
  expect(compaction).toMatchObject({
    outcome: "no-progress",
    reason: expect.stringMatching(/^The context would have \d+ tokens instead of \d+: /),
    tokensAfter: null,
    summaryUsage: { outputTokens: expect.any(Number) },
  });
  expect((await session.http.usage()).records[0]).toMatchObject({ purpose: "summary", compaction: 1 });
  await expectWhole({ model, session }, bytesOf(await session.http.messages()));
});

describe("an object that", () => {
  it("[CM27] crashes while a summary is written has changed nothing, and begins another one", async () => {
    const { model, session, before } = await underway("crashed");
    await crash("configured", session.id);
    const socket = await openSocket("configured", session.id);
    expect([await session.list(), bytesOf(await session.http.messages())]).toEqual([[], before]);
    const reply = await socket.ask("And?\n/words 5");
    expect([reply.ending, isSummarised({ model, session })]).toEqual(["end", false]);
    const compactions = await session.recorded(1);
    expect(compactions.map(({ id, outcome }) => [id, outcome])).toEqual([[1, "applied"]]);
    await socket.ask("And?\n/words 5");
    expect(isSummarised({ model, session })).toBe(true);
    const { records, totals } = await session.http.usage();
    expect(totals.calls).toBe(records.length);
  });

  it("[CM27] is to be evicted while a summary is written stays until that has ended", async () => {
    const { model, session, before, release } = await underway("evicted");
    const evicted = session.evict();
    release();
    await evicted;
    expect(bytesOf(await session.http.messages())).toBe(before);
    expect((await session.list()).map(({ id, outcome }) => [id, outcome])).toEqual([[1, "applied"]]);
    expect((await session.say("And?", 5)).ending).toBe("end");
    expect([isSummarised({ model, session }), model.summaries.length]).toEqual([true, 1]);
  });
});

// trap 25: what a summary was written for is looked at again before it takes effect
describe("a branch that changes while a summary is written", () => {
  const CHANGED = "The branch changed while the summary was written.";

  it("[CM16] by an edit of an early message is left alone", async () => {
    const { model, session, release } = await underway("edited");
    const [first] = await session.http.messages();
    const reply = await session.edit(first?.id ?? "", "Something else.\n/words 5");
    release();
    expect(reply.ending).toBe("end");
    expect(await session.recorded(1)).toMatchObject([{ outcome: "cancelled", reason: CHANGED, tokensAfter: null }]);
    await expectWhole({ model, session }, bytesOf(await session.http.messages()));
    expect((await session.http.usage()).records.filter(({ purpose }) => purpose === "summary")).toHaveLength(1);
  });

  it("[CM16][CM14] by another branch that is made active is left alone, and so is that one", async () => {
    const slow = slowly();
    const { model, session } = await scripted("switched", { script: [slow.summarise] });
    await session.say("The root.", 5);
    await session.socket.ask("One way.\n/words 5", { id: "fork" });
    const leaf = (await session.http.branches())[0]?.leaf;
    await session.edit("fork", "Another way.\n/words 5");
    await session.fill();
    await eventually(
      "a summary under way",
      () => model.summaries.length,
      (asked) => asked === 1,
    );
    const other = (await session.http.branches()).find(({ active }) => active)?.leaf;
    const before = bytesOf(await session.http.messages());
    await session.http.call("PUT", "/leaf", { leaf });
    slow.release();
    expect(await session.recorded(1)).toMatchObject([{ outcome: "cancelled", reason: CHANGED }]);
    await expectWhole({ model, session }, bytesOf(await session.http.messages()));
    await session.http.call("PUT", "/leaf", { leaf: other });
    expect(bytesOf(await session.http.messages())).toBe(before);
    await session.say("And?", 5);
    expect(await session.recorded(2)).toMatchObject([{ outcome: "applied" }, { outcome: "cancelled" }]);
  });

  it("[CM16] behind the cut gets the summary", async () => {
    const { model, session, release } = await underway("behind");
    await session.regenerate();
    release();
    expect(await session.recorded(1)).toMatchObject([{ outcome: "applied" }]);
    await session.say("And?", 5);
    expect(isSummarised({ model, session })).toBe(true);
  });

  it("[CM32][CM16] by an erased message leaves nothing of it, and says so", async () => {
    const slow = slowly();
    const { model, session } = await scripted("erased", { script: [slow.summarise] });
    await session.say("The safe opens with TIDE-4711.", 5);
    await session.fill();
    await eventually(
      "a summary under way",
      () => model.summaries.length,
      (asked) => asked === 1,
    );
    const [secret, ...others] = await session.http.messages();
    expect((await session.http.call("DELETE", `/messages/${secret?.id}`)).status).toBe(200);
    slow.release();
    expect(await session.recorded(1)).toMatchObject([{ outcome: "cancelled", summary: null }]);
    expect(bytesOf(await session.http.messages())).toBe(bytesOf(others));
    expect((await session.say("And?", 5)).ending).toBe("end");
    expect(JSON.stringify([model.turns.at(-1)?.prompt, model.asked[1]])).not.toContain("TIDE-4711");
    expect(await session.recorded(2)).toMatchObject([{ outcome: "applied" }, { outcome: "cancelled" }]);
    expect((await session.newest()).summary).not.toContain("TIDE-4711");
  });

  it("[CM16][CM29] by taking back the one before it is left alone", async () => {
    const slow = slowly();
    const { model, session } = await scripted("undone");
    const first = await session.fillAndCompact();
    await session.say("On.", 5);
    model.script.push(slow.summarise);
    const second = session.compact();
    await eventually(
      "a summary under way",
      () => model.summaries.length,
      (asked) => asked === 2,
    );
    expect(await session.undo(first.id)).toMatchObject({ undone: true });
    slow.release();
    expect(await second).toMatchObject({ outcome: "cancelled", tokensAfter: null });
    await expectWhole({ model, session }, bytesOf(await session.http.messages()));
  });

  it("[CM27][HT4] by the end of the session leaves an empty session under its id", async () => {
    const { session, release } = await underway("deleted");
    const errors = vi.spyOn(console, "error").mockImplementation(() => {});
    onTestFinished(() => errors.mockRestore());
    const waiting = session.http.send("POST", "/compact", { instructions: "Briefly." });
    const deleted = await session.http.call("DELETE", "");
    release();
    expect(deleted).toEqual({ status: 200, body: { deleted: true } });
    await waiting.then((response) => response.text());
    expect([await session.list(), await session.http.messages()]).toEqual([[], []]);
    const socket = await openSocket("configured", session.id);
    expect((await socket.ask("Hello.\n/words 5")).ending).toBe("end");
    expect((await session.http.summary()).usage.calls).toBe(1);
    expect(errors.mock.calls.filter(([line]) => String(line).includes("compaction"))).toEqual([]);
  });
});

// trap 25: single flight
describe("two requests at once", () => {
  it("[CM26] are one compaction, and both are told what came of it", async () => {
    const slow = slowly();
    const { model, session } = await scripted("joined", { script: [slow.summarise] });
    await session.http.call("PATCH", "", { compactAfter: "off" });
    await session.fill();
    const both = [session.compact(), session.compact()];
    await eventually(
      "a summary under way",
      () => model.summaries.length,
      (asked) => asked === 1,
    );
    slow.release();
    const [first, second] = await Promise.all(both);
    expect([first?.outcome, second]).toEqual(["applied", first]);
    expect([await session.list(), model.summaries.length]).toEqual([[first], 1]);
  });

  it("[CM26] of which one brings instructions are done one after the other", async () => {
    const { session, release, model } = await underway("serial");
    const instructed = session.compact("Keep the harbour.");
    const joined = session.compact();
    release();
    expect([(await joined).id, (await instructed).id]).toEqual([1, 2]);
    expect(model.asked.map((asked) => asked.includes("Keep the harbour."))).toEqual([false, true]);
    expect((await session.list()).map(({ outcome, trigger }) => [outcome, trigger])).toEqual([
      ["applied", "manual"],
      ["applied", "after-turn"],
    ]);
  });
});

// trap 22
describe("a provider that", () => {
  const TOO_LONG = refusal(400, "prompt is too long: 5000 tokens > 4000 maximum");

  it("[CM9] reads less than the session was told makes it compact, and the call is made once more", async () => {
    const model = new ScriptedModel({ window: 4_000 });
    const session = await compactionSession("overflow", (builder) =>
      builder.model(model).contextWindow(200_000).maxOutputTokens(4_096).compactAfter(100_000).compaction({
        tailTokenBudget: 1_000,
      }),
    );
    for (let turn = 0; turn < 5; turn += 1) await session.say(`Turn ${turn}. ${prose(100, turn)}`, 500);
    const before = await session.http.messages();
    const { length } = model.turns;
    const reply = await session.say(prose(700), 5);
    expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 5]);
    expect(reply.chunks.filter(({ type }) => type === "start-step")).toHaveLength(1);
    expect([model.turns.length - length, isSummarised({ model, session })]).toEqual([2, true]);
    expect(await session.list()).toMatchObject([{ outcome: "applied", trigger: "overflow" }]);
    const after = await session.http.messages();
    expect(bytesOf(after.slice(0, before.length))).toBe(bytesOf(before));
    expect(after.slice(before.length).map(({ role }) => role)).toEqual(["user", "assistant"]);
    expect((await session.newest()).reportedAfter).toBe(model.read.at(-1));
  });

  it("[CM9][CM18] still finds it too long ends the turn with `prompt-too-large`, and the next one works", async () => {
    logged();
    const { model, session } = await scripted("overflow-again");
    await session.http.call("PATCH", "", { compactAfter: 20_000, tailTokenBudget: 500 });
    await session.fill();
    const before = await session.http.messages();
    model.refusals.push(TOO_LONG, TOO_LONG);
    const { length } = model.turns;
    const reply = await session.say("And?", 5);
    expect([reply.ending, reply.code, model.turns.length - length]).toEqual(["error", "prompt-too-large", 2]);
    expect(reply.errorText).toMatch(/^prompt-too-large: .*prompt is too long: 5000 tokens > 4000 maximum/);
    expect(await session.list()).toMatchObject([{ outcome: "applied", trigger: "overflow" }]);
    expect(bytesOf((await session.http.messages()).slice(0, before.length))).toBe(bytesOf(before));
    expect((await session.say("And now?", 5)).ending).toBe("end");
  });

  it("[CM9] refuses while a summary is written that fails is given a shorter prompt all the same", async () => {
    const slow = slowly();
    const { model, session } = await scripted("overflow-failed", {
      script: [async (call, mirror) => (await slow.summarise(call, mirror), saysNothing(call, mirror))],
    });
    await session.fill();
    model.refusals.push(TOO_LONG);
    session.socket.submit("refused", [{ id: "u", role: "user", parts: [{ type: "text", text: "And?\n/words 5" }] }]);
    await eventually(
      "the refusal",
      () => model.refusals.length,
      (left) => left === 0,
    );
    slow.release();
    expect((await session.socket.reply("refused")).ending).toBe("end");
    expect((await session.list()).map(({ outcome, trigger }) => [outcome, trigger])).toEqual([
      ["applied", "overflow"],
      ["failed", "after-turn"],
    ]);
    expect(isSummarised({ model, session })).toBe(true);
  });

  // trap 32
  it("[CM2] refuses where compaction is off is not compacted for", async () => {
    logged();
    const { model, session } = await scripted("overflow-off");
    await session.http.call("PATCH", "", { compactAfter: "off" });
    await session.fill();
    const before = bytesOf(await session.http.messages());
    model.refusals.push(TOO_LONG);
    const reply = await session.say("And?", 5);
    expect([reply.ending, reply.code, await session.list()]).toEqual(["error", "prompt-too-large", []]);
    expect(model.summaries).toEqual([]);
    expect(bytesOf((await session.http.messages()).slice(0, -1))).toBe(before);
    expect((await session.say("And now?", 5)).ending).toBe("end");
  });

  it.each([
    ["429", "Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 41000."],
    ["400", "Rate limit reached: prompt is too long for your tokens per minute."],
  ])("[CM9] limits the rate with %s and words of a length is not compacted for", async (status, message) => {
    logged();
    const { model, session } = await scripted("rate-limit");
    await session.say(prose(400), 100);
    model.refusals.push(refusal(Number(status), message));
    const { length } = model.turns;
    const reply = await session.say("And?", 5);
    expect([reply.ending, reply.code, model.turns.length - length]).toEqual(["error", "model-failed", 1]);
    expect([await session.list(), model.summaries]).toEqual([[], []]);
    expect((await session.say("And now?", 5)).ending).toBe("end");
  });
});
