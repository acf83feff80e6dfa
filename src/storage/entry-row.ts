/** How an entry lies in its row: small columns as they are, what has no bound as JSON. */
import type { Entry, EntryHead, EntryState, NewEntry, Role } from "../records.ts";
import { cutIntoPieces, INLINE_LENGTH } from "./pieces.ts";

/** An entry without its content. */
export interface EntryRow extends Record<string, SqlStorageValue> {
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

/** An entry as a whole; `parts` and `metadata` are empty where they stand in pieces. */
export interface FullEntryRow extends EntryRow {
  metadata: string | null;
  call: string | null;
  anchor: string | null;
  parts: string;
  pieces: number;
}

export const HEAD_COLUMNS =
  "seq, parent, message_id, version, step, role, state, units_before, units_said, units_returned, created_at";
export const ALL_COLUMNS = `${HEAD_COLUMNS}, metadata, call, anchor, parts, pieces`;

export function toHead(row: EntryRow): EntryHead {
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

/** `pieces` are those of the entry, joined; empty where it has none. */
export function toEntry(row: FullEntryRow, pieces: string): Entry {
  const content = row.pieces > 0 ? pieces : contentText(row.parts, row.metadata);
  return {
    ...toHead(row),
    ...(JSON.parse(content) as Pick<Entry, "parts" | "metadata">),
    ...(row.call !== null && { call: JSON.parse(row.call) }),
    ...(row.anchor !== null && { anchor: JSON.parse(row.anchor) }),
  };
}

/** What of an entry has no bound: in its columns, or when that is too much for a row all of it in pieces. */
export function contentOf(entry: NewEntry): { parts: string; metadata: string | null; pieces: string[] } {
  const parts = JSON.stringify(entry.parts);
  const metadata = json(entry.metadata);
  if (parts.length + (metadata?.length ?? 0) <= INLINE_LENGTH) return { parts, metadata, pieces: [] };
  return { parts: "", metadata: null, pieces: cutIntoPieces(contentText(parts, metadata)) };
}

function contentText(parts: string, metadata: string | null): string {
  return metadata === null ? `{"parts":${parts}}` : `{"parts":${parts},"metadata":${metadata}}`;
}

export function json(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value);
}
