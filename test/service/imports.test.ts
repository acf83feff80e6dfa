/** Imports that bring what was never said here: calls that wait to be run, and usage that no provider reported. */
import { evictDurableObject } from "cloudflare:test";
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import type { ContextReport } from "../../src/context/report.ts";
import { HttpSession, newSessionId, stubOf } from "./service.ts";
import { openSocket, userMessage } from "./socket.ts";
import { toolRuns } from "./tool-runs.ts";

const START = { type: "step-start" };

const answerWith = (part: object, metadata?: unknown) => ({
  id: "a",
  role: "assistant",
  ...(metadata !== undefined && { metadata }),
  parts: [START, part],
});

const refund = (change: object) => ({
  type: "tool-refund",
  toolCallId: "c",
  input: { amount: 900 },
  ...change,
});

async function imported(topic: string, answer: object) {
  const id = newSessionId(topic);
  const http = new HttpSession("tools", id);
  const messages = [userMessage("refund it", "u"), answer];
  expect(await http.call("POST", "/messages", { messages })).toMatchObject({ status: 200, body: { inserted: 2 } });
  return { id, http, socket: await openSocket("tools", id) };
}

describe("an imported call of a server tool", () => {
  it.each<[string, object]>([
    ["waits for approval", refund({ state: "approval-requested", approval: { id: "p" } })],
    ["was approved", refund({ state: "approval-responded", approval: { id: "p", approved: true } })],
    ["was about to run", refund({ state: "input-available" })],
    [
      "was about to run under a dynamic name",
      { ...refund({ state: "input-available" }), type: "dynamic-tool", toolName: "refund" },
    ],
  ])("[TN31] that %s is stored as one that was not run, and never runs", async (_name, call) => {
    const { id, http, socket } = await imported("import-call", answerWith(call));
    const stored = (await http.messages())[1];
    expect(stored?.parts[1]).toMatchObject({ state: "output-error", errorText: "The call was not run." });
    const approved = { ...call, state: "approval-responded", approval: { id: "p", approved: true } };
    for (const part of [call, approved]) {
      const requestId = crypto.randomUUID();
      socket.submit(requestId, [answerWith(part)], { messageId: "a" });
      await socket.reply(requestId);
    }
    const next = await socket.ask("/words 2");
    expect([next.ending, next.text.split(" ").length]).toEqual(["end", 2]);
    socket.submit("again", [], { trigger: "regenerate-message" });
    expect((await socket.reply("again")).ending).toBe("end");
    expect(toolRuns(id)).toEqual([]);
  });

  it("[TN31] that was answered is stored with its answer, and a client's open call stays open", async () => {
    const paid = refund({ state: "output-available", output: { paid: 9 } });
    const answered = await imported("import-answered", answerWith(paid));
    expect((await answered.http.messages())[1]?.parts[1]).toMatchObject(paid);
    const locate = { type: "tool-locate", toolCallId: "c", state: "input-available", input: {} };
    const { http, socket } = await imported("import-client-call", answerWith(locate));
    expect((await http.messages())[1]?.parts[1]).toMatchObject(locate);
    socket.submit("r", [answerWith({ ...locate, state: "output-available", output: "here" })], { messageId: "a" });
    expect((await socket.reply("r")).text).toContain("here");
  });
});

describe("imported usage", () => {
  const tens = (count: number) => Array.from({ length: count }, () => 10);
  const NONE = { inputTokens: 0, outputTokens: 0 };

  it.each<[string, unknown, { inputTokens: number; outputTokens: number }]>([
    ["a string", { usage: "lots" }, NONE],
    ["a list", { usage: [1, 2], steps: "none" }, NONE],
    ["strings", { usage: { inputTokens: "30", outputTokens: "12" } }, NONE],
    ["objects", { usage: { inputTokens: { total: 30 }, outputTokens: {} } }, NONE],
    ["counts below zero", { usage: { inputTokens: -30, outputTokens: -12, totalTokens: -42 } }, NONE],
    ["counts beyond all sums", { usage: { inputTokens: 1e308, outputTokens: 1e308 }, steps: [null] }, NONE],
    ["a list of steps that are none", { steps: [7] }, NONE],
    ["a huge object", { usage: { inputTokens: 30, outputTokens: 12, raw: tens(50_000) } }, NONE],
    [
      "a provider's raw object",
      { usage: { prompt_tokens: 30, completion_tokens: 12 } },
      { inputTokens: 30, outputTokens: 12 },
    ],
    [
      "another provider's raw object",
      { steps: [{ input_tokens: 10, cache_read_input_tokens: 20, output_tokens: 12 }] },
      { inputTokens: 30, outputTokens: 12 },
    ],
    [
      "one good count beside bad ones",
      { usage: { inputTokens: 30, outputTokens: 1e308, outputTokenDetails: { reasoningTokens: "all" } } },
      { inputTokens: 30, outputTokens: 0 },
    ],
  ])("[US6] of %s leaves every figure finite, and the next turn works", async (_name, metadata, totals) => {
    const { id, http, socket } = await imported("import-usage", answerWith({ type: "text", text: "Done." }, metadata));
    for (const cold of [false, true]) {
      if (cold) await evictDurableObject(stubOf("tools", id));
      const usage = await http.usage();
      expect(usage.totals).toMatchObject(totals);
      expect(Object.values(usage.totals).every((count) => Number.isSafeInteger(count) && count >= 0)).toBe(true);
      const report = await http.get<ContextReport>("/context");
      expect([report.tokens, report.free].map((count) => Number.isFinite(count) && count >= 0)).toEqual([true, true]);
      expect(report.tokens).toBeLessThan(500);
      expect((await http.messages()).map((message: UIMessage) => message.id)).toEqual(["u", "a"]);
    }
    const reply = await socket.ask("/words 2");
    expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 2]);
    expect((await http.usage()).totals.outputTokens).toBe(totals.outputTokens + 3);
  });
});
