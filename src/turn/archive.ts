/**
 * A whole session on its way out and back.
 *
 * The archive is JSON Lines: one `session` line, one `entry` line for each entry of every branch in order of storing, and
 * one `compaction` line for each compaction. Imported into an empty session it gives the same session.
 */
import { z } from "zod";
import { SessionError } from "../errors.ts";
import { LONGEST_SUMMARY } from "../compaction/summary.ts";
import type {
  CompactionEntry,
  Entry,
  EntryState,
  ModelCall,
  Overlay,
  Part,
  SessionRecord,
  SessionSettings,
} from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { addCall } from "./closing.ts";
import { LONGEST_REASON } from "./compaction-work.ts";
import { overlayInForce } from "./overlay-in-force.ts";
import { bookableUsage } from "./reported-usage.ts";
import { readSettings } from "./settings.ts";

const ARCHIVE_VERSION = 1;

const SESSION_LINE = z.object({
  type: z.literal("session"),
  version: z.literal(ARCHIVE_VERSION),
  createdAt: z.number().int(),
  leaf: z.number().int().nullable(),
  settings: z.looseObject({}),
});

/** Far above any session, far below where integers or sums of them lose precision. */
const SEQ = z
  .number()
  .int()
  .positive()
  .max(2 ** 40);
const UNITS = z.number().nonnegative().max(1e9);
const TOKENS = z.number().min(-1e12).max(1e12);
const NAME = z.string().min(1).max(256);

const CALL = z.looseObject({
  purpose: z.enum(["turn", "summary"]),
  model: NAME,
  finishReason: z.string().max(64),
  startedAt: z.number(),
  durationMs: z.number().nonnegative(),
  predictedTokens: TOKENS.optional(),
});

/** What `Anchor` of the context room is made of, as far as arithmetic reads it. */
const ANCHOR = z
  .looseObject({
    at: UNITS,
    said: UNITS,
    input: TOKENS,
    output: TOKENS,
    measured: TOKENS,
    head: TOKENS,
    headUnits: TOKENS,
    headInput: TOKENS.nullable(),
    overhead: TOKENS,
    rebase: TOKENS,
    liveReasoning: TOKENS,
    ownReasoning: TOKENS,
    prompt: z.looseObject({
      model: NAME,
      overheadKey: z.string().max(256),
      systemUnits: TOKENS,
      toolsUnits: TOKENS,
      covered: TOKENS,
      summary: TOKENS,
      pruneKey: z.string().max(256),
      pruned: TOKENS,
      omitted: TOKENS.optional(),
      omissions: UNITS.optional(),
    }),
    models: z.record(
      NAME,
      z.looseObject({ factor: z.number().positive().max(1e6), measuredTokens: TOKENS, measuredUnits: TOKENS }),
    ),
    accuracy: z.looseObject({ calls: TOKENS, recent: z.array(TOKENS).max(1_000) }),
  })
  .refine(({ prompt, models }) => Object.hasOwn(models, prompt.model), "its model must be among its models");

const ENTRY_LINE = z.object({
  type: z.literal("entry"),
  seq: SEQ,
  parent: SEQ.nullable(),
  messageId: z.string().min(1).max(256),
  version: z.number().int().nonnegative(),
  step: z.number().int().nonnegative(),
  role: z.enum(["user", "assistant", "system"]),
  state: z.enum(["done", "aborted", "failed", "interrupted", "deleted"]),
  parts: z.array(z.looseObject({ type: z.string() })),
  metadata: z.unknown().optional(),
  call: CALL.optional(),
  anchor: ANCHOR.optional(),
  unitsSaid: UNITS,
  unitsReturned: UNITS,
  createdAt: z.number().int(),
});

const COUNT = z.number().int().nonnegative().max(1e12);

const OVERLAY = z.object({
  id: SEQ,
  until: SEQ.nullable(),
  head: z.array(SEQ).max(1_000),
  pinned: SEQ.nullable(),
  rangeTokens: TOKENS,
  pinnedTokens: TOKENS,
  summaryTokens: TOKENS,
  pruning: z
    .object({
      until: z.union([SEQ, z.literal(0)]),
      shortened: z.array(z.object({ seq: SEQ, toolCallId: NAME, length: COUNT })).max(10_000),
      tokens: TOKENS,
    })
    .nullable(),
});

