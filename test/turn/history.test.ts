import type { UIMessage } from "ai";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { NewEntry, Seq } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import { History } from "../../src/turn/history.ts";
import { messagesOf } from "../../src/turn/transcript.ts";
import { clear, inDatabase, inStore, openStore } from "../storage/database.ts";
import { call, compactionEntry, newEntry, NOON, text, usage } from "./entries.ts";

const START = { type: "step-start" as const };

const asked = (messageId: string, parent: Seq | null, overrides: Partial<NewEntry> = {}) =>
  newEntry({ messageId, parent, parts: [{ type: "text", text: `${messageId}?` }], ...overrides });

const said = (messageId: string, parent: Seq, overrides: Partial<NewEntry> = {}) =>
  newEntry({ messageId, parent, role: "assistant", parts: [START, text(`${messageId}!`)], call: call(), ...overrides });

/**
 * q1 → a1 (two steps) → q2 → a2, with two side branches: q2 in another version without an answer, and b1 beside a1.
 * The active branch ends at a2.
 */
function talk(store: SessionStore): void {
  const entries = [
    asked("q1", null),
    said("a1", 1),
    said("a1", 2, { step: 1 }),
    asked("q2", 3),
    said("a2", 4),
    asked("q2", 3, { version: 1, createdAt: NOON + 6 }),
    said("b1", 1, { createdAt: NOON + 7 }),
  ];
  for (const entry of entries) store.insert(entry);
  store.saveSession({ leaf: 5, messages: 6 });
}

const withTalk = <T>(work: (history: History, store: SessionStore) => T): Promise<T> =>
  inStore((store) => {
    talk(store);
    return work(new History(store), store);
  });

function refusedWith(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error instanceof Error && "code" in error ? error.code : error;
  }
  return "done";
}

describe("messages", () => {
  it("[HT5] are paged in order of time, whole messages at a time, and the last page says so", async () => {
    const seen = await withTalk((history) => {
      const first = history.messages(undefined, 2);
      const second = history.messages(first.cursor ?? "", 2);
      return [first, second].map(({ messages, cursor }) => [
        messages.map(({ id, parts }) => `${id}:${parts.length}`),
        cursor,
      ]);
    });
    expect(seen).toEqual([
      [["q2:1", "a2:2"], "3"],
      [["q1:1", "a1:4"], null],
    ]);
  });

  it("[HT5] pages of any size join to the branch, deleted messages left out", async () => {
    const tree = fc.array(fc.record({ back: fc.nat(3), steps: fc.integer({ min: 1, max: 3 }), gone: fc.boolean() }), {
      maxLength: 20,
    });
    await inDatabase((storage) => {
      fc.assert(
        fc.property(tree, fc.integer({ min: 1, max: 4 }), (shape, limit) => {
          clear(storage);
          const store = openStore(storage);
          const leaves: Seq[] = [];
          for (const [index, { back, steps, gone }] of shape.entries()) {
            let parent = leaves.at(-1 - back) ?? null;
            const state = gone ? ("deleted" as const) : ("done" as const);
            for (let step = 0; step < steps; step += 1) {
              parent = store.insert(said(`m${index}`, parent ?? 1, { parent, step, state })).seq;
            }
            if (parent !== null) leaves.push(parent);
          }
          store.saveSession({ leaf: leaves.at(-1) ?? null });
          expect(allPages(new History(store), limit)).toEqual(
            messagesOf([...store.walk(store.session.leaf)].toReversed()),
          );
        }),
        { numRuns: 40 },
      );
    });
  });

  it("[HT5] of an empty session are none, and what is no cursor is refused", async () => {
    const seen = await inStore((store) => {
      const history = new History(store);
      return [
        history.messages(undefined, 5),
        ...["0", "-1", "1.5", "x", "", "9007199254740993"].map((cursor) =>
          refusedWith(() => history.messages(cursor, 5)),
        ),
        refusedWith(() => history.usage("x", 5)),
      ];
    });
    expect(seen).toEqual([{ messages: [], cursor: null }, ...Array<string>(7).fill("bad-request")]);
  });
});

describe("usage", () => {
  it("[HT11] pages the booked calls of all branches newest first, with the totals", async () => {
    const seen = await withTalk((history, store) => {
      store.saveSession({ totals: { ...store.session.totals, calls: 4 } });
      const first = history.usage(undefined, 3);
      const second = history.usage(first.cursor ?? "", 3);
      return [first, second].map(({ records, totals, cursor }) => [
        records.map(({ seq, messageId, step }) => [seq, messageId, step]),
        totals.calls,
        cursor,
      ]);
    });
    expect(seen).toEqual([
      [
        [
          [7, "b1", 0],
          [5, "a2", 0],
          [3, "a1", 1],
        ],
        4,
        "3",
      ],
      [[[2, "a1", 0]], 4, null],
    ]);
  });
});

