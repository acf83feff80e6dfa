import { describe, expect, it } from "vitest";
import type { CompactionEntry, Overlay, Seq } from "../../src/records.ts";
import type { CompactionTable } from "../../src/storage/compaction-table.ts";
import { migrationsFrom, SCHEMA_VERSION } from "../../src/storage/schema.ts";
import {
  appliedEntry,
  asJson,
  call,
  compactionEntry,
  newEntry,
  NOON,
  openTurn,
  overlay,
  usage,
} from "../turn/entries.ts";
import { inDatabase, inStore, openStore } from "./database.ts";

const covering = (id: number, until: Seq, more: Partial<Overlay> = {}): Overlay =>
  overlay({ id, until, summary: `up to ${until}`, ...more });

const bill = call({ purpose: "summary", usage: { ...usage(900, 80), raw: { input_tokens: 900 } }, calls: 3 });

/** Every field with a value of its own. */
const WHOLE: CompactionEntry = {
  id: 1,
  outcome: "applied",
  reason: "because 简短",
  trigger: "between-steps",
  tokensBefore: 12_000,
  tokensAfter: 4_000,
  reportedAfter: 4_100,
  coveredMessages: 12,
  summaryUsage: bill.usage ?? null,
  model: "mirror",
  durationMs: 1_234,
  createdAt: NOON + 5,
  summary: "## Goal\n“ü” 概要",
  undone: false,
  at: 17,
  threshold: 8_000,
  sessionModel: "anthropic/claude-sonnet-4-5",
  progress: true,
  call: bill,
  overlay: {
    id: 1,
    until: 12,
    head: [1, 2],
    pinned: 11,
    summary: "## Goal\n“ü” 概要",
    rangeTokens: 9_000.25,
    pinnedTokens: 12.5,
    summaryTokens: 512.125,
    pruning: { until: 14, shortened: [{ seq: 15, toolCallId: "c", length: 2_000 }], tokens: 33.5 },
  },
};

/** What `work` sees of a table with these compactions. */
const inTable = <T>(entries: readonly CompactionEntry[], work: (table: CompactionTable) => T): Promise<T> =>
  inStore(({ compactions }) => {
    for (const entry of entries) compactions.insert(entry);
    return work(compactions);
  });

describe("a compaction", () => {
  it("[ST7] reads back every field through another store on the same storage", async () => {
    const seen = await inStore((store, storage) => {
      store.compactions.insert(WHOLE);
      return openStore(storage).compactions.get(1);
    });
    expect(seen).toEqual(WHOLE);
  });

  it("[ST7] that brought nothing reads back as it was, without a call and an overlay", async () => {
    const seen = await inTable([compactionEntry(1, { threshold: null })], (table) => table.get(1));
    expect(seen).toEqual(compactionEntry(1, { threshold: null }));
    expect(Object.keys(seen ?? {})).not.toEqual(expect.arrayContaining(["overlay", "call"]));
  });

  it("[ST7] is told apart by whether it made progress, made none or was not judged yet", async () => {
    const progress = [true, false, null];
    const seen = await inTable(
      progress.map((each, index) => compactionEntry(index + 1, { progress: each })),
      (table) => table.all().map((entry) => entry.progress),
    );
    expect(seen).toEqual(progress);
  });

  it("[ST1] gets the next id in order, and its id only once", async () => {
    const seen = await inTable([], (table) => {
      const ids = [table.nextId];
      table.insert(compactionEntry(1));
      ids.push(table.nextId);
      table.insert(compactionEntry(2, { createdAt: NOON - 9 }));
      ids.push(table.nextId);
      return { ids, again: thrownBy(() => table.insert(compactionEntry(2))), unknown: table.get(3) };
    });
    expect(seen).toMatchObject({ ids: [1, 2, 3], again: expect.any(Error), unknown: undefined });
  });

  it("[CM16] is forgotten with the transaction that stored it", async () => {
    const seen = await inStore((store) => {
      thrownBy(() =>
        store.transaction(() => {
          store.compactions.insert(WHOLE);
          store.saveSession({ overlay: 1, compactions: 1 });
          throw new Error("no");
        }),
      );
      return [store.compactions.get(1), store.session.overlay, store.session.compactions];
    });
    expect(seen).toEqual([undefined, null, 0]);
  });
});

