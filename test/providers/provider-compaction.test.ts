/** Compaction that a provider does within a call: stored, sent back as it came, and counted by what it left. */
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import {
  defaultSettingsMiddleware,
  wrapLanguageModel,
  type LanguageModelUsage,
  type UIMessage,
  type UIMessageChunk,
} from "ai";
import { describe, expect, it } from "vitest";
import { normaliseUsage } from "../../src/context/usage.ts";
import type { Part } from "../../src/records.ts";
import { Answer } from "../../src/turn/answer.ts";
import { modelStep, type ModelStepRequest } from "../../src/turn/model-step.ts";
import { promptOf } from "../../src/turn/prompt.ts";
import { holdsProviderCompaction } from "../../src/turn/provider-compaction.ts";
import { receivedBodies, recordedUrl, userMessage } from "./provider-answer.ts";
import { RecordedSession } from "./recorded-session.ts";

type Model = ModelStepRequest["model"];

/** A provider that streams `events` to every call, and the bodies it was sent. */
function provider(events: readonly object[]) {
  const bodies: Record<string, unknown>[] = [];
  const stream = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const fetch = (_url: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    bodies.push(JSON.parse(String(init?.body)) as Record<string, unknown>);
    return Promise.resolve(new Response(stream, { headers: { "content-type": "text/event-stream" } }));
  };
  return { bodies, fetch };
}

function anthropicSaying(...events: object[]) {
  const { bodies, fetch } = provider(events);
  return { bodies, model: createAnthropic({ apiKey: "none", fetch })("claude-opus-4-6") };
}

/** As the registry opens it: nothing is kept at OpenAI. */
function openAiSaying(...events: object[]) {
  const { bodies, fetch } = provider(events);
  const settings = { providerOptions: { openai: { store: false } } };
  const middleware = defaultSettingsMiddleware({ settings });
  return {
    bodies,
    model: wrapLanguageModel({ model: createOpenAI({ apiKey: "none", fetch })("gpt-5.2"), middleware }),
  };
}

interface Step {
  /** as it is stored: a round through JSON */
  message: UIMessage;
  usage: LanguageModelUsage | undefined;
}

/** One step of a turn, kept as a session keeps it. `until` stops it behind the first chunk of that type. */
async function step(model: Model, history: UIMessage[], until?: UIMessageChunk["type"]): Promise<Step> {
  const answer = new Answer();
  const stop = new AbortController();
  const chunks = modelStep({
    model,
    modelId: "tested",
    prompt: await promptOf(history, undefined, {}),
    tools: {},
    maxOutputTokens: undefined,
    signal: stop.signal,
    beforeTool: () => Promise.resolve(),
    clock: () => 0,
  });
  for (;;) {
    const { value, done } = await chunks.next();
    if (done) return { message: stored(answer, value.kind), usage: value.call.usage };
    answer.apply(value);
    if (value.type === until) {
      await chunks.return({
        kind: "aborted",
        call: { purpose: "turn", model: "", finishReason: "aborted", startedAt: 0, durationMs: 0 },
      });
      return { message: stored(answer, "aborted"), usage: undefined };
    }
  }
}

function stored(answer: Answer, ending: string): UIMessage {
  const parts = JSON.parse(JSON.stringify(answer.steps.flatMap((one) => one.parts))) as Part[];
  return { id: "answer", role: "assistant", parts, ...(ending !== "done" && { metadata: { ending } }) };
}

const compactions = (message: UIMessage): Part[] => message.parts.filter((part) => holdsProviderCompaction([part]));

describe.skipIf(recordedUrl === null)("a session on a recorded compaction by Anthropic", () => {
  it("[CM20] stores it, sends it back as it came, and counts its last message pass", async () => {
    const name = "claude-opus-4-6-kept--anthropic-compaction";
    const session = await RecordedSession.open(recordedUrl ?? "", `anthropic/${name}`);
    const { message } = await session.say("Which algorithms?");
    expect(holdsProviderCompaction(message.parts)).toBe(true);
    const [part] = compactions(message);
    const summary = part?.type === "text" ? part.text : "";
    expect([summary.slice(0, 44), summary.length]).toEqual(["## Summary of Conversation\n\n### Task Context", 2_192]);
    expect(part).toEqual({
      type: "text",
      text: summary,
      state: "done",
      providerMetadata: { anthropic: { type: "compaction" } },
    });

    await session.say("Thanks.");
    const body = (await receivedBodies(name)).at(-1);
    const messages = body?.["messages"] as { role: string; content: { type: string; content?: string }[] }[];
    expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
    expect(messages[1]?.content[0]).toEqual({ type: "compaction", content: summary });

    const [call] = await session.calls();
    expect(normaliseUsage(call?.usage)).toMatchObject({ contextInput: 612, contextOutput: 2_819, billedInput: 60_997 });
  });
});