describe("usage with summaries", () => {
  it("[HT11][CM30] pages of any size join to every booked call, newest first, each once", async () => {
    const booked = fc.array(fc.record({ isSummary: fc.boolean(), isCalled: fc.boolean() }), { maxLength: 20 });
    await inDatabase((storage) => {
      fc.assert(
        fc.property(booked, fc.integer({ min: 1, max: 5 }), (shape, limit) => {
          clear(storage);
          const store = openStore(storage);
          const names: string[] = [];
          for (const { isSummary, isCalled } of shape) {
            const billed = isCalled && { call: call({ purpose: isSummary ? "summary" : "turn" }) };
            const id = store.compactions.nextId;
            if (isSummary) store.compactions.insert(compactionEntry(id, { at: store.lastSeq, ...billed }));
            const seq = isSummary ? 0 : store.insert(newEntry({ messageId: `m${store.lastSeq}`, ...billed })).seq;
            if (isCalled) names.unshift(isSummary ? `compaction ${id}` : `entry ${seq}`);
          }
          const history = new History(store);
          const joined: string[] = [];
          let cursor: string | null | undefined;
          while (cursor !== null) {
            const page = history.usage(cursor, limit);
            expect(page.records.length).toBeLessThanOrEqual(limit);
            joined.push(
              ...page.records.map(({ compaction, seq }) => (compaction ? `compaction ${compaction}` : `entry ${seq}`)),
            );
            cursor = page.cursor;
          }
          expect(joined).toEqual(names);
        }),
        { numRuns: 60 },
      );
    });
  });

  it("[CM29] compactions are paged newest first, as clients see them", async () => {
    const seen = await inStore((store) => {
      for (const id of [1, 2, 3]) store.compactions.insert(compactionEntry(id, { reason: `R${id}` }));
      const history = new History(store);
      const first = history.compactions(undefined, 2);
      const second = history.compactions(first.cursor ?? "", 2);
      return [first, second].map(({ compactions, cursor }) => [
        compactions.map(({ id, reason }) => [id, reason]),
        cursor,
      ]);
    });
    expect(seen).toEqual([
      [
        [
          [3, "R3"],
          [2, "R2"],
        ],
        "2",
      ],
      [[[1, "R1"]], null],
    ]);
  });

  it("[HT11] what is no cursor is refused", async () => {
    const seen = await inStore((store) => {
      const history = new History(store);
      return ["x", "0", "3-x", "3-0", "1.5-2"].map((cursor) => refusedWith(() => history.usage(cursor, 5)));
    });
    expect(new Set(seen)).toEqual(new Set(["bad-request"]));
  });
});

describe("erasing", () => {
  it("[HT7] takes the content of every step, keeps the chain, the units and the calls", async () => {
    const seen = await inStore((store) => {
      talk(store);
      const long = { type: "text" as const, text: "水".repeat(700_000) };
      store.update({
        ...store.entry(2)!,
        parts: [START, long],
        metadata: { mood: "calm" },
        call: call({ usage: usage(3, 4) }),
      });
      const erased = new History(store).erase("a1");
      return {
        erased,
        messages: store.session.messages,
        left: [2, 3].map((seq) => store.entry(seq)),
        branch: [...store.walk(5)].map(({ seq }) => seq),
        shown: new History(store).messages(undefined, 9).messages.map(({ id }) => id),
        booked: store.usage(4, 9).map(({ usage: reported }) => reported?.inputTokens),
        database: JSON.stringify([...store.entries()]).includes("水"),
      };
    });
    const gone = { state: "deleted" as const, parts: [] };
    expect(seen).toEqual({
      erased: 1,
      messages: 5,
      left: [
        { ...said("a1", 1, { ...gone, call: call({ usage: JSON.parse(JSON.stringify(usage(3, 4))) }) }), seq: 2 },
        { ...said("a1", 2, { ...gone, step: 1 }), seq: 3 },
      ],
      branch: [5, 4, 3, 2, 1],
      shown: ["q1", "q2", "a2"],
      booked: [undefined, 3],
      database: false,
    });
  });

  it("[HT7] takes all versions of a message, once", async () => {
    const seen = await withTalk((history, store) => [
      history.erase("q2"),
      store.session.messages,
      [4, 6].map((seq) => store.entry(seq)?.state),
      refusedWith(() => history.erase("q2")),
      refusedWith(() => history.erase("nobody")),
      store.session.messages,
    ]);
    expect(seen).toEqual([2, 4, ["deleted", "deleted"], "unknown-message", "unknown-message", 4]);
  });
});

