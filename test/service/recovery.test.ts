/** Objects that die: what is lost (nothing that was acknowledged), and what is done twice (nothing). */
import { abortAllDurableObjects, evictDurableObject, runDurableObjectAlarm } from "cloudflare:test";
import type { UIMessage } from "ai";
import { describe, expect, it, vi } from "vitest";
import { ChatClient, within } from "./chat-client.ts";
import { crash, eventually, HttpSession, newSessionId, pause, stubOf } from "./service.ts";
import { openSocket, textOf, userMessage } from "./socket.ts";
import { toolRuns } from "./tool-runs.ts";
import type { Service } from "./worker.ts";

const words = (message: UIMessage | undefined) => textOf(message).split(" ").filter(Boolean).length;

/** Waits until no turn is open and none waits. A request wakes the object, which recovers what it finds. */
const settled = (http: HttpSession) =>
  eventually(
    "the session to settle",
    () => http.summary(),
    ({ turn, queued }) => turn === null && queued === 0,
  );

/** The totals of a session are the sum over its records: nothing is booked twice and nothing is left out. */
async function expectBookedOnce(http: HttpSession, calls: number): Promise<void> {
  const { records, totals } = await http.usage();
  const sum = (read: (usage: NonNullable<(typeof records)[number]["usage"]>) => number | undefined) =>
    records.reduce((total, { usage }) => total + ((usage && read(usage)) ?? 0), 0);
  expect(records).toHaveLength(calls);
  expect(totals).toEqual({
    calls,
    inputTokens: sum((usage) => usage.inputTokens),
    outputTokens: sum((usage) => usage.outputTokens),
    reasoningTokens: sum((usage) => usage.outputTokenDetails.reasoningTokens),
    cacheReadTokens: sum((usage) => usage.inputTokenDetails.cacheReadTokens),
    cacheWriteTokens: sum((usage) => usage.inputTokenDetails.cacheWriteTokens),
  });
}

/** Starts a turn and lets the object die once so many words of it have come. */
async function dieAfter(service: Service, id: string, said: string, deltas: number, lingerMs = 0): Promise<void> {
  const socket = await openSocket(service, id);
  socket.submit("r", [userMessage(said, "u-1")]);
  await socket.streaming("r", deltas);
  await pause(lingerMs);
  await crash(service, id);
}

