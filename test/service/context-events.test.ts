/**
 * What happens to a session, and what becomes of the number: before the next call, at it, and at the call after it.
 * Mirror's tokenizer is not one the estimator was fitted on, and its reports are exact, so errors here are real ones.
 */
import { tool } from "ai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { measureMirrorPrompt } from "../../src/models/mirror-prompt.ts";
import { countMirrorTokens } from "../../src/models/mirror-tokenizer.ts";
import { configureSession } from "./configured-sessions.ts";
import { contextSession, prose, type Aftermath, type ContextSession } from "./context-session.ts";
import { MirrorAs, times } from "./mirror-as.ts";
import { textOf, userMessage } from "./socket.ts";

/** Six turns, about 5,300 tokens: what mirror's tokens weigh is known by then. */
async function settled(topic: string, options: Parameters<typeof contextSession>[1] = {}): Promise<ContextSession> {
  const session = await contextSession(topic, options);
  for (let turn = 0; turn < 6; turn += 1) await session.say(prose(500, turn * 5), 200);
  return session;
}

/** All that was seen, if an error in percent is beyond its bound or an eviction changed the report; else nothing. */
function beyond(aftermath: Aftermath, bounds: { known?: number; first: number; second: number }): object {
  const { sameWhenCold, knownError, firstError, secondError } = aftermath;
  const within =
    sameWhenCold &&
    Math.abs(knownError) <= (bounds.known ?? Infinity) &&
    Math.abs(firstError) <= bounds.first &&
    Math.abs(secondError) <= bounds.second;
  return within ? {} : aftermath;
}

/** What is measured, as the report shows it: no aborted, failed or unreported call may change it. */
async function measurements(session: ContextSession): Promise<object> {
  const { calculation, calibrationRatio, accuracy } = await session.context();
  return { lastInput: calculation.lastInput, lastOutput: calculation.lastOutput, calibrationRatio, accuracy };
}

function edited(session: ContextSession, id: string, text: string) {
  session.socket.submit("edit", [userMessage(text, id)], { messageId: id });
  return session.socket.reply("edit");
}

const TOOLS = Array.from({ length: 4 }, (_, index) => ({
  name: `tool${index}`,
  description: prose(60, index),
  inputSchema: { type: "object", properties: { place: { type: "string", description: prose(20) } } },
}));

const OFFERED = { more: { body: { clientTools: TOOLS } } };

describe("nothing", () => {
  it("[CX1][CX3] without an event the number is right to 0.15 percent, and a prediction to 0.3", async () => {
    const session = await settled("nothing");
    expect(beyond(await session.aftermath(), { known: 0.15, first: 0.3, second: 0.3 })).toEqual({});
  });
});

describe("the model", () => {
  it.each([
    ["another provider's model with the same tokenizer", "other", "mirror", 1, 12],
    ["a model with larger tokens", "acme", "large", 0.8, 15],
    ["a model of another family", "anthropic", "claude-sonnet-4-5", 1.15, 20],
  ])(
    "[CX4][AC9] %s moves the number, and its first report corrects it",
    async (_what, provider, name, scale, known) => {
      const model = new MirrorAs(provider, name, times(scale));
      const session = await contextSession("model", { configure: (builder) => builder.model(model) });
      await session.http.call("PATCH", "", { model: "mirror" });
      for (let turn = 0; turn < 6; turn += 1) await session.say(prose(500, turn * 5), 200);
      const before = await session.context();
      await session.http.call("PATCH", "", { model: null });
      const changed = await session.context();
      expect(changed).toMatchObject({ model: `${provider}/${name}`, basis: "anchored" });
      expect(changed.tokens).not.toBe(before.tokens);
      const toNew = await session.aftermath({ scale });
      expect(beyond(toNew, { known, first: known, second: 0.6 })).toEqual({});
      await session.http.call("PATCH", "", { model: "mirror" });
      expect(beyond(await session.aftermath(), { known: 0.8, first: 0.8, second: 0.3 })).toEqual({});
      await session.http.call("PATCH", "", { model: null });
      expect(beyond(await session.aftermath({ scale }), { known: 0.3, first: 0.7, second: 0.6 })).toEqual({});
    },
  );
});

