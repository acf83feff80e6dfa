/**
 * Messages that come from elsewhere, and a whole session on its way out and back.
 *
 * The archive is JSON Lines: one `session` line, then one `entry` line for each entry of every branch in order of
 * storing. Imported into an empty session it gives the same session.
 */
import type { LanguageModelUsage, UIMessage } from "ai";
import { z } from "zod";
import { SessionError } from "../errors.ts";
import type { EntryState, ModelCall, NewEntry, Part, Role, SessionRecord } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import type { Branch } from "./branch.ts";
import { addCall } from "./closing.ts";
import { sizeOf } from "./gauge.ts";
import { stepsOf } from "./transcript.ts";

const ARCHIVE_VERSION = 1;

const USAGE = z.looseObject({});
const ANSWER_METADATA = z.looseObject({
  usage: USAGE.optional(),
  totalUsage: USAGE.optional(),
  steps: z.array(USAGE.nullable()).optional(),
  model: z.string().optional(),
});

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
  createdAt: z.number().int(),
});

/** Appends messages to the active branch; those whose id is known are skipped. `branch` is kept up to date. */
export function importMessages(
  store: SessionStore,
  branch: Branch,
  messages: readonly UIMessage[],
  model: string,
  now: number,
): { inserted: number; skipped: number } {
  return store.transaction(() => {
    const fresh = messages.filter((message) => store.versions(message.id).length === 0);
    const entries = fresh.flatMap((message) => entriesOf(message, now));
    for (const entry of entries) {
      const size = sizeOf(entry.role, entry.parts, model);
      branch.push(store.insert({ ...entry, ...size, parent: branch.leaf?.seq ?? null, unitsBefore: branch.units }));
    }
    const calls = entries.flatMap((entry) => entry.call ?? []);
    const { session } = store;
    store.saveSession({
      leaf: branch.leaf?.seq ?? null,
      activeAt: fresh.length ? now : session.activeAt,
      messages: session.messages + fresh.length,
      totals: calls.reduce(addCall, session.totals),
    });
    return { inserted: fresh.length, skipped: messages.length - fresh.length };
  });
}

/** The lines of an archive, each ending in a newline. */
export function* archiveLines(store: SessionStore): Generator<string> {
  const { createdAt, leaf, settings } = store.session;
  yield line({ type: "session", version: ARCHIVE_VERSION, createdAt, leaf, settings });
  for (const { unitsBefore: _, unitsSaid: __, unitsReturned: ___, ...entry } of store.entries()) {
    if (entry.state !== "streaming") yield line({ type: "entry", ...entry });
  }
}

/** Restores an archive into an empty session. Throws `not-empty`, or `bad-request` with the line that is wrong. */
export function restoreArchive(store: SessionStore, text: string, model: string, now: number): { inserted: number } {
  if (store.session.messages > 0 || store.session.leaf !== null) {
    throw new SessionError("not-empty", "An archive can only be imported into an empty session.");
  }
  const lines = text.split("\n").filter((candidate) => candidate.trim() !== "");
  const session = parseLine(SESSION_LINE, lines[0], 1);
  const entries = lines.slice(1).map((text, index) => parseLine(ENTRY_LINE, text, index + 2));
  return store.transaction(() => {
    const units = new Map<number, number>();
    let lastSeq = 0;
    for (const [index, entry] of entries.entries()) {
      const before = entry.parent === null ? 0 : units.get(entry.parent);
      if (before === undefined || entry.seq <= lastSeq)
        throw brokenLine(index + 2, "its parent must be an earlier line and its seq above theirs");
      // SAFETY: the shape was checked but for the parts, which are opaque to storage.
      const whole = { ...entry, parts: entry.parts as Part[], call: entry.call as unknown as ModelCall | undefined };
      const size = sizeOf(whole.role, whole.parts, model);
      store.restore({ ...whole, ...size, unitsBefore: before });
      lastSeq = entry.seq;
      units.set(entry.seq, before + size.unitsSaid + size.unitsReturned);
    }
    if (session.leaf !== null && !units.has(session.leaf)) throw brokenLine(1, "its leaf is none of the entries");
    store.saveSession(restoredSession(store.session, session, entries, now));
    return { inserted: countMessages(entries) };
  });
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
    settings: session.settings,
    messages: countMessages(entries),
    totals: calls.reduce(addCall, current.totals),
  };
}

function countMessages(entries: readonly { step: number; state: EntryState }[]): number {
  return entries.filter((entry) => entry.step === 0 && entry.state !== "deleted").length;
}

/** One entry per step. Usage that the message carries becomes the calls of its steps. */
function entriesOf(
  message: UIMessage,
  now: number,
): Omit<NewEntry, "parent" | "unitsBefore" | "unitsSaid" | "unitsReturned">[] {
  const steps = stepsOf(message.parts);
  const { calls, rest } = reportedCalls(message, steps.length, now);
  return steps.map((parts, step) => ({
    messageId: message.id,
    version: 0,
    step,
    role: message.role satisfies Role,
    state: "done",
    parts,
    ...(step === 0 && rest !== undefined && { metadata: rest }),
    ...(calls[step] && { call: calls[step] }),
    createdAt: now,
  }));
}

/**
 * The calls that an imported answer reports: `steps` one each; without it `usage` is the last step's; `totalUsage` is a
 * step's only when there is just one. Usage on other roles is no report. What became a call is taken out of the
 * metadata, because it is derived from the calls when the message is read.
 */
function reportedCalls(
  message: UIMessage,
  steps: number,
  now: number,
): { calls: (ModelCall | undefined)[]; rest: unknown } {
  const parsed = ANSWER_METADATA.safeParse(message.metadata);
  if (message.role !== "assistant" || !parsed.success) return { calls: [], rest: message.metadata };
  const { usage, totalUsage, steps: perStep, model, ...others } = parsed.data;
  const reports = Array.from({ length: steps }, (_, step) => {
    if (perStep?.length === steps) return perStep[step] ?? undefined;
    if (step < steps - 1) return undefined;
    return usage ?? (steps === 1 ? totalUsage : undefined);
  });
  if (!reports.some((report) => report !== undefined)) return { calls: [], rest: message.metadata };
  const calls = reports.map((report) => report && importedCall(report, model ?? "unknown", now));
  return { calls, rest: Object.keys(others).length ? others : undefined };
}

function importedCall(usage: z.infer<typeof USAGE>, model: string, now: number): ModelCall {
  // SAFETY: usage from outside is only ever read field by field, with a check of each number.
  const reported = usage as unknown as LanguageModelUsage;
  return { purpose: "turn", model, finishReason: "other", usage: reported, startedAt: now, durationMs: 0 };
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