const usage = (inputTokens: number, outputTokens: number) => ({
  input_tokens: inputTokens,
  output_tokens: outputTokens,
});

const opened = {
  type: "message_start",
  message: {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "claude-opus-4-6",
    content: [],
    usage: usage(9, 1),
  },
};
const ended = (iterations: object[] = []) => [
  { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { ...usage(700, 50), iterations } },
  { type: "message_stop" },
];
const block = (index: number, start: object, ...deltas: object[]) => [
  { type: "content_block_start", index, content_block: start },
  ...deltas.map((delta) => ({ type: "content_block_delta", index, delta })),
  { type: "content_block_stop", index },
];
const said = (index: number, text: string) => block(index, { type: "text", text: "" }, { type: "text_delta", text });
const compacted = (index: number, content: string | null) =>
  block(index, { type: "compaction", content: null }, { type: "compaction_delta", content });

const ask = userMessage("Go on.");

/** The assistant's messages in what the provider was sent last: the type and text of each block, and its signature. */
function assistantBlocks(bodies: Record<string, unknown>[]): unknown[] {
  const messages = (bodies.at(-1)?.["messages"] ?? []) as { role: string; content: Record<string, unknown>[] }[];
  return messages
    .filter(({ role }) => role === "assistant")
    .map(({ content: blocks }) =>
      blocks.map(({ type, content, text, signature }) => [type, content ?? text, ...(signature ? [signature] : [])]),
    );
}

describe("a compaction by Anthropic", () => {
  const passes = [
    { type: "message", ...usage(60_000, 400) },
    { type: "compaction", ...usage(60_400, 500) },
    { type: "message", ...usage(700, 50) },
  ];

  it("[CM20] between two passes is counted by the last one", async () => {
    const { model } = anthropicSaying(
      opened,
      ...said(0, "First."),
      ...compacted(1, "Sum."),
      ...said(2, "Then."),
      ...ended(passes),
    );
    const { message, usage: reported } = await step(model, [ask]);
    expect(holdsProviderCompaction(message.parts)).toBe(true);
    expect(normaliseUsage(reported)).toMatchObject({ contextInput: 700, contextOutput: 50 });
  });

  it("[CM20] goes back in its place", async () => {
    const { model, bodies } = anthropicSaying(
      opened,
      ...said(0, "First."),
      ...compacted(1, "Sum."),
      ...said(2, "Then."),
      ...ended(),
    );
    const { message } = await step(model, [ask]);
    await step(model, [ask, message, ask]);
    expect(assistantBlocks(bodies)).toEqual([
      [
        ["text", "First."],
        ["compaction", "Sum."],
        ["text", "Then."],
      ],
    ]);
  });

  it("[CM20] that is signed goes back with its signature", async () => {
    const signed = block(0, { type: "compaction", content: "Sum.", signature: "s1gn3d" });
    const { model, bodies } = anthropicSaying(opened, ...signed, ...said(1, "Then."), ...ended());
    const { message } = await step(model, [ask]);
    expect(holdsProviderCompaction(message.parts)).toBe(true);
    await step(model, [ask, message, ask]);
    expect(assistantBlocks(bodies)).toEqual([
      [
        ["compaction", "Sum.", "s1gn3d"],
        ["text", "Then."],
      ],
    ]);
  });

  it.each<[string, object[], unknown[]]>([
    ["beside words", said(1, "Then."), [[["text", "Then."]]]],
    ["alone", [], []],
  ])("[CM20] that failed changes nothing and is not sent: %s", async (_where, words, shown) => {
    const { model, bodies } = anthropicSaying(opened, ...compacted(0, null), ...words, ...ended());
    const { message } = await step(model, [ask]);
    const marked = { type: "text", text: "", providerMetadata: { anthropic: { type: "compaction" } } };
    expect(message.parts).toContainEqual({ ...marked, state: "done" });
    expect(holdsProviderCompaction(message.parts)).toBe(false);
    await step(model, [ask, message, ask]);
    expect(assistantBlocks(bodies)).toEqual(shown);
  });

  it("[CM20] goes back whole although the words behind it were broken off", async () => {
    const { model, bodies } = anthropicSaying(opened, ...compacted(0, "Sum."), ...said(1, "Th"), ...ended());
    const { message } = await step(model, [ask], "text-end");
    expect(message.metadata).toEqual({ ending: "aborted" });
    expect(holdsProviderCompaction(message.parts)).toBe(true);
    await step(model, [ask, message, ask]);
    expect(assistantBlocks(bodies)).toEqual([[["compaction", "Sum."]]]);
  });

  it("[CM20] that was broken off itself is none, and is not shown as the assistant's words", async () => {
    const { model, bodies } = anthropicSaying(opened, ...compacted(0, "Su"), ...ended());
    const { message } = await step(model, [ask], "text-delta");
    expect(message.parts.at(-1)).toMatchObject({ type: "text", text: "Su", state: "streaming" });
    expect(holdsProviderCompaction(message.parts)).toBe(false);
    await step(model, [ask, message, ask]);
    expect(assistantBlocks(bodies)).toEqual([]);
  });
});

