/**
 * Every statement a session makes, behind a synchronous interface.
 *
 * The store keeps its one session row in memory, so reading it is free; entries are read from SQLite each time.
 * Nothing here decides anything: callers say what to store, and group writes that belong together in `transaction`.
 */
import type {
  Entry,
  EntryHead,
  NewEntry,
  QueuedTurn,
  Seq,
  SessionRecord,
  TurnRequest,
  UsageRecord,
} from "../records.ts";
import {
  ALL_COLUMNS,
  contentOf,
  HEAD_COLUMNS,
  json,
  toEntry,
  toHead,
  type EntryRow,
  type FullEntryRow,
} from "./entry-row.ts";
import { CompactionTable } from "./compaction-table.ts";
import { migrationsFrom, SCHEMA_VERSION } from "./schema.ts";
import { insertSession, readSession, updateSession } from "./session-row.ts";
import { Statements, type SqlBackend } from "./statements.ts";
import { TurnQueue } from "./turn-queue.ts";

/** A transaction ends when its function returns, so a promise from it would be committed too early. */
type Synchronous<T> = T extends PromiseLike<unknown> ? never : T;

/** Rows a walk along a branch asks for at once: few at first, since many walks end soon, then twice as many each time. */
const FIRST_WALK_BATCH = 4;
const WALK_BATCH = 16;

/** Entries a read in order of storing asks for at once. */
const READ_BATCH = 64;

/** Heads a scan asks for at once. */
const SCAN_BATCH = 1_000;

export class SessionStore {
  /** every compaction, and which are in force */
  readonly compactions: CompactionTable;
  readonly #backend: SqlBackend;
  readonly #sql: Statements;
  readonly #queue: TurnQueue;
  #record: SessionRecord | undefined;