const COMPACTION_LINE = z.object({
  type: z.literal("compaction"),
  id: SEQ,
  at: COUNT,
  outcome: z.enum(["applied", "pruned", "no-progress", "failed", "cancelled"]),
  reason: z.string().max(LONGEST_REASON).nullable(),
  trigger: z.enum(["after-turn", "before-turn", "between-steps", "import", "no-room", "overflow", "manual"]),
  tokensBefore: COUNT,
  tokensAfter: COUNT.nullable(),
  reportedAfter: COUNT.nullable(),
  progress: z.boolean().nullable(),
  coveredMessages: COUNT,
  threshold: COUNT.nullable(),
  sessionModel: NAME,
  durationMs: COUNT,
  createdAt: z.number().int(),
  undone: z.boolean(),
  summary: z.string().max(LONGEST_SUMMARY).nullable(),
  call: CALL.extend({ calls: COUNT.optional() }).optional(),
  overlay: OVERLAY.optional(),
});

/** The lines of an archive, each ending in a newline. */
export function* archiveLines(store: SessionStore): Generator<string> {
  const { createdAt, leaf, settings, turn } = store.session;
  const end = store.lastSeq;
  const absent = new Set<number>();
  yield line({ type: "session", version: ARCHIVE_VERSION, createdAt, leaf, settings });
  for (const { unitsBefore: _, ...entry } of store.entries()) {
    // Lines are read as they are sent: what an open turn has stored, or stores meanwhile, is not of this moment.
    const isOfTurn = turn && entry.seq > turn.parent && entry.messageId === turn.messageId;
    if (isOfTurn || entry.state === "streaming" || entry.seq > end) absent.add(entry.seq);
    else yield line({ type: "entry", ...entry });
  }
  for (const { overlay, model: _model, summaryUsage: _usage, ...compaction } of store.compactions.all()) {
    const { summary: __, ...shape } = overlay ?? {};
    // One that cut into an open turn speaks of steps that are not in this archive.
    if (compaction.at > end || (overlay && entriesNamed(overlay).some((seq) => absent.has(seq)))) continue;
    yield line({ type: "compaction", ...compaction, ...(overlay && { overlay: shape }) });
  }
}

const OTHER_LINE = z.discriminatedUnion("type", [ENTRY_LINE, COMPACTION_LINE]);

/** A parsed archive. Its parts are as they came. */
export interface Archive {
  session: z.infer<typeof SESSION_LINE>;
  entries: z.infer<typeof ENTRY_LINE>[];
  compactions: z.infer<typeof COMPACTION_LINE>[];
}

/** Parses the lines of an archive. Throws `bad-request` with the line that is wrong. */
export function readArchive(text: string): Archive {
  const lines = text.split("\n").filter((candidate) => candidate.trim() !== "");
  const session = parseLine(SESSION_LINE, lines[0], 1);
  const others = lines.slice(1).map((candidate, index) => parseLine(OTHER_LINE, candidate, index + 2));
  const firstCompaction = others.findIndex(({ type }) => type === "compaction");
  const misplaced = others.findIndex(
    ({ type }, index) => type === "entry" && firstCompaction >= 0 && index > firstCompaction,
  );
  if (misplaced >= 0) throw brokenLine(misplaced + 2, "entries stand before compactions");
  return {
    session,
    entries: others.filter((other) => other.type === "entry"),
    compactions: others.filter((other) => other.type === "compaction"),
  };
}