describe("the system prompt", () => {
  it("[CX4][AC7] that grows, shrinks or goes moves the number by its estimate, before a call", async () => {
    const session = await settled("system");
    const { tokens } = await session.context();
    await session.http.call("PATCH", "", { systemPrompt: prose(400) });
    const longer = await session.context();
    expect(longer.basis).toBe("anchored");
    expect(longer.tokens - tokens).toBeGreaterThanOrEqual(400);
    expect(longer.tokens - tokens).toBeLessThanOrEqual(500);
    expect(beyond(await session.aftermath(), { known: 1.5, first: 1.5, second: 0.3 })).toEqual({});
    await session.http.call("PATCH", "", { systemPrompt: prose(40) });
    expect(beyond(await session.aftermath(), { known: 1.5, first: 1.5, second: 0.3 })).toEqual({});
    await session.http.call("PATCH", "", { systemPrompt: null });
    expect(beyond(await session.aftermath(), { known: 0.5, first: 0.5, second: 0.3 })).toEqual({});
  });

  it("[CX4] given back before any call saw it leaves the number as it was", async () => {
    const session = await settled("system-back");
    const before = await session.context();
    await session.http.call("PATCH", "", { systemPrompt: prose(400) });
    await session.http.call("PATCH", "", { systemPrompt: null });
    expect(await session.context()).toEqual(before);
  });
});

describe("the tools", () => {
  it("[CX4] of a client count from the call that brings them, and are expected of the next request", async () => {
    const session = await settled("client-tools");
    const offered = await session.aftermath(OFFERED);
    expect(beyond(offered, { first: 4, second: 0.3 })).toEqual({});
    const { tokens, breakdown } = await session.context();
    expect(breakdown.tools).toBeGreaterThan(500);
    await session.http.call("PATCH", "", { systemPrompt: prose(200) });
    const both = await session.context();
    expect(both.tokens - tokens).toBeGreaterThanOrEqual(200);
    expect(both.tokens - tokens).toBeLessThanOrEqual(260);
    expect(beyond(await session.aftermath(OFFERED), { known: 0.8, first: 0.8, second: 0.3 })).toEqual({});
  });

  it("[CX4] of a client that brings none any more leave the number with its next call", async () => {
    const session = await settled("client-tools-gone");
    await session.aftermath(OFFERED);
    const gone = await session.aftermath();
    expect(beyond(gone, { first: 4, second: 0.3 })).toEqual({});
    expect(gone.known - gone.truth).toBeGreaterThan(500);
  });

  it("[CX4] of a client are expected on a branch that no call has measured, too", async () => {
    const session = await contextSession("client-tools-edit");
    await session.say(prose(300), 20, OFFERED.more);
    const [first] = await session.http.messages();
    await edited(session, first?.id ?? "", `${prose(280, 4)}\n/usage none`);
    expect((await session.context()).breakdown.tools).toBeGreaterThan(500);
  });

  it("[CX4][AC7] of the server that change with a deployment move the number before the next call", async () => {
    const configure: Parameters<typeof configureSession>[1] = (builder) => builder.system(prose(100));
    const session = await settled("server-tools", { configure });
    const before = await session.context();
    const lookUp = tool({
      description: prose(150),
      inputSchema: z.object({ order: z.number() }),
      execute: () => "sent",
    });
    configureSession(session.id, (builder) => configure(builder).tools({ lookUp }));
    const after = await session.coldContext();
    expect(after.tokens - before.tokens).toBeGreaterThanOrEqual(170);
    expect(after.tokens - before.tokens).toBeLessThanOrEqual(250);
    expect(beyond(await session.aftermath(), { known: 1.5, first: 1.5, second: 0.3 })).toEqual({});
  });
});