  constructor(backend: SqlBackend) {
    this.#backend = backend;
    this.#sql = new Statements(backend);
    this.#queue = new TurnQueue(this.#sql);
    this.compactions = new CompactionTable(this.#sql);
  }

  /** Creates or migrates the tables. Call once before anything else; `now` is ms since the epoch. */
  open(now: number): void {
    const version = this.#schemaVersion();
    if (version === SCHEMA_VERSION) return;
    this.transaction(() => {
      for (const statement of migrationsFrom(version)) this.#sql.run(statement);
      if (version === 0) insertSession(this.#sql, now, SCHEMA_VERSION);
      this.#sql.run("UPDATE tidemark_session SET schema_version = ?", SCHEMA_VERSION);
    });
  }

  /** All or nothing. What was remembered of the session is forgotten when `work` throws, because it may be wrong. */
  transaction<T>(work: () => Synchronous<T>): T {
    try {
      return this.#backend.transactionSync(work as () => T);
    } catch (error) {
      this.#record = undefined;
      this.#queue.forget();
      throw error;
    }
  }

  /** Bytes of the whole database, the base class's tables included. */
  get databaseBytes(): number {
    return this.#backend.sql.databaseSize;
  }

  get session(): Readonly<SessionRecord> {
    this.#record ??= readSession(this.#sql);
    return this.#record;
  }

  /** Writes one row. */
  saveSession(changes: Partial<SessionRecord>): void {
    const next = { ...this.session, ...changes };
    updateSession(this.#sql, next);
    this.#record = next;
  }

  /** Stores an entry at the end and returns it with its sequence. Two rows at step 0, one at later steps. */
  insert(entry: NewEntry): Entry {
    return this.#insert(null, entry);
  }

  /** Stores an entry that brings its sequence, from an archive. */
  restore(entry: Entry): void {
    this.#insert(entry.seq, entry);
  }

  #insert(given: Seq | null, entry: NewEntry): Entry {
    const { parts, metadata, pieces } = contentOf(entry);
    this.#sql.run(
      `INSERT INTO tidemark_entry (seq, parent, message_id, version, step, role, state, units_before, units_said,
         units_returned, created_at, metadata, call, anchor, parts, pieces)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      given,
      entry.parent,
      entry.messageId,
      entry.version,
      entry.step,
      entry.role,
      entry.state,
      entry.unitsBefore,
      entry.unitsSaid,
      entry.unitsReturned,
      entry.createdAt,
      metadata,
      json(entry.call),
      json(entry.anchor),
      parts,
      pieces.length,
    );
    // RETURNING would count as a row read, this does not
    const { seq } = this.#sql.one<{ seq: number }>("SELECT last_insert_rowid() AS seq");
    this.#insertPieces(seq, pieces);
    return { ...entry, seq };
  }

  /** Rewrites what may change of an entry: state, parts, metadata, call, and the units of what was said in it. */
  update(entry: Entry): void {
    const { parts, metadata, pieces } = contentOf(entry);
    const { pieces: before } = this.#sql.one<{ pieces: number }>(
      "SELECT pieces FROM tidemark_entry WHERE seq = ?",
      entry.seq,
    );
    if (before > 0) this.#sql.run("DELETE FROM tidemark_piece WHERE seq = ?", entry.seq);
    this.#sql.run(
      `UPDATE tidemark_entry SET state = ?, units_said = ?, units_returned = ?, metadata = ?, call = ?, anchor = ?, parts = ?,
         pieces = ? WHERE seq = ?`,
      entry.state,
      entry.unitsSaid,
      entry.unitsReturned,
      metadata,
      json(entry.call),
      json(entry.anchor),
      parts,
      pieces.length,
      entry.seq,
    );
    this.#insertPieces(entry.seq, pieces);
  }

  entry(seq: Seq): Entry | undefined {
    const row = this.#sql.first<FullEntryRow>(`SELECT ${ALL_COLUMNS} FROM tidemark_entry WHERE seq = ?`, seq);
    return row && this.#entryOf(row);
  }

  /** The newest sequence; 0 while nothing is stored. */
  get lastSeq(): Seq {
    return this.#sql.one<{ last: number }>("SELECT COALESCE(MAX(seq), 0) AS last FROM tidemark_entry").last;
  }

  /** The first entry of every version of a message, oldest version first. */
  versions(messageId: string): EntryHead[] {
    return this.#sql
      .all<EntryRow>(
        `SELECT ${HEAD_COLUMNS} FROM tidemark_entry WHERE message_id = ? AND step = 0 ORDER BY version`,
        messageId,
      )
      .map(toHead);
  }

  /** Every entry of a message, all versions and steps, in order of storing. Scans: later steps have no index. */
  entriesOf(messageId: string): Entry[] {
    return this.#sql
      .all<FullEntryRow>(`SELECT ${ALL_COLUMNS} FROM tidemark_entry WHERE message_id = ? ORDER BY seq`, messageId)
      .map((row) => this.#entryOf(row));
  }

  /**
   * Entries from `from` towards the root, newest first. Stop iterating to stop reading.
   * Rows are read in batches by sequence; those of other branches in between are read and passed over.
   */
  *walk(from: Seq | null): Generator<Entry> {
    for (const row of this.#walkRows<FullEntryRow>(from, ALL_COLUMNS)) yield this.#entryOf(row);
  }

  /**
   * One stretch of a walk: entries among the `limit` rows from `from` down that are on its chain and above `above`, newest
   * first, and where the chain goes on.
   */
  stretch(from: Seq, limit: number, above: Seq): { entries: Entry[]; next: Seq | null } {
    const { rows, next } = this.#chainRows<FullEntryRow>(from, ALL_COLUMNS, limit, above);
    return { entries: rows.map((row) => this.#entryOf(row)), next };
  }

  /** Sequences of a chain behind `after` (`null` for its root) up to `until`, oldest first. */
  chain(after: Seq | null, until: Seq): Seq[] {
    const seqs: Seq[] = [];
    for (const { seq } of this.walkHeads(until)) {
      if (after !== null && seq <= after) break;
      seqs.push(seq);
    }
    return seqs.reverse();
  }

  /** Entries by ascending sequences. Stop iterating to stop reading; rows of other branches in between are passed over. */
  *entriesAt(seqs: readonly Seq[]): Generator<Entry> {
    const [first = 0] = seqs;
    let index = 0;
    for (const entry of this.entries(first - 1)) {
      if (index === seqs.length) return;
      if (entry.seq !== seqs[index]) continue;
      index += 1;
      yield entry;
    }
  }

  /** As `walk`, without content. */
  *walkHeads(from: Seq | null): Generator<EntryHead> {
    for (const row of this.#walkRows<EntryRow>(from, HEAD_COLUMNS)) yield toHead(row);
  }

  /** All entries in order of storing, from `after` on. */
  *entries(after: Seq = 0): Generator<Entry> {
    for (let last = after; ;) {
      const rows = this.#sql.all<FullEntryRow>(
        `SELECT ${ALL_COLUMNS} FROM tidemark_entry WHERE seq > ? ORDER BY seq LIMIT ?`,
        last,
        READ_BATCH,
      );
      for (const row of rows) yield this.#entryOf(row);
      const newest = rows.at(-1);
      if (!newest) return;
      last = newest.seq;
    }
  }

  /** All entries without content, in order of storing. Scans. */
  *heads(): Generator<EntryHead> {
    for (let last = 0; ;) {
      const rows = this.#sql.all<EntryRow>(
        `SELECT ${HEAD_COLUMNS} FROM tidemark_entry WHERE seq > ? ORDER BY seq LIMIT ?`,
        last,
        SCAN_BATCH,
      );
      for (const row of rows) yield toHead(row);
      const newest = rows.at(-1);
      if (!newest) return;
      last = newest.seq;
    }
  }

  /** The newest anchor of any branch. */
  newestAnchor(): object | undefined {
    const { measured } = this.session;
    if (measured === null) return undefined;
    const row = this.#sql.first<{ anchor: string | null }>("SELECT anchor FROM tidemark_entry WHERE seq = ?", measured);
    return row?.anchor ? (JSON.parse(row.anchor) as object) : undefined;
  }

  /** Booked calls before `before`, newest first. */
  usage(before: Seq, limit: number): UsageRecord[] {
    return this.#sql
      .all<{ seq: number; message_id: string; step: number; call: string }>(
        `SELECT seq, message_id, step, call FROM tidemark_entry WHERE seq < ? AND call IS NOT NULL
       ORDER BY seq DESC LIMIT ?`,
        before,
        limit,
      )
      .map((row) => ({ ...JSON.parse(row.call), seq: row.seq, messageId: row.message_id, step: row.step }));
  }

  enqueue(request: TurnRequest): QueuedTurn {
    return this.#queue.add(request);
  }

  /** Waiting turns in order. */
  queue(): readonly QueuedTurn[] {
    return this.#queue.turns;
  }

  /** UTF-16 code units of everything that waits. */
  get queueSize(): number {
    return this.#queue.size;
  }

  dequeue(position: number): void {
    this.#queue.remove(position);
  }

  *#walkRows<Row extends EntryRow>(from: Seq | null, columns: string): Generator<Row> {
    let wanted = from;
    let batch = FIRST_WALK_BATCH;
    while (wanted !== null) {
      const { rows, next } = this.#chainRows<Row>(wanted, columns, batch, 0);
      if (rows.length === 0) return;
      yield* rows;
      wanted = next;
      batch = Math.min(batch * 2, WALK_BATCH);
    }
  }

  #chainRows<Row extends EntryRow>(
    from: Seq,
    columns: string,
    limit: number,
    above: Seq,
  ): { rows: Row[]; next: Seq | null } {
    let next: Seq | null = from;
    const read: Row[] = this.#sql.all<Row>(
      `SELECT ${columns} FROM tidemark_entry WHERE seq <= ? AND seq > ? ORDER BY seq DESC LIMIT ?`,
      from,
      above,
      limit,
    );
    if (read[0]?.seq !== from) return { rows: [], next: null };
    const rows = read.filter((row) => {
      const isOnChain: boolean = row.seq === next;
      if (isOnChain) next = row.parent;
      return isOnChain;
    });
    return { rows, next };
  }

  #entryOf(row: FullEntryRow): Entry {
    return toEntry(row, row.pieces > 0 ? this.#joinPieces(row.seq) : "");
  }

  #insertPieces(seq: Seq, pieces: string[]): void {
    pieces.forEach((body, n) =>
      this.#sql.run("INSERT INTO tidemark_piece (seq, n, body) VALUES (?, ?, ?)", seq, n, body),
    );
  }

  #joinPieces(seq: Seq): string {
    return this.#sql
      .all<{ body: string }>("SELECT body FROM tidemark_piece WHERE seq = ? ORDER BY n", seq)
      .map((row) => row.body)
      .join("");
  }

  #schemaVersion(): number {
    try {
      return this.#sql.one<{ schema_version: number }>("SELECT schema_version FROM tidemark_session").schema_version;
    } catch (error) {
      // Asked only now: a wake would read a row for each table and index that the base class has.
      if (this.#sql.first("SELECT 1 FROM sqlite_master WHERE name = 'tidemark_session'")) throw error;
      return 0;
    }
  }
}