describe("branches", () => {
  it("[HT8] are listed newest first, each with what it shares with the active one", async () => {
    expect(await withTalk((history) => history.branches())).toEqual([
      { leaf: 7, active: false, messageId: "b1", sharedUntil: "q1", messages: 2, updatedAt: NOON + 7 },
      { leaf: 6, active: false, messageId: "q2", sharedUntil: "a1", messages: 3, updatedAt: NOON + 6 },
      { leaf: 5, active: true, messageId: "a2", sharedUntil: "a2", messages: 4, updatedAt: NOON },
    ]);
  });

  it("[HT8] are what a walk of each one says, for any tree and any active branch", async () => {
    const tree = fc.array(fc.record({ back: fc.nat(5), steps: fc.integer({ min: 1, max: 2 }), gone: fc.boolean() }), {
      minLength: 1,
      maxLength: 25,
    });
    await inDatabase((storage) => {
      fc.assert(
        fc.property(tree, fc.nat(), (shape, pick) => {
          clear(storage);
          const store = openStore(storage);
          const ends: Seq[] = [];
          for (const [index, { back, steps, gone }] of shape.entries()) {
            let parent = ends.at(-1 - back) ?? null;
            for (let step = 0; step < steps; step += 1) {
              const state = gone ? ("deleted" as const) : ("done" as const);
              parent = store.insert(asked(`m${index}`, parent, { step, state, createdAt: NOON + index })).seq;
            }
            if (parent !== null) ends.push(parent);
          }
          store.saveSession({ leaf: ends[pick % ends.length] ?? null });
          expect(new History(store).branches()).toEqual(walkedBranches(store));
        }),
        { numRuns: 60 },
      );
    });
  });

  it("[HT8] of a session that holds nothing are none", async () => {
    expect(await inStore((store) => new History(store).branches())).toEqual([]);
  });

  it.each<[string, Parameters<History["switchTo"]>[0], Seq]>([
    ["a leaf", { leaf: 7 }, 7],
    ["a step inside an answer, at the end of that answer", { leaf: 2 }, 3],
    ["the newest branch that holds a message", { messageId: "q1" }, 7],
    ["the newest version of a message", { messageId: "q2" }, 6],
    ["an earlier version of a message", { messageId: "q2", version: 0 }, 5],
  ])("[HT8] become active by %s", async (_name, target, leaf) => {
    const seen = await withTalk((history, store) => [history.switchTo(target), store.session.leaf]);
    expect(seen).toEqual([leaf, leaf]);
  });

  it.each<[Parameters<History["switchTo"]>[0], string]>([
    [{ leaf: 99 }, "unknown-branch"],
    [{ messageId: "nobody" }, "unknown-message"],
    [{ messageId: "q2", version: 7 }, "unknown-message"],
  ])("[HT8] that do not exist are refused and change nothing: %o", async (target, code) => {
    const seen = await withTalk((history, store) => [refusedWith(() => history.switchTo(target)), store.session.leaf]);
    expect(seen).toEqual([code, 5]);
  });
});

function allPages(history: History, limit: number): UIMessage[] {
  const all: UIMessage[] = [];
  for (let cursor: string | null | undefined = undefined; cursor !== null;) {
    const page = history.messages(cursor, limit);
    all.unshift(...page.messages);
    cursor = page.cursor;
  }
  return all;
}

/** The branches, each from a walk of its own. */
function walkedBranches(store: SessionStore): ReturnType<History["branches"]> {
  const { leaf: active } = store.session;
  const entries = [...store.entries()];
  const parents = new Set(entries.map(({ parent }) => parent));
  const shown = new Set(active === null ? [] : [...store.walk(active)].map(({ seq }) => seq));
  const leaves = entries.filter(({ seq }) => !parents.has(seq) || seq === active).toReversed();
  return leaves.map(({ seq, messageId, createdAt }) => {
    const walked = [...store.walk(seq)];
    return {
      leaf: seq,
      active: seq === active,
      messageId,
      sharedUntil: walked.find((entry) => shown.has(entry.seq))?.messageId ?? null,
      messages: new Set(walked.filter(({ state }) => state !== "deleted").map((entry) => entry.messageId)).size,
      updatedAt: createdAt,
    };
  });
}
