import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Entry, NewEntry, Seq, SessionRecord } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import { call, newEntry, NOON, openTurn, usage } from "../turn/entries.ts";
import { clear, inDatabase, inStore, openStore } from "./database.ts";

const NOTHING_YET: SessionRecord = {
  createdAt: NOON,
  activeAt: NOON,
  leaf: null,
  messages: 0,
  erased: 0,
  measured: null,
  overlay: null,
  compactions: 0,
  settings: {},
  turn: null,
  finished: [],
  totals: {
    calls: 0,
    inputTokens: 0,
    outputTokens: 0,
    reasoningTokens: 0,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
  },
};

describe("opening", () => {
  it("[ST5] makes an empty session stamped with the time it was first opened", async () => {
    expect(await inStore((store) => store.session)).toEqual(NOTHING_YET);
  });

  it("[ST5] changes nothing the second time, whatever time it is given", async () => {
    const seen = await inStore((store, storage) => {
      store.insert(newEntry());
      store.saveSession({ leaf: 1, messages: 1 });
      const again = openStore(storage);
      again.open(NOON + 1_000);
      return { session: again.session, entries: [...again.entries()].length };
    });
    expect(seen).toEqual({ session: { ...NOTHING_YET, leaf: 1, messages: 1 }, entries: 1 });
  });

  it("[ST5] leaves no table behind when a migration fails, and succeeds when tried again", async () => {
    const seen = await inDatabase((storage) => {
      storage.sql.exec("CREATE TABLE tidemark_queue (position INTEGER)");
      const failure = thrownBy(() => openStore(storage));
      const tables = storage.sql.exec("SELECT name FROM sqlite_master WHERE name = 'tidemark_session'").toArray();
      clear(storage);
      return { failed: failure instanceof Error, tables, session: openStore(storage).session };
    });
    expect(seen).toEqual({ failed: true, tables: [], session: NOTHING_YET });
  });
});

describe("the session row", () => {
  it("[ST7] reads back every field through another store on the same storage", async () => {
    const whole: SessionRecord = {
      createdAt: NOON - 5,
      activeAt: NOON + 5,
      leaf: 7,
      messages: 3,
      erased: 4,
      measured: 5,
      overlay: 6,
      compactions: 8,
      settings: { model: "mirror", systemPrompt: "Sei kurz. 简短", compactAfter: "80%", tailTokenBudget: 5 },
      turn: openTurn({
        running: ["c"],
        clientTools: [{ name: "ask", inputSchema: { type: "object" } }],
        interruptions: 1,
      }),
      finished: [{ requestId: "r", messageId: "m" }],
      totals: { ...NOTHING_YET.totals, calls: 2, inputTokens: 10 },
    };
    const seen = await inStore((store, storage) => {
      store.saveSession(whole);
      return openStore(storage).session;
    });
    expect(seen).toEqual(whole);
  });

  it("[ST7] changes only the fields it is given", async () => {
    const seen = await inStore((store, storage) => {
      store.saveSession({ settings: { model: "mirror" } });
      store.saveSession({ leaf: 2 });
      return [store.session, openStore(storage).session];
    });
    const expected = { ...NOTHING_YET, settings: { model: "mirror" }, leaf: 2 };
    expect(seen).toEqual([expected, expected]);
  });
});

