import { beforeAll, describe, expect, it } from "vitest";
import { anthropic, receivedBodies, providerAnswer, recordedUrl, userMessage, withOutputs } from "./provider-answer.ts";

const SIGNATURE =
  "EvQBCkYICxgCKkAxhD4NUKFzudtZ6NzbZdEiBACIScTzqjPViM596iWLZIk4EFKYYBj3B6Ptl3b0dcQv/VeJBNbejNWIWRBn+KPNEgz6HWtKx7p+QRgKsEoaDGjsiqfht7gTRFYHiyIwD1VSmNqHxv3wy8KEMP+LYb/TC4UH3H97tuoaADARFFcA0phdfxnzKQxFnc9lwY+dKlzUsaKSUAFeu1bDL5ikZJ1vL0Fkz6JjoFke0L/wOJRIUDUlDUOFJ1tZ3ea7g6LGE/5hwuvWgLwewdcm64d+43l7F57XrOmqNd6flI2K/oPr/4yzNgvi/EhT6Ca17BgB";
const THOUGHT = "The previous result was 925. Now I need to divide that by 5.\n\n925 ÷ 5 = 185";

describe.skipIf(recordedUrl === null)("recorded Anthropic streams", () => {
  it("[PF1] plain text reports 12 input and 30 output tokens", async () => {
    const { usage, finishReason, errors } = await providerAnswer(anthropic("claude-sonnet-4-5--anthropic-text"));
    expect(errors).toEqual([]);
    expect(finishReason).toBe("stop");
    expect(usage).toMatchObject({ inputTokens: 12, outputTokens: 30, totalTokens: 42 });
    expect(usage?.inputTokenDetails).toEqual({ noCacheTokens: 12, cacheReadTokens: 0, cacheWriteTokens: 0 });
    expect(usage?.raw).toMatchObject({ input_tokens: 12, output_tokens: 30, service_tier: "standard" });
  });

  it("[PF2] cache reads and writes count as input once and are told apart", async () => {
    const model = anthropic("claude-sonnet-4-5--anthropic-code-execution-20260120-prompt-cache");
    const { usage } = await providerAnswer(model);
    expect(usage?.inputTokens).toBe(9_632);
    expect(usage?.inputTokenDetails).toEqual({ noCacheTokens: 6, cacheReadTokens: 6_289, cacheWriteTokens: 3_337 });
    expect(usage?.outputTokens).toBe(198);
    expect(usage?.outputTokenDetails).toEqual({ textTokens: 198, reasoningTokens: 0 });
  });

  it("[PF3] the last report of a stream replaces the first: 61 input tokens, not 43", async () => {
    const { usage } = await providerAnswer(anthropic("claude-opus-4-5--anthropic-message-delta-input-tokens"));
    expect(usage).toMatchObject({ inputTokens: 61, outputTokens: 2 });
    expect(usage?.raw).toEqual({ input_tokens: 61, output_tokens: 2 });
  });

  it("[PF3] a repeated start and a last report without input are one call with 17 input tokens", async () => {
    const { usage, message } = await providerAnswer(anthropic("claude-3-haiku--duplicate-message-start"));
    expect(usage).toMatchObject({ inputTokens: 17, outputTokens: 227 });
    expect(message?.parts.flatMap((part) => (part.type === "text" ? [part.text] : []))).toEqual(["Hello, World!"]);
  });

  it("[PF4] a compaction by the provider is billed as 60,997 tokens and leaves its iterations in the raw object", async () => {
    const { usage } = await providerAnswer(anthropic("claude-opus-4-6--anthropic-compaction"));
    expect(usage).toMatchObject({ inputTokens: 60_997, outputTokens: 3_341 });
    expect(usage?.raw).toMatchObject({
      input_tokens: 612,
      output_tokens: 2_819,
      iterations: [
        { type: "compaction", input_tokens: 60_385, output_tokens: 522 },
        { type: "message", input_tokens: 612, output_tokens: 2_819 },
      ],
    });
  });

  it("[PF6] a tool call keeps its id and input", async () => {
    const model = anthropic("claude-haiku-4-5--anthropic-json-tool");
    const { usage, finishReason, message } = await providerAnswer(model, { toolNames: ["json"] });
    expect(finishReason).toBe("tool-calls");
    expect(usage).toMatchObject({ inputTokens: 849, outputTokens: 47 });
    expect(message?.parts.find((part) => part.type === "tool-json")).toMatchObject({
      toolCallId: "toolu_01KFbKqPYSuAKujiL6mTfzYA",
      state: "input-available",
      input: { elements: [{ location: "San Francisco", temperature: 58, condition: "sunny" }] },
    });
  });
});

describe.skipIf(recordedUrl === null)("a recorded Anthropic thought", () => {
  const model = anthropic("claude-sonnet-4-5--anthropic-clear-thinking");
  let answer: Awaited<ReturnType<typeof providerAnswer>>;
  beforeAll(async () => {
    answer = await providerAnswer(model);
  });

  it("[PF1] reports 69 input and 53 output tokens, thinking included and not told apart", () => {
    expect(answer.usage).toMatchObject({ inputTokens: 69, outputTokens: 53 });
    expect(answer.usage?.outputTokenDetails.reasoningTokens).toBeUndefined();
  });

  it("[PF5] is kept with its signature", () => {
    expect(answer.message?.parts.find((part) => part.type === "reasoning")).toMatchObject({
      text: THOUGHT,
      providerMetadata: { anthropic: { signature: SIGNATURE } },
    });
  });

  it("[PF5] goes back with its signature on the next call, ahead of the text", async () => {
    const history = [
      userMessage("Divide it by 5."),
      ...(answer.message ? [answer.message] : []),
      userMessage("And by 2?"),
    ];
    await providerAnswer(model, {
      messages: history,
      providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
    });
    const second = (await receivedBodies(model.modelId)).at(-1);
    expect(second?.["messages"]).toMatchObject([
      { role: "user" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: THOUGHT, signature: SIGNATURE },
          { type: "text", text: "925 ÷ 5 = 185" },
        ],
      },
      { role: "user" },
    ]);
  });
});

describe.skipIf(recordedUrl === null)("a recorded Anthropic compaction", () => {
  it("[PF5] goes back as the provider's own compaction block", async () => {
    const model = anthropic("claude-opus-4-6-again--anthropic-compaction");
    const { message } = await providerAnswer(model);
    const answered = message === undefined ? [] : [withOutputs(message, null)];
    await providerAnswer(model, { messages: [userMessage("Which algorithms?"), ...answered, userMessage("Thanks.")] });
    const second = (await receivedBodies(model.modelId)).at(-1);
    const messages = second?.["messages"] as { role: string; content: { type: string; content?: string }[] }[];
    const blocks = messages.find(({ role }) => role === "assistant")?.content ?? [];
    expect(blocks.map(({ type }) => type)).toEqual(["compaction", "text"]);
    expect(blocks[0]?.content?.startsWith("## Summary of Conversation\n\n### Task Context")).toBe(true);
  });
});
