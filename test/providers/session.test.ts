import { describe, expect, it } from "vitest";
import { receivedBodies, recordedUrl, withOutputs } from "./provider-answer.ts";
import { RecordedSession } from "./recorded-session.ts";

const open = (model: string, toolNames?: string[]) => RecordedSession.open(recordedUrl ?? "", model, toolNames);

/** The body of the newest call to a registry id. */
async function newestBody(model: string): Promise<Record<string, unknown> | undefined> {
  return (await receivedBodies(model.slice(model.indexOf("/") + 1))).at(-1);
}

describe.skipIf(recordedUrl === null)("a session on recorded Anthropic streams", () => {
  it("[PF8][PF5] books a thought's call as reported and sends the signed thought back", async () => {
    const model = "anthropic/claude-sonnet-4-5-session--anthropic-clear-thinking";
    const session = await open(model);
    const { error, message } = await session.say("Divide it by 5.");
    expect(error).toBeNull();
    const [call] = await session.calls();
    expect(call).toMatchObject({ purpose: "turn", model, finishReason: "stop", messageId: message.id, step: 0 });
    expect(call?.usage).toMatchObject({ inputTokens: 69, outputTokens: 53, totalTokens: 122 });
    expect(call?.usage?.raw).toMatchObject({ input_tokens: 69, output_tokens: 53, service_tier: "standard" });
    const thought = message.parts.find((part) => part.type === "reasoning");
    const signature = String(thought?.providerMetadata?.["anthropic"]?.["signature"]);
    expect(thought?.text).toBe("The previous result was 925. Now I need to divide that by 5.\n\n925 ÷ 5 = 185");
    expect([signature.slice(0, 24), signature.length]).toEqual(["EvQBCkYICxgCKkAxhD4NUKFz", 332]);

    await session.say("And by 2?");
    expect((await newestBody(model))?.["messages"]).toMatchObject([
      { role: "user", content: [{ type: "text", text: "Divide it by 5." }] },
      {
        role: "assistant",
        content: [{ type: "thinking", thinking: thought?.text, signature }, { text: "925 ÷ 5 = 185" }],
      },
      { role: "user", content: [{ type: "text", text: "And by 2?" }] },
    ]);
  });

  it("[PF8][PF2] books and shows cache reads and writes apart from fresh input", async () => {
    const session = await open("anthropic/claude-sonnet-5-session--anthropic-code-execution-20260120-prompt-cache");
    const { message } = await session.say("Sum the squares of 1 to 12.");
    const figures = {
      inputTokens: 9_632,
      inputTokenDetails: { noCacheTokens: 6, cacheReadTokens: 6_289, cacheWriteTokens: 3_337 },
      outputTokens: 198,
    };
    expect((await session.calls()).map(({ usage }) => usage)).toMatchObject([figures]);
    expect(message.metadata).toMatchObject({ usage: figures, totalUsage: figures, steps: [figures] });
  });

  it("[PF8][PF4] keeps what a compaction by the provider cost, and sends its block back", async () => {
    const model = "anthropic/claude-opus-4-6-session--anthropic-compaction";
    const session = await open(model);
    await session.say("Which algorithms?");
    const [call] = await session.calls();
    expect(call?.usage?.inputTokens).toBe(60_997);
    expect(call?.usage?.raw).toMatchObject({ iterations: [{ input_tokens: 60_385 }, { input_tokens: 612 }] });
    await session.say("Thanks.");
    const messages = (await newestBody(model))?.["messages"] as { content: { type: string }[] }[];
    expect(messages[1]?.content.map(({ type }) => type)).toEqual(["compaction", "text"]);
  });
});

describe.skipIf(recordedUrl === null)("a session on recorded Google streams", () => {
  it("[PF8][PF5] carries a tool call's thought signature into the next step and books both steps", async () => {
    const model = "google/gemini-3-pro-preview-session--google-tool-call-gemini3+google-text";
    const session = await open(model, ["weather"]);
    const first = await session.say("Weather in San Francisco?");
    const { message } = await session.goOn(withOutputs(first.message, { celsius: 14 }));
    expect(message.metadata).toMatchObject({
      usage: { inputTokens: 9, outputTokens: 208, outputTokenDetails: { textTokens: 23, reasoningTokens: 185 } },
      totalUsage: {
        inputTokens: 38,
        outputTokens: 1_027,
        outputTokenDetails: { textTokens: 38, reasoningTokens: 989 },
      },
      steps: [
        { inputTokens: 29, outputTokens: 819, outputTokenDetails: { textTokens: 15, reasoningTokens: 804 } },
        { inputTokens: 9, outputTokens: 208, outputTokenDetails: { textTokens: 23, reasoningTokens: 185 } },
      ],
    });
    const contents = (await newestBody(model))?.["contents"] as { role: string; parts: Record<string, unknown>[] }[];
    expect(contents.map(({ role }) => role)).toEqual(["user", "model", "user"]);
    const signature = String(contents[1]?.parts[0]?.["thoughtSignature"]);
    expect([signature.slice(0, 24), signature.length]).toEqual(["EpEgCo4gAb4+9vvWwdN+NkNi", 5_488]);
    expect(contents[2]?.parts[0]?.["functionResponse"]).toMatchObject({ response: { content: { celsius: 14 } } });
  });
});

