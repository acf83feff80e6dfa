import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { CompactionEntry, Entry, SessionRecord, Seq } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import { archiveLines, readArchive, restoreArchive } from "../../src/turn/archive.ts";
import { overlayInForce } from "../../src/turn/overlay-in-force.ts";
import { clear, inDatabase, inStore, openStore } from "../storage/database.ts";
import {
  answeredWith,
  appliedEntry,
  asJson,
  call,
  compactionEntry,
  newEntry,
  NOON,
  openTurn,
  overlay,
  text,
  toolCall,
  usage,
} from "./entries.ts";

interface Contents {
  session: Readonly<SessionRecord>;
  entries: Entry[];
  compactions: CompactionEntry[];
}

const contentsOf = (store: SessionStore): Contents => ({
  session: store.session,
  entries: [...store.entries()],
  compactions: store.compactions.all(),
});
const archiveOf = (store: SessionStore): string => [...archiveLines(store)].join("");

const SESSION = { type: "session", version: 1, createdAt: NOON, leaf: 1, settings: {} };
const ENTRY = {
  type: "entry",
  seq: 1,
  parent: null,
  messageId: "m",
  version: 0,
  step: 0,
  role: "user",
  state: "done",
  parts: [{ type: "text", text: "hi" }],
  unitsSaid: 1,
  unitsReturned: 0,
  createdAt: NOON,
};

const { summary: _summary, ...OVERLAY } = overlay({ until: 1 });
const COMPACTION = (() => {
  const { model: _model, summaryUsage: _usage, ...entry } = compactionEntry(1);
  return { type: "compaction", ...entry };
})();

const linesOf = (...lines: unknown[]): string =>
  lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join("");

const parsed = (archive: string): unknown[] =>
  archive
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));

function refusal(work: () => unknown): { code: unknown; message: string } {
  try {
    work();
  } catch (error) {
    if (error instanceof Error) return { code: "code" in error ? error.code : error.name, message: error.message };
  }
  return { code: "done", message: "" };
}

