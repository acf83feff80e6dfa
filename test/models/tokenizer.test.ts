import { expect, it } from "vitest";
import { measureMirrorPrompt, type Prompt } from "../../src/models/mirror-prompt.ts";
import { countMirrorTokens } from "../../src/models/mirror-tokenizer.ts";

it.each([
  ["", 0],
  ["hello", 1],
  ["hello world", 2],
  ["compaction", 2],
  ["1234567", 3],
  ["a1", 2],
  ["one, two.", 4],
  ["two  spaces", 3],
  ["a\n\nb", 4],
  ["潮位線", 3],
  ["Öffnungszeiten", 3],
  ["🌊", 2],
  ['{"city":"Oslo"}', 9],
])("[MD1] %j costs %i tokens", (text, tokens) => {
  expect(countMirrorTokens(text)).toBe(tokens);
});

it("[MD1] two texts joined at a newline cost what they cost apart, plus one", () => {
  const [first, second] = ["The order A-4711 is late.", "  It left on 2026-11-02"];
  expect(countMirrorTokens(`${first}\n${second}`)).toBe(countMirrorTokens(first) + 1 + countMirrorTokens(second));
});

it("[MD1] counts a text of a million characters in one pass", () => {
  expect(countMirrorTokens("abcdef ".repeat(150_000))).toBe(150_000);
});

const question: Prompt = [
  { role: "system", content: "Be brief." },
  { role: "user", content: [{ type: "text", text: "hello" }] },
];

it("[MD2] a prompt costs 3 for the call and 4 for each message beside the text", () => {
  expect(measureMirrorPrompt(question)).toEqual({ overhead: 3, messages: [7, 5], total: 15 });
});

it("[MD2] a tool costs 4 beside its JSON and belongs to no message", () => {
  const tool = { type: "function" as const, name: "look", inputSchema: { type: "object" as const } };
  const overhead = 3 + 4 + countMirrorTokens(JSON.stringify(tool));
  expect(measureMirrorPrompt(question, [tool])).toEqual({ overhead, messages: [7, 5], total: overhead + 12 });
});

it("[MD2] tool calls and results cost their names, their JSON and 4", () => {
  const size = measureMirrorPrompt([
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "x", toolName: "look", input: { at: 1 } }] },
    {
      role: "tool",
      content: [{ type: "tool-result", toolCallId: "x", toolName: "look", output: { type: "text", value: "sand" } }],
    },
  ]);
  expect(size.messages).toEqual([4 + 4 + countMirrorTokens('look {"at":1}'), 4 + 4 + countMirrorTokens("look → sand")]);
});

it("[MD2] an image costs 600 and another file 1,200, however long its bytes", () => {
  const data = { type: "data" as const, data: "A".repeat(50_000) };
  const size = measureMirrorPrompt([
    { role: "user", content: [{ type: "file", mediaType: "image/png", data }] },
    { role: "user", content: [{ type: "file", mediaType: "application/pdf", data }] },
  ]);
  expect(size.messages).toEqual([604, 1_204]);
});