describe.skipIf(recordedUrl === null)("a session on recorded OpenAI streams", () => {
  it("[PF8] books every step of a tool loop with its own input, and the sum apart from the last", async () => {
    const session = await open("openai/gpt-5.1-codex-max-loop--openai-reasoning-encrypted-content", ["calculator"]);
    let { message } = await session.say("12 + 7, times 3, times 10");
    for (const output of [19, 57, 570]) ({ message } = await session.goOn(withOutputs(message, output)));
    expect(message.parts.at(-1)).toMatchObject({ type: "text", text: "The final result is **570**." });
    const calls = await session.calls();
    expect(calls.map(({ usage, step }) => [step, usage?.inputTokens, usage?.outputTokens])).toEqual([
      [0, 134, 28],
      [1, 221, 26],
      [2, 260, 26],
      [3, 299, 12],
    ]);
    expect(message.metadata).toMatchObject({
      usage: { inputTokens: 299, outputTokens: 12 },
      totalUsage: { inputTokens: 914, outputTokens: 92 },
    });
  });

  it("[PF8][PF5][MD14] stores a thought with its encrypted content and sends it back, without OpenAI keeping it", async () => {
    const model = "openai/gpt-5.1-codex-max-thought--openai-reasoning-encrypted-content";
    const session = await open(model, ["calculator"]);
    const { message } = await session.say("12 + 7");
    const metadata = message.parts.find((part) => part.type === "reasoning")?.providerMetadata?.["openai"];
    expect(metadata?.["itemId"]).toBe("rs_01830d662ab3856501693c321405c88190be3ab04d5782d5f9");
    expect(metadata?.["reasoningEncryptedContent"]).toMatch(/^gAAAAABpPDIVOKrs.{1044}$/);
    await session.goOn(withOutputs(message, 19));
    const body = await newestBody(model);
    const items = body?.["input"] as unknown[];
    expect(body?.["store"]).toBe(false);
    expect(items.slice(1)).toMatchObject([
      {
        type: "reasoning",
        id: "rs_01830d662ab3856501693c321405c88190be3ab04d5782d5f9",
        encrypted_content: metadata?.["reasoningEncryptedContent"],
      },
      { type: "function_call", call_id: "call_AB6AaRZ1FYZB2RwS6A5vbdqn", arguments: '{"a":12,"b":7,"op":"add"}' },
      { type: "function_call_output", call_id: "call_AB6AaRZ1FYZB2RwS6A5vbdqn", output: "19" },
    ]);
  });

  it("[PF8] books what an OpenAI-compatible server reports in its last chunk", async () => {
    const session = await open("openai-compatible/session--openai-text");
    await session.say("Invent a holiday.");
    const [call] = await session.calls();
    expect(call?.usage).toMatchObject({ inputTokens: 16, outputTokens: 300, totalTokens: 316 });
    expect(call?.usage?.raw).toMatchObject({ prompt_tokens: 16, completion_tokens: 300 });
  });

  it("[PF7] reports a provider's error, keeps what was said, and answers with the next model", async () => {
    const session = await open("openai/gpt-5-nano-session--openai-error");
    const failed = await session.say("Hello.");
    expect(failed.error).toBe("model-failed: The model failed: its provider is limiting requests; try again later.");
    const figures = (await session.calls()).flatMap(({ usage }) => usage?.inputTokens ?? []);
    expect(figures).toEqual([]);
    const model = "anthropic/claude-sonnet-4-5-next--anthropic-text";
    await session.use(model);
    const { error, message } = await session.say("Anyone there?");
    expect(error).toBeNull();
    expect(message.parts.at(-1)).toMatchObject({ text: expect.stringMatching(/^Hello! I'm doing well/) as unknown });
    const messages = (await newestBody(model))?.["messages"] as { content: { text: string }[] }[];
    expect(messages.flatMap(({ content }) => content.map(({ text }) => text))).toEqual(["Hello.", "Anyone there?"]);
  });

  it("[PF7] keeps the tool calls of a stream that does not parse, and no figures", async () => {
    const session = await open("openai/gpt-5.4-session--parallel-tool-call-wrapper", ["weather", "cityAttractions"]);
    const { error, message } = await session.say("Weather and sights?");
    expect(error).toContain("model-failed");
    expect(message.parts.flatMap((part) => ("toolCallId" in part ? [part.toolCallId] : []))).toEqual([
      "call_parallel_0",
      "call_parallel_1",
    ]);
    const [call] = await session.calls();
    expect(call?.finishReason).toBe("error");
    expect(call?.usage?.inputTokens).toBeUndefined();
  });
});