describe("the list of compactions", () => {
  const five = [1, 2, 3, 4, 5].map((id) => compactionEntry(id, { createdAt: NOON - id }));

  it("[CM29] is paged newest first, whatever the clock says", async () => {
    const seen = await inTable(five, (table) =>
      (
        [
          [Number.MAX_SAFE_INTEGER, 2],
          [4, 2],
          [2, 2],
          [1, 2],
        ] as const
      ).map(([before, limit]) => table.list(before, limit).map(({ id }) => id)),
    );
    expect(seen).toEqual([[5, 4], [3, 2], [1], []]);
  });

  it("[CM29] has all of them, oldest first", async () => {
    expect(await inTable(five, (table) => table.all())).toEqual(five);
  });
});

describe("the calls of compactions", () => {
  it("[CM30] are listed newest first with the place they were booked at, and those without a call are passed over", async () => {
    const entries = [
      compactionEntry(1, { call: bill, at: 3 }),
      compactionEntry(2, { at: 5 }),
      compactionEntry(3, { outcome: "failed", call: call({ purpose: "summary", finishReason: "error" }), at: 5 }),
      compactionEntry(4, { call: bill, at: 9 }),
    ];
    const seen = await inTable(entries, (table) => [table.calls(Number.MAX_SAFE_INTEGER, 2), table.calls(3, 9)]);
    expect(seen).toEqual([
      [
        { ...bill, seq: 9, compaction: 4 },
        { ...call({ purpose: "summary", finishReason: "error" }), seq: 5, compaction: 3 },
      ],
      [{ ...bill, seq: 3, compaction: 1 }],
    ]);
  });
});

describe("overlays", () => {
  it("[CM14] come in the order of how far they reach, of equal ones the newest first", async () => {
    const entries = [
      appliedEntry(covering(1, 4)),
      compactionEntry(2),
      appliedEntry(covering(3, 9)),
      appliedEntry(covering(4, 4)),
      appliedEntry(overlay({ id: 5, pruning: { until: 6, shortened: [], tokens: 1 } })),
      appliedEntry(
        covering(6, 2, { pruning: { until: 3, shortened: [{ seq: 8, toolCallId: "c", length: 5 }], tokens: 1 } }),
      ),
    ];
    expect(await inTable(entries, (table) => table.overlays())).toEqual([
      { id: 3, reach: 9 },
      { id: 6, reach: 8 },
      { id: 5, reach: 6 },
      { id: 4, reach: 4 },
      { id: 1, reach: 4 },
    ]);
  });

  it("[CM29] that were taken back are not among them, and stay in the list", async () => {
    const seen = await inTable([appliedEntry(covering(1, 4)), appliedEntry(covering(2, 5))], (table) => {
      table.setUndone(2);
      return [table.overlays(), table.all().map(({ id, undone, summary }) => [id, undone, summary])];
    });
    expect(seen).toEqual([
      [{ id: 1, reach: 4 }],
      [
        [1, false, "up to 4"],
        [2, true, "up to 5"],
      ],
    ]);
  });
});

describe("what the first report says", () => {
  it.each([true, false, null])("[CM8] is kept with its verdict, and changes nothing else: %s", async (progress) => {
    const before = { ...WHOLE, reportedAfter: null, progress: null };
    const seen = await inStore((store, storage) => {
      store.compactions.insert(before);
      store.compactions.insert({ ...before, id: 2 });
      store.compactions.setReportedAfter(1, 777, progress);
      return openStore(storage).compactions.all();
    });
    const named = (id: number) => ({ ...before, id, overlay: { ...before.overlay!, id: 1 } });
    expect(seen).toEqual([{ ...before, reportedAfter: 777, progress }, named(2)]);
  });
});