describe("transactions", () => {
  it("[ST2] forget entries, pieces, queue and session row when they throw, in SQLite and in memory", async () => {
    const seen = await inStore((store) => {
      store.insert(newEntry({ messageId: "kept" }));
      store.saveSession({ leaf: 1, messages: 1 });
      const failure = thrownBy(() =>
        store.transaction(() => {
          const lost = store.insert(
            newEntry({ messageId: "lost", parts: [{ type: "text", text: "x".repeat(600_000) }] }),
          );
          store.update({ ...store.entry(1)!, state: "deleted", parts: [] });
          store.enqueue({ requestId: "q", trigger: "submit", messages: [] });
          store.saveSession({ leaf: lost.seq, messages: 2 });
          throw new Error("no");
        }),
      );
      return {
        failure: String(failure),
        session: store.session,
        entries: [...store.entries()].map(({ messageId, state }) => [messageId, state]),
        queue: store.queue(),
        next: store.insert(newEntry({ messageId: "next" })).seq,
      };
    });
    expect(seen).toEqual({
      failure: "Error: no",
      session: { ...NOTHING_YET, leaf: 1, messages: 1 },
      entries: [["kept", "done"]],
      queue: [],
      next: 2,
    });
  });

  it("[ST2] leave no trace of an inner one when the outer one throws after it", async () => {
    const seen = await inStore((store) => {
      thrownBy(() =>
        store.transaction(() => {
          store.transaction(() => store.saveSession({ messages: 9 }));
          throw new Error("no");
        }),
      );
      return store.session;
    });
    expect(seen).toEqual(NOTHING_YET);
  });

  it("[ST2] keep what the outer one wrote when an inner one throws and is caught", async () => {
    const seen = await inStore((store, storage) => {
      store.transaction(() => {
        store.saveSession({ messages: 1 });
        thrownBy(() =>
          store.transaction(() => {
            store.saveSession({ messages: 2 });
            throw new Error("no");
          }),
        );
      });
      return [store.session.messages, openStore(storage).session.messages];
    });
    expect(seen).toEqual([1, 1]);
  });

  it("[ST2] answer with what the work returned", async () => {
    expect(await inStore((store) => store.transaction(() => 7))).toBe(7);
  });
});

describe("entries", () => {
  it("[ST1] are numbered in order of storing, whatever their clock says", async () => {
    const seen = await inStore((store) => {
      const stored = [NOON + 9, NOON - 9, NOON].map((createdAt, index) =>
        store.insert(newEntry({ messageId: `m${index}`, createdAt })),
      );
      return { seqs: stored.map(({ seq }) => seq), read: [...store.entries()].map(({ messageId }) => messageId) };
    });
    expect(seen).toEqual({ seqs: [1, 2, 3], read: ["m0", "m1", "m2"] });
  });

  it("[ST7] read back every field as they were inserted", async () => {
    const whole = newEntry({
      parent: 1,
      messageId: "a",
      version: 2,
      step: 0,
      role: "assistant",
      state: "aborted",
      parts: [
        { type: "step-start" },
        { type: "reasoning", id: "r", text: "", providerMetadata: { anthropic: { signature: "s" } } },
        { type: "data-note", id: "n", data: { deep: [null, 1.5, "ü"] } },
      ],
      metadata: { mood: "calm", nothing: null },
      call: call({ usage: { ...usage(3, 4), raw: { input_tokens: 3 } }, predictedTokens: 2 }),
      unitsBefore: 1.25,
      unitsSaid: 2.5,
      unitsReturned: 0.125,
    });
    const seen = await inStore((store) => {
      store.insert(newEntry());
      const stored = store.insert(whole);
      return { stored, read: store.entry(stored.seq), unknown: store.entry(99) };
    });
    expect(seen.read).toEqual(JSON.parse(JSON.stringify({ ...whole, seq: 2 })));
    expect(seen.stored).toEqual({ ...whole, seq: 2 });
    expect(seen.unknown).toBeUndefined();
  });

  it("[ST7] keep their place and identity through an update, and change all else", async () => {
    const seen = await inStore((store) => {
      const stored = store.insert(
        newEntry({ role: "assistant", state: "streaming", metadata: { a: 1 }, unitsBefore: 4 }),
      );
      store.update({
        ...stored,
        parent: 77,
        messageId: "other",
        unitsBefore: 99,
        state: "done",
        parts: [{ type: "text", text: "whole" }],
        metadata: undefined,
        call: call(),
        unitsSaid: 8,
        unitsReturned: 9,
      });
      return store.entry(stored.seq);
    });
    expect(seen).toEqual({
      ...newEntry({ role: "assistant", state: "done", parts: [{ type: "text", text: "whole" }], call: call() }),
      seq: 1,
      unitsBefore: 4,
      unitsSaid: 8,
      unitsReturned: 9,
    });
  });

  it("[ST7] refuse a second first step of one version, and take another version and further steps", async () => {
    const seen = await inStore((store) => {
      store.insert(newEntry({ messageId: "m" }));
      const refused = thrownBy(() => store.insert(newEntry({ messageId: "m" })));
      store.insert(newEntry({ messageId: "m", version: 1, createdAt: NOON - 1 }));
      store.insert(newEntry({ messageId: "m", version: 1, step: 1 }));
      return {
        refused: refused instanceof Error,
        versions: store.versions("m").map(({ seq, version }) => [seq, version]),
      };
    });
    expect(seen).toEqual({
      refused: true,
      versions: [
        [1, 0],
        [2, 1],
      ],
    });
  });

  it("[ST1] are read from the one after a given sequence, across more than one batch", async () => {
    const seen = await inStore((store) => {
      for (let index = 0; index < 150; index += 1) store.insert(newEntry({ messageId: `m${index}` }));
      return [...store.entries(20)].map(({ seq }) => seq);
    });
    expect(seen).toEqual(Array.from({ length: 130 }, (_, index) => index + 21));
  });
});