describe("an archive", () => {
  it("[HT10] imported into an empty session gives the same session, for any tree", async () => {
    const state = fc.constantFrom("done" as const, "aborted" as const, "failed" as const, "interrupted" as const);
    const tree = fc.array(
      fc.record({ back: fc.nat(9), state, said: fc.string({ unit: "grapheme" }), called: fc.boolean() }),
      {
        minLength: 1,
        maxLength: 12,
      },
    );
    const compacted = fc.array(fc.record({ until: fc.option(fc.nat()), called: fc.boolean(), undone: fc.boolean() }), {
      maxLength: 4,
    });
    await inDatabase((storage) => {
      fc.assert(
        fc.property(tree, compacted, (shape, summaries) => {
          clear(storage);
          const store = openStore(storage);
          for (const [index, node] of shape.entries()) grow(store, index + 1, node);
          const leaf = shape.length;
          for (const [index, summary] of summaries.entries()) compact(store, index + 1, leaf, summary);
          const calls = [...shape, ...summaries].filter(({ called }) => called).length;
          store.saveSession({
            leaf,
            messages: shape.length,
            activeAt: NOON,
            compactions: summaries.filter(({ until }) => until !== null).length,
            settings: { model: "mirror", compactAfter: "80%", tailTokenBudget: 9, systemPrompt: "Kurz. 简短" },
            totals: { ...store.session.totals, calls, inputTokens: 3 * calls, outputTokens: 4 * calls },
          });
          store.saveSession({ overlay: overlayInForce(store, leaf)?.id ?? null });
          const [before, archive] = [contentsOf(store), archiveOf(store)];
          clear(storage);
          const restored = openStore(storage);
          expect(restoreArchive(restored, readArchive(archive), NOON + 5)).toEqual({ inserted: shape.length });
          expect(contentsOf(restored)).toEqual(before);
          expect(parsed(archiveOf(restored))).toEqual(parsed(archive));
        }),
        { numRuns: 30 },
      );
    });
  });

  it("[HT10] keeps what was erased erased, and counts it as no message", async () => {
    const archive = linesOf(SESSION, ENTRY, {
      ...ENTRY,
      seq: 4,
      parent: 1,
      messageId: "n",
      state: "deleted",
      parts: [],
    });
    const seen = await inStore((store) => {
      const { inserted } = restoreArchive(store, readArchive(archive), NOON);
      return [inserted, store.session.messages, store.entry(4)?.state, parsed(archiveOf(store))];
    });
    expect(seen).toEqual([1, 1, "deleted", parsed(archive)]);
  });

  it("[HT10] of an empty session gives an empty session", async () => {
    const seen = await inStore((store) => {
      const archive = archiveOf(store);
      return [archive, restoreArchive(store, readArchive(archive), NOON), store.session.leaf];
    });
    expect(seen).toEqual([linesOf({ ...SESSION, leaf: null }), { inserted: 0 }, null]);
  });

  it("[HT10] does not hold a step that is being generated", async () => {
    const seen = await inStore((store) => {
      store.insert(newEntry());
      store.insert(newEntry({ parent: 1, messageId: "a", role: "assistant", state: "streaming" }));
      return [...archiveLines(store)].length;
    });
    expect(seen).toBe(2);
  });

  it.each<[string, Partial<CompactionEntry>]>([
    ["covers", appliedEntry(overlay({ until: 6, summary: "S" }))],
    ["leaves outputs out of", appliedEntry(overlay({ pruning: { until: 6, shortened: [], tokens: 1 } }))],
    [
      "shortens an output of",
      appliedEntry(overlay({ pruning: { until: 0, shortened: [{ seq: 6, toolCallId: "c", length: 9 }], tokens: 1 } })),
    ],
  ])(
    "[HT10] does not hold a compaction that %s a step of an open turn, and can be imported",
    async (_what, compaction) => {
      const seen = await inStore((store) => {
        branches(store);
        store.compactions.insert({ ...appliedEntry(overlay({ id: 2, until: 4, summary: "kept" })), at: 5 });
        store.compactions.insert({ ...appliedEntry(overlay({ id: 3 })), ...compaction, id: 3, at: 6 });
        store.saveSession({ leaf: 2, turn: openTurn({ trigger: "regenerate", parent: 2, messageId: "running" }) });
        const archive = readArchive(archiveOf(store));
        return { entries: archive.entries.map(({ seq }) => seq), compactions: archive.compactions.map(({ id }) => id) };
      });
      expect(seen).toEqual({ entries: [1, 2, 3, 4, 5], compactions: [2] });
    },
  );

  it("[HT10] is refused by a session that holds something", async () => {
    const seen = await inStore((store) => {
      restoreArchive(store, readArchive(linesOf(SESSION, ENTRY)), NOON);
      return refusal(() => restoreArchive(store, readArchive(linesOf(SESSION, ENTRY)), NOON)).code;
    });
    expect(seen).toBe("not-empty");
  });

  it.each<[string, string, RegExp]>([
    ["nothing", "", /^Line 1 /],
    ["no JSON", "{", /^Line 1 .*not JSON/],
    ["another version", linesOf({ ...SESSION, version: 2 }), /^Line 1 .*version/],
    ["no session line", linesOf(ENTRY), /^Line 1 /],
    ["an unknown leaf", linesOf({ ...SESSION, leaf: 9 }, ENTRY), /^Line 1 .*leaf/],
    ["an entry that is no JSON", linesOf(SESSION, "x"), /^Line 2 .*not JSON/],
    ["an unknown role", linesOf(SESSION, { ...ENTRY, role: "tool" }), /^Line 2 .*role/],
    ["a step that is being generated", linesOf(SESSION, { ...ENTRY, state: "streaming" }), /^Line 2 .*state/],
    ["an unknown parent", linesOf(SESSION, ENTRY, { ...ENTRY, seq: 3, parent: 2, messageId: "n" }), /^Line 3 .*parent/],
    ["an entry that is its own parent", linesOf(SESSION, { ...ENTRY, parent: 1 }), /^Line 2 .*parent/],
    ["a compaction before an entry", linesOf(SESSION, COMPACTION, ENTRY), /^Line 3 .*compactions/],
    ["a compaction twice", linesOf(SESSION, ENTRY, COMPACTION, COMPACTION), /^Line 4 .*id/],
    ["an unknown outcome", linesOf(SESSION, ENTRY, { ...COMPACTION, outcome: "maybe" }), /^Line 3 .*outcome/],
    [
      "an overlay of what is not there",
      linesOf(SESSION, ENTRY, { ...COMPACTION, overlay: { ...OVERLAY, until: 2 } }),
      /^Line 3 .*not there/,
    ],
    [
      "an overlay of another compaction",
      linesOf(SESSION, ENTRY, { ...COMPACTION, overlay: { ...OVERLAY, id: 2 } }),
      /^Line 3 .*id/,
    ],
    ["a sequence twice", linesOf(SESSION, ENTRY, { ...ENTRY, messageId: "n" }), /^Line 3 .*seq/],
    [
      "a sequence that goes back",
      linesOf({ ...SESSION, leaf: 5 }, { ...ENTRY, seq: 5 }, { ...ENTRY, messageId: "n" }),
      /^Line 3 .*seq/,
    ],
  ])("[HT10][ST2] with %s is refused with its line, and nothing of it is stored", async (_name, archive, sentence) => {
    const seen = await inStore((store) => ({
      ...refusal(() => restoreArchive(store, readArchive(archive), NOON)),
      left: contentsOf(store),
    }));
    expect(seen.code).toBe("bad-request");
    expect(seen.message).toMatch(sentence);
    expect(seen.left).toMatchObject({ session: { leaf: null, messages: 0, settings: {} }, entries: [] });
    expect(seen.left.compactions).toEqual([]);
  });
});

