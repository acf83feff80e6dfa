import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { describe, expect, inject, it } from "vitest";
import type { Fault, ScriptedStep } from "../loopback/openai-compatible-server.ts";
import { providerAnswer, userMessage, withOutputs, type ProviderAnswer } from "./provider-answer.ts";

const server = inject("openAICompatibleUrl");
const provider = createOpenAICompatible({ name: "openai-compatible", baseURL: `${server}/v1`, includeUsage: true });

const LOOK_UP: ScriptedStep = {
  parts: [
    { type: "reasoning", text: "The order has to be looked up first. 🧐" },
    { type: "text", text: "One moment." },
    { type: "tool-call", id: "call_0_0", name: "lookUp", arguments: '{"order":"A-1"}' },
    { type: "tool-call", id: "call_0_1", name: "lookUp", arguments: '{"order":"A-2"}' },
  ],
  usage: {
    prompt_tokens: 1_200,
    completion_tokens: 90,
    total_tokens: 1_290,
    prompt_tokens_details: { cached_tokens: 1_000, cache_write_tokens: 150 },
    completion_tokens_details: { reasoning_tokens: 30 },
  },
};
const ANSWER: ScriptedStep = {
  parts: [{ type: "text", text: "Both have shipped." }],
  usage: { prompt_tokens: 1_400, completion_tokens: 8 },
};

async function put(path: string, value: unknown): Promise<void> {
  const response = await fetch(server + path, { method: "PUT", body: JSON.stringify(value) });
  await response.json();
}

async function callsOf(model: string): Promise<{ calls: number; requests: { messages: Record<string, unknown>[] }[] }> {
  return (await fetch(`${server}/calls/${model}`)).json();
}

function textOf({ message }: ProviderAnswer): string {
  return message?.parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("") ?? "";
}

describe("an OpenAI-compatible server", () => {
  it("[PF1][PF2] reports input with the cached tokens inside, and reasoning inside the output", async () => {
    await put("/scripts/pf-usage", { steps: [LOOK_UP] });
    const { usage } = await providerAnswer(provider("pf-usage"), { toolNames: ["lookUp"] });
    expect(usage).toMatchObject({ inputTokens: 1_200, outputTokens: 90, totalTokens: 1_290 });
    expect(usage?.inputTokenDetails).toEqual({ noCacheTokens: 200, cacheReadTokens: 1_000 });
    expect(usage?.outputTokenDetails).toEqual({ textTokens: 60, reasoningTokens: 30 });
    expect(usage?.raw).toEqual(LOOK_UP.usage);
  });

  it("[PF5][PF6] gets its reasoning, its calls and their outputs back, and goes on from there", async () => {
    await put("/scripts/pf-loop", { steps: [LOOK_UP, ANSWER] });
    const first = await providerAnswer(provider("pf-loop"), { toolNames: ["lookUp"] });
    const messages = first.message ? [userMessage("Where are they?"), withOutputs(first.message, "shipped")] : [];
    const second = await providerAnswer(provider("pf-loop"), { toolNames: ["lookUp"], messages });
    expect(textOf(second)).toBe("Both have shipped.");
    expect(second.usage?.inputTokens).toBe(1_400);
    const { requests } = await callsOf("pf-loop");
    expect(requests.at(-1)?.messages.slice(1)).toMatchObject([
      { role: "assistant", content: "One moment.", reasoning_content: "The order has to be looked up first. 🧐" },
      { role: "tool", tool_call_id: "call_0_0", content: "shipped" },
      { role: "tool", tool_call_id: "call_0_1", content: "shipped" },
    ]);
  });

  it("[PF6] says the same again when a call is repeated", async () => {
    await put("/scripts/pf-again", { steps: [ANSWER, LOOK_UP] });
    const first = await providerAnswer(provider("pf-again"));
    const second = await providerAnswer(provider("pf-again"));
    expect([textOf(first), textOf(second)]).toEqual(["Both have shipped.", "Both have shipped."]);
    expect((await callsOf("pf-again")).calls).toBe(2);
  });
});

describe("an OpenAI-compatible server that fails", () => {
  const answerWith = async (model: string, fault: Fault): Promise<ProviderAnswer> => {
    await put(`/scripts/${model}`, { steps: [ANSWER] });
    await put(`/faults/${model}`, fault);
    return providerAnswer(provider(model));
  };

  it("[PF7] before it streams: the call has its error message and no usage", async () => {
    const { errors, usage } = await answerWith("pf-status", { kind: "status", status: 429, message: "slow down" });
    expect(errors[0]).toContain("slow down");
    expect(usage?.inputTokens).toBeUndefined();
  });

  it("[PF7] with an error payload after two chunks: what arrived is kept, nothing is reported", async () => {
    const answer = await answerWith("pf-error", { kind: "error", chunks: 2, message: "upstream is gone" });
    expect(answer.errors).toContain("upstream is gone");
    expect(textOf(answer)).toBe("Both have shipped.");
    expect(answer.finishReason).toBe("error");
    expect(answer.usage?.inputTokens).toBeUndefined();
  });

  it("[PF7] with a payload that does not parse: an error, and nothing is reported", async () => {
    const answer = await answerWith("pf-garble", { kind: "garble", chunks: 2 });
    expect(answer.errors[0]).toContain("JSON parsing failed");
    expect(answer.usage?.inputTokens).toBeUndefined();
  });

  it("[PF7] by breaking the connection: an error, and nothing is reported", async () => {
    const answer = await answerWith("pf-cut", { kind: "cut", chunks: 2 });
    expect(answer.errors.length).toBeGreaterThan(0);
    expect(answer.usage?.inputTokens).toBeUndefined();
  });

  it("[PF7] by leaving the usage out: the answer stands and nothing is reported, not zero", async () => {
    const answer = await answerWith("pf-silent", { kind: "usage", usage: null });
    expect(textOf(answer)).toBe("Both have shipped.");
    expect(answer.usage?.inputTokens).toBeUndefined();
    expect(answer.usage?.outputTokens).toBeUndefined();
  });
});
