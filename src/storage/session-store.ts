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
  Role,
  EntryState,
  Seq,
  SessionRecord,
  TurnRequest,
  UsageRecord,
} from "../records.ts";
import { cutIntoPieces, INLINE_LENGTH } from "./pieces.ts";
import { migrationsFrom, SCHEMA_VERSION } from "./schema.ts";

/** What the store needs of `DurableObjectStorage`. */
export interface SqlBackend {
  sql: Pick<SqlStorage, "exec" | "databaseSize">;
  transactionSync<T>(work: () => T): T;
}

/** A transaction ends when its function returns, so a promise from it would be committed too early. */
type Synchronous<T> = T extends PromiseLike<unknown> ? never : T;

/** Rows a walk along a branch asks for at once: few at first, since many walks end soon, then twice as many each time. */
const FIRST_WALK_BATCH = 4;
const WALK_BATCH = 64;

interface EntryRow extends Record<string, SqlStorageValue> {
  seq: number;
  parent: number | null;
  message_id: string;
  version: number;
  step: number;
  role: string;
  state: string;
  units_before: number;
  units_said: number;
  units_returned: number;
  created_at: number;
}

interface FullEntryRow extends EntryRow {
  metadata: string | null;
  call: string | null;
  anchor: string | null;
  parts: string;
  pieces: number;
}

const HEAD_COLUMNS =
  "seq, parent, message_id, version, step, role, state, units_before, units_said, units_returned, created_at";
const ALL_COLUMNS = `${HEAD_COLUMNS}, metadata, call, anchor, parts, pieces`;

export class SessionStore {
  readonly #backend: SqlBackend;
  #record: SessionRecord | undefined;
  #queue: QueuedTurn[] | undefined;

  constructor(backend: SqlBackend) {
    this.#backend = backend;
  }

  /** Creates or migrates the tables. Call once before anything else; `now` is ms since the epoch. */
  open(now: number): void {
    const version = this.#schemaVersion();
    if (version === SCHEMA_VERSION) return;
    this.transaction(() => {
      for (const statement of migrationsFrom(version)) this.#run(statement);
      if (version === 0) this.#insertSession(now);
      this.#run("UPDATE tidemark_session SET schema_version = ?", SCHEMA_VERSION);
    });
  }

  /** All or nothing. What was remembered of the session is forgotten when `work` throws, because it may be wrong. */
  transaction<T>(work: () => Synchronous<T>): T {
    try {
      return this.#backend.transactionSync(work as () => T);
    } catch (error) {
      this.#record = undefined;
      this.#queue = undefined;
      throw error;
    }
  }

  /** Bytes of the whole database, the base class's tables included. */
  get databaseBytes(): number {
    return this.#backend.sql.databaseSize;
  }

  get session(): Readonly<SessionRecord> {
    this.#record ??= this.#readSession();
    return this.#record;
  }

