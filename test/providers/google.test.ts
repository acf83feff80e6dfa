import { beforeAll, describe, expect, it } from "vitest";
import { google, receivedBodies, providerAnswer, recordedUrl, userMessage, withOutputs } from "./provider-answer.ts";

const SIGNATURE_START = "EpEgCo4gAb4+9vvWwdN+NkNiCCwrqvFI8uf9IiD2";

/** Google's signatures are long; start and length tell them apart. */
function fingerprint(signature: unknown): { start: string; length: number } {
  const text = String(signature);
  return { start: text.slice(0, 40), length: text.length };
}

describe.skipIf(recordedUrl === null)("recorded Google streams", () => {
  it("[PF1] thoughts are output: 23 visible and 185 thought tokens make 208", async () => {
    const { usage, finishReason } = await providerAnswer(google("gemini-3-pro-preview--google-text"));
    expect(finishReason).toBe("stop");
    expect(usage).toMatchObject({ inputTokens: 9, outputTokens: 208, totalTokens: 217 });
    expect(usage?.outputTokenDetails).toEqual({ textTokens: 23, reasoningTokens: 185 });
    expect(usage?.raw).toMatchObject({ promptTokenCount: 9, candidatesTokenCount: 23, thoughtsTokenCount: 185 });
  });

  it("[PF3] counts that grow from chunk to chunk are not added up", async () => {
    const { usage } = await providerAnswer(google("gemini-3-pro-preview--google-reasoning-gemini3"));
    expect(usage).toMatchObject({ inputTokens: 9, outputTokens: 325, totalTokens: 334 });
    expect(usage?.outputTokenDetails).toEqual({ textTokens: 23, reasoningTokens: 302 });
  });

  it("[PF5] the signature of a thought that is not shown stays with the text and goes back with it", async () => {
    const model = google("gemini-3-pro-preview-again--google-text");
    const { message } = await providerAnswer(model);
    const text = message?.parts.find((part) => part.type === "text");
    expect(text?.text).toBe('There are **3** "r"s in strawberry.\n\nst**r**awbe**rr**y');
    const signature = text?.providerMetadata?.["google"]?.["thoughtSignature"];
    expect(fingerprint(signature)).toEqual({ start: "EqsFCqgFAb4+9vvtAF5n87lB4OGDOoTRMOqp35jW", length: 916 });
    await providerAnswer(model, {
      messages: [userMessage("How many r?"), ...(message ? [message] : []), userMessage("Sure?")],
    });
    const second = (await receivedBodies(model.modelId)).at(-1);
    expect(second?.["contents"]).toMatchObject([
      { role: "user" },
      { role: "model", parts: [{ text: text?.text, thoughtSignature: signature }] },
      { role: "user" },
    ]);
  });
});

describe.skipIf(recordedUrl === null)("a recorded Google tool call", () => {
  const model = google("gemini-3-pro-preview--google-tool-call-gemini3");
  let answer: Awaited<ReturnType<typeof providerAnswer>>;
  beforeAll(async () => {
    answer = await providerAnswer(model, { toolNames: ["weather"] });
  });

  it("[PF1] reports 29 input, 15 visible and 804 thought tokens", () => {
    expect(answer.finishReason).toBe("tool-calls");
    expect(answer.usage).toMatchObject({ inputTokens: 29, outputTokens: 819, totalTokens: 848 });
    expect(answer.usage?.outputTokenDetails).toEqual({ textTokens: 15, reasoningTokens: 804 });
  });

  it("[PF5][PF6] is kept with its input and its thought's signature", () => {
    const call = answer.message?.parts.find((part) => part.type === "tool-weather");
    expect(call).toMatchObject({ state: "input-available", input: { location: "San Francisco" } });
    const metadata = call && "callProviderMetadata" in call ? call.callProviderMetadata : undefined;
    expect(fingerprint(metadata?.["google"]?.["thoughtSignature"])).toEqual({ start: SIGNATURE_START, length: 5_488 });
  });

  it("[PF5] goes back with the signature beside the call, and with the client's output", async () => {
    const history = answer.message ? [userMessage("Weather?"), withOutputs(answer.message, { celsius: 14 })] : [];
    await providerAnswer(model, { messages: history, toolNames: ["weather"] });
    const second = (await receivedBodies(model.modelId)).at(-1);
    const contents = second?.["contents"] as { role: string; parts: Record<string, unknown>[] }[];
    expect(contents.map(({ role }) => role)).toEqual(["user", "model", "user"]);
    const call = contents[1]?.parts.find((part) => "functionCall" in part);
    expect(call?.["functionCall"]).toMatchObject({ name: "weather", args: { location: "San Francisco" } });
    expect(fingerprint(call?.["thoughtSignature"])).toEqual({ start: SIGNATURE_START, length: 5_488 });
    expect(contents[2]?.parts[0]?.["functionResponse"]).toMatchObject({
      name: "weather",
      response: { content: { celsius: 14 } },
    });
  });
});
