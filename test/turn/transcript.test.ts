import type { LanguageModelUsage, UIMessage } from "ai";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Part } from "../../src/records.ts";
import { answerMetadata, messageOf, messagesOf, stepsOf } from "../../src/turn/transcript.ts";
import { asked, call, entry, step, text, toolCall, usage } from "./entries.ts";

const START: Part = { type: "step-start" };

const anyParts = fc.array(
  fc.oneof(
    fc.constant(START),
    fc.string().map((said) => text(said)),
    fc.string({ minLength: 1 }).map((id) => toolCall(id)),
  ),
  { maxLength: 12 },
);

describe("cutting into steps", () => {
  it("[TN1] joining the steps of any message gives back its parts", () => {
    fc.assert(
      fc.property(anyParts, (parts) => {
        expect(stepsOf(parts).flat()).toEqual(parts);
      }),
    );
  });

  it("[TN1] every step holds at most one start, and only the first may hold something before it", () => {
    fc.assert(
      fc.property(anyParts, (parts) => {
        const starts = stepsOf(parts).map((cut) => cut.flatMap(({ type }, at) => (type === "step-start" ? [at] : [])));
        expect(starts.filter((at) => at.length > 1)).toEqual([]);
        expect(starts.slice(1).filter((at) => at[0] !== 0)).toEqual([]);
      }),
    );
  });

  it.each<[string, Part[], number[]]>([
    ["nothing", [], [0]],
    ["no start", [text("a"), text("b")], [2]],
    ["one start", [START, text("a")], [2]],
    ["content before the first start", [text("a"), START, text("b"), START], [3, 1]],
    ["starts alone", [START, START], [1, 1]],
  ])("[TN1] %s is cut as expected", (_name, parts, lengths) => {
    expect(stepsOf(parts).map(({ length }) => length)).toEqual(lengths);
  });
});

describe("joining entries", () => {
  it("[TN1] gives the messages of a branch in order, each whole", () => {
    const messages = messagesOf([
      asked(1, "q1"),
      step(2, [toolCall("a")], { messageId: "a1", call: undefined }),
      step(3, [text("done")], { messageId: "a1", step: 1, call: undefined }),
      asked(4, "q2"),
    ]);
    expect(messages).toEqual([
      { id: "m1", role: "user", parts: [text("q1", { state: undefined })] },
      { id: "a1", role: "assistant", parts: [START, toolCall("a"), START, text("done")] },
      { id: "m4", role: "user", parts: [text("q2", { state: undefined })] },
    ] satisfies UIMessage[]);
  });

  it("[TN6] keeps two versions of a message apart", () => {
    expect(messagesOf([asked(1, "old"), asked(2, "new", { messageId: "m1", version: 1 })])).toHaveLength(2);
  });

  it("[HT7] leaves out a message whose entries are all deleted", () => {
    const gone = { state: "deleted" as const, parts: [] };
    const messages = messagesOf([asked(1, "q"), step(2, [], gone), step(3, [], { ...gone, step: 1 }), asked(4, "r")]);
    expect(messages.map(({ id }) => id)).toEqual(["m1", "m4"]);
  });

  it("[US2] keeps what a client sent as metadata, beside what the calls say", () => {
    const sent = messageOf([entry(1, { metadata: { mood: "calm" } })]);
    const answer = messageOf([
      step(2, [], { metadata: { mood: "calm", model: "made up" }, call: call({ usage: usage(3, 4) }) }),
    ]);
    const odd = messageOf([step(2, [], { metadata: "odd" })]);
    expect(sent.metadata).toEqual({ mood: "calm" });
    expect(answer.metadata).toEqual({
      mood: "calm",
      model: "mirror",
      usage: usage(3, 4),
      totalUsage: usage(3, 4),
      steps: [usage(3, 4)],
    });
    expect(odd.metadata).toEqual({ model: "mirror", steps: [null] });
  });
});

describe("the metadata of an answer", () => {
  it("[US2] holds the usage of the last step, the sum of all, and one entry per step", () => {
    const calls = [call({ usage: usage(10, 1) }), call({ usage: usage(20, 2), model: "openai/gpt" })];
    expect(answerMetadata(calls)).toEqual({
      usage: usage(20, 2),
      totalUsage: usage(30, 3),
      steps: [usage(10, 1), usage(20, 2)],
      model: "openai/gpt",
    });
  });

  it("[US2] sums what providers tell of caches and reasoning, and leaves untold what none told", () => {
    const told: LanguageModelUsage = {
      ...usage(10, 5),
      inputTokenDetails: { noCacheTokens: 2, cacheReadTokens: 8, cacheWriteTokens: undefined },
      outputTokenDetails: { textTokens: 1, reasoningTokens: 4 },
    };
    expect(
      answerMetadata([call({ usage: told }), call({ usage: told }), call({ usage: usage(1, 1) })]).totalUsage,
    ).toEqual({
      inputTokens: 21,
      inputTokenDetails: { noCacheTokens: 5, cacheReadTokens: 16, cacheWriteTokens: undefined },
      outputTokens: 11,
      outputTokenDetails: { textTokens: 3, reasoningTokens: 8 },
      totalTokens: 32,
    });
  });

  it("[US2][US3] says null for a step without a report, and has no usage when the last step has none", () => {
    expect(answerMetadata([call({ usage: usage(10, 1) }), call()])).toEqual({
      totalUsage: usage(10, 1),
      steps: [usage(10, 1), null],
      model: "mirror",
    });
    expect(answerMetadata([call()])).toEqual({ steps: [null], model: "mirror" });
    expect(answerMetadata([undefined])).toEqual({});
    expect(answerMetadata([])).toEqual({});
  });

  it("[US2] does not hand out the provider's raw object", () => {
    const { usage: last, steps } = answerMetadata([call({ usage: { ...usage(1, 1), raw: { secret: 1 } } })]);
    expect([last, steps]).toEqual([usage(1, 1), [usage(1, 1)]]);
  });

  it("[US2] takes the model of an earlier step where the last one made no call", () => {
    expect(answerMetadata([call({ model: "openai/gpt" }), undefined]).model).toBe("openai/gpt");
  });
});