describe("branches", () => {
  it("[ST4] a walk yields exactly the chain from a leaf to the root, on any tree", async () => {
    await inDatabase((storage) => {
      fc.assert(
        fc.property(trees, (parents) => {
          const store = grow(storage, parents);
          for (let leaf = 1; leaf <= parents.length; leaf += 1) {
            const chain = chainFrom(leaf, parents);
            expect([...store.walk(leaf)].map(({ seq }) => seq)).toEqual(chain);
            expect([...store.walkHeads(leaf)].map(({ seq }) => seq)).toEqual(chain);
          }
        }),
        { numRuns: 25 },
      );
    });
  });

  it("[ST4] a walk crosses batches and passes over long other branches", async () => {
    const seen = await inDatabase((storage) => {
      const parents = Array.from({ length: 400 }, (_, index): Seq | null => (index < 2 ? null : index - 1));
      const store = grow(storage, parents);
      return [399, 400].map((leaf) => [...store.walk(leaf)].map(({ seq }) => seq));
    });
    expect(seen[0]).toEqual(Array.from({ length: 200 }, (_, index) => 399 - 2 * index));
    expect(seen[1]).toEqual(Array.from({ length: 200 }, (_, index) => 400 - 2 * index));
  });

  it("[ST4] a walk from nowhere yields nothing", async () => {
    const seen = await inStore((store) => {
      store.insert(newEntry());
      return [[...store.walk(null)], [...store.walk(2)], [...store.walkHeads(null)]];
    });
    expect(seen).toEqual([[], [], []]);
  });

  it("[ST4] stretches of any length join to the chain, above an entry of it if one is given", async () => {
    await inDatabase((storage) => {
      fc.assert(
        fc.property(trees, fc.nat(), fc.nat(), fc.integer({ min: 1, max: 9 }), (parents, pick, cut, limit) => {
          const store = grow(storage, parents);
          const chain = chainFrom((pick % parents.length) + 1, parents);
          const above = cut % 3 === 0 ? 0 : (chain[cut % chain.length] ?? 0);
          const joined: Seq[] = [];
          let next: Seq | null = chain[0] ?? null;
          while (next !== null && next !== above) {
            const stretch = store.stretch(next, limit, above);
            expect(stretch.entries.length).toBeGreaterThan(0);
            expect(stretch.entries.length).toBeLessThanOrEqual(limit);
            joined.push(...stretch.entries.map(({ seq }) => seq));
            next = stretch.next;
          }
          expect(joined).toEqual(chain.filter((seq) => seq > above));
        }),
        { numRuns: 40 },
      );
    });
  });

  it("[ST4] a chain between two entries is told by its sequences, and its entries come in that order", async () => {
    await inDatabase((storage) => {
      fc.assert(
        fc.property(trees, fc.nat(), fc.nat(), (parents, pick, cut) => {
          const store = grow(storage, parents);
          const chain = chainFrom((pick % parents.length) + 1, parents).toReversed();
          const until = chain.at(-1)!;
          const after = chain[cut % chain.length]!;
          expect(store.chain(null, until)).toEqual(chain);
          expect(store.chain(after, until)).toEqual(chain.filter((seq) => seq > after));
          expect([...store.entriesAt(chain)].map(({ seq }) => seq)).toEqual(chain);
        }),
        { numRuns: 25 },
      );
    });
  });

  it("[ST4] the entries of no sequences are none, and those that are not stored are passed over", async () => {
    const seen = await inStore((store) => {
      for (const seq of [1, 2, 4, 5]) store.restore({ ...newEntry({ messageId: `m${seq}` }), seq });
      return [[], [5], [1, 4], [4, 9]].map((seqs) => [...store.entriesAt(seqs)].map(({ seq }) => seq));
    });
    expect(seen).toEqual([[], [5], [1, 4], [4]]);
  });

  it("[ST1][ST4] the heads of any tree come in order of storing, each with its parent", async () => {
    await inDatabase((storage) => {
      fc.assert(
        fc.property(trees, (parents) => {
          const heads = [...grow(storage, parents).heads()];
          expect(heads.map(({ seq, parent }) => [seq, parent])).toEqual(
            parents.map((parent, index) => [index + 1, parent]),
          );
        }),
        { numRuns: 25 },
      );
    });
  });
});

