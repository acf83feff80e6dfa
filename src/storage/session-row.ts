/** The session's own row: settings, the active leaf, the open turn, running totals. */
import type { SessionRecord, UsageTotals } from "../records.ts";
import type { Statements } from "./statements.ts";

interface SessionRow extends Record<string, SqlStorageValue> {
  created_at: number;
  active_at: number;
  leaf: number | null;
  messages: number;
  erased: number;
  measured: number | null;
  overlay: number | null;
  compactions: number;
  settings: string;
  turn: string | null;
  finished: string;
  totals: string;
}

const NO_USAGE: UsageTotals = {
  calls: 0,
  inputTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
};

/** `now` is ms since the epoch. */
export function insertSession(sql: Statements, now: number, schemaVersion: number): void {
  sql.run(
    `INSERT INTO tidemark_session (id, created_at, active_at, leaf, messages, erased, measured, settings, turn,
       finished, totals, schema_version) VALUES (1, ?, ?, NULL, 0, 0, NULL, '{}', NULL, '[]', ?, ?)`,
    now,
    now,
    JSON.stringify(NO_USAGE),
    schemaVersion,
  );
}

export function readSession(sql: Statements): SessionRecord {
  const row = sql.one<SessionRow>(
    `SELECT created_at, active_at, leaf, messages, erased, measured, overlay, compactions, settings, turn, finished,
       totals FROM tidemark_session`,
  );
  return {
    createdAt: row.created_at,
    activeAt: row.active_at,
    leaf: row.leaf,
    messages: row.messages,
    erased: row.erased,
    measured: row.measured,
    overlay: row.overlay,
    compactions: row.compactions,
    settings: JSON.parse(row.settings),
    turn: row.turn === null ? null : JSON.parse(row.turn),
    finished: JSON.parse(row.finished),
    totals: JSON.parse(row.totals),
  };
}

/** Writes one row. */
export function updateSession(sql: Statements, record: SessionRecord): void {
  sql.run(
    `UPDATE tidemark_session SET created_at = ?, active_at = ?, leaf = ?, messages = ?, erased = ?, measured = ?,
       overlay = ?, compactions = ?, settings = ?, turn = ?, finished = ?, totals = ?`,
    record.createdAt,
    record.activeAt,
    record.leaf,
    record.messages,
    record.erased,
    record.measured,
    record.overlay,
    record.compactions,
    JSON.stringify(record.settings),
    record.turn && JSON.stringify(record.turn),
    JSON.stringify(record.finished),
    JSON.stringify(record.totals),
  );
}