describe("the history", () => {
  it("[CX5] an erased question and an erased answer leave the number by what they weighed", async () => {
    const session = await settled("erased");
    const { tokens } = await session.context();
    const messages = await session.http.messages();
    await session.http.call("DELETE", `/messages/${messages[2]?.id}`);
    const weight = 4 + countMirrorTokens(textOf(messages[2]));
    const without = await session.context();
    expect(without.basis).toBe("anchored");
    expect(Math.abs(tokens - without.tokens - weight)).toBeLessThanOrEqual(0.03 * weight);
    expect(beyond(await session.aftermath(), { known: 0.5, first: 0.5, second: 0.3 })).toEqual({});
    await session.http.call("DELETE", `/messages/${(await session.http.messages()).at(-1)?.id}`);
    expect(beyond(await session.aftermath(), { known: 0.5, first: 0.5, second: 0.3 })).toEqual({});
  });

  it.each([
    ["a call that nobody answers", `/call ask {"q":"${"tide ".repeat(2_000)}"}`],
    ["reasoning that leads nowhere", `/reason ${"tide ".repeat(2_000)}\n/words 0`],
  ])("[CX5][TN21] %s leaves the number when the conversation goes on without it", async (_what, command) => {
    const session = await settled("not-sent");
    const ask = { body: { clientTools: [{ name: "ask", inputSchema: { type: "object" } }] } };
    await session.say("One moment.", 20, ask);
    session.socket.submit("big", [userMessage(command)], ask);
    await session.socket.reply("big");
    const { tokens } = await session.context();
    await session.say("Never mind.", 20, ask);
    expect(tokens - ((await session.predictions())[0]?.predicted ?? tokens)).toBeGreaterThan(1_500);
    expect(Math.abs((await session.errors())[0] ?? NaN)).toBeLessThanOrEqual(0.5);
    expect(await session.coldContext()).toEqual(await session.context());
    await session.say("Go on.", 20, ask);
    expect(Math.abs((await session.errors())[0] ?? NaN)).toBeLessThanOrEqual(0.3);
  });

  it("[CX6][AC26] an edit counts the branch it makes, from the newest measurement before it", async () => {
    const session = await settled("edit");
    const messages = await session.http.messages();
    await edited(session, messages[6]?.id ?? "", `${prose(150, 9)}\n/words 50`);
    expect(Math.abs((await session.errors())[0] ?? NaN)).toBeLessThanOrEqual(1.5);
    const { tokens, basis } = await session.context();
    expect([basis, tokens < 3_100]).toEqual(["reported", true]);
    expect(beyond(await session.aftermath(), { known: 0.3, first: 0.5, second: 0.5 })).toEqual({});
  });

  it("[CX6] an edit of the first message begins without a measurement, from what the session knows of its model", async () => {
    const session = await settled("edit-first");
    const [first] = await session.http.messages();
    await edited(session, first?.id ?? "", `${prose(3_000, 9)}\n/words 50`);
    expect(Math.abs((await session.errors())[0] ?? NaN)).toBeLessThanOrEqual(9);
    expect(beyond(await session.aftermath(), { known: 0.3, first: 0.5, second: 0.5 })).toEqual({});
  });

  it("[CX6] a regenerate goes back to the question, and a switch of branches gives each branch its own number", async () => {
    const session = await settled("regenerate");
    const before = await session.context();
    await session.http.call("PATCH", "", { systemPrompt: prose(100) });
    session.socket.submit("again", [], { trigger: "regenerate-message" });
    await session.socket.reply("again");
    expect(Math.abs((await session.errors())[0] ?? NaN)).toBeLessThanOrEqual(1.5);
    await session.http.call("PATCH", "", { systemPrompt: null });
    const leaves = (await session.http.branches()).filter(({ active }) => !active);
    const again = await session.context();
    expect(Math.abs(again.tokens - before.tokens)).toBeLessThanOrEqual(0.01 * before.tokens);
    await session.http.call("PUT", "/leaf", { leaf: leaves[0]?.leaf });
    expect(await session.context()).toMatchObject({ tokens: before.tokens, basis: "reported" });
    expect(beyond(await session.aftermath(), { known: 0.3, first: 0.5, second: 0.5 })).toEqual({});
  });
});