describe("forgetting from an entry on", () => {
  const pruning = { until: 9, shortened: [], tokens: 1 };
  const entries = [
    appliedEntry(covering(1, 3)),
    appliedEntry(overlay({ id: 2, pruning })),
    appliedEntry(covering(3, 5)),
    compactionEntry(4),
    appliedEntry(covering(5, 7, { pruning })),
    appliedEntry(covering(6, 8)),
  ];

  it.each<[Seq, number[]]>([
    [10, []],
    [9, [2, 5]],
    [8, [2, 5, 6]],
    [6, [2, 5, 6]],
    [5, [2, 3, 5, 6]],
    [4, [2, 3, 5, 6]],
    [3, [1, 2, 3, 5, 6]],
    [1, [1, 2, 3, 5, 6]],
  ])("[CM32] %s takes back the overlays that speak of it, and erases their summaries: %j", async (seq, back) => {
    const seen = await inTable(entries, (table) => {
      table.forgetFrom(seq);
      return table.all();
    });
    expect(seen.filter(({ undone }) => undone).map(({ id }) => id)).toEqual(back);
    expect(seen.filter(({ summary }) => summary !== null).map(({ id }) => id)).toEqual(
      [1, 3, 5, 6].filter((id) => !back.includes(id)),
    );
  });

  it("[CM32] erases the summary of one that was taken back already", async () => {
    const seen = await inTable([appliedEntry(covering(1, 3))], (table) => {
      table.setUndone(1);
      table.forgetFrom(2);
      return table.get(1)?.summary;
    });
    expect(seen).toBeNull();
  });

  it("[CM32] leaves no word of the summary in the database", async () => {
    const seen = await inStore((store, storage) => {
      store.compactions.insert(appliedEntry(covering(1, 3, { summary: "the secret word" })));
      store.compactions.forgetFrom(2);
      return JSON.stringify(storage.sql.exec("SELECT * FROM tidemark_compaction").toArray());
    });
    expect(seen).not.toContain("secret");
  });
});