/** Restores an archive into an empty session. Throws `not-empty`, or `bad-request` with the line that is wrong. */
export function restoreArchive(
  store: SessionStore,
  { session, entries, compactions }: Archive,
  now: number,
): { inserted: number } {
  if (store.session.messages > 0 || store.session.leaf !== null) {
    throw new SessionError("not-empty", "An archive can only be imported into an empty session.");
  }
  return store.transaction(() => {
    const units = new Map<number, number>();
    const versions = new Map<string, number>();
    let lastSeq = 0;
    for (const [index, entry] of entries.entries()) {
      const before = entry.parent === null ? 0 : units.get(entry.parent);
      if (before === undefined || entry.seq <= lastSeq)
        throw brokenLine(index + 2, "its parent must be an earlier line and its seq above theirs");
      const next = versions.get(entry.messageId) ?? 0;
      if (entry.step === 0 && entry.version !== next) throw brokenLine(index + 2, `its version must be ${next}`);
      if (entry.step === 0) versions.set(entry.messageId, next + 1);
      store.restore(toEntry(entry, before));
      lastSeq = entry.seq;
      units.set(entry.seq, before + entry.unitsSaid + entry.unitsReturned);
    }
    if (session.leaf !== null && !units.has(session.leaf)) throw brokenLine(1, "its leaf is none of the entries");
    // An empty session may have been asked to compact.
    store.compactions.clear();
    restoreCompactions(store, compactions, units, entries.length + 2);
    store.saveSession(restoredSession(store.session, session, entries, compactions, now));
    store.saveSession({ overlay: overlayInForce(store, session.leaf)?.id ?? null });
    return { inserted: countMessages(entries) };
  });
}

/** `stored` has the sequences of the entries; `firstLine` is where the compactions begin. */
function restoreCompactions(
  store: SessionStore,
  compactions: Archive["compactions"],
  stored: ReadonlyMap<number, unknown>,
  firstLine: number,
): void {
  let last = 0;
  for (const [index, { type: _, overlay, call, ...compaction }] of compactions.entries()) {
    const number = firstLine + index;
    if (compaction.id <= last) throw brokenLine(number, "its id must be above those of the lines before");
    last = compaction.id;
    const named = overlay ? entriesNamed(overlay) : [];
    if (named.some((seq) => !stored.has(seq))) throw brokenLine(number, "it covers entries that are not there");
    if (overlay && overlay.id !== compaction.id) throw brokenLine(number, "its overlay must have its id");
    const booked = call && toCall(call);
    store.compactions.insert({
      ...compaction,
      summaryUsage: booked?.usage ?? null,
      model: booked?.model ?? null,
      ...(booked && { call: booked }),
      ...(overlay && { overlay: { ...overlay, summary: compaction.summary } }),
    } satisfies CompactionEntry);
  }
}

function entriesNamed({ head, until, pinned, pruning }: Omit<Overlay, "summary">): number[] {
  const single = [until, pinned, pruning?.until].flatMap((seq) => seq || []);
  return [...head, ...single, ...(pruning?.shortened.map(({ seq }) => seq) ?? [])];
}

function toEntry(line: z.infer<typeof ENTRY_LINE>, unitsBefore: number): Entry {
  const { type: _, call, ...entry } = line;
  // SAFETY: the shape was checked but for parts, which are opaque to storage and validated before.
  return { ...entry, unitsBefore, parts: entry.parts as Part[], ...(call && { call: toCall(call) }) };
}

function toCall({ usage, ...call }: z.infer<typeof CALL>): ModelCall {
  const booked = bookableUsage(usage);
  // SAFETY: a finish reason is a word that is shown; no decision is taken by one that is not known.
  return { ...call, ...(booked && { usage: booked }) } as ModelCall;
}

function restoredSession(
  current: SessionRecord,
  session: z.infer<typeof SESSION_LINE>,
  entries: Archive["entries"],
  compactions: Archive["compactions"],
  now: number,
): Partial<SessionRecord> {
  const calls = [...entries, ...compactions].flatMap(({ call }) => (call ? [toCall(call)] : []));
  return {
    createdAt: session.createdAt,
    activeAt: entries.at(-1)?.createdAt ?? now,
    leaf: session.leaf,
    // SAFETY: `null` stands for what is not set; wherever settings are read it means the configuration's value.
    settings: readSettings(session.settings) as SessionSettings,
    messages: countMessages(entries),
    measured: entries.findLast((entry) => entry.anchor)?.seq ?? null,
    erased: entries.filter((entry) => entry.state === "deleted").length,
    compactions: compactions.filter(({ overlay }) => overlay).length,
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
