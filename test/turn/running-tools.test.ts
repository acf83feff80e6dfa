import type { LanguageModelV4, LanguageModelV4StreamPart } from "@ai-sdk/provider";
import { tool, type UIMessage } from "ai";
import { expect, it } from "vitest";
import { z } from "zod";
import { SessionBuilder } from "../../src/session-builder.ts";
import type { StreamSink } from "../../src/turn/live-stream.ts";
import { Session } from "../../src/turn/session.ts";
import { inDatabase } from "../storage/database.ts";
import { SessionStore } from "../../src/storage/session-store.ts";

const USAGE = {
  inputTokens: { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 1, text: 1, reasoning: undefined },
};

/** Calls `pay` once, then says that it is done. */
function payingModel(): LanguageModelV4 {
  let calls = 0;
  return {
    specificationVersion: "v4",
    provider: "test",
    modelId: "paying",
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error("not used")),
    doStream: () => {
      calls += 1;
      const said: LanguageModelV4StreamPart[] =
        calls === 1
          ? [{ type: "tool-call", toolCallId: "a", toolName: "pay", input: "{}" }]
          : [
              { type: "text-start", id: "t" },
              { type: "text-delta", id: "t", delta: "done" },
              { type: "text-end", id: "t" },
            ];
      const finishReason = { unified: calls === 1 ? ("tool-calls" as const) : ("stop" as const), raw: undefined };
      const parts: LanguageModelV4StreamPart[] = [
        { type: "stream-start", warnings: [] },
        ...said,
        { type: "finish", finishReason, usage: USAGE },
      ];
      return Promise.resolve({ stream: streamOf(parts) });
    },
  };
}

it("[TN11] an approved call that was stopped while it ran is not run again when the client repeats its approval", async () => {
  let runs = 0;
  let running = () => {};
  const pay = tool({
    inputSchema: z.object({}),
    needsApproval: true,
    execute: () => {
      runs += 1;
      running();
      return new Promise<string>(() => {});
    },
  });
  const seen = await inDatabase(async (storage) => {
    let work: Promise<unknown> = Promise.resolve();
    const store = new SessionStore(storage);
    const session = new Session({
      id: "s",
      store,
      configuration: new SessionBuilder().model(payingModel()).tools({ pay }).build(),
      languageModel: () => payingModel(),
      clock: () => Date.now(),
      newId: () => crypto.randomUUID(),
      keepAwake: (promise) => {
        work = promise;
      },
      log: () => {},
    });
    session.start();
    const submit = (requestId: string, messages: UIMessage[]) =>
      session.line.submit({ requestId, trigger: "submit-message", messages }, SILENT);
    const latest = () => session.history.messages(undefined, 1).messages;

    await submit("1", [{ id: "q", role: "user", parts: [{ type: "text", text: "pay" }] }]);
    await work;
    const approved = latest().map((message) => ({ ...message, parts: message.parts.map(approve) }));
    const started = new Promise<void>((resolve) => (running = resolve));
    await submit("2", approved);
    await started;
    session.line.abort();
    await work;
    await submit("3", approved);
    await Promise.race([work, new Promise((resolve) => setTimeout(resolve, 200))]);
    return latest()[0]?.parts.flatMap((part) => ("toolCallId" in part ? [part.state] : []));
  });
  expect({ runs, seen }).toEqual({ runs: 1, seen: ["output-error"] });
});

function streamOf(parts: readonly LanguageModelV4StreamPart[]): ReadableStream<LanguageModelV4StreamPart> {
  return new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(part);
      controller.close();
    },
  });
}

const SILENT: StreamSink = { chunk: () => {}, end: () => {}, error: () => {} };

function approve(part: UIMessage["parts"][number]): UIMessage["parts"][number] {
  if (!("approval" in part) || part.state !== "approval-requested") return part;
  // SAFETY: a requested approval becomes a responded one by its decision.
  return {
    ...part,
    state: "approval-responded",
    approval: { ...part.approval, approved: true },
  } as UIMessage["parts"][number];
}
