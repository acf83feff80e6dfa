/**
 * A whole session on its way out and back.
 *
 * The archive is JSON Lines: one `session` line, then one `entry` line for each entry of every branch in order of
 * storing. Imported into an empty session it gives the same session.
 */
import { z } from "zod";
import { SessionError } from "../errors.ts";
import type { Entry, EntryState, ModelCall, Part, SessionRecord, SessionSettings } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { addCall } from "./closing.ts";
import { readSettings } from "./settings.ts";

const ARCHIVE_VERSION = 1;

const SESSION_LINE = z.object({
  type: z.literal("session"),
  version: z.literal(ARCHIVE_VERSION),
  createdAt: z.number().int(),
  leaf: z.number().int().nullable(),
  settings: z.looseObject({}),
});

const ENTRY_LINE = z.object({
  type: z.literal("entry"),
  seq: z.number().int().positive(),
  parent: z.number().int().positive().nullable(),
  messageId: z.string().min(1).max(256),
  version: z.number().int().nonnegative(),
  step: z.number().int().nonnegative(),
  role: z.enum(["user", "assistant", "system"]),
  state: z.enum(["done", "aborted", "failed", "interrupted", "deleted"]),
  parts: z.array(z.looseObject({ type: z.string() })),
  metadata: z.unknown().optional(),
  call: z.looseObject({ purpose: z.enum(["turn", "summary"]), model: z.string(), startedAt: z.number() }).optional(),
  anchor: z.looseObject({}).optional(),
  unitsSaid: z.number().nonnegative(),
  unitsReturned: z.number().nonnegative(),
  createdAt: z.number().int(),
});

/** The lines of an archive, each ending in a newline. */
export function* archiveLines(store: SessionStore): Generator<string> {
  const { createdAt, leaf, settings, turn } = store.session;
  const end = store.lastSeq;
  yield line({ type: "session", version: ARCHIVE_VERSION, createdAt, leaf, settings });
  for (const { unitsBefore: _, ...entry } of store.entries()) {
    // Lines are read as they are sent: what an open turn has stored, or stores meanwhile, is not of this moment.
    if (entry.state === "streaming" || entry.seq > end) continue;
    if (turn && entry.seq > turn.parent && entry.messageId === turn.messageId) continue;
    yield line({ type: "entry", ...entry });
  }
}

/** A parsed archive. Its parts are as they came. */
export interface Archive {
  session: z.infer<typeof SESSION_LINE>;
  entries: z.infer<typeof ENTRY_LINE>[];
}

/** Parses the lines of an archive. Throws `bad-request` with the line that is wrong. */
export function readArchive(text: string): Archive {
  const lines = text.split("\n").filter((candidate) => candidate.trim() !== "");
  return {
    session: parseLine(SESSION_LINE, lines[0], 1),
    entries: lines.slice(1).map((candidate, index) => parseLine(ENTRY_LINE, candidate, index + 2)),
  };
}

/** Restores an archive into an empty session. Throws `not-empty`, or `bad-request` with the line that is wrong. */
export function restoreArchive(store: SessionStore, { session, entries }: Archive, now: number): { inserted: number } {
  if (store.session.messages > 0 || store.session.leaf !== null) {
    throw new SessionError("not-empty", "An archive can only be imported into an empty session.");
  }
  return store.transaction(() => {
    const units = new Map<number, number>();
    const heads = new Set<string>();
    let lastSeq = 0;
    for (const [index, entry] of entries.entries()) {
      const before = entry.parent === null ? 0 : units.get(entry.parent);
      if (before === undefined || entry.seq <= lastSeq)
        throw brokenLine(index + 2, "its parent must be an earlier line and its seq above theirs");
      const head = `${entry.messageId} ${entry.version}`;
      if (entry.step === 0 && heads.has(head))
        throw brokenLine(index + 2, "its message and version stand in an earlier line");
      heads.add(head);
      store.restore(toEntry(entry, before));
      lastSeq = entry.seq;
      units.set(entry.seq, before + entry.unitsSaid + entry.unitsReturned);
    }
    if (session.leaf !== null && !units.has(session.leaf)) throw brokenLine(1, "its leaf is none of the entries");
    store.saveSession(restoredSession(store.session, session, entries, now));
    return { inserted: countMessages(entries) };
  });
}

function toEntry(line: z.infer<typeof ENTRY_LINE>, unitsBefore: number): Entry {
  const { type: _, ...entry } = line;
  // SAFETY: the shape was checked but for parts and call, which are opaque to storage.
  return { ...entry, unitsBefore, parts: entry.parts as Part[], call: entry.call as unknown as ModelCall | undefined };
}

function restoredSession(
  current: SessionRecord,
  session: z.infer<typeof SESSION_LINE>,
  entries: z.infer<typeof ENTRY_LINE>[],
  now: number,
): Partial<SessionRecord> {
  // SAFETY: calls were checked for what totals need; usage is read field by field.
  const calls = entries.flatMap((entry) => (entry.call ? [entry.call as unknown as ModelCall] : []));
  return {
    createdAt: session.createdAt,
    activeAt: entries.at(-1)?.createdAt ?? now,
    leaf: session.leaf,
    // SAFETY: `null` stands for what is not set; wherever settings are read it means the configuration's value.
    settings: readSettings(session.settings) as SessionSettings,
    messages: countMessages(entries),
    measured: entries.findLast((entry) => entry.anchor)?.seq ?? null,
    erased: entries.filter((entry) => entry.state === "deleted").length,
    totals: calls.reduce(addCall, current.totals),
  };
}

function countMessages(entries: readonly { step: number; state: EntryState }[]): number {
  return entries.filter((entry) => entry.step === 0 && entry.state !== "deleted").length;
}

function parseLine<T>(schema: z.ZodType<T>, text: string | undefined, number: number): T {
  const parsed = schema.safeParse(parseJson(text ?? "", number));
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw brokenLine(number, `${issue?.path.map(String).join(".") ?? ""} ${issue?.message ?? ""}`.trim());
}

function parseJson(text: string, number: number): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw brokenLine(number, "it is not JSON");
  }
}

function brokenLine(number: number, why: string): SessionError {
  return new SessionError("bad-request", `Line ${number} of the archive cannot be imported: ${why}.`);
}

function line(value: unknown): string {
  return `${JSON.stringify(value)}\n`;
}