describe("a compaction by OpenAI", () => {
  const compaction = { type: "compaction", id: "cmp_1", encrypted_content: "gAAAAABsecret+/=" };
  const message = { type: "message", id: "msg_1", status: "completed", role: "assistant" };
  const response = { id: "resp_1", object: "response", created_at: 1_771_366_458, model: "gpt-5.2-2025-12-11" };
  const figures = {
    ...usage(1_850, 12),
    input_tokens_details: { cached_tokens: 640 },
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 1_862,
  };
  const events = [
    { type: "response.created", response },
    {
      type: "response.output_item.added",
      output_index: 0,
      item: { type: "compaction", id: "cmp_1", encrypted_content: "" },
    },
    { type: "response.output_item.done", output_index: 0, item: compaction },
    { type: "response.output_item.added", output_index: 1, item: { ...message, status: "in_progress", content: [] } },
    { type: "response.output_text.delta", output_index: 1, content_index: 0, item_id: "msg_1", delta: "Done." },
    { type: "response.output_item.done", output_index: 1, item: { ...message, content: [] } },
    { type: "response.completed", response: { ...response, status: "completed", usage: figures } },
  ];

  const inputOf = (bodies: Record<string, unknown>[]) => (bodies.at(-1)?.["input"] ?? []) as unknown[];

  it("[CM20] is stored with its encrypted content, once", async () => {
    const { message: answer } = await step(openAiSaying(...events).model, [ask]);
    expect(holdsProviderCompaction(answer.parts)).toBe(true);
    expect(compactions(answer)).toEqual([
      {
        type: "custom",
        kind: "openai.compaction",
        providerMetadata: { openai: { type: "compaction", itemId: "cmp_1", encryptedContent: "gAAAAABsecret+/=" } },
      },
    ]);
  });

  it("[CM20] goes back as it came, ahead of what followed it", async () => {
    const { model, bodies } = openAiSaying(...events);
    const { message: answer } = await step(model, [ask]);
    await step(model, [ask, answer, ask]);
    expect(bodies.at(-1)?.["store"]).toBe(false);
    expect(inputOf(bodies)).toMatchObject([
      { role: "user" },
      compaction,
      { role: "assistant", content: "Done." },
      { role: "user" },
    ]);
    expect(inputOf(bodies)[1]).toEqual(compaction);
  });

  it("[CM20] is counted by what the call reports", async () => {
    const { usage: reported } = await step(openAiSaying(...events).model, [ask]);
    expect(normaliseUsage(reported)).toMatchObject({ contextInput: 1_850, contextOutput: 12, cacheRead: 640 });
  });

  it("[CM20] goes back although the words behind it were broken off", async () => {
    const { model, bodies } = openAiSaying(...events);
    const { message: answer } = await step(model, [ask], "text-delta");
    await step(model, [ask, answer, ask]);
    expect(inputOf(bodies)[1]).toEqual(compaction);
  });
});

describe("no compaction", () => {
  it.each<[string, Part[]]>([
    ["nothing", []],
    ["words", [{ type: "text", text: "Compaction." }]],
    [
      "words that a provider marked otherwise",
      [{ type: "text", text: "a", providerMetadata: { anthropic: { type: "text" } } }],
    ],
    ["the mark of another provider", [{ type: "text", text: "a", providerMetadata: { acme: { type: "compaction" } } }]],
    [
      "another custom part",
      [{ type: "custom", kind: "openai.other", providerMetadata: { openai: { encryptedContent: "x" } } }],
    ],
    [
      "OpenAI's without content",
      [{ type: "custom", kind: "openai.compaction", providerMetadata: { openai: { itemId: "x" } } }],
    ],
    ["OpenAI's without anything", [{ type: "custom", kind: "openai.compaction" }]],
  ])("[CM20] is held by %s", (_what, parts) => {
    expect(holdsProviderCompaction(parts)).toBe(false);
  });

  it("[CM20] but one is by OpenAI's under the name of Azure", () => {
    const providerMetadata = { azure: { type: "compaction", itemId: "cmp_1", encryptedContent: "x" } };
    expect(holdsProviderCompaction([{ type: "custom", kind: "openai.compaction", providerMetadata }])).toBe(true);
  });
});
