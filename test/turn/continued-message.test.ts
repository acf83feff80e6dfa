/** What a client that continues a message makes of what it is sent, on top of what it has. */
import { readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Part } from "../../src/records.ts";
import { chunksOfMessage } from "../../src/turn/replay.ts";
import { stepsOf } from "../../src/turn/transcript.ts";
import { readByClient, streams } from "./chunk-streams.ts";
import { answeredWith, asJson, awaitingApproval, decided, failedWith, text, toolCall } from "./entries.ts";

const START: Part = { type: "step-start" };

const answerWith = (parts: Part[]): UIMessage => ({ id: "answer", role: "assistant", parts });

/** A client's copy once it has read the chunks. */
async function readOnTopOf(copy: UIMessage, chunks: Iterable<UIMessageChunk>): Promise<UIMessage> {
  const all: UIMessageChunk[] = [...chunks, { type: "message-metadata", messageMetadata: { read: true } }];
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of all) controller.enqueue(asJson(chunk));
      controller.close();
    },
  });
  let last = copy;
  for await (const message of readUIMessageStream({ message: asJson(copy), stream, terminateOnError: true }))
    last = message;
  return asJson(last);
}

const partsAfter = async (stored: Part[], copy: Part[], stepsKnown: number) =>
  (await readOnTopOf(answerWith(copy), chunksOfMessage(answerWith(stored), { state: "done" }, stepsKnown))).parts;

describe("a client that continues a message", () => {
  it("[TN29] ends with the stored message, for any message and any number of steps it has", async () => {
    await fc.assert(
      fc.asyncProperty(streams, fc.nat(), async (chunks, pick) => {
        const { parts } = await readByClient(chunks);
        const steps = stepsOf(parts);
        const known = 1 + (pick % steps.length);
        expect(await partsAfter(parts, steps.slice(0, known).flat(), known)).toEqual(parts);
      }),
      { numRuns: 200 },
    );
  });

  it.each<[string, Part, Part]>([
    ["an output it does not have", toolCall("a"), toolCall("a", answeredWith({ city: "Porto" }))],
    ["an error it does not have", toolCall("a"), toolCall("a", failedWith("no signal"))],
    [
      "another output than its own",
      toolCall("a", answeredWith({ city: "Lisbon" })),
      toolCall("a", answeredWith({ city: "Porto" })),
    ],
    ["an error in place of its output", toolCall("a", answeredWith(1)), toolCall("a", failedWith("no signal"))],
    [
      "the output of a call it approved",
      toolCall("a", decided("p", true)),
      toolCall("a", { ...decided("p", true), ...answeredWith(1) }),
    ],
    [
      "the output of a call that another approved",
      toolCall("a", awaitingApproval("p")),
      toolCall("a", { ...decided("p", true, "fine"), ...answeredWith(1) }),
    ],
    [
      "the denial of a call that another denied",
      toolCall("a", awaitingApproval("p")),
      toolCall("a", { ...decided("p", false, "no"), state: "output-denied" }),
    ],
    ["nothing of a call that is open still", toolCall("a"), toolCall("a")],
  ])("[TN29] is sent %s", async (_name, copy, stored) => {
    const parts = [START, text("Where?"), stored, START, text("There.")];
    expect(await partsAfter(parts, [START, text("Where?"), copy], 1)).toEqual(asJson(parts));
  });

  it("[TN29] is sent nothing but the two ends of a message it has", () => {
    const parts = [START, text("Where?"), START, text("There.")];
    expect([...chunksOfMessage(answerWith(parts), { state: "done" }, 2)].map(({ type }) => type)).toEqual([
      "start",
      "finish",
    ]);
  });
});
