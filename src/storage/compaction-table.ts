/** Every compaction of a session, in order, and what the ones in force make of a branch. */
import type {
  CompactionEntry,
  CompactionOutcome,
  CompactionTrigger,
  ModelCall,
  Overlay,
  Seq,
  UsageRecord,
} from "../records.ts";
import { json } from "./entry-row.ts";
import type { Statements } from "./statements.ts";

interface CompactionRow extends Record<string, SqlStorageValue> {
  id: number;
  at: number;
  outcome: string;
  reason: string | null;
  trigger: string;
  tokens_before: number;
  tokens_after: number | null;
  reported_after: number | null;
  progress: number | null;
  covered_messages: number;
  threshold: number | null;
  session_model: string;
  duration_ms: number;
  created_at: number;
  undone: number;
  call: string | null;
  overlay: string | null;
  summary: string | null;
}

const COLUMNS =
  "id, at, outcome, reason, trigger, tokens_before, tokens_after, reported_after, progress, covered_messages, threshold, " +
  "session_model, duration_ms, created_at, undone, call, overlay, summary";

/** Where an overlay reaches to on its branch: a branch that has this entry has everything the overlay speaks of. */
export interface OverlayReach {
  id: number;
  reach: Seq;
}

export class CompactionTable {
  readonly #sql: Statements;

  constructor(sql: Statements) {
    this.#sql = sql;
  }

  /** The id the next one gets. One row read. */
  get nextId(): number {
    return this.#sql.one<{ last: number }>("SELECT COALESCE(MAX(id), 0) AS last FROM tidemark_compaction").last + 1;
  }

  /** Writes one row. A summary stands in its own column; the overlay names it by standing beside it. */
  insert(entry: CompactionEntry): void {
    this.#sql.run(
      `INSERT INTO tidemark_compaction (${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      entry.id,
      entry.at,
      entry.outcome,
      entry.reason,
      entry.trigger,
      entry.tokensBefore,
      entry.tokensAfter,
      entry.reportedAfter,
      entry.progress === null ? null : Number(entry.progress),
      entry.coveredMessages,
      entry.threshold,
      entry.sessionModel,
      entry.durationMs,
      entry.createdAt,
      Number(entry.undone),
      json(entry.call),
      json(entry.overlay && { ...entry.overlay, summary: null }),
      entry.summary,
    );
  }

  get(id: number): CompactionEntry | undefined {
    const row = this.#sql.first<CompactionRow>(`SELECT ${COLUMNS} FROM tidemark_compaction WHERE id = ?`, id);
    return row && toCompaction(row);
  }

  /** Those before `before`, newest first. */
  list(before: number, limit: number): CompactionEntry[] {
    return this.#sql
      .all<CompactionRow>(
        `SELECT ${COLUMNS} FROM tidemark_compaction WHERE id < ? ORDER BY id DESC LIMIT ?`,
        before,
        limit,
      )
      .map(toCompaction);
  }

  /** Booked calls of compactions before `before`, newest first. */
  calls(before: number, limit: number): UsageRecord[] {
    return this.#sql
      .all<{ id: number; at: number; call: string }>(
        "SELECT id, at, call FROM tidemark_compaction WHERE id < ? AND call IS NOT NULL ORDER BY id DESC LIMIT ?",
        before,
        limit,
      )
      .map(({ id, at, call }) => ({ ...(JSON.parse(call) as ModelCall), seq: at, compaction: id }));
  }

  /** All of them, oldest first. */
  all(): CompactionEntry[] {
    return this.#sql.all<CompactionRow>(`SELECT ${COLUMNS} FROM tidemark_compaction ORDER BY id`).map(toCompaction);
  }

  /** Overlays that were not taken back, those that reach furthest first, of equal ones the newest. Scans. */
  overlays(): OverlayReach[] {
    return this.#sql
      .all<{ id: number; overlay: string }>(
        "SELECT id, overlay FROM tidemark_compaction WHERE overlay IS NOT NULL AND undone = 0",
      )
      .map(({ id, overlay }) => ({ id, reach: reachOf(JSON.parse(overlay) as Overlay) }))
      .toSorted((a, b) => b.reach - a.reach || b.id - a.id);
  }

  /** Writes one row. */
  setReportedAfter(id: number, tokens: number, progress: boolean | null): void {
    this.#sql.run(
      "UPDATE tidemark_compaction SET reported_after = ?, progress = ? WHERE id = ?",
      tokens,
      progress === null ? null : Number(progress),
      id,
    );
  }

  /** Writes one row. */
  setUndone(id: number): void {
    this.#sql.run("UPDATE tidemark_compaction SET undone = 1 WHERE id = ?", id);
  }

  /** Forgets all of them: another session takes the place of an empty one. */
  clear(): void {
    this.#sql.run("DELETE FROM tidemark_compaction");
  }

  /** Takes back every overlay that speaks of an entry or of what follows it, and erases its summary. */
  forgetFrom(seq: Seq): void {
    for (const { id, overlay } of this.#sql.all<{ id: number; overlay: string }>(
      "SELECT id, overlay FROM tidemark_compaction WHERE overlay IS NOT NULL AND (summary IS NOT NULL OR undone = 0)",
    )) {
      const shown = JSON.parse(overlay) as Overlay;
      if (reachOf(shown) < seq) continue;
      // Also what only leaves outputs out: what that saved of an erased entry cannot be told from the rest of it.
      this.#sql.run("UPDATE tidemark_compaction SET undone = 1, summary = NULL WHERE id = ?", id);
    }
  }
}

/** The last entry an overlay speaks of; 0 when it speaks of none. */
export function reachOf({ until, pruning }: Overlay): Seq {
  return Math.max(until ?? 0, pruning?.until ?? 0, ...(pruning?.shortened.map(({ seq }) => seq) ?? []));
}

function toCompaction(row: CompactionRow): CompactionEntry {
  const call = row.call === null ? undefined : (JSON.parse(row.call) as ModelCall);
  const overlay = row.overlay === null ? undefined : (JSON.parse(row.overlay) as Overlay);
  return {
    id: row.id,
    at: row.at,
    // SAFETY: only `insert` writes these columns, from typed values.
    outcome: row.outcome as CompactionOutcome,
    reason: row.reason,
    trigger: row.trigger as CompactionTrigger,
    tokensBefore: row.tokens_before,
    tokensAfter: row.tokens_after,
    reportedAfter: row.reported_after,
    progress: row.progress === null ? null : row.progress === 1,
    coveredMessages: row.covered_messages,
    threshold: row.threshold,
    sessionModel: row.session_model,
    summaryUsage: call?.usage ?? null,
    model: call?.model ?? null,
    durationMs: row.duration_ms,
    createdAt: row.created_at,
    undone: row.undone === 1,
    summary: row.summary,
    ...(call && { call }),
    ...(overlay && { overlay: { ...overlay, summary: row.summary } }),
  };
}