describe("an import", () => {
  const question = { id: "q", role: "user", parts: [{ type: "text", text: prose(3_000) }] };
  const read = measureMirrorPrompt([{ role: "user", content: [{ type: "text", text: prose(3_000) }] }]).total;
  const texts = [prose(200), prose(150, 3)];
  const said = texts.map(countMirrorTokens);
  const [one = 0, two = 0] = said;
  const usage = (inputTokens: number, outputTokens: number) => ({ inputTokens, outputTokens });
  const steps = [usage(read, one), usage(read + one + 4, two)];
  const bill = usage(2 * read + one + 4, one + two);

  async function imported(answer: { steps: 1 | 2; metadata: object }) {
    const session = await contextSession("import");
    const parts = texts.slice(0, answer.steps).flatMap((text) => [{ type: "step-start" }, { type: "text", text }]);
    const { metadata } = answer;
    const messages = [question, { id: "a", role: "assistant", parts, metadata }];
    const { body } = await session.http.call("POST", "/messages", { messages });
    expect(body).toMatchObject({ inserted: 2, context: await session.context() });
    return session;
  }

  it("[CX7] of a whole conversation measures as its calls did, which nobody here predicted", async () => {
    const live = await settled("import-live", { service: "tools" });
    await live.socket.ask('/call lookUp {"order":1}\n/then\n/words 20');
    const copy = await contextSession("import-copy", { service: "tools" });
    await copy.http.call("POST", "/messages", { messages: await live.http.messages() });
    const accuracy = { calls: 0, last: null, medianPercent: null, p95Percent: null };
    expect(await copy.context()).toEqual({ ...(await live.context()), accuracy });
    expect(beyond(await copy.aftermath(), { known: 0.3, first: 0.3, second: 0.3 })).toEqual({});
  });

  it.each([
    ["usage", 1, { usage: steps[0] }, read + one],
    ["totalUsage of one step", 1, { totalUsage: steps[0] }, read + one],
    ["a total without parts", 1, { usage: { totalTokens: read + one } }, read + one],
    ["usage in a provider's own shape", 1, { usage: { prompt_tokens: read, completion_tokens: one } }, read + one],
    ["steps", 2, { steps }, read + one + 4 + two],
    ["usage of the last step beside the bill", 2, { usage: steps[1], totalUsage: bill }, read + one + 4 + two],
  ] as const)("[CX7] with %s is reported", async (_what, count, metadata, tokens) => {
    const session = await imported({ steps: count, metadata });
    expect(await session.context()).toMatchObject({ tokens, basis: "reported" });
    expect(beyond(await session.aftermath(), { known: 0.3, first: 0.5, second: 0.6 })).toEqual({});
  });

  it.each([
    ["only a bill over several steps", 2, { totalUsage: bill }],
    ["a bill over several steps given as usage", 2, { usage: bill, totalUsage: bill }],
    ["zero usage", 1, { usage: usage(0, 0) }],
    ["nonsense", 1, { usage: { inputTokens: -5, outputTokens: "many" } }],
    ["no usage", 1, {}],
  ] as const)("[CX7][CX8][AC17] with %s is estimated", async (_what, count, metadata) => {
    const session = await imported({ steps: count, metadata });
    const report = await session.context();
    expect(report).toMatchObject({ basis: "estimated", accuracy: { calls: 0 }, calculation: { lastInput: null } });
    expect(beyond(await session.aftermath(), { known: 20, first: 20, second: 0.6 })).toEqual({});
  });

  it("[CX7][US5] books a bill over several steps that measures nothing", async () => {
    const session = await imported({ steps: 2, metadata: { usage: bill, totalUsage: bill } });
    expect((await session.http.summary()).usage).toMatchObject({ calls: 1, inputTokens: bill.inputTokens });
    expect((await session.http.messages())[1]?.metadata).toMatchObject({ usage: bill, totalUsage: bill });
  });

  it("[CX7][AC16] takes no usage from a question", async () => {
    const session = await contextSession("import-question");
    const messages = [{ ...question, metadata: { usage: usage(9_999, 9) } }];
    await session.http.call("POST", "/messages", { messages });
    expect(await session.context()).toMatchObject({ basis: "estimated", calculation: { lastInput: null } });
  });
});

