import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import { describe, expect, it } from "vitest";
import { PromptCache } from "../../src/models/mirror-cache.ts";
import { createMirror } from "../../src/models/mirror.ts";
import { measureMirrorPrompt } from "../../src/models/mirror-prompt.ts";
import { countMirrorTokens } from "../../src/models/mirror-tokenizer.ts";
import {
  answer,
  assistant,
  called,
  generate,
  kinds,
  offer,
  returned,
  stream,
  system,
  textOfParts,
  user,
} from "./mirror-calls.ts";

describe("what it says", () => {
  it("[MD3] says how many messages it was shown, the first and last line and the tools", async () => {
    const prompt = [system("Be brief."), user("Hello there\nsecond line"), assistant("Hi."), user("one\ntwo")];
    expect(await answer(createMirror(), prompt, { tools: offer("getWeather", "askUser") })).toBe(
      "I am mirror, a local model for development. I was shown 3 messages (no summary). " +
        'First: "Hello there". Last: "two". Tools: getWeather, askUser.',
    );
  });

  it("[MD3] says that a summary was among them, and does not count it", async () => {
    const prompt = [user("<summary>\nGoal: sail\n</summary>"), user("Go on")];
    expect(await answer(createMirror(), prompt)).toBe(
      "I am mirror, a local model for development. I was shown 1 message (and a summary). " +
        'First: "Go on". Last: "Go on". Tools: none.',
    );
  });

  it("[MD3] tells what the tools answered when their results come last", async () => {
    const prompt = [user("Look"), called("x", "look"), returned("x", "look", "sand")];
    expect(await answer(createMirror(), prompt)).toBe("I am mirror. The tools answered: look → sand.");
  });

  it("[MD4] gives the same parts for the same calls to a fresh instance", async () => {
    const calls = [[user("/reason why\n/words 5")], [user("/call look {}")]];
    const run = async () => {
      const model = createMirror();
      return Promise.all(calls.map((prompt) => stream(model, prompt, { tools: offer("look") })));
    };
    expect(await run()).toEqual(await run());
  });

  it("[MD4] streams word by word, and the words joined are the text doGenerate gives", async () => {
    const { parts } = await stream(createMirror(), [user("/words 3")]);
    expect(parts.flatMap((part) => (part.type === "text-delta" ? [part.delta] : []))).toEqual([
      "the ",
      "tide ",
      "comes.",
    ]);
    expect(kinds(parts)).toEqual([
      "stream-start",
      "response-metadata",
      "text-start",
      "text-delta",
      "text-end",
      "finish",
    ]);
    expect((await generate(createMirror(), [user("/words 3")])).content).toEqual([
      { type: "text", text: "the tide comes." },
    ]);
  });
});

