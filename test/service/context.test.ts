/** The context of a session from outside: what is reported, how it is told, and what a counter or a policy makes of it. */
import { evictDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { getAgentByName } from "agents";
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import type { CountedPrompt, TokenCounter } from "../../src/context/counters.ts";
import type { ContextReport } from "../../src/context/report.ts";
import { measureMirrorPrompt } from "../../src/models/mirror-prompt.ts";
import { configureSession } from "./configured-sessions.ts";
import { contextSession, logged, prose, type ContextSession } from "./context-session.ts";
import { MirrorAs } from "./mirror-as.ts";
import { HttpSession, newSessionId, stubOf } from "./service.ts";
import { openSocket, userMessage, type Reply } from "./socket.ts";
import type { ServiceEnvironment } from "./worker.ts";

const LOOK_UP_TWICE = '/call lookUp {"order":1}\n/then\n/call lookUp {"order":2}\n/then\n/words 3';

function reportsIn(reply: Reply): ContextReport[] {
  // SAFETY: the report is what the service puts into the part; the tests assert its values.
  return reply.chunks.flatMap((chunk) => (chunk.type === "data-context" ? [chunk.data as ContextReport] : []));
}

function sumOf({ breakdown }: ContextReport): number {
  return breakdown.system + breakdown.tools + breakdown.summary + breakdown.messages;
}

describe("the report", () => {
  it("[CX1] an empty session has 0 tokens, estimated, and all of its window but the reserved output is free", async () => {
    const session = await contextSession("empty");
    expect(await session.context()).toEqual({
      tokens: 0,
      basis: "estimated",
      threshold: 27_904,
      suggestion: false,
      contextWindow: 32_000,
      reservedOutput: 4_096,
      free: 27_904,
      percent: 0,
      breakdown: { system: 0, tools: 0, summary: 0, messages: 0 },
      calculation: { lastInput: null, lastOutput: null, newSince: 0 },
      reasoningTokens: 0,
      cacheReadTokens: 0,
      calibrationRatio: 1,
      accuracy: { calls: 0, last: null, medianPercent: null, p95Percent: null },
      compactions: 0,
      model: "mirror",
      warnings: [],
    });
  });

  it("[CX1][AC2] after a call the number is what the call read and put out, which mirror counts exactly", async () => {
    const model = new MirrorAs("mirror", "mirror");
    const session = await contextSession("reported", {
      configure: (builder) => builder.model(model).system(prose(50)),
    });
    await session.say(prose(200), 40);
    await session.say(prose(100), 30);
    const { total } = measureMirrorPrompt(model.calls[1]?.prompt ?? []);
    const { records } = await session.http.usage();
    expect(records[0]?.usage?.inputTokens).toBe(total);
    const report = await session.context();
    expect(report).toMatchObject({
      tokens: total + (records[0]?.usage?.outputTokens ?? 0),
      basis: "reported",
      calculation: { lastInput: total, lastOutput: records[0]?.usage?.outputTokens, newSince: 0 },
      contextWindow: null,
      free: 0,
      percent: 0,
    });
  });

  it("[CX1] it is the same over HTTP, over RPC, and after the object was evicted", async () => {
    const session = await contextSession("evicted", { service: "tools" });
    await session.say(prose(200));
    await session.socket.ask(LOOK_UP_TWICE);
    await session.socket.ask("/words 5\n/fail after");
    const warm = await session.context();
    expect(warm).toMatchObject({ basis: "anchored", accuracy: { calls: 4 } });
    // SAFETY: the environment of these tests is that of wrangler.toml beside them.
    const { ToolSession } = env as unknown as ServiceEnvironment;
    const agent = await getAgentByName(ToolSession, session.id);
    expect(await agent.getContext()).toEqual(warm);
    await evictDurableObject(stubOf("tools", session.id));
    expect(await (await getAgentByName(ToolSession, session.id)).getContext()).toEqual(warm);
    await evictDurableObject(stubOf("tools", session.id));
    expect(await session.context()).toEqual(warm);
  });

  it("[CX1][AC23] its parts sum to its total at every step, with system prompt and tools and without", async () => {
    const session = await contextSession("parts", { service: "tools" });
    const seen = [await session.context()];
    seen.push(...reportsIn(await session.say(prose(150))));
    await session.http.call("PATCH", "", { systemPrompt: prose(80) });
    seen.push(await session.context(), ...reportsIn(await session.socket.ask(LOOK_UP_TWICE)));
    expect(seen).toHaveLength(6);
    expect(seen.map(sumOf)).toEqual(seen.map(({ tokens }) => tokens));
    expect(seen.map(({ breakdown }) => breakdown.system > 0 && breakdown.tools > 0)).toEqual([
      false,
      false,
      true,
      true,
      true,
      true,
    ]);
  });

  it("[CX1] reasoning and cache reads are the sums of the session, and reasoning stays in the number", async () => {
    const session = await contextSession("reasoning");
    await session.socket.ask(`${prose(100)}\n/reason ${prose(60)}\n/words 20`);
    await session.say(prose(50));
    const { records, totals } = await session.http.usage();
    const report = await session.context();
    expect([report.reasoningTokens, report.cacheReadTokens]).toEqual([totals.reasoningTokens, totals.cacheReadTokens]);
    expect(totals.reasoningTokens).toBeGreaterThanOrEqual(60);
    expect(totals.cacheReadTokens).toBe(records[1]?.usage?.inputTokens);
    expect(report.tokens).toBe((records[0]?.usage?.inputTokens ?? 0) + (records[0]?.usage?.outputTokens ?? 0));
  });
});

describe("the report in the stream", () => {
  it("[CX2] comes after every step as a transient part, the last one equal to what is read afterwards", async () => {
    const session = await contextSession("stream", { service: "tools" });
    const reply = await session.socket.ask(LOOK_UP_TWICE);
    const order = reply.chunks
      .map(({ type }) => type)
      .filter((type) => /^(finish-step|data-context|finish)$/.test(type));
    expect(order).toEqual([...Array(3).fill(["finish-step", "data-context"]).flat(), "finish"]);
    expect(reply.chunks.filter(({ type }) => type === "data-context")).toMatchObject(
      Array(3).fill({ transient: true }),
    );
    const reports = reportsIn(reply);
    expect(reports.map(({ basis }) => basis)).toEqual(["anchored", "anchored", "reported"]);
    expect(reports.map(({ accuracy }) => accuracy.calls)).toEqual([1, 2, 3]);
    expect(reports.at(-1)).toEqual(await session.context());
  });

  it("[CX2] is no part of the stored message, nor of a turn that is answered again", async () => {
    const session = await contextSession("not-stored");
    const reply = await session.socket.ask("/words 3", { requestId: "r" });
    expect(reportsIn(reply)).toHaveLength(1);
    expect((await session.http.messages())[1]?.parts.map(({ type }) => type)).toEqual(["step-start", "text"]);
    await evictDurableObject(stubOf("chat", session.id));
    const again = await (await openSocket("chat", session.id)).ask("/words 3", { requestId: "r" });
    expect([again.ending, again.text, reportsIn(again)]).toEqual(["end", reply.text, []]);
  });

  it("[CX2][CX8] comes after a step that was aborted or failed as well", async () => {
    const session = await contextSession("stream-failed");
    const failed = await session.socket.ask("/words 6\n/fail during");
    expect([failed.ending, reportsIn(failed).map(({ basis }) => basis)]).toEqual(["error", ["estimated"]]);
    expect(reportsIn(failed)[0]).toEqual(await session.context());
  });
});

describe("predictions", () => {
  it("[CX3] every booked call carries what it was expected to read, and the newest error is in the report", async () => {
    const session = await contextSession("predicted", { service: "tools" });
    await session.say(prose(400));
    await session.socket.ask(LOOK_UP_TWICE);
    const { records } = await session.http.usage();
    expect(records.filter(({ predictedTokens }) => Number.isSafeInteger(predictedTokens))).toHaveLength(4);
    const [newest] = records;
    const { accuracy } = await session.context();
    expect(accuracy).toMatchObject({
      calls: 4,
      last: { predicted: newest?.predictedTokens, actual: newest?.usage?.inputTokens },
    });
    expect(Math.abs(accuracy.last?.errorPercent ?? NaN)).toBeLessThanOrEqual(1);
  });

  it("[CX3] what the report said is what the next call is expected to read, plus the message that came between", async () => {
    const session = await contextSession("said-before", { service: "tools" });
    await session.say(prose(300));
    const { tokens } = await session.context();
    await session.http.call("POST", "/messages", { messages: [userMessage(prose(90))] });
    const between = await session.context();
    expect([between.basis, between.tokens - tokens]).toEqual(["anchored", between.calculation.newSince]);
    const before = between.tokens;
    await session.socket.ask("/words 1");
    const [call] = await session.predictions();
    expect((call?.predicted ?? 0) - before).toBeGreaterThan(0);
    expect((call?.predicted ?? 0) - before).toBeLessThanOrEqual(12);
  });

  it("[CX3] one line in the log says predicted, actual and error of each call", async () => {
    const lines = logged();
    const session = await contextSession("logged");
    await session.say(prose(100));
    await session.say(prose(100));
    const predictions = (await session.predictions()).toReversed();
    const calls = lines(session.id, "model call");
    expect(calls).toMatchObject(
      predictions.map(({ predicted, actual }) => ({
        predictedTokens: predicted,
        actualTokens: actual,
        errorPercent: Math.round(((predicted - actual) / actual) * 10_000) / 100,
      })),
    );
    expect(calls).toHaveLength(2);
  });

  it("[CX3][AC18] the line tells the context and not the bill, where a provider read its prompt twice", async () => {
    const lines = logged();
    const model = new MirrorAs("acme", "twice", ({ inputTokens, outputTokens }) => ({
      inputTokens: { ...inputTokens, total: (inputTokens.total ?? 0) * 2, noCache: undefined },
      outputTokens,
      raw: {
        input_tokens: inputTokens.total ?? 0,
        output_tokens: outputTokens.total ?? 0,
        cache_read_input_tokens: 0,
        cache_creation_input_tokens: 0,
      },
    }));
    const session = await contextSession("bill", { configure: (builder) => builder.model(model) });
    await session.say(prose(100));
    await session.say(prose(100));
    const read = measureMirrorPrompt(model.calls[1]?.prompt ?? []).total;
    expect((await session.context()).calculation.lastInput).toBe(read);
    expect((await session.http.usage()).records[0]?.usage?.inputTokens).toBe(2 * read);
    expect(lines(session.id, "model call")[1]).toMatchObject({ inputTokens: 2 * read, actualTokens: read });
  });
});

describe("the threshold", () => {
  it.each([
    [12_345, 12_345],
    ["9000", 9_000],
    ["50%", 16_000],
    ["12.5%", 4_000],
    ["auto", 27_904],
    ["off", null],
  ])("[CX9] compactAfter %j of a window of 32,000 is %j", async (compactAfter, threshold) => {
    const http = new HttpSession("chat", newSessionId("threshold"));
    expect((await http.call("PATCH", "", { compactAfter })).status).toBe(200);
    expect((await http.get<ContextReport>("/context")).threshold).toBe(threshold);
    await http.call("PATCH", "", { compactAfter: null });
    expect((await http.get<ContextReport>("/context")).threshold).toBe(27_904);
  });

  it.each([
    [12_345, 12_345],
    ["50%", null],
    ["auto", null],
    ["off", null],
  ])("[CX9] compactAfter %j of an unknown window is %j", async (compactAfter, threshold) => {
    const session = await contextSession("unknown-window", {
      configure: (builder) => builder.model(new MirrorAs("acme", "unknown")),
    });
    await session.http.call("PATCH", "", { compactAfter });
    expect(await session.context()).toMatchObject({ threshold, contextWindow: null, reservedOutput: 0, percent: 0 });
  });

  it("[CX9][AC20] an unknown output limit reserves 32,000, and a large one no more", async () => {
    const reserved = async (tokens: number | undefined) => {
      const session = await contextSession("reserved", {
        configure: (builder) => {
          builder.model(new MirrorAs("acme", "unknown")).contextWindow(200_000);
          return tokens === undefined ? builder : builder.maxOutputTokens(tokens);
        },
      });
      const { threshold, reservedOutput, free } = await session.context();
      return [threshold, reservedOutput, free];
    };
    expect(await reserved(undefined)).toEqual([168_000, 32_000, 168_000]);
    expect(await reserved(64_000)).toEqual([168_000, 32_000, 168_000]);
    expect(await reserved(8_192)).toEqual([191_808, 8_192, 191_808]);
  });
});

/** A session whose counter answers as told, and what it was asked. */
async function countedSession(
  answer: (prompt: CountedPrompt) => number | Promise<number>,
): Promise<{ session: ContextSession; asked: CountedPrompt[] }> {
  const asked: CountedPrompt[] = [];
  const tokenCounter: TokenCounter = (prompt) => {
    asked.push(prompt);
    return answer(prompt);
  };
  const session = await contextSession("counter", {
    configure: (builder) => builder.system("Be brief.").compactAfter(50_000, { tokenCounter }),
  });
  return { session, asked };
}

describe("a token counter", () => {
  it("[CX1][AC21] is asked once per decision, over the whole prompt, sync or async", async () => {
    for (const answer of [() => 777, async () => 777]) {
      const { session, asked } = await countedSession(answer);
      await session.say(prose(100));
      expect(asked).toHaveLength(2);
      await session.say(prose(100));
      expect(asked).toHaveLength(4);
      expect(await session.context()).toMatchObject({ tokens: 777, basis: "counter", threshold: 27_904 });
      expect(asked).toHaveLength(5);
      expect(asked[4]).toMatchObject({ system: "Be brief.", tools: [] });
      expect(asked.map(({ messages }) => messages.map(({ role }) => role))).toEqual([
        ["user"],
        ["user", "assistant"],
        ["user", "assistant", "user"],
        ["user", "assistant", "user", "assistant"],
        ["user", "assistant", "user", "assistant"],
      ]);
    }
  });

  it("[AC21] is shown the tools that the request brought", async () => {
    const { session, asked } = await countedSession(() => 777);
    configureSession(session.id, (builder) =>
      builder.allowClientTools().compactAfter(50_000, { tokenCounter: (prompt) => (asked.push(prompt), 1) }),
    );
    await evictDurableObject(stubOf("configured", session.id));
    const inputSchema = { type: "object", properties: {} };
    await session.say("hello", 3, { body: { clientTools: [{ name: "locate", description: "Where?", inputSchema }] } });
    expect(asked[0]?.tools).toEqual([{ name: "locate", description: "Where?", inputSchema }]);
  });

  it.each([
    ["throws", () => Promise.reject(new Error("no connection")), "the token counter failed: no connection"],
    ["returns NaN", () => Number.NaN, "the token counter returned NaN"],
    ["returns 0", () => 0, "the token counter returned 0"],
    ["returns Infinity", async () => Number.POSITIVE_INFINITY, "the token counter returned Infinity"],
  ])("[CX1][AC21] that %s is noted in the log, and the report serves", async (_what, answer, failure) => {
    const lines = logged();
    const { session, asked } = await countedSession(answer);
    const reply = await session.say(prose(100));
    const [call] = (await session.http.usage()).records;
    const tokens = (call?.usage?.inputTokens ?? 0) + (call?.usage?.outputTokens ?? 0);
    expect(await session.context()).toMatchObject({ tokens, basis: "reported" });
    expect([reply.ending, asked.length]).toEqual(["end", 3]);
    expect(lines(session.id, "token counter")).toMatchObject([{ failure }, { failure }, { failure }]);
  });

  it("[CX1][AC21] that ignores its arguments and gives the last usage is the number, and predictions go on", async () => {
    let usage = 0;
    const { session } = await countedSession(() => usage);
    for (const from of [0, 1, 2]) await session.say(prose(300, from));
    usage = (await session.http.usage()).records[0]?.usage?.inputTokens ?? 0;
    const report = await session.context();
    expect([report.tokens, report.basis, sumOf(report)]).toEqual([usage, "counter", usage]);
    await session.say(prose(60));
    expect(Math.abs((await session.errors())[0] ?? NaN)).toBeLessThanOrEqual(1);
  });
});

describe("policies", () => {
  it('[CX9][AC28] mode "suggest" asks for a compaction above the threshold, and never of a session shown as unknown', async () => {
    const session = await contextSession("suggest", {
      configure: (builder) => builder.compactAfter(300, { mode: "suggest" }).context({ reportUnknownAs: "zero" }),
    });
    await session.http.call("POST", "/messages", { messages: [userMessage(prose(400))] });
    expect(await session.context()).toMatchObject({ tokens: 0, threshold: 300, suggestion: false });
    await session.say("hello", 3);
    expect(await session.context()).toMatchObject({ basis: "reported", threshold: 300, suggestion: true });
    await session.http.call("PATCH", "", { compactAfter: 20_000 });
    expect(await session.context()).toMatchObject({ threshold: 20_000, suggestion: false });
  });

  it('[CX1][AC24] reportUnknownAs "zero" shows 0 until a call has reported, and changes no prediction', async () => {
    const session = await contextSession("zero", {
      configure: (builder) => builder.contextWindow(10_000).context({ reportUnknownAs: "zero" }),
    });
    await session.http.call("POST", "/messages", { messages: [userMessage(prose(200))] });
    expect(await session.context()).toMatchObject({ tokens: 0, percent: 0, basis: "estimated" });
    const unreported = await session.socket.ask("/words 5\n/usage none");
    expect(reportsIn(unreported)[0]).toMatchObject({ tokens: 0, percent: 0 });
    await session.say(prose(100));
    const report = await session.context();
    const [call] = await session.predictions();
    expect(report).toMatchObject({ basis: "reported", accuracy: { last: call } });
    expect(report.tokens).toBeGreaterThan(400);
    expect(call?.predicted).toBeGreaterThan(300);
  });

  it('[CX1][AC24] counts "lastRequest" shows the last input alone, and predictions count the whole', async () => {
    const session = await contextSession("last-request", {
      configure: (builder) => builder.context({ counts: "lastRequest" }),
    });
    await session.say(prose(200), 150);
    const [first] = await session.predictions();
    expect(await session.context()).toMatchObject({ tokens: first?.actual, basis: "reported" });
    await session.say(prose(50), 10);
    const [second] = await session.predictions();
    expect(second?.predicted).toBeGreaterThan((first?.actual ?? 0) + 150);
    expect(await session.context()).toMatchObject({ tokens: second?.actual, accuracy: { last: second } });
  });
});

/** Stores so many short messages without a call, in batches far below 16 MiB. */
async function fill({ http }: ContextSession, messages: number): Promise<void> {
  const stored = Array.from({ length: messages }, (_, index): UIMessage => {
    const role = index % 2 === 0 ? "user" : "assistant";
    return { id: `m-${index}`, role, parts: [{ type: "text", text: prose(12, index) }] };
  });
  for (let start = 0; start < messages; start += 5_000) {
    const batch = stored.slice(start, start + 5_000);
    expect((await http.call("POST", "/messages", { messages: batch })).status).toBe(200);
  }
}

/** Rows that reading the context costs a session of so many messages that is not in memory, in four states of it. */
async function coldRows(messages: number): Promise<Record<string, number>> {
  const session = await contextSession(`cold-${messages}`, {
    configure: (builder) => builder.model(new MirrorAs("anthropic", "claude-sonnet-4-5")),
  });
  const store = (...more: object[]) => session.http.call("POST", "/messages", { messages: more });
  // What is read here is the number alone; so much would be compacted at once.
  await session.http.call("PATCH", "", { model: "mirror", compactAfter: "off" });
  await fill(session, messages);
  const unmeasured = await session.coldRows();
  const usage = { inputTokens: 20 * messages, outputTokens: 20 };
  await store({ id: "m", role: "assistant", parts: [{ type: "text", text: prose(20) }], metadata: { usage } });
  const measured = await session.coldRows();
  expect(await session.context()).toMatchObject({ tokens: 20 * messages + 20, basis: "reported" });
  await store(userMessage(prose(20)), userMessage(prose(20)));
  const anchored = await session.coldRows();
  await session.http.call("PATCH", "", { model: null });
  return { unmeasured, measured, anchored, ofAnotherFamily: await session.coldRows() };
}

describe("rows", () => {
  it("[CX10] reading the context cold costs as many rows at 10,000 messages as at 100, give or take three", async () => {
    const few = await coldRows(100);
    const many = await coldRows(10_000);
    const more = Object.entries(many).filter(([state, rows]) => rows > (few[state] ?? 0) + 3);
    expect(more).toEqual([]);
    expect([many.unmeasured, many.measured, many.anchored].filter((rows = 0) => rows > 40)).toEqual([]);
  }, 60_000);
});
