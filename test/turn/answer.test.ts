import type { UIMessageChunk } from "ai";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Part } from "../../src/records.ts";
import { Answer, awaitsModel, isAnswered, isToolPart, toolNameOf } from "../../src/turn/answer.ts";
import { stepsOf } from "../../src/turn/transcript.ts";
import { readByClient, REAL_STREAMS, streams } from "./chunk-streams.ts";
import {
  answeredWith,
  asJson,
  awaitingApproval,
  call,
  decided,
  dynamicCall,
  failedWith,
  step,
  text,
  toolCall,
} from "./entries.ts";

describe("building a message", () => {
  it.each(Object.entries(REAL_STREAMS))("[TN22] gives what a client reads: %s", async (_name, chunks) => {
    expect(built(chunks)).toEqual(withoutPartialInputs((await readByClient(chunks)).parts));
  });

  it.each(Object.entries(REAL_STREAMS))(
    "[TN22] gives what a client reads after each chunk: %s",
    async (_name, chunks) => {
      for (let end = 1; end <= chunks.length; end += 1) {
        const cut = chunks.slice(0, end);
        expect(built(cut)).toEqual(withoutPartialInputs((await readByClient(cut)).parts));
      }
    },
  );

  it("[TN22] gives what a client reads, for any stream", async () => {
    await fc.assert(
      fc.asyncProperty(streams, async (chunks) => {
        expect(built(chunks)).toEqual(withoutPartialInputs((await readByClient(chunks)).parts));
      }),
      { numRuns: 300 },
    );
  });

  it("[TN22] opens a step where a client opens one", () => {
    fc.assert(
      fc.property(streams, (chunks) => {
        const answer = answerOf(chunks);
        expect(answer.steps.map(({ parts }) => parts)).toEqual(stepsOf(answer.steps.flatMap(({ parts }) => parts)));
      }),
    );
  });

  it("[TN22] passes over chunks for texts and calls that never started, as nothing else can be done with them", () => {
    const strays: UIMessageChunk[] = [
      { type: "start-step" },
      { type: "text-delta", id: "t", delta: "x" },
      { type: "reasoning-end", id: "r" },
      { type: "tool-input-delta", toolCallId: "c", inputTextDelta: "x" },
      { type: "tool-output-available", toolCallId: "c", output: 1 },
      { type: "tool-approval-response", approvalId: "p", approved: true },
    ];
    expect(built(strays)).toEqual([{ type: "step-start" }]);
  });
});

describe("a message that goes on", () => {
  it("[TN22] changes the call of an earlier step and marks that step alone", () => {
    const answer = new Answer([step(2, [toolCall("a", decided("p", true))]), step(3, [text("so far")])]);
    answer.apply({ type: "tool-output-available", toolCallId: "a", output: 1 });
    expect(answer.steps.map(({ dirty }) => dirty)).toEqual([true, false]);
    expect(asJson(answer.steps[0]?.parts[1])).toEqual({ ...toolCall("a", decided("p", true)), ...answeredWith(1) });
  });

  it("[TN22] finds a call in the newest step when two steps use one id", () => {
    const answer = new Answer([step(2, [toolCall("a", answeredWith(1))]), step(3, [toolCall("a")])]);
    answer.apply({ type: "tool-output-available", toolCallId: "a", output: 2 });
    expect(answer.steps.map(({ parts }) => asJson(parts[1]))).toEqual([
      toolCall("a", answeredWith(1)),
      toolCall("a", answeredWith(2)),
    ]);
  });

  it("[TN18] drops a step that never said anything, and keeps one that did or that is stored", () => {
    const silent = answerOf([{ type: "start-step" }]);
    silent.dropSilentStep();
    const opened = answerOf([{ type: "start-step" }, { type: "text-start", id: "t" }]);
    opened.dropSilentStep();
    const spoken = answerOf([
      { type: "start-step" },
      { type: "text-start", id: "t" },
      { type: "text-delta", id: "t", delta: "." },
    ]);
    spoken.dropSilentStep();
    const stored = new Answer([step(2, [])]);
    stored.dropSilentStep();
    expect([silent, opened, spoken, stored].map(({ steps }) => steps.length)).toEqual([0, 0, 1, 1]);
  });
});

describe("what a step waits for", () => {
  const done = { call: call({ finishReason: "tool-calls" }) };

  it.each<[string, Part[], boolean]>([
    ["no call", [text("done")], false],
    ["an answered call", [toolCall("a", answeredWith(1))], true],
    ["a failed call", [toolCall("a", failedWith("x"))], true],
    ["a denied call", [toolCall("a", { state: "output-denied", approval: { id: "p", approved: false } })], true],
    ["an answered dynamic call", [dynamicCall("a", answeredWith(1))], true],
    ["a call of a client tool", [toolCall("a")], false],
    ["one of two calls open", [toolCall("a", answeredWith(1)), toolCall("b")], false],
    ["a preliminary output", [toolCall("a", { ...answeredWith(1), preliminary: true })], false],
    ["a requested approval", [toolCall("a", awaitingApproval("p"))], false],
    ["a given approval", [toolCall("a", decided("p", true))], false],
    ["a started input", [toolCall("a", { state: "input-streaming", input: undefined })], false],
  ])("[TN13] a step with %s: the model goes on: %o", (_name, parts, expected) => {
    expect(awaitsModel({ parts, ...done })).toBe(expected);
  });

  it("[TN13] a step that ended for another reason than its calls is the end, whatever its calls", () => {
    const parts = [toolCall("a", answeredWith(1))];
    expect(awaitsModel({ parts, call: call({ finishReason: "length" }) })).toBe(false);
    expect(awaitsModel({ parts })).toBe(false);
    expect(awaitsModel(undefined)).toBe(false);
  });
});

describe("tool parts", () => {
  it("[TN22] are told from others, named, and answered by output, error or denial alone", () => {
    expect([toolCall("a"), dynamicCall("a"), text("x")].map(isToolPart)).toEqual([true, true, false]);
    expect([toolCall("a"), dynamicCall("a")].map(toolNameOf)).toEqual(["look", "found"]);
    expect([toolCall("a", answeredWith(undefined)), toolCall("a")].map(isAnswered)).toEqual([true, false]);
  });
});

function answerOf(chunks: readonly UIMessageChunk[]): Answer {
  const answer = new Answer();
  for (const chunk of chunks) answer.apply(structuredClone(chunk));
  return answer;
}

function built(chunks: readonly UIMessageChunk[]): Part[] {
  return asJson(answerOf(chunks).steps.flatMap(({ parts }) => parts));
}

/**
 * While an input streams in, a client parses what there is of it anew at every chunk. The session keeps the text alone:
 * who reads it parses it, and replay makes a client do so.
 */
function withoutPartialInputs(parts: readonly Part[]): Part[] {
  return parts.map((part) => {
    if (!isToolPart(part) || part.state !== "input-streaming") return part;
    const { input: _, ...rest } = part;
    return rest as Part;
  });
}