describe("commands", () => {
  it("[MD5] /call lines of one step become parallel tool calls with their inputs", async () => {
    const prompt = [user('Please\n/call look {"at":1}\n/call ask')];
    const { content, finishReason } = await generate(createMirror(), prompt, { tools: offer("look", "ask") });
    expect(content.map((part) => (part.type === "tool-call" ? [part.toolName, part.input] : part))).toEqual([
      ["look", '{"at":1}'],
      ["ask", "{}"],
    ]);
    expect(finishReason.unified).toBe("tool-calls");
  });

  it("[MD5] a tool that is not offered is not called, and the answer says so", async () => {
    const { content, finishReason } = await generate(createMirror(), [user("/call fly {}")], { tools: offer("look") });
    expect(content).toEqual([{ type: "text", text: "I was told to call fly, which I was not offered." }]);
    expect(finishReason.unified).toBe("stop");
  });

  it("[MD5] /then puts the following commands into the next step", async () => {
    const model = createMirror();
    const asked = user("/call look {}\n/then\n/call ask {}\n/then\n/words 2");
    const tools = offer("look", "ask");
    const first = await generate(model, [asked], { tools });
    const afterOne = [asked, called("mirror-0-0-x", "look"), returned("mirror-0-0-x", "look", "sand")];
    const second = await generate(model, afterOne, { tools });
    const afterTwo = [...afterOne, called("mirror-1-0-x", "ask"), returned("mirror-1-0-x", "ask", "yes")];
    const third = await generate(model, afterTwo, { tools });
    expect(
      [first, second, third].map(({ content }) => content.map((part) => ("toolName" in part ? part.toolName : part))),
    ).toEqual([["look"], ["ask"], [{ type: "text", text: "the tide." }]]);
  });

  it("[MD5] a script goes on where it was when a compaction took its first steps away", async () => {
    const asked = user("/call look {}\n/then\n/call look {}\n/then\n/words 1");
    const prompt = [asked, called("mirror-1-0-x", "look"), returned("mirror-1-0-x", "look", "sand")];
    expect(await answer(createMirror(), prompt, { tools: offer("look") })).toBe("the.");
  });

  it("[MD5] equal requests of one conversation get different tool call ids, also from a fresh instance", async () => {
    const asked = user("/call look {}");
    const ids = async (prompt: Parameters<typeof generate>[1]) => {
      const { content } = await generate(createMirror(), prompt, { tools: offer("look") });
      return content.map((part) => (part.type === "tool-call" ? part.toolCallId : part.type));
    };
    const [earlier] = await ids([asked]);
    const [later] = await ids([
      asked,
      called(String(earlier), "look"),
      returned(String(earlier), "look", "sand"),
      asked,
    ]);
    expect(earlier).toMatch(/^mirror-0-0-/);
    expect(later).not.toBe(earlier);
  });

  it("[MD6] /reason streams a thought before the text, signed at its end", async () => {
    const { parts } = await stream(createMirror(), [user("/reason because of tides\n/words 1")]);
    expect(kinds(parts).slice(2, 6)).toEqual(["reasoning-start", "reasoning-delta", "reasoning-end", "text-start"]);
    const { content } = await generate(createMirror(), [user("/reason because of tides\n/words 1")]);
    expect(content[0]).toEqual({
      type: "reasoning",
      text: "because of tides",
      providerMetadata: { mirror: { signature: expect.stringMatching(/^signed-\w+$/) } },
    });
  });

  it("[MD7] /slow waits that long before each word", async () => {
    const waits: number[] = [];
    const model = createMirror({ sleep: async (ms) => void waits.push(ms), wordDelayMs: 9 });
    await stream(model, [user("/slow 40\n/words 3")]);
    await stream(model, [user("/words 2")]);
    expect(waits).toEqual([40, 40, 40, 9, 9]);
  });

  it("[MD7] an abort ends a wait and a stall at once, with the reason given", async () => {
    const reason = new Error("enough");
    const stop = new AbortController();
    const waiting = stream(createMirror(), [user("/slow 60000\n/words 3")], { abortSignal: stop.signal });
    const stalled = stream(createMirror(), [user("/stall\n/words 4")], { abortSignal: stop.signal });
    setTimeout(() => stop.abort(reason), 5);
    const [wait, stall] = await Promise.all([waiting, stalled]);
    expect([wait.broken, textOfParts(wait.parts)]).toEqual([reason, ""]);
    expect([stall.broken, textOfParts(stall.parts)]).toEqual([reason, "the tide "]);
  });

  it("[MD7] a reader who leaves ends a stalled call", async () => {
    const { stream: chunks } = await createMirror().doStream({ prompt: [user("/stall\n/words 2")] });
    const reader = chunks.getReader();
    while ((await reader.read()).value?.type !== "text-delta");
    await reader.cancel();
    expect((await reader.read()).done).toBe(true);
  });

  it("[MD8] /fail before refuses the call, during breaks the stream, after reports an error and no end", async () => {
    await expect(stream(createMirror(), [user("/fail before")])).rejects.toThrow("failed before the stream");
    const during = await stream(createMirror(), [user("/words 4\n/fail during")]);
    expect([textOfParts(during.parts), String(during.broken)]).toEqual([
      "the tide ",
      "Error: mirror broke the stream, as it was told to.",
    ]);
    const after = await stream(createMirror(), [user("/words 2\n/fail after")]);
    expect([textOfParts(after.parts), after.parts.at(-1)?.type, after.broken]).toEqual([
      "the tide.",
      "error",
      undefined,
    ]);
  });

  it.each(["before", "during", "after"])("[MD8] /fail %s rejects doGenerate", async (when) => {
    await expect(generate(createMirror(), [user(`/fail ${when}`)])).rejects.toThrow("as it was told to");
  });

  it("[MD5] lines that only look like commands are text", async () => {
    expect(await answer(createMirror(), [user("/words many\n/fail soon\n/thenceforth")])).toContain(
      'Last: "/thenceforth".',
    );
  });
});

