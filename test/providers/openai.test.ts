import { beforeAll, describe, expect, it } from "vitest";
import {
  openai,
  receivedBodies,
  providerAnswer,
  recordedUrl,
  userMessage,
  withOutputs,
  type Conversation,
} from "./provider-answer.ts";

describe.skipIf(recordedUrl === null)("recorded OpenAI streams", () => {
  it("[PF1] chat completions report in a last chunk without choices: 16 input, 300 output tokens", async () => {
    const { usage, finishReason, message } = await providerAnswer(openai.chat("gpt-4.1-nano--openai-text"));
    expect(finishReason).toBe("stop");
    expect(usage).toMatchObject({ inputTokens: 16, outputTokens: 300, totalTokens: 316 });
    expect(usage?.inputTokenDetails).toMatchObject({ noCacheTokens: 16, cacheReadTokens: 0 });
    expect(usage?.raw).toMatchObject({
      prompt_tokens: 16,
      completion_tokens: 300,
      prompt_tokens_details: { cached_tokens: 0 },
    });
    const text = message?.parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("");
    expect(
      text?.startsWith("**Holiday Name:** Harmony Day\n\n**Date:** Celebrated annually on the first Saturday of May"),
    ).toBe(true);
  });

  it("[PF1] responses report when completed: 444 input, 12 output tokens", async () => {
    const { usage, message } = await providerAnswer(openai("gpt-5.2--openai-shell-local-multiturn"));
    expect(usage).toMatchObject({ inputTokens: 444, outputTokens: 12, totalTokens: 456 });
    expect(usage?.outputTokenDetails).toEqual({ textTokens: 12, reasoningTokens: 0 });
    expect(message?.parts.find((part) => part.type === "text")).toMatchObject({
      text: "`arm64` (Apple Silicon).",
      providerMetadata: { openai: { itemId: "msg_0b0392bd3bb81302006994e83b32748193aa637cdb31658266" } },
    });
  });

  it("[PF7] an error inside a stream is the call's error and reports no usage", async () => {
    const { usage, errors } = await providerAnswer(openai("gpt-5-nano--openai-error"));
    expect(errors[0]).toContain("You exceeded your current quota, please check your plan and billing details.");
    expect(usage?.inputTokens).toBeUndefined();
  });

  it("[PF6][PF7] where chunks do not parse, what did arrive is kept and no usage is reported", async () => {
    const model = openai("gpt-5.4--parallel-tool-call-wrapper");
    const { usage, finishReason, message, errors } = await providerAnswer(model, {
      toolNames: ["weather", "cityAttractions"],
    });
    // the recording's first and last chunk lack a brace
    expect(errors).toHaveLength(2);
    expect(finishReason).toBe("error");
    expect(usage?.inputTokens).toBeUndefined();
    expect(usage?.raw).toBeUndefined();
    const calls = message?.parts.filter((part) => "toolCallId" in part) ?? [];
    expect(calls).toMatchObject([
      { type: "tool-weather", toolCallId: "call_parallel_0", input: { location: "San Francisco" } },
      { type: "tool-cityAttractions", toolCallId: "call_parallel_1", input: { city: "Rome" } },
    ]);
  });
});

describe.skipIf(recordedUrl === null)("a recorded OpenAI tool loop without storage at OpenAI", () => {
  const model = openai("gpt-5.1-codex-max--openai-reasoning-encrypted-content");
  const conversation: Conversation = { toolNames: ["calculator"], providerOptions: { openai: { store: false } } };
  let first: Awaited<ReturnType<typeof providerAnswer>>;
  let second: Awaited<ReturnType<typeof providerAnswer>>;
  beforeAll(async () => {
    first = await providerAnswer(model, conversation);
    const messages = first.message ? [userMessage("12 + 7, times 3, times 10"), withOutputs(first.message, 19)] : [];
    second = await providerAnswer(model, { ...conversation, messages });
  });

  it("[PF1] each call reports its own input: 134, then 221", () => {
    expect(first.usage).toMatchObject({ inputTokens: 134, outputTokens: 28, totalTokens: 162 });
    expect(second.usage).toMatchObject({ inputTokens: 221, outputTokens: 26, totalTokens: 247 });
  });

  it("[PF5] the thought is kept with its item id and its encrypted content", () => {
    const thought = first.message?.parts.find((part) => part.type === "reasoning");
    expect(thought?.text.startsWith("**Calculating step-by-step using calculator**\n\nI'll compute 12 plus 7,")).toBe(
      true,
    );
    expect(thought?.providerMetadata?.["openai"]?.["itemId"]).toBe(
      "rs_01830d662ab3856501693c321405c88190be3ab04d5782d5f9",
    );
    const encrypted = String(thought?.providerMetadata?.["openai"]?.["reasoningEncryptedContent"]);
    expect({ start: encrypted.slice(0, 40), length: encrypted.length }).toEqual({
      start: "gAAAAABpPDIVOKrsHNZ0GwsoEKA_IGfuJ5f8Ma_6",
      length: 1_060,
    });
  });

  it("[PF5] the next call carries the encrypted content, the call and its output", async () => {
    const body = (await receivedBodies(model.modelId)).at(-1);
    const items = body?.["input"] as Record<string, unknown>[];
    expect(items.slice(1)).toMatchObject([
      { type: "reasoning", encrypted_content: expect.stringMatching(/^gAAAAABpPDIVOKrs.{1044}$/) as unknown },
      {
        type: "function_call",
        call_id: "call_AB6AaRZ1FYZB2RwS6A5vbdqn",
        name: "calculator",
        arguments: '{"a":12,"b":7,"op":"add"}',
      },
      { type: "function_call_output", call_id: "call_AB6AaRZ1FYZB2RwS6A5vbdqn", output: "19" },
    ]);
  });
});
