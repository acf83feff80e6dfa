import type { ModelMessage } from "ai";
import { describe, expect, inject, it } from "vitest";
import {
  anthropicCounter,
  type CountedPrompt,
  countKnown,
  geminiCounter,
  tokenizerCounter,
} from "../../src/context/counters.ts";
import type { KnownTokens } from "../../src/context/ledger.ts";

const messages: ModelMessage[] = [
  { role: "user", content: "Where is order 7?" },
  { role: "assistant", content: [{ type: "tool-call", toolCallId: "1", toolName: "look_up", input: { id: 7 } }] },
  {
    role: "tool",
    content: [
      {
        type: "tool-result",
        toolCallId: "1",
        toolName: "look_up",
        output: { type: "json", value: { state: "shipped" } },
      },
    ],
  },
  { role: "user", content: [{ type: "file", mediaType: "image/png", data: "aGVsbG8=" }] },
];
const asked: CountedPrompt = {
  messages,
  system: "Be brief.",
  tools: [{ name: "look_up", inputSchema: { type: "object" } }],
};
const known: KnownTokens = {
  tokens: 12_000,
  basis: "anchored",
  overhead: 2000,
  summary: 0,
  fresh: 100,
  factor: 1,
  scale: 1,
};

describe("asking a counter", () => {
  it("[AC21] takes its total as the number and scales ledger sizes to it", async () => {
    const counted = await countKnown(() => 17_000, asked, known);
    expect(counted).toEqual({ known: { ...known, tokens: 17_000, basis: "counter", fresh: 150, scale: 1.5 } });
  });

  it("[AC21] asks once, with the whole prompt", async () => {
    const seen: CountedPrompt[] = [];
    await countKnown(async (prompt) => (seen.push(prompt), 1), asked, known);
    expect(seen).toEqual([asked]);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, 0, -5])(
    "[AC21] lets the next source serve when it returns %s, and says why",
    async (value) => {
      expect(await countKnown(() => value, asked, known)).toEqual({
        known,
        failure: `the token counter returned ${value}`,
      });
    },
  );

  it("[AC21] lets the next source serve when it throws, and says why", async () => {
    const counter = () => Promise.reject(new Error("offline"));
    expect(await countKnown(counter, asked, known)).toEqual({ known, failure: "the token counter failed: offline" });
  });

  it("[AC21] keeps the cut's scale within a quarter and four times", async () => {
    expect((await countKnown(() => 1_000_000, asked, known)).known.scale).toBe(4);
    expect((await countKnown(() => 2100, asked, known)).known.scale).toBe(0.25);
  });
});

/** Keeps what was sent and answers with a fixed body. */
function recorder(answer: unknown, status = 200): { fetch: typeof fetch; sent: { url: string; body: unknown }[] } {
  const sent: { url: string; body: unknown }[] = [];
  const send = async (url: RequestInfo | URL, init?: RequestInit) => {
    sent.push({ url: String(url), body: JSON.parse(String(init?.body)) });
    return Response.json(answer, { status });
  };
  return { fetch: send as typeof fetch, sent };
}

describe("ready-made counters", () => {
  it("[AC22] asks Anthropic about system, tools, calls, results and images", async () => {
    const { fetch, sent } = recorder({ input_tokens: 2095 });
    expect(await anthropicCounter({ model: "claude-sonnet-4-5", apiKey: "k", fetch })(asked)).toBe(2095);
    expect(sent).toEqual([
      {
        url: "https://api.anthropic.com/v1/messages/count_tokens",
        body: {
          model: "claude-sonnet-4-5",
          system: "Be brief.",
          messages: [
            { role: "user", content: [{ type: "text", text: "Where is order 7?" }] },
            { role: "assistant", content: [{ type: "tool_use", id: "1", name: "look_up", input: { id: 7 } }] },
            { role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: '{"state":"shipped"}' }] },
            {
              role: "user",
              content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "aGVsbG8=" } }],
            },
          ],
          tools: [{ name: "look_up", input_schema: { type: "object" } }],
        },
      },
    ]);
  });

  it("[AC22] asks Gemini about the same", async () => {
    const { fetch, sent } = recorder({ totalTokens: 31 });
    expect(await geminiCounter({ model: "gemini-3-flash", apiKey: "k", fetch })(asked)).toBe(31);
    expect(sent).toEqual([
      {
        url: "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-flash:countTokens",
        body: {
          generateContentRequest: {
            model: "models/gemini-3-flash",
            systemInstruction: { parts: [{ text: "Be brief." }] },
            contents: [
              { role: "user", parts: [{ text: "Where is order 7?" }] },
              { role: "model", parts: [{ functionCall: { name: "look_up", args: { id: 7 } } }] },
              {
                role: "user",
                parts: [{ functionResponse: { name: "look_up", response: { result: '{"state":"shipped"}' } } }],
              },
              { role: "user", parts: [{ inlineData: { data: "aGVsbG8=", mimeType: "image/png" } }] },
            ],
            tools: [{ functionDeclarations: [{ name: "look_up", parametersJsonSchema: { type: "object" } }] }],
          },
        },
      },
    ]);
  });

  it("[AC22] lets the next source serve when the service refuses", async () => {
    const { fetch } = recorder({ error: {} }, 529);
    const counter = anthropicCounter({ model: "claude-sonnet-4-5", apiKey: "k", fetch });
    expect(await countKnown(counter, asked, known)).toEqual({
      known,
      failure: "the token counter failed: counting answered 529",
    });
  });

  it("[AC22] loads a local tokenizer when it is first asked, and once", async () => {
    let loads = 0;
    const counter = tokenizerCounter(async () => (loads++, { countTokens: (text: string) => text.length }));
    expect(loads).toBe(0);
    const short: CountedPrompt = { messages: [{ role: "user", content: "12345" }], system: "123", tools: [] };
    expect(await counter(short)).toBe(12);
    expect(await counter(short)).toBe(12);
    expect(loads).toBe(1);
  });

  const url = inject("countingUrl");
  it.skipIf(!url)("[AC22] speaks with servers that speak the counting APIs", async () => {
    const anthropic = anthropicCounter({ model: "claude-sonnet-4-5", apiKey: "k", baseUrl: `${url}/v1` });
    const gemini = geminiCounter({ model: "gemini-3-flash", apiKey: "k", baseUrl: `${url}/v1beta` });
    expect(await anthropic(asked)).toBe(97);
    expect(await gemini(asked)).toBe(83);
  });
});
