import fc from "fast-check";
import { expect, it } from "vitest";
import { chunksOf } from "../../src/compaction/chunks.ts";
import { countMirrorTokens } from "../../src/models/mirror-tokenizer.ts";

const characters = (text: string) => text.length;

/** Scales that agree in nothing but that more text never weighs less. */
const SCALES = {
  characters,
  mirror: countMirrorTokens,
  "with a fixed price": (text: string) => 5 + Math.ceil(text.length / 4),
  "dearer the longer": (text: string) => text.length ** 2 / 50,
  "in steps of ten": (text: string) => 10 * Math.floor(text.length / 10),
  bytes: (text: string) => new TextEncoder().encode(text).length,
} satisfies Record<string, (text: string) => number>;

/** What the chunks hold, without the speakers that are named again. */
const restored = (chunks: string[]) => chunks.join("\n").replaceAll(/\n\[[^\]\n]+, continued\] /g, "");

/** For scales on which no block is so heavy that it is split without its speaker. */
const block = fc
  .tuple(fc.constantFrom("user", "assistant", "tool result look"), fc.string({ unit: "grapheme", maxLength: 200 }))
  .map(([speaker, text]) => `[${speaker}] ${text.replaceAll("[", "(")}`);

it("[CM23] fits every chunk to the limit, on any scale that grows with the text", () => {
  for (const weigh of Object.values(SCALES)) {
    fc.assert(
      fc.property(fc.array(block, { maxLength: 30 }), fc.integer({ min: 50, max: 400 }), (blocks, limit) => {
        const chunks = [...chunksOf(blocks, limit, weigh)];
        expect(Math.max(0, ...chunks.map(weigh))).toBeLessThanOrEqual(limit);
      }),
    );
  }
});

it("[CM23] loses nothing and adds nothing but the speaker of what goes on", () => {
  for (const weigh of Object.values(SCALES)) {
    fc.assert(
      fc.property(fc.array(block, { maxLength: 30 }), fc.integer({ min: 50, max: 400 }), (blocks, limit) => {
        const chunks = [...chunksOf(blocks, limit, weigh)];
        expect(restored(chunks)).toBe(blocks.join("\n"));
        expect(chunks.every((chunk) => chunk.isWellFormed())).toBe(true);
      }),
    );
  }
});

it("[CM23] fills chunks with whole blocks as far as they go", () => {
  const blocks = ["[user] one", "", "[assistant] two", "[user] three", "[assistant] four"];
  expect([...chunksOf(blocks, 26, characters)]).toEqual([
    "[user] one\n[assistant] two",
    "[user] three",
    "[assistant] four",
  ]);
  expect([...chunksOf(blocks, Infinity, characters)]).toEqual([blocks.filter(Boolean).join("\n")]);
  expect([...chunksOf(["", ""], 26, characters)]).toEqual([]);
});

it("[CM23] splits a block above the limit at a line, else at a space, else between two characters", () => {
  const lines = ["[user] first line", "second line", "third line"].join("\n");
  expect([...chunksOf([lines], 32, characters)]).toEqual([
    "[user] first line\nsecond line\n",
    "[user, continued] third line",
  ]);
  expect([...chunksOf(["[user] one two three four"], 22, characters)]).toEqual([
    "[user] one two three ",
    "[user, continued] four",
  ]);
  expect([...chunksOf(["[user] 🌊🌊🌊🌊🌊🌊🌊🌊"], 22, characters)]).toEqual([
    "[user] 🌊🌊🌊🌊🌊🌊🌊",
    "[user, continued] 🌊",
  ]);
});

it("[CM23] leaves the speaker out where a chunk has no room for it, and throws where it has none for a character", () => {
  expect([...chunksOf(["[user] hello 🌊"], 3, characters)].join("")).toBe("[user] hello 🌊");
  expect(() => [...chunksOf(["🌊"], 1, characters)]).toThrow("a chunk of 1 tokens cannot hold a single character");
  expect(() => [...chunksOf(["hello"], 0, characters)]).toThrow(RangeError);
  expect(() => [...chunksOf(["hello"], NaN, characters)]).toThrow(RangeError);
});

it("[CM23] takes blocks only as it needs them", () => {
  let taken = 0;
  const endless = (function* () {
    for (;;) yield `[user] message ${(taken += 1)}`;
  })();
  const chunks = chunksOf(endless, 100, characters);
  expect(chunks.next().value).toMatch(/^\[user\] message 1\n/);
  expect(taken).toBe(6);
});

it("[CM23] reads a message of 3.7 million characters a few times, not once per chunk", () => {
  const prose = "The tide comes in and goes out again, 24 h and 50 min later. 潮の満ち引き 🌊\n";
  for (const text of [prose.repeat(55_000), "x".repeat(3_700_000), "潮".repeat(1_000_000) + "tide ".repeat(500_000)]) {
    let weighed = 0;
    const weigh = (part: string) => {
      weighed += part.length;
      return countMirrorTokens(part);
    };
    const message = `[user] ${text}`;
    const chunks = [...chunksOf([message], 20_000, weigh)];
    expect(weighed).toBeLessThan(4 * message.length);
    expect(restored(chunks)).toBe(message);
    const sizes = chunks.map(countMirrorTokens);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(20_000);
    expect(sizes.reduce((sum, size) => sum + size, 0) / chunks.length).toBeGreaterThan(15_000);
  }
});

it("[CM23] reads a history of fifty thousand short messages a few times", () => {
  let weighed = 0;
  const weigh = (part: string) => {
    weighed += part.length;
    return Math.round(part.length / 4.3);
  };
  const blocks = Array.from({ length: 50_000 }, (_, index) => `[user] message ${index}`);
  const chunks = [...chunksOf(blocks, 80_000, weigh)];
  expect(chunks.join("\n")).toBe(blocks.join("\n"));
  expect(chunks.length).toBe(4);
  expect(weighed).toBeLessThan(5 * blocks.join("\n").length);
});
