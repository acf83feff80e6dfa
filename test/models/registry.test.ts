import { expect, it } from "vitest";
import { SessionError } from "../../src/errors.ts";
import { checkModelId, createModels, type ModelEnvironment } from "../../src/models/registry.ts";
import { user } from "./mirror-calls.ts";

const FULL: ModelEnvironment = {
  ANTHROPIC_API_KEY: "a",
  OPENAI_API_KEY: "b",
  GOOGLE_GENERATIVE_AI_API_KEY: "c",
  OPENAI_COMPATIBLE_BASE_URL: "http://localhost:11434/v1",
  // SAFETY: no test runs it
  AI: { run: () => Promise.reject(new Error("offline")) } as unknown as Ai,
};

it.each([
  ["anthropic/claude-sonnet-4-5", "anthropic.messages", "claude-sonnet-4-5"],
  ["openai/gpt-5.4", "openai.responses", "gpt-5.4"],
  ["google/gemini-2.5-flash", "google.generative-ai", "gemini-2.5-flash"],
  ["workers-ai/@cf/meta/llama-3.3-70b-instruct-fp8-fast", "workersai.chat", "@cf/meta/llama-3.3-70b-instruct-fp8-fast"],
  ["openai-compatible/qwen/qwen3:8b", "openai-compatible.chat", "qwen/qwen3:8b"],
  ["mirror", "mirror", "mirror"],
])("[MD14] %s is %s's %s: only the first slash separates", (id, provider, modelId) => {
  const model = createModels(FULL).languageModel(id);
  expect([model.specificationVersion, model.provider, model.modelId]).toEqual(["v4", provider, modelId]);
});

it.each([
  ["anthropic/x", {}, 'Models of "anthropic/" need ANTHROPIC_API_KEY, which is not set.'],
  ["openai/x", { OPENAI_API_KEY: "" }, 'Models of "openai/" need OPENAI_API_KEY, which is not set.'],
  ["google/x", {}, 'Models of "google/" need GOOGLE_GENERATIVE_AI_API_KEY, which is not set.'],
  ["workers-ai/@cf/x", {}, 'Models of "workers-ai/" need the AI binding ([ai] in wrangler.toml), which is not set.'],
  ["openai-compatible/x", {}, 'Models of "openai-compatible/" need OPENAI_COMPATIBLE_BASE_URL, which is not set.'],
  [
    "openai-compatible/x",
    { OPENAI_COMPATIBLE_BASE_URL: "localhost" },
    "OPENAI_COMPATIBLE_BASE_URL is no URL; it looks like https://host/v1.",
  ],
  [
    "mistral/x",
    {},
    '"mistral/x" names the unknown provider "mistral"; known are anthropic, openai, google, workers-ai, openai-compatible, mirror.',
  ],
  [
    "constructor/x",
    {},
    '"constructor/x" names the unknown provider "constructor"; known are anthropic, openai, google, workers-ai, openai-compatible, mirror.',
  ],
])("[MD15] %s in %j is refused with what to set, and checked in the same words", (id, env, sentence) => {
  expect(checkModelId(id, env)).toBe(sentence);
  expect(() => createModels(env).languageModel(id)).toThrow(new SessionError("model-unavailable", sentence));
});

it.each(["", "gpt-5", "/gpt-5", "openai/", "mirrors"])("[MD15] %j names no model", (id) => {
  expect(checkModelId(id, FULL)).toBe(
    `"${id}" names no model as provider/model: set MODEL to one such as anthropic/claude-sonnet-4-5, or to mirror, which needs no key.`,
  );
});

it("[MD15] a model that can be had has nothing wrong with it", () => {
  expect([checkModelId("mirror", {}), checkModelId("anthropic/anything", FULL)]).toEqual([undefined, undefined]);
});

it("[MD15] a fault of one provider leaves the others usable", () => {
  const models = createModels({ ...FULL, OPENAI_BASE_URL: "nonsense" });
  expect(checkModelId("openai/x", { ...FULL, OPENAI_BASE_URL: "nonsense" })).toBe(
    "OPENAI_BASE_URL is no URL; it looks like https://host/v1.",
  );
  expect(models.languageModel("anthropic/x").modelId).toBe("x");
});

it("[MD14] mirror is one instance per registry, so its prompt cache lasts, and holds to the catalogue's limits", async () => {
  const models = createModels({});
  const prompt = [user("/words 5000")];
  const first = await models.languageModel("mirror").doGenerate({ prompt });
  const second = await models.languageModel("mirror").doGenerate({ prompt });
  expect([first.usage.inputTokens.cacheRead, first.finishReason.unified]).toEqual([0, "length"]);
  expect(second.usage.inputTokens.cacheRead).toBe(second.usage.inputTokens.total);
  await expect(models.languageModel("mirror").doGenerate({ prompt: [user("tide ".repeat(32_000))] })).rejects.toThrow(
    "prompt is too long: 32007 tokens > 32000 maximum",
  );
});

it("[MD14] an openai-compatible model asks for usage in its stream", async () => {
  const bodies: unknown[] = [];
  const fetch: typeof globalThis.fetch = async (_url, init) => {
    bodies.push(JSON.parse(String(init?.body)));
    return new Response("data: [DONE]\n\n", { headers: { "content-type": "text/event-stream" } });
  };
  const original = globalThis.fetch;
  globalThis.fetch = fetch;
  try {
    await createModels(FULL)
      .languageModel("openai-compatible/x")
      .doStream({ prompt: [user("hi")] });
  } finally {
    globalThis.fetch = original;
  }
  expect(bodies).toEqual([
    expect.objectContaining({ model: "x", stream: true, stream_options: { include_usage: true } }),
  ]);
});