describe("a crash", () => {
  it("[TN15][TN16][ST7] in a step that was checkpointed ends the turn as interrupted with what was stored", async () => {
    const id = newSessionId("checkpointed");
    const http = new HttpSession("chat", id);
    await dieAfter("chat", id, "/words 200\n/slow 20", 10, 1_200);
    const { messages } = await settled(http);
    const [asked, answer] = await http.messages();
    expect([messages, asked?.id]).toEqual([2, "u-1"]);
    expect(words(answer)).toBeGreaterThan(15);
    expect(words(answer)).toBeLessThan(200);
    await expectBookedOnce(http, 1);
    const socket = await openSocket("chat", id);
    expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
  });

  it("[TN16] again and again before anything is stored gives the turn up after two more tries", async () => {
    const id = newSessionId("three-deaths");
    const http = new HttpSession("chat", id);
    await dieAfter("chat", id, "/words 9\n/slow 200", 1);
    for (const _death of [2, 3]) {
      expect((await http.summary()).turn?.startedAt).toBeGreaterThan(0);
      await crash("chat", id);
    }
    const { messages, turn, usage } = await http.summary();
    expect([messages, turn, usage.calls]).toEqual([1, null, 0]);
    const socket = await openSocket("chat", id);
    socket.submit("again", [userMessage("/words 9\n/slow 200", "u-1")]);
    expect((await socket.reply("again")).text.split(" ")).toHaveLength(9);
  });

  it("[TN14][TN16] while a server tool runs answers its call with an error, and the tool does not run again", async () => {
    const id = newSessionId("tool-death");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    socket.submit("r", [userMessage('/words 3\n/call wait {"ms":60000}\n/call lookUp {"order":1}', "u-1")]);
    await eventually(
      "the tools to run",
      () => toolRuns(id),
      (runs) => runs.length === 2,
    );
    await crash("tools", id);
    await settled(http);
    const [, answer] = await http.messages();
    expect(answer?.parts.slice(2)).toMatchObject([
      { type: "tool-wait", state: "output-error", errorText: expect.stringContaining("cut off") },
      { type: "tool-lookUp" },
    ]);
    expect(answer?.parts.flatMap((part) => ("toolCallId" in part ? part.state : [])).includes("input-available")).toBe(
      false,
    );
    expect(words(answer)).toBe(3);
    const next = await openSocket("tools", id);
    expect((await next.ask("what happened?")).ending).toBe("end");
    expect(toolRuns(id)).toEqual(["wait", "lookUp"]);
  });

  it("[TN14][TN16][US4] between two steps goes on with the second; the first is not repeated, in deeds or in the books", async () => {
    const id = newSessionId("between-steps");
    const http = new HttpSession("tools", id);
    await dieAfter("tools", id, '/call lookUp {"order":1}\n/then\n/words 12\n/slow 30', 3);
    await settled(http);
    const [, answer] = await http.messages();
    expect(answer?.parts.map(({ type }) => type)).toEqual(["step-start", "tool-lookUp", "step-start", "text"]);
    expect([words(answer), toolRuns(id)]).toEqual([12, ["lookUp"]]);
    await expectBookedOnce(http, 2);
  });

  it("[TN16][US4] in a checkpointed second step keeps both and books each once, the cut one without usage", async () => {
    const id = newSessionId("second-step");
    const http = new HttpSession("tools", id);
    await dieAfter("tools", id, '/call lookUp {"order":1}\n/then\n/words 200\n/slow 20', 3, 1_200);
    await settled(http);
    const [, answer] = await http.messages();
    expect(answer?.parts.map(({ type }) => type)).toEqual(["step-start", "tool-lookUp", "step-start", "text"]);
    expect([words(answer) > 15, words(answer) < 200, toolRuns(id)]).toEqual([true, true, ["lookUp"]]);
    await expectBookedOnce(http, 2);
  });

  it("[ST1][US4] is recovered alike where the clock was put back in between", async () => {
    const id = newSessionId("clock");
    const http = new HttpSession("tools", id);
    await dieAfter("tools", id, '/call lookUp {"order":1}\n/then\n/words 12\n/slow 30', 3);
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() - 3_600_000 });
    try {
      const socket = await openSocket("tools", id);
      socket.send({ type: "resume", requestId: "resumed" });
      await socket.reply("resumed");
    } finally {
      vi.useRealTimers();
    }
    await settled(http);
    expect([words((await http.messages())[1]), toolRuns(id)]).toEqual([12, ["lookUp"]]);
    await expectBookedOnce(http, 2);
  });

  it("[TN9][TN16] while a client tool is awaited loses nothing: the output continues the message", async () => {
    const id = newSessionId("client-tool-death");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    await socket.ask("/call locate\n/then\n/words 3");
    await crash("tools", id);
    const [asked, message] = await http.messages();
    const parts = message?.parts.map((part) =>
      "toolCallId" in part ? { ...part, state: "output-available", output: "here" } : part,
    );
    const next = await openSocket("tools", id);
    next.submit("answer", [asked ?? {}, { ...message, parts }]);
    expect((await next.reply("answer")).text.split(" ")).toHaveLength(3);
    await expectBookedOnce(http, 2);
  });

  it("[TN9][TN16][US4] in the step after a client tool's output runs that step again, in the same message", async () => {
    const id = newSessionId("continued-death");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    await socket.ask("/call locate\n/then\n/words 12\n/slow 30");
    const message = (await http.messages())[1];
    const parts = message?.parts.map((part) =>
      "toolCallId" in part ? { ...part, state: "output-available", output: "here" } : part,
    );
    socket.submit("answer", [{ ...message, parts }]);
    await socket.streaming("answer", 3);
    await crash("tools", id);
    await settled(http);
    const after = await http.messages();
    expect([after.length, after[1]?.id, words(after[1])]).toEqual([2, message?.id, 12]);
    await expectBookedOnce(http, 2);
  });

  it("[TN3][TN16] and the same request sent again follows the turn that runs again", async () => {
    const id = newSessionId("resent");
    const http = new HttpSession("chat", id);
    await dieAfter("chat", id, "/words 9\n/slow 40", 2);
    const socket = await openSocket("chat", id);
    socket.submit("r", [userMessage("/words 9\n/slow 40", "u-1")]);
    expect((await socket.reply("r")).text.split(" ")).toHaveLength(9);
    expect((await http.summary()).messages).toBe(2);
    await expectBookedOnce(http, 1);
  });

  it("[WP3][TN16] and the stock chat resumes to the message that is stored", async () => {
    const id = newSessionId("chat-death");
    const chat = new ChatClient("chat", id);
    const sent = chat.sendMessage({ text: "/words 15\n/slow 30" });
    await eventually(
      "some words",
      () => words(chat.lastMessage),
      (count) => count >= 3,
    );
    await crash("chat", id);
    await within("the break", sent, chat);
    await within("the rest", chat.resumeStream(), chat);
    const stored = await new HttpSession("chat", id).messages();
    expect(chat.messages.map((message) => [message.id, textOf(message)])).toEqual(
      stored.map((message) => [message.id, textOf(message)]),
    );
    expect(words(stored[1])).toBe(15);
  });

  it("[TN16] is noticed with nobody connected: the alarm wakes the object, and the turn runs again", async () => {
    const id = newSessionId("alarm");
    const socket = await openSocket("tools", id);
    socket.submit("r", [userMessage('/words 4\n/slow 100\n/call lookUp {"order":1}\n/then\n/words 1')]);
    await socket.streaming("r", 1);
    await crash("tools", id);
    expect(toolRuns(id)).toEqual([]);
    expect(await runDurableObjectAlarm(stubOf("tools", id))).toBe(true);
    await eventually(
      "the tool to run",
      () => toolRuns(id),
      (runs) => runs.length === 1,
    );
    await settled(new HttpSession("tools", id));
    expect(toolRuns(id)).toEqual(["lookUp"]);
  });

  it("[ST7][TN17] of every object at once loses no session", async () => {
    const ids = ["all-a", "all-b"].map(newSessionId);
    for (const id of ids) {
      const socket = await openSocket("chat", id);
      socket.submit("1", [userMessage("/words 9\n/slow 30", "m-1")]);
      await socket.streaming("1", 2);
      socket.submit("2", [userMessage("/words 2", "m-2")]);
      await socket.nextFrame("a place", (frame) => frame.chunk?.type === "data-queued");
    }
    await abortAllDurableObjects();
    for (const id of ids) {
      const http = new HttpSession("chat", id);
      await settled(http);
      expect((await http.messages()).map(words)).toEqual([3, 9, 2, 2]);
      await expectBookedOnce(http, 2);
    }
  });
});

describe("an eviction", () => {
  it("[ST7] keeps everything: messages, branches, settings, usage", async () => {
    const id = newSessionId("evicted");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    await socket.ask('/reason why\n/call lookUp {"order":1}', { id: "u" });
    socket.submit("edit", [userMessage("/words 3", "u")], { messageId: "u" });
    await socket.reply("edit");
    await http.call("PATCH", "", { systemPrompt: "Be brief." });
    const paths = ["", "/messages", "/branches", "/usage"];
    const look = () => Promise.all(paths.map((path) => http.get(path)));
    const before = await look();
    await evictDurableObject(stubOf("tools", id));
    expect(await look()).toEqual(before);
  });

  it("[ST7] in the middle of a turn loses nothing of it", async () => {
    const id = newSessionId("evicted-turn");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    socket.submit("r", [userMessage("/words 20\n/slow 20")]);
    await socket.streaming("r", 3);
    await evictDurableObject(stubOf("chat", id));
    await settled(http);
    expect((await http.messages()).map(words)).toEqual([3, 20]);
    await expectBookedOnce(http, 1);
  });
});
