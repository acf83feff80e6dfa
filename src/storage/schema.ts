/**
 * The tables of one session, and how they came to be.
 *
 * A Durable Object holds one session, so no table has a session column. Rows written are what is billed (a thousand
 * times a row read), and every index adds a row per write, so there is one index and it is partial:
 *
 * - `tidemark_session`, one row: settings, the active leaf, the open turn, running totals. A turn writes it twice.
 * - `tidemark_entry`, one row per message or step (see `records.ts`). `seq` is the rowid: order without an index.
 *   `tidemark_entry_message` finds a message by its id and covers step 0 only; the later steps of an answer are
 *   reached along the chain, so a further step costs one row, not two.
 * - `tidemark_piece`: what does not fit the 2 MB a value may have, in order. Most sessions have none.
 * - `tidemark_queue`: turns that wait, in pieces for the same reason.
 * - `tidemark_compaction`, one row per compaction, whatever came of it. The session row names the one in force, so a
 *   prompt reads one row; the others are read when the list is asked for or another branch becomes active.
 *
 * There is no index on `parent`: the chain is walked downwards only. Listing branches scans.
 */

/** Each statement list is one version. Never edit a released one; append. */
const MIGRATIONS: readonly (readonly string[])[] = [
  [
    `CREATE TABLE tidemark_session (
      id INTEGER PRIMARY KEY CHECK (id = 1),
      created_at INTEGER NOT NULL,
      active_at INTEGER NOT NULL,
      leaf INTEGER,
      messages INTEGER NOT NULL,
      erased INTEGER NOT NULL,
      measured INTEGER,
      settings TEXT NOT NULL,
      turn TEXT,
      finished TEXT NOT NULL,
      totals TEXT NOT NULL,
      schema_version INTEGER NOT NULL
    )`,
    `CREATE TABLE tidemark_entry (
      seq INTEGER PRIMARY KEY,
      parent INTEGER,
      message_id TEXT NOT NULL,
      version INTEGER NOT NULL,
      step INTEGER NOT NULL,
      role TEXT NOT NULL,
      state TEXT NOT NULL,
      units_before REAL NOT NULL,
      units_said REAL NOT NULL,
      units_returned REAL NOT NULL,
      created_at INTEGER NOT NULL,
      metadata TEXT,
      call TEXT,
      anchor TEXT,
      parts TEXT NOT NULL,
      pieces INTEGER NOT NULL
    )`,
    `CREATE UNIQUE INDEX tidemark_entry_message ON tidemark_entry (message_id, version) WHERE step = 0`,
    `CREATE TABLE tidemark_piece (
      seq INTEGER NOT NULL,
      n INTEGER NOT NULL,
      body TEXT NOT NULL,
      PRIMARY KEY (seq, n)
    ) WITHOUT ROWID`,
    `CREATE TABLE tidemark_queue (
      position INTEGER NOT NULL,
      n INTEGER NOT NULL,
      body TEXT NOT NULL,
      PRIMARY KEY (position, n)
    ) WITHOUT ROWID`,
  ],
  [
    `CREATE TABLE tidemark_compaction (
      id INTEGER PRIMARY KEY,
      at INTEGER NOT NULL,
      outcome TEXT NOT NULL,
      reason TEXT,
      trigger TEXT NOT NULL,
      tokens_before INTEGER NOT NULL,
      tokens_after INTEGER,
      reported_after INTEGER,
      progress INTEGER,
      covered_messages INTEGER NOT NULL,
      threshold INTEGER,
      session_model TEXT NOT NULL,
      duration_ms INTEGER NOT NULL,
      created_at INTEGER NOT NULL,
      undone INTEGER NOT NULL,
      call TEXT,
      overlay TEXT,
      summary TEXT
    )`,
    `ALTER TABLE tidemark_session ADD COLUMN overlay INTEGER`,
    `ALTER TABLE tidemark_session ADD COLUMN compactions INTEGER NOT NULL DEFAULT 0`,
  ],
];

export const SCHEMA_VERSION = MIGRATIONS.length;

/** Statements that bring a session from `version` (0 when it has no tables) to the newest one, without the stamp. */
export function migrationsFrom(version: number): readonly string[] {
  return MIGRATIONS.slice(version).flat();
}
