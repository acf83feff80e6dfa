import { expect, it } from "vitest";
import { createMirror } from "../../src/models/mirror.ts";
import { isSummaryRequest, summarise } from "../../src/models/mirror-summary.ts";
import { countMirrorTokens } from "../../src/models/mirror-tokenizer.ts";
import { answer, generate, offer, system, user } from "./mirror-calls.ts";

const conversation = [
  "user: Where is order A-4711? I have waited for nine days.",
  "assistant: I will look it up. One moment.",
  "tool: lookUpOrder → shipped with carrier_9 from Bergen",
  "assistant: It left Bergen on Monday. You should have it soon.",
  ...Array.from(
    { length: 60 },
    (_, index) => `user: Question ${index} about src/file${index}.ts is here. It has details.`,
  ),
  "user: And can I change the address?",
].join("\n\n");

const instructions = "Summarize the conversation below.";
const ask = (text: string, extra = "") => user(`${extra}\n<conversation>\n${text}\n</conversation>`);

it("[MD13] summarises when it is asked to and given a conversation, and only then", () => {
  expect(isSummaryRequest(`${instructions}\n<conversation>\nuser: hi\n</conversation>`)).toBe(true);
  expect(isSummaryRequest("SUMMARISE THE CONVERSATION <conversation>hi</conversation>")).toBe(true);
  expect(isSummaryRequest(instructions)).toBe(false);
  expect(isSummaryRequest("<conversation>hi</conversation>")).toBe(false);
});

it("[MD13] keeps the goal, the newest progress, identifiers and the latest request", async () => {
  const summary = await answer(createMirror(), [system(instructions), ask(conversation)]);
  const lines = summary.split("\n");
  expect(lines[0]).toBe("Goal: Where is order A-4711?");
  expect(lines[1]).toBe("Progress:");
  expect(lines.at(-1)).toBe("Latest request: And can I change the address?");
  expect(lines.at(-3)).toBe("- user: And can I change the address?");
  expect(lines.at(-2)).toMatch(/^Identifiers: src\/file59\.ts, src\/file58\.ts/);
});

it("[MD13] takes at most a fifth of what it read and 400 tokens, and the same text each time", () => {
  for (const text of [conversation, conversation.slice(0, 1_500), conversation.repeat(20)]) {
    const request = `${instructions}\n<conversation>\n${text}\n</conversation>`;
    const tokens = countMirrorTokens(summarise(request));
    expect(tokens).toBeLessThanOrEqual(Math.min(400, countMirrorTokens(text) / 5));
    expect(summarise(request)).toBe(summarise(request));
  }
});

it("[MD13] carries an earlier summary on: its goal stays the goal", () => {
  const earlier = "<summary>\nGoal: sail to Bergen\nProgress:\n- user: bought a map\n</summary>";
  const text = Array.from(
    { length: 8 },
    () => "user: What about the wind today? It blows hard from the northern sea.",
  ).join("\n");
  const summary = summarise(`${instructions}\n${earlier}\n<conversation>\n${text}\n</conversation>`);
  expect(summary.split("\n")[0]).toBe("Goal: sail to Bergen");
});

it("[MD13] obeys commands beside the conversation and none inside it", async () => {
  const inside = ask("user: /fail before\n/fail before\nassistant: no");
  expect(await answer(createMirror(), [system(instructions), inside])).toMatch(/^Goal: \/fail before\n/);
  await expect(answer(createMirror(), [system(instructions), ask("user: hi", "/fail before")])).rejects.toThrow(
    "as it was told to",
  );
});

it("[MD13] calls tools while summarising only when told to", async () => {
  const tools = offer("look");
  const plain = await generate(createMirror(), [system(instructions), ask("user: /call look {}")], { tools });
  expect(plain.content.map(({ type }) => type)).toEqual(["text"]);
  const told = await generate(createMirror(), [system(instructions), ask("user: hi", "/call look {}")], { tools });
  expect(told.content.map(({ type }) => type)).toEqual(["text", "tool-call"]);
});

it("[MD13] reads a conversation of two million characters without trouble", () => {
  const text = `user: ${"a/b1".repeat(250_000)}\nassistant: ${"x ".repeat(500_000)}`;
  expect(countMirrorTokens(summarise(`${instructions}<conversation>${text}</conversation>`))).toBeLessThanOrEqual(400);
});