describe("usage", () => {
  it("[MD9] reports the whole prompt, text and reasoning, and the same in the raw object", async () => {
    const prompt = [system("Be brief."), user("/reason because of tides\n/words 3")];
    const { total } = measureMirrorPrompt(prompt);
    const { usage } = await generate(createMirror(), prompt);
    expect(usage).toEqual({
      inputTokens: { total, noCache: total, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: 8, text: 4, reasoning: 4 },
      raw: {
        prompt_tokens: total,
        completion_tokens: 8,
        total_tokens: total + 8,
        prompt_tokens_details: { cached_tokens: 0 },
        completion_tokens_details: { reasoning_tokens: 4 },
      },
    });
  });

  it("[MD9] a tool call costs as output what it costs coming back as input", async () => {
    const { usage } = await generate(createMirror(), [user('/call look {"at":1}')], { tools: offer("look") });
    expect(usage.outputTokens.total).toBe(4 + countMirrorTokens('look {"at":1}'));
  });

  it("[MD10] counts the longest beginning it has read before as cache reads", async () => {
    const model = createMirror();
    const opening = [system("Be brief."), user("/words 2")];
    await generate(model, opening);
    const { usage } = await generate(model, [...opening, assistant("the tide."), user("/words 1")]);
    expect(usage.inputTokens.cacheRead).toBe(measureMirrorPrompt(opening).total);
    const edited = await generate(model, [system("Be brief."), user("/words 3")]);
    expect(edited.usage.inputTokens.cacheRead).toBe(measureMirrorPrompt([system("Be brief.")]).total);
  });

  it("[MD10] finds nothing when the tools changed, the first message changed or the instance is another", async () => {
    const model = createMirror();
    const prompt = [system("Be brief."), user("/words 2")];
    await generate(model, prompt);
    const others = [
      await generate(model, prompt, { tools: offer("look") }),
      await generate(model, [system("Be long."), user("/words 2")]),
      await generate(createMirror(), prompt),
    ];
    expect(others.map(({ usage }) => usage.inputTokens.cacheRead)).toEqual([0, 0, 0]);
  });

  it("[MD10] remembers a bounded number of beginnings and forgets the least recently read first", () => {
    const cache = new PromptCache(2);
    const [one, two, three] = [[user("one")], [user("two")], [user("three")]];
    const read = [one, two, one, three, one, two].map((prompt) => cache.read(prompt, undefined));
    expect(read).toEqual([0, 0, 1, 0, 1, 0]);
  });

  it("[MD10] tells files apart by their bytes", () => {
    const cache = new PromptCache();
    const image = (byte: number) => {
      const data = { type: "data" as const, data: new Uint8Array([1, byte]) };
      return [{ role: "user" as const, content: [{ type: "file" as const, mediaType: "image/png", data }] }];
    };
    expect([image(1), image(2), image(1)].map((prompt) => cache.read(prompt, undefined))).toEqual([0, 0, 1]);
  });

  it("[MD11] /usage none reports nothing and /usage garbage what cannot be true", async () => {
    const none = await generate(createMirror(), [user("/usage none")]);
    const garbage = await generate(createMirror(), [user("/usage garbage")]);
    expect([none.usage.inputTokens.total, none.usage.outputTokens.total, none.usage.raw]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect([garbage.usage.inputTokens.total, garbage.usage.outputTokens.total]).toEqual([-1, NaN]);
  });
});

describe("limits", () => {
  it("[MD12] refuses a prompt above its window as providers do, and reads one of exactly that size", async () => {
    const prompt = [user("one two three")];
    const { total } = measureMirrorPrompt(prompt);
    await expect(generate(createMirror({ contextWindow: total - 1 }), prompt)).rejects.toMatchObject({
      message: `prompt is too long: ${total} tokens > ${total - 1} maximum`,
      statusCode: 400,
      isRetryable: false,
    });
    const { usage } = await generate(createMirror({ contextWindow: total }), prompt);
    expect(usage.inputTokens.total).toBe(total);
  });

  it("[MD12] cuts a text at the output limit, finishes with length and makes no calls after it", async () => {
    const prompt = [user("/words 10\n/call look {}")];
    const { content, finishReason, usage } = await generate(createMirror({ maxOutputTokens: 4 }), prompt, {
      tools: offer("look"),
    });
    expect(content).toEqual([{ type: "text", text: "the tide comes in " }]);
    expect([finishReason.unified, usage.outputTokens.total]).toEqual(["length", 4]);
    const asked = await generate(createMirror(), [user("/words 10")], { maxOutputTokens: 2 });
    expect(asked.content).toEqual([{ type: "text", text: "the tide " }]);
  });
});

describe("inside the AI SDK", () => {
  const look = tool({
    inputSchema: jsonSchema<{ at: number }>({ type: "object" }),
    execute: async ({ at }) => `sand at ${at}`,
  });

  it("[MD5] a script of three steps runs as a tool loop of three model calls", async () => {
    const prompt = 'Go\n/call look {"at":1}\n/then\n/call look {"at":2}\n/call look {"at":3}';
    const { steps, text } = await generateText({
      model: createMirror(),
      prompt,
      tools: { look },
      stopWhen: isStepCount(9),
    });
    expect(steps.map(({ toolCalls }) => toolCalls.map(({ input }) => input))).toEqual([
      [{ at: 1 }],
      [{ at: 2 }, { at: 3 }],
      [],
    ]);
    expect(text).toBe("I am mirror. The tools answered: look → sand at 2; look → sand at 3.");
  });

  it("[MD9] each step's input is the one before, its output and what is new", async () => {
    const { steps } = await generateText({
      model: createMirror(),
      prompt: '/call look {"at":1}',
      tools: { look },
      stopWhen: isStepCount(9),
    });
    const [first, second] = steps.map(({ usage }) => usage);
    const result = 4 + 4 + countMirrorTokens("look → sand at 1");
    expect(Number(second?.inputTokens)).toBe(Number(first?.inputTokens) + Number(first?.outputTokens) + 4 + result);
  });

  it("[MD7] an abort reaches a stalled call through streamText", async () => {
    const stop = new AbortController();
    const result = streamText({ model: createMirror(), prompt: "/stall\n/words 4", abortSignal: stop.signal });
    const types: string[] = [];
    for await (const { type } of result.stream) {
      types.push(type);
      if (types.filter((seen) => seen === "text-delta").length === 2) stop.abort();
    }
    expect(types.at(-1)).toBe("abort");
  });
});