describe("a database of version 1", () => {
  /** The statements that made the first version, which nobody may edit any more. */
  const first = migrationsFrom(0).slice(0, migrationsFrom(0).length - migrationsFrom(1).length);
  const turn = openTurn({ parent: 2, leafIfSilent: 2 });

  function build(storage: DurableObjectStorage): void {
    const run = (statement: string, ...values: SqlStorageValue[]) => storage.sql.exec(statement, ...values);
    for (const statement of first) run(statement);
    run(
      `INSERT INTO tidemark_session (id, created_at, active_at, leaf, messages, erased, measured, settings, turn, finished,
         totals, schema_version) VALUES (1, ?, ?, 2, 2, 1, 2, ?, ?, ?, ?, 1)`,
      NOON - 5,
      NOON,
      JSON.stringify({ compactAfter: "80%" }),
      JSON.stringify(turn),
      JSON.stringify([{ requestId: "r", messageId: "a" }]),
      JSON.stringify(TOTALS),
    );
    for (const seq of [1, 2]) {
      run(
        `INSERT INTO tidemark_entry (seq, parent, message_id, version, step, role, state, units_before, units_said,
           units_returned, created_at, metadata, call, anchor, parts, pieces)
         VALUES (?, ?, ?, 0, 0, 'user', 'done', 1.5, 2.5, 0.25, ?, '{"a":1}', ?, '{"at":4}', ?, ?)`,
        seq,
        seq - 1 || null,
        `m${seq}`,
        NOON,
        JSON.stringify(call()),
        seq === 1 ? JSON.stringify(newEntry().parts) : "",
        seq === 1 ? 0 : 2,
      );
    }
    run(
      `INSERT INTO tidemark_piece (seq, n, body) VALUES (2, 0, '{"parts":[{"type":"te'), (2, 1, 'xt","text":"long"}]}')`,
    );
    run(
      `INSERT INTO tidemark_queue (position, n, body) VALUES (4, 0, ?)`,
      JSON.stringify({ position: 4, request: WAITING }),
    );
  }

  const TOTALS = {
    calls: 2,
    inputTokens: 10,
    outputTokens: 5,
    reasoningTokens: 1,
    cacheReadTokens: 2,
    cacheWriteTokens: 3,
  };
  const WAITING = { requestId: "q", trigger: "submit", messages: [] };

  /** Every row of a table, as it lies there. */
  const rows = (storage: DurableObjectStorage, table: string) =>
    storage.sql.exec(`SELECT * FROM ${table} ORDER BY 1, 2`).toArray();

  it("[ST5] is brought to version 2 and keeps every row as it was", async () => {
    const seen = await inDatabase((storage) => {
      build(storage);
      const tables = ["tidemark_entry", "tidemark_piece", "tidemark_queue"];
      const before = [...tables.map((table) => rows(storage, table)), rows(storage, "tidemark_session")];
      openStore(storage).open(NOON + 9);
      return { before, after: [...tables.map((table) => rows(storage, table)), rows(storage, "tidemark_session")] };
    });
    expect(SCHEMA_VERSION).toBe(2);
    const [session] = seen.before[3] ?? [];
    expect(seen.after.slice(0, 3)).toEqual(seen.before.slice(0, 3));
    expect(seen.after[3]).toEqual([{ ...session, schema_version: 2, overlay: null, compactions: 0 }]);
  });

  it("[ST5] is read as it was written, and compacts from then on", async () => {
    const seen = await inDatabase((storage) => {
      build(storage);
      const store = openStore(storage);
      const { session } = store;
      const entries = [...store.entries()].map(({ seq, messageId, parts }) => [seq, messageId, parts]);
      const queue = store.queue();
      store.compactions.insert(WHOLE);
      store.saveSession({ overlay: 1, compactions: 1 });
      const again = openStore(storage);
      return { session, entries, queue, after: [again.session, again.compactions.all()] };
    });
    const session = {
      createdAt: NOON - 5,
      activeAt: NOON,
      leaf: 2,
      messages: 2,
      erased: 1,
      measured: 2,
      overlay: null,
      compactions: 0,
      settings: { compactAfter: "80%" },
      turn,
      finished: [{ requestId: "r", messageId: "a" }],
      totals: TOTALS,
    };
    expect(asJson(seen)).toEqual({
      session,
      entries: [
        [1, "m1", newEntry().parts],
        [2, "m2", [{ type: "text", text: "long" }]],
      ],
      queue: [{ position: 4, request: WAITING }],
      after: [{ ...session, overlay: 1, compactions: 1 }, [asJson(WHOLE)]],
    });
  });

  it("[ST5] stays as it was when the migration fails, and is brought up when tried again", async () => {
    const seen = await inDatabase((storage) => {
      build(storage);
      const before = rows(storage, "tidemark_session");
      storage.sql.exec("CREATE TABLE tidemark_compaction (id INTEGER)");
      const failure = thrownBy(() => openStore(storage));
      const after = rows(storage, "tidemark_session");
      storage.sql.exec("DROP TABLE tidemark_compaction");
      return { failure, before, after, overlay: openStore(storage).session.overlay };
    });
    expect(seen).toMatchObject({ failure: expect.any(Error), overlay: null });
    expect(seen.after).toEqual(seen.before);
  });

  it("[ST5] has the same tables as a session that was made anew", async () => {
    const tables = (storage: DurableObjectStorage) =>
      ["tidemark_session", "tidemark_entry", "tidemark_piece", "tidemark_queue", "tidemark_compaction"].map((table) =>
        storage.sql
          .exec(`PRAGMA table_info(${table})`)
          .toArray()
          .map(({ name, type, notnull, pk }) => [name, type, notnull, pk].join(" "))
          .toSorted(),
      );
    const migrated = await inDatabase((storage) => {
      build(storage);
      openStore(storage);
      return tables(storage);
    });
    expect(migrated).toEqual(await inStore((_store, storage) => tables(storage)));
  });
});

function thrownBy(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error;
  }
  return undefined;
}