  /** Writes one row. */
  saveSession(changes: Partial<SessionRecord>): void {
    const next = { ...this.session, ...changes };
    this.#run(
      `UPDATE tidemark_session
       SET created_at = ?, active_at = ?, leaf = ?, messages = ?, erased = ?, measured = ?, settings = ?, turn = ?, finished = ?, totals = ?`,
      next.createdAt,
      next.activeAt,
      next.leaf,
      next.messages,
      next.erased,
      next.measured,
      JSON.stringify(next.settings),
      next.turn && JSON.stringify(next.turn),
      JSON.stringify(next.finished),
      JSON.stringify(next.totals),
    );
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
    this.#run(
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
    const { seq } = this.#one<{ seq: number }>("SELECT last_insert_rowid() AS seq");
    this.#insertPieces(seq, pieces);
    return { ...entry, seq };
  }

  /** Rewrites what may change of an entry: state, parts, metadata, call, and the units of what was said in it. */
  update(entry: Entry): void {
    const { parts, metadata, pieces } = contentOf(entry);
    const { pieces: before } = this.#one<{ pieces: number }>(
      "SELECT pieces FROM tidemark_entry WHERE seq = ?",
      entry.seq,
    );
    if (before > 0) this.#run("DELETE FROM tidemark_piece WHERE seq = ?", entry.seq);
    this.#run(
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
    const row = this.#maybe<FullEntryRow>(`SELECT ${ALL_COLUMNS} FROM tidemark_entry WHERE seq = ?`, seq);
    return row && this.#toEntry(row);
  }

  /** The newest sequence; 0 while nothing is stored. */
  get lastSeq(): Seq {
    return this.#one<{ last: number }>("SELECT COALESCE(MAX(seq), 0) AS last FROM tidemark_entry").last;
  }

  /** The first entry of every version of a message, oldest version first. */
  versions(messageId: string): EntryHead[] {
    return this.#all<EntryRow>(
      `SELECT ${HEAD_COLUMNS} FROM tidemark_entry WHERE message_id = ? AND step = 0 ORDER BY version`,
      messageId,
    ).map(toHead);
  }

  /** Every entry of a message, all versions and steps, in order of storing. Scans: later steps have no index. */
  entriesOf(messageId: string): Entry[] {
    return this.#all<FullEntryRow>(
      `SELECT ${ALL_COLUMNS} FROM tidemark_entry WHERE message_id = ? ORDER BY seq`,
      messageId,
    ).map((row) => this.#toEntry(row));
  }

  /**
   * Entries from `from` towards the root, newest first. Stop iterating to stop reading.
   * Rows are read in batches by sequence; those of other branches in between are read and passed over.
   */
  *walk(from: Seq | null): Generator<Entry> {
    for (const row of this.#walkRows<FullEntryRow>(from, ALL_COLUMNS)) yield this.#toEntry(row);
  }

  /** As `walk`, without content. */
  *walkHeads(from: Seq | null): Generator<EntryHead> {
    for (const row of this.#walkRows<EntryRow>(from, HEAD_COLUMNS)) yield toHead(row);
  }

  /** All entries in order of storing, from `after` on. */
  *entries(after: Seq = 0): Generator<Entry> {
    for (let last = after; ;) {
      const rows = this.#all<FullEntryRow>(
        `SELECT ${ALL_COLUMNS} FROM tidemark_entry WHERE seq > ? ORDER BY seq LIMIT ?`,
        last,
        WALK_BATCH,
      );
      for (const row of rows) yield this.#toEntry(row);
      const newest = rows.at(-1);
      if (!newest) return;
      last = newest.seq;
    }
  }

  /** Entries that no other entry follows, oldest first. Scans. */
  leaves(): EntryHead[] {
    return this.#all<EntryRow>(
      `SELECT ${HEAD_COLUMNS} FROM tidemark_entry
       WHERE seq NOT IN (SELECT parent FROM tidemark_entry WHERE parent IS NOT NULL) ORDER BY seq`,
    ).map(toHead);
  }

  /** The newest anchor of any branch. */
  newestAnchor(): object | undefined {
    const { measured } = this.session;
    if (measured === null) return undefined;
    const row = this.#maybe<{ anchor: string | null }>("SELECT anchor FROM tidemark_entry WHERE seq = ?", measured);
    return row?.anchor ? (JSON.parse(row.anchor) as object) : undefined;
  }

  /** Booked calls before `before`, newest first. */
  usage(before: Seq, limit: number): UsageRecord[] {
    return this.#all<{ seq: number; message_id: string; step: number; call: string }>(
      `SELECT seq, message_id, step, call FROM tidemark_entry WHERE seq < ? AND call IS NOT NULL
       ORDER BY seq DESC LIMIT ?`,
      before,
      limit,
    ).map((row) => ({ ...JSON.parse(row.call), seq: row.seq, messageId: row.message_id, step: row.step }));
  }

  enqueue(request: TurnRequest): QueuedTurn {
    const position = (this.queue().at(-1)?.position ?? 0) + 1;
    const queued = { position, request };
    cutIntoPieces(JSON.stringify(queued)).forEach((body, n) =>
      this.#run("INSERT INTO tidemark_queue (position, n, body) VALUES (?, ?, ?)", position, n, body),
    );
    this.#queue = [...this.queue(), queued];
    return queued;
  }

  /** Waiting turns in order. Read once, and kept in memory. */
  queue(): readonly QueuedTurn[] {
    this.#queue ??= this.#readQueue();
    return this.#queue;
  }

  dequeue(position: number): void {
    this.#run("DELETE FROM tidemark_queue WHERE position = ?", position);
    this.#queue = this.queue().filter((queued) => queued.position !== position);
  }

  #readQueue(): QueuedTurn[] {
    const bodies = new Map<number, string>();
    for (const row of this.#all<{ position: number; body: string }>(
      "SELECT position, body FROM tidemark_queue ORDER BY position, n",
    )) {
      bodies.set(row.position, (bodies.get(row.position) ?? "") + row.body);
    }
    return [...bodies.values()].map((body) => JSON.parse(body) as QueuedTurn);
  }

  *#walkRows<Row extends EntryRow>(from: Seq | null, columns: string): Generator<Row> {
    let wanted = from;
    let batch = FIRST_WALK_BATCH;
    while (wanted !== null) {
      const rows: Row[] = this.#all<Row>(
        `SELECT ${columns} FROM tidemark_entry WHERE seq <= ? ORDER BY seq DESC LIMIT ?`,
        wanted,
        batch,
      );
      batch = Math.min(batch * 2, WALK_BATCH);
      const first = rows[0];
      if (first?.seq !== wanted) return;
      for (const row of rows) {
        if (row.seq !== wanted) continue;
        wanted = row.parent;
        yield row;
      }
    }
  }

  #toEntry(row: FullEntryRow): Entry {
    const content = row.pieces > 0 ? this.#joinPieces(row.seq) : contentText(row.parts, row.metadata);
    return {
      ...toHead(row),
      ...(JSON.parse(content) as Pick<Entry, "parts" | "metadata">),
      ...(row.call !== null && { call: JSON.parse(row.call) }),
      ...(row.anchor !== null && { anchor: JSON.parse(row.anchor) }),
    };
  }

  #insertPieces(seq: Seq, pieces: string[]): void {
    pieces.forEach((body, n) => this.#run("INSERT INTO tidemark_piece (seq, n, body) VALUES (?, ?, ?)", seq, n, body));
  }

  #joinPieces(seq: Seq): string {
    return this.#all<{ body: string }>("SELECT body FROM tidemark_piece WHERE seq = ? ORDER BY n", seq)
      .map((row) => row.body)
      .join("");
  }

  #schemaVersion(): number {
    try {
      return this.#one<{ schema_version: number }>("SELECT schema_version FROM tidemark_session").schema_version;
    } catch (error) {
      // Asked only now: a wake would read a row for each table and index that the base class has.
      if (this.#maybe("SELECT 1 FROM sqlite_master WHERE name = 'tidemark_session'")) throw error;
      return 0;
    }
  }

  #insertSession(now: number): void {
    const totals = {
      calls: 0,
      inputTokens: 0,
      outputTokens: 0,
      reasoningTokens: 0,
      cacheReadTokens: 0,
      cacheWriteTokens: 0,
    };
    this.#run(
      `INSERT INTO tidemark_session (id, created_at, active_at, leaf, messages, erased, measured, settings, turn, finished, totals,
         schema_version) VALUES (1, ?, ?, NULL, 0, 0, NULL, '{}', NULL, '[]', ?, ?)`,
      now,
      now,
      JSON.stringify(totals),
      SCHEMA_VERSION,
    );
  }

  #readSession(): SessionRecord {
    const row = this.#one<{
      created_at: number;
      active_at: number;
      leaf: number | null;
      messages: number;
      erased: number;
      measured: number | null;
      settings: string;
      turn: string | null;
      finished: string;
      totals: string;
    }>(
      "SELECT created_at, active_at, leaf, messages, erased, measured, settings, turn, finished, totals FROM tidemark_session",
    );
    return {
      createdAt: row.created_at,
      activeAt: row.active_at,
      leaf: row.leaf,
      messages: row.messages,
      erased: row.erased,
      measured: row.measured,
      settings: JSON.parse(row.settings),
      turn: row.turn === null ? null : JSON.parse(row.turn),
      finished: JSON.parse(row.finished),
      totals: JSON.parse(row.totals),
    };
  }

  #run(statement: string, ...values: SqlStorageValue[]): void {
    this.#backend.sql.exec(statement, ...values);
  }

  #all<Row extends Record<string, SqlStorageValue>>(statement: string, ...values: SqlStorageValue[]): Row[] {
    return this.#backend.sql.exec<Row>(statement, ...values).toArray();
  }

  #one<Row extends Record<string, SqlStorageValue>>(statement: string, ...values: SqlStorageValue[]): Row {
    return this.#backend.sql.exec<Row>(statement, ...values).one();
  }

  #maybe<Row extends Record<string, SqlStorageValue>>(
    statement: string,
    ...values: SqlStorageValue[]
  ): Row | undefined {
    return this.#all<Row>(statement, ...values)[0];
  }
}

function toHead(row: EntryRow): EntryHead {
  return {
    seq: row.seq,
    parent: row.parent,
    messageId: row.message_id,
    version: row.version,
    step: row.step,
    // SAFETY: only `insert` and `update` write these columns, from typed values.
    role: row.role as Role,
    state: row.state as EntryState,
    unitsBefore: row.units_before,
    unitsSaid: row.units_said,
    unitsReturned: row.units_returned,
    createdAt: row.created_at,
  };
}

/** What of an entry has no bound: in its columns, or when that is too much for a row all of it in pieces. */
function contentOf(entry: NewEntry): { parts: string; metadata: string | null; pieces: string[] } {
  const parts = JSON.stringify(entry.parts);
  const metadata = json(entry.metadata);
  if (parts.length + (metadata?.length ?? 0) <= INLINE_LENGTH) return { parts, metadata, pieces: [] };
  return { parts: "", metadata: null, pieces: cutIntoPieces(contentText(parts, metadata)) };
}

function contentText(parts: string, metadata: string | null): string {
  return metadata === null ? `{"parts":${parts}}` : `{"parts":${parts},"metadata":${metadata}}`;
}

function json(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value);
}