describe("the settings of an archive", () => {
  it.each<[string, object]>([
    ["a model that is no name", { model: 5 }],
    ["a threshold that is none", { compactAfter: "often" }],
    ["a tail budget of nothing", { tailTokenBudget: 0 }],
    ["an unknown name", { colour: "blue" }],
  ])("[HT10][HT3] are refused with %s, and nothing of it is stored", async (_name, settings) => {
    const archive = linesOf({ ...SESSION, settings }, ENTRY);
    const seen = await inStore((store) => ({
      ...refusal(() => restoreArchive(store, readArchive(archive), NOON)),
      left: contentsOf(store),
    }));
    expect(seen.code).toBe("invalid-settings");
    expect(seen.left).toMatchObject({ session: { leaf: null, messages: 0, settings: {} }, entries: [] });
  });
});

/** 1 → 2 → 3 → 4 → 5, and the step 6 of an open turn that follows 2. */
function branches(store: SessionStore): void {
  for (const parent of [null, 1, 2, 3, 4]) {
    store.insert(newEntry({ parent, messageId: `m${(parent ?? 0) + 1}` }));
  }
  store.insert(newEntry({ parent: 2, messageId: "running", role: "assistant" }));
}

/** A compaction of the first of any entries, or one that brought nothing. */
function compact(
  store: SessionStore,
  id: number,
  entries: number,
  { until, called, undone }: { until: number | null; called: boolean; undone: boolean },
): void {
  const shown = overlay({
    id,
    until: ((until ?? 0) % entries) + 1,
    summary: `Über ${id}: “fertig” 完`,
    rangeTokens: 1.5,
  });
  const base = until === null ? compactionEntry(id) : appliedEntry(shown);
  const billed = call({ purpose: "summary", usage: usage(3, 4) });
  const bill = called ? { call: billed, model: billed.model, summaryUsage: asJson(billed.usage) ?? null } : {};
  store.compactions.insert({ ...base, at: entries, undone, ...bill });
}

function grow(
  store: SessionStore,
  seq: Seq,
  { back, state, said, called }: { back: number; state: Entry["state"]; said: string; called: boolean },
): void {
  const parent = seq - 1 - back > 0 ? seq - 1 - back : null;
  const above = parent === null ? undefined : store.entry(parent);
  store.insert(
    newEntry({
      parent,
      messageId: `m${seq}`,
      role: called ? "assistant" : "user",
      state,
      parts: [text(said), toolCall("a", answeredWith({ said }))],
      metadata: { said },
      ...(called && { call: call({ usage: usage(3, 4) }) }),
      unitsBefore: above ? above.unitsBefore + above.unitsSaid + above.unitsReturned : 0,
      unitsSaid: said.length,
      unitsReturned: 2,
    }),
  );
}