describe("a call without a usable report", () => {
  const said = `${prose(100)}\n/words 200`;

  async function aborted(session: ContextSession, text: string): Promise<void> {
    session.socket.submit("stalled", [userMessage(`${text}\n/stall`)]);
    await session.socket.streaming("stalled", 90);
    session.socket.send({ type: "abort", requestId: "stalled" });
    await session.socket.reply("stalled");
  }

  it.each([
    ["is aborted", aborted, said],
    ["is aborted after a thought", aborted, `${prose(100)}\n/reason ${prose(60)}\n/words 200`],
    ["fails before it speaks", undefined, `${said}\n/fail before`],
    ["fails in the middle", undefined, `${said}\n/fail during`],
    ["fails at its end", undefined, `${said}\n/fail after`],
    ["reports nothing", undefined, `${said}\n/usage none`],
    ["reports nonsense", undefined, `${said}\n/usage garbage`],
  ])("[CX8] that %s leaves what was measured, and its words count by estimate", async (_what, act, text) => {
    const session = await settled("unreported");
    const before = await session.context();
    const measured = await measurements(session);
    await (act ? act(session, text) : session.socket.ask(text));
    const after = await session.context();
    expect(await measurements(session)).toEqual(measured);
    expect([after.basis, after.tokens - before.tokens]).toEqual(["anchored", after.calculation.newSince]);
    expect(beyond(await session.aftermath(), { known: 1, first: 1, second: 0.3 })).toEqual({});
  });

  it("[CX8] that reports 0 tokens leaves what was measured", async () => {
    const session = await settled("zero-usage", {
      configure: (builder) => builder.model(new MirrorAs("acme", "mirror", zeroAfter(6))),
    });
    const measured = await measurements(session);
    const { tokens } = await session.context();
    await session.say(prose(100), 50);
    expect(await measurements(session)).toEqual(measured);
    const after = await session.context();
    expect([after.basis, after.tokens > tokens + 140, after.tokens < tokens + 230]).toEqual(["anchored", true, true]);
  });

  function zeroAfter(calls: number): ReturnType<typeof times> {
    let made = 0;
    return (usage) => times((made += 1) > calls ? 0 : 1)(usage);
  }
});

describe("reports", () => {
  it("[CX1][AC13] that shrink are followed: a provider that drops 2,000 tokens is believed from then on", async () => {
    let made = 0;
    const report: ReturnType<typeof times> = (usage) => {
      const lost = (made += 1) > 6 ? 2_000 : 0;
      const total = (usage.inputTokens.total ?? 0) - lost;
      return { ...usage, raw: undefined, inputTokens: { ...usage.inputTokens, total, noCache: undefined } };
    };
    const session = await settled("shrinking", {
      configure: (builder) => builder.model(new MirrorAs("acme", "mirror", report)),
    });
    const { tokens } = await session.context();
    await session.say(prose(60), 50);
    const [shrunk] = await session.predictions();
    expect([(shrunk?.actual ?? 0) < tokens - 1_800, (await session.context()).basis]).toEqual([true, "reported"]);
    expect(beyond(await session.aftermath(), { known: 0.3, first: 0.5, second: 0.5 })).toEqual({});
  });

  it("[CX1][AC18] count cached tokens once, whether the provider tells of them or not", async () => {
    const uncached: ReturnType<typeof times> = ({ inputTokens: { total }, outputTokens }) => ({
      inputTokens: { total, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
      outputTokens,
    });
    const silent = await settled("uncached", {
      configure: (builder) => builder.model(new MirrorAs("mirror", "mirror", uncached)),
    });
    const told = await settled("cached", { configure: (builder) => builder.model(new MirrorAs("mirror", "mirror")) });
    const { cacheReadTokens, ...report } = await told.context();
    const { cacheReadTokens: untold, ...same } = await silent.context();
    expect([cacheReadTokens > 10_000, untold]).toEqual([true, 0]);
    expect(same).toEqual(report);
    expect(beyond(await silent.aftermath(), { known: 0.15, first: 0.3, second: 0.3 })).toEqual({});
  });
});
