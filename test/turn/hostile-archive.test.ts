/** Archives that somebody wrote by hand: each is refused with its line, and nothing of it is stored. */
import { describe, expect, it } from "vitest";
import { SessionError } from "../../src/errors.ts";
import { archiveLines, readArchive, restoreArchive } from "../../src/turn/archive.ts";
import { inStore } from "../storage/database.ts";
import { call, NOON, usage } from "./entries.ts";

const SESSION = { type: "session", version: 1, createdAt: NOON, leaf: 1, settings: {} };
const ENTRY = {
  type: "entry",
  seq: 1,
  parent: null,
  messageId: "m",
  version: 0,
  step: 0,
  role: "assistant",
  state: "done",
  parts: [{ type: "text", text: "hi" }],
  unitsSaid: 1,
  unitsReturned: 0,
  createdAt: NOON,
};
const ANCHOR = {
  at: 3,
  said: 1,
  input: 30,
  output: 12,
  measured: 30,
  head: 0,
  headUnits: 0,
  headInput: null,
  overhead: 9,
  rebase: 0,
  liveReasoning: 0,
  ownReasoning: 0,
  prompt: {
    model: "mirror",
    overheadKey: "k",
    systemUnits: 0,
    toolsUnits: 0,
    overlay: null,
    covered: 0,
    summary: 0,
    pruneKey: "",
    pruned: 0,
  },
  models: { mirror: { factor: 1, measuredTokens: 0, measuredUnits: 0, readings: {} } },
  accuracy: { calls: 0, recent: [], last: null },
};

const linesOf = (...lines: object[]): string => lines.map((line) => `${JSON.stringify(line)}\n`).join("");
const withEntry = (change: object): string => linesOf(SESSION, { ...ENTRY, ...change });
const withAnchor = (change: object): string => withEntry({ anchor: { ...ANCHOR, ...change } });

/** The sentence an archive is refused with, or how much was taken, and what is stored after it. */
function restored(archive: string): Promise<{ outcome: string | number; entries: number; archived: string }> {
  return inStore((store) => {
    const attempt = (): string | number => {
      try {
        return restoreArchive(store, readArchive(archive), NOON).inserted;
      } catch (error) {
        if (error instanceof SessionError && error.code === "bad-request") return error.message;
        throw error;
      }
    };
    return { outcome: attempt(), entries: [...store.entries()].length, archived: [...archiveLines(store)].join("") };
  });
}

describe("an archive that was made up", () => {
  it.each<[string, string, RegExp]>([
    ["an anchor of nothing", withEntry({ anchor: {} }), /^Line 2 .*anchor\./],
    ["an anchor that is a list", withEntry({ anchor: [] }), /^Line 2 .*anchor/],
    ["an anchor whose model is missing", withAnchor({ models: {} }), /^Line 2 .*its model must be among its models/],
    [
      "an anchor whose model is a property of every object",
      withAnchor({ prompt: { ...ANCHOR.prompt, model: "constructor" }, models: {} }),
      /^Line 2 .*its model must be among its models/,
    ],
    ["an anchor without a prompt", withAnchor({ prompt: undefined }), /^Line 2 .*anchor\.prompt/],
    ["an anchor beyond all units", withAnchor({ at: 1e308 }), /^Line 2 .*anchor\.at/],
    ["an anchor of words", withAnchor({ input: "30" }), /^Line 2 .*anchor\.input/],
    [
      "a factor of zero",
      withAnchor({ models: { mirror: { ...ANCHOR.models.mirror, factor: 0 } } }),
      /^Line 2 .*anchor\.models\.mirror\.factor/,
    ],
    [
      "more errors than are ever kept",
      withAnchor({ accuracy: { ...ANCHOR.accuracy, recent: Array.from({ length: 1_001 }, () => 1) } }),
      /^Line 2 .*anchor\.accuracy\.recent/,
    ],
    ["a sequence at the end of integers", withEntry({ seq: 2 ** 53 - 3 }), /^Line 2 .*seq/],
    ["a sequence of zero", withEntry({ seq: 0 }), /^Line 2 .*seq/],
    ["a broken sequence", withEntry({ seq: 1.5 }), /^Line 2 .*seq/],
    ["units beyond all sums", withEntry({ unitsSaid: 1e308 }), /^Line 2 .*unitsSaid/],
    ["units below zero", withEntry({ unitsReturned: -1 }), /^Line 2 .*unitsReturned/],
    ["a version without the one before it", withEntry({ version: 1 }), /^Line 2 .*its version must be 0/],
    ["a version twice", linesOf(SESSION, ENTRY, { ...ENTRY, seq: 2, parent: null }), /^Line 3 .*its version must be 1/],
    ["parts that are no objects", withEntry({ parts: [7] }), /^Line 2 .*parts\.0/],
    ["parts without a type", withEntry({ parts: [{ text: "hi" }] }), /^Line 2 .*parts\.0\.type/],
    ["an id beyond the length of ids", withEntry({ messageId: "m".repeat(257) }), /^Line 2 .*messageId/],
    ["a call of an unknown purpose", withEntry({ call: { ...call(), purpose: "fun" } }), /^Line 2 .*call\.purpose/],
    ["a call without a model", withEntry({ call: { ...call(), model: "" } }), /^Line 2 .*call\.model/],
    [
      "a prediction beyond all sums",
      withEntry({ call: { ...call(), predictedTokens: 1e308 } }),
      /^Line 2 .*call\.predictedTokens/,
    ],
  ])("[HT10] with %s is refused with its line", async (_name, archive, sentence) => {
    const { outcome, entries } = await restored(archive);
    expect(outcome).toMatch(sentence);
    expect(entries).toBe(0);
  });

  it("[HT10] with an anchor that could be one is taken as it is", async () => {
    const archive = linesOf(SESSION, { ...ENTRY, anchor: ANCHOR, call: { ...call(), usage: usage(30, 12) } });
    const { outcome, archived } = await restored(archive);
    expect(outcome).toBe(1);
    expect(
      archived
        .trim()
        .split("\n")
        .map((line): unknown => JSON.parse(line)),
    ).toEqual(
      archive
        .trim()
        .split("\n")
        .map((line): unknown => JSON.parse(line)),
    );
  });

  it("[HT10][US6] with usage that cannot be added is a call without usage, and the totals stay numbers", async () => {
    const absurd = { inputTokens: 1e308, outputTokens: -1, totalTokens: "many" };
    const totals = await inStore((store) => {
      restoreArchive(store, readArchive(withEntry({ call: { ...call(), usage: absurd } })), NOON);
      return [store.session.totals, store.entry(1)?.call?.usage];
    });
    const nothing = { inputTokens: 0, outputTokens: 0, reasoningTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0 };
    expect(totals).toEqual([{ calls: 1, ...nothing }, undefined]);
  });
});
