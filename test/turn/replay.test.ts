import type { UIMessage } from "ai";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Part } from "../../src/records.ts";
import { Answer } from "../../src/turn/answer.ts";
import { chunksOfMessage, chunksOfParts } from "../../src/turn/replay.ts";
import { readByClient, REAL_STREAMS, streams } from "./chunk-streams.ts";
import { answeredWith, asJson, decided, dynamicCall, failedWith, reasoning, text, toolCall } from "./entries.ts";

const answerWith = (parts: Part[], metadata?: unknown): UIMessage => ({
  id: "answer",
  role: "assistant",
  ...(metadata !== undefined && { metadata }),
  parts,
});

describe("replaying a message", () => {
  it.each(Object.entries(REAL_STREAMS))("[TN23] rebuilds what was built: %s", async (_name, chunks) => {
    const answer = new Answer();
    for (const chunk of chunks) answer.apply(structuredClone(chunk));
    const stored = asJson(answerWith(answer.steps.flatMap(({ parts }) => parts)));
    const { parts } = await readByClient(chunksOfMessage(stored));
    expect(parts).toEqual((await readByClient(chunks)).parts);
  });

  it("[TN23] rebuilds any message, cut off anywhere", async () => {
    await fc.assert(
      fc.asyncProperty(streams, fc.nat(), async (chunks, pick) => {
        const cut = chunks.slice(0, 1 + (pick % chunks.length));
        const { parts } = await readByClient(cut);
        expect((await readByClient(chunksOfMessage(answerWith(parts)))).parts).toEqual(parts);
      }),
      { numRuns: 300 },
    );
  });

  it("[TN23] rebuilds id, role and metadata", async () => {
    const message = answerWith([{ type: "step-start" }, text("a")], { model: "mirror", steps: [null] });
    expect(await readByClient(chunksOfMessage(message))).toEqual({
      ...message,
      metadata: { model: "mirror", steps: [null], read: true },
    });
  });

  it.each<[string, Part]>([
    ["a call that was interrupted", toolCall("a", failedWith("interrupted"))],
    ["an output that was nothing", toolCall("a", answeredWith(null))],
    ["a preliminary output", toolCall("a", { ...answeredWith(1), preliminary: true })],
    ["an approved call with its output", toolCall("a", { ...decided("p", true, "fine"), ...answeredWith(1) })],
    ["a denied call", toolCall("a", { ...decided("p", false), state: "output-denied" })],
    ["an approved call that failed", dynamicCall("a", { ...decided("p", true), ...failedWith("x"), title: "T" })],
    ["a call without input", toolCall("a", { input: undefined, ...answeredWith(1) })],
    [
      "a started input of text",
      toolCall("a", { state: "input-streaming", input: "--- a", rawInput: "--- a", inputEncoding: "text" }),
    ],
    [
      "a started input with what the provider said of it",
      toolCall("a", { state: "input-streaming", input: undefined, callProviderMetadata: { x: { y: 1 } } }),
    ],
    ["a reasoning that was cut off", reasoning("thi", { id: "r", state: "streaming" })],
    ["an empty reasoning that carries a signature", reasoning("", { id: "r", providerMetadata: { a: { s: "1" } } })],
    ["an empty text", text("")],
  ])("[TN23] rebuilds %s", async (_name, part) => {
    const parts: Part[] = [{ type: "step-start" }, part];
    expect((await readByClient(chunksOfMessage(answerWith(parts)))).parts).toEqual(asJson(parts));
  });

  it("[TN23] gives every text an id of its own, so that none grows into another", async () => {
    const chunks = [
      ...chunksOfParts([text("a", { state: "streaming" }), text("b"), text("c", { state: "streaming" })]),
    ];
    const ids = chunks.flatMap((chunk) => (chunk.type === "text-start" ? [chunk.id] : []));
    expect(new Set(ids).size).toBe(3);
  });

  it("[TN23] opens and ends steps in pairs", () => {
    const kinds = [...chunksOfParts([{ type: "step-start" }, { type: "step-start" }])].map(({ type }) => type);
    expect(kinds).toEqual(["start-step", "finish-step", "start-step", "finish-step"]);
    expect([...chunksOfParts([])]).toEqual([]);
  });
});
