/** What is booked, whatever a model reports and however a turn ends. */
import { describe, expect, it } from "vitest";
import type { ModelCall, UsageTotals } from "../../src/records.ts";
import { HttpSession, newSessionId } from "./service.ts";
import { openSocket, userMessage } from "./socket.ts";

const NOTHING: UsageTotals = {
  calls: 0,
  inputTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
};

async function ask(topic: string, said: string) {
  const id = newSessionId(topic);
  const http = new HttpSession("tools", id);
  const socket = await openSocket("tools", id);
  const reply = await socket.ask(said);
  return { id, http, socket, reply };
}

describe("usage", () => {
  it("[US1] every call is booked on its step with model, purpose, finish reason, times and the provider's own object", async () => {
    const started = Date.now();
    const { http } = await ask("booked", '/reason why not\n/call lookUp {"order":1}');
    const { records } = await http.usage();
    const [, message] = await http.messages();
    const place = { messageId: message?.id, purpose: "turn", model: "mirror" };
    expect(records).toMatchObject([
      { ...place, step: 1, finishReason: "stop", usage: { outputTokens: 28, raw: { completion_tokens: 28 } } },
      {
        ...place,
        step: 0,
        finishReason: "tool-calls",
        usage: { outputTokens: 14, outputTokenDetails: { reasoningTokens: 2 }, raw: { completion_tokens: 14 } },
      },
    ]);
    for (const { startedAt, durationMs } of records) {
      expect(startedAt).toBeGreaterThanOrEqual(started);
      expect(startedAt + durationMs).toBeLessThanOrEqual(Date.now());
    }
    expect(records[0]?.usage?.inputTokenDetails.cacheReadTokens).toBe(records[1]?.usage?.inputTokens);
  });

  it("[US3] a call that reports nothing is booked without usage, and counts as nothing", async () => {
    const { http, reply } = await ask("unreported", "/words 3\n/usage none");
    expect(reply.ending).toBe("end");
    const { records, totals } = await http.usage();
    expect(records).toMatchObject([{ finishReason: "stop", model: "mirror" }]);
    expect(totals).toEqual({ ...NOTHING, calls: 1 });
    const [, message] = await http.messages();
    expect(message?.metadata).toMatchObject({ model: "mirror" });
    expect(JSON.stringify(message?.metadata)).not.toMatch(/"(inputTokens|outputTokens)":\d/);
  });

  it("[US3] nonsense counts as nothing in the totals, and the turn is a turn like any other", async () => {
    const { http, reply, socket } = await ask("nonsense", "/words 3\n/usage garbage");
    expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 3]);
    const { totals } = await http.usage();
    expect(Object.values(totals).every((count) => Number.isSafeInteger(count) && count >= 0)).toBe(true);
    expect(totals).toEqual({ ...NOTHING, calls: 1 });
    expect((await socket.ask("/words 2")).ending).toBe("end");
    const after = (await http.usage()).totals;
    expect([after.calls, after.outputTokens]).toEqual([2, 3]);
  });

  it.each(["before", "during", "after"])(
    "[US1][TN18] a call that fails %s streaming is no bill that grows",
    async (when) => {
      const { http, socket } = await ask(`failed-${when}`, `/words 4\n/fail ${when}`);
      const { records, totals } = await http.usage();
      expect(records.map(({ finishReason, usage }) => [finishReason, usage])).toEqual(
        when === "before" ? [] : [["error", undefined]],
      );
      expect(totals).toEqual({ ...NOTHING, calls: records.length });
      await socket.ask("/words 2");
      expect((await http.usage()).totals.calls).toBe(records.length + 1);
    },
  );

  it("[US1][TN19] a call that is aborted is booked as aborted", async () => {
    const id = newSessionId("aborted");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    socket.submit("r", [userMessage("/words 8\n/stall")]);
    await socket.streaming("r", 4);
    socket.send({ type: "abort", requestId: "r" });
    await socket.reply("r");
    expect((await http.usage()).records.map(({ finishReason }) => finishReason)).toEqual(["aborted"]);
  });

  it("[US4] the totals are the sum over the records, on every branch", async () => {
    const { http, socket } = await ask("sum", '/call lookUp {"order":1}\n/then\n/call break\n/then\n/words 2');
    socket.submit("again", [], { trigger: "regenerate-message" });
    await socket.reply("again");
    await socket.ask("/words 3\n/fail after");
    await socket.ask("/words 3\n/usage garbage");
    const { records, totals } = await http.usage();
    const outputs = records
      .map(({ usage }: ModelCall) => usage?.outputTokens)
      .filter((count) => Number.isSafeInteger(count));
    expect([records.length, totals.calls]).toEqual([8, 8]);
    expect(totals.outputTokens).toBe(outputs.reduce((sum: number, count) => sum + Math.max(0, count ?? 0), 0));
    expect((await http.summary()).usage).toEqual(totals);
  });

  it("[US2] a message of several steps carries usage, totalUsage, steps and model on the wire as in storage", async () => {
    const { http, reply } = await ask("metadata", '/call lookUp {"order":1}\n/then\n/words 2');
    const sent = reply.chunks.flatMap((chunk) => (chunk.type === "message-metadata" ? [chunk.messageMetadata] : []));
    const [, message] = await http.messages();
    expect(sent.at(-1)).toEqual(message?.metadata);
    const { records } = await http.usage();
    const reported = records.toReversed().map(({ usage }) => {
      const { raw: _, ...rest } = usage ?? {};
      return rest;
    });
    expect(message?.metadata).toMatchObject({ usage: reported[1], steps: reported, model: "mirror" });
    const sum = (records[0]?.usage?.inputTokens ?? 0) + (records[1]?.usage?.inputTokens ?? 0);
    expect(message?.metadata).toMatchObject({ totalUsage: { inputTokens: sum } });
    expect(JSON.stringify(reply.chunks)).not.toContain("prompt_tokens");
  });
});