describe("booked calls", () => {
  it("[US1] are paged newest first, and entries without a call are passed over", async () => {
    const seen = await inStore((store) => {
      for (let index = 1; index <= 6; index += 1) {
        store.insert(
          newEntry({ messageId: `m${index}`, ...(index % 2 === 0 && { call: call({ durationMs: index }) }) }),
        );
      }
      const page = (before: Seq, limit: number) => store.usage(before, limit).map(({ seq }) => seq);
      return { first: page(Number.MAX_SAFE_INTEGER, 2), rest: page(4, 2), none: page(2, 2), whole: store.usage(3, 9) };
    });
    expect(seen).toEqual({
      first: [6, 4],
      rest: [2],
      none: [],
      whole: [{ ...call({ durationMs: 2 }), seq: 2, messageId: "m2", step: 0 }],
    });
  });
});

describe("restoring", () => {
  it("[ST7] every entry of any tree comes back as it was, with its sequence and its gaps", async () => {
    const seen = await inDatabase((storage) => {
      const store = grow(storage, [null, 1, 1, 3, 2]);
      store.insert(newEntry({ parent: 5, messageId: "long", parts: [{ type: "text", text: "長".repeat(700_000) }] }));
      const entries = [...store.entries()].filter(({ seq }) => seq !== 4);
      clear(storage);
      const other = openStore(storage);
      for (const entry of entries) other.restore(entry);
      return { same: equal(entries, [...other.entries()]), next: other.insert(newEntry({ messageId: "next" })).seq };
    });
    expect(seen).toEqual({ same: true, next: 7 });
  });
});

/** For each entry in order, the parent it is stored with: an earlier one, or none. */
const trees = fc
  .array(fc.option(fc.nat(), { freq: 12 }), { minLength: 1, maxLength: 120 })
  .map((picks) => picks.map((pick, index): Seq | null => (pick === null || index === 0 ? null : (pick % index) + 1)));

function grow(storage: DurableObjectStorage, parents: readonly (Seq | null)[]): SessionStore {
  clear(storage);
  const store = openStore(storage);
  parents.forEach((parent, index) => store.insert(newEntry({ parent, messageId: `m${index + 1}` })));
  return store;
}

function chainFrom(leaf: Seq, parents: readonly (Seq | null)[]): Seq[] {
  const chain: Seq[] = [];
  for (let seq: Seq | null = leaf; seq !== null; seq = parents[seq - 1] ?? null) chain.push(seq);
  return chain;
}

function thrownBy(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error;
  }
  return undefined;
}

/** A comparison that does not print megabytes when it fails. */
function equal(a: readonly (Entry | NewEntry)[], b: readonly (Entry | NewEntry)[]): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
