/**
 * Messages that come from elsewhere: an import, a seed, a test.
 *
 * They are stored as if they had been said here. Usage they carry is booked and measures the branch as a call would.
 */
import type { ToolSet, UIMessage } from "ai";
import { z } from "zod";
import { NO_ACCURACY } from "../context/anchor.ts";
import { usageOfMessage } from "../context/usage.ts";
import type { ModelCall, NewEntry, Part, Role, Seq } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { isAnswered, isToolPart, toolNameOf } from "./answer.ts";
import type { Branch } from "./branch.ts";
import { addCall } from "./closing.ts";
import { anchorOf, measured, readGauge, sizeOf, type Overhead } from "./gauge.ts";
import { bookableUsage } from "./reported-usage.ts";
import { runsOnServer } from "./tool-set.ts";
import { stepsOf } from "./transcript.ts";

const USAGE = z.looseObject({});
const ANSWER_METADATA = z.looseObject({
  usage: USAGE.optional(),
  totalUsage: USAGE.optional(),
  steps: z.array(USAGE.nullable()).optional(),
  model: z.string().min(1).max(256).optional(),
});

/** What an import is stored with. */
export interface ImportSurroundings {
  store: SessionStore;
  /** the active branch; kept up to date */
  branch: Branch;
  /** registry id: the model of usage that names none, and whose weights size the entries */
  model: string;
  /** what the session's own prompts have beside the messages */
  overhead: Overhead;
  /** ms since the epoch */
  now: number;
}

/** Appends messages to the active branch; those whose id is known are skipped. */
export function importMessages(
  messages: readonly UIMessage[],
  { store, branch, model, overhead, now }: ImportSurroundings,
): { inserted: number; skipped: number } {
  return store.transaction(() => {
    const fresh = messages.filter((message) => store.versions(message.id).length === 0);
    const entries = fresh.flatMap((message) => entriesOf(message, model, now));
    const bills = new Set(fresh.filter(bringsBill).map(({ id }) => id));
    const { session } = store;
    let { measured: newest } = session;
    for (const entry of entries) {
      const place = { parent: branch.leaf?.seq ?? null, unitsBefore: branch.units };
      const sized = { ...entry, ...sizeOf(entry.role, entry.parts, model), ...place };
      const anchor = bills.has(entry.messageId) ? undefined : anchorOfImported(sized, newest);
      const stored = store.insert({ ...sized, anchor });
      branch.push(stored);
      if (anchor) newest = stored.seq;
    }
    const calls = entries.flatMap((entry) => entry.call ?? []);
    store.saveSession({
      leaf: branch.leaf?.seq ?? null,
      measured: newest,
      activeAt: fresh.length ? now : session.activeAt,
      messages: session.messages + fresh.length,
      totals: calls.reduce(addCall, session.totals),
    });
    return { inserted: fresh.length, skipped: messages.length - fresh.length };
  });

  function anchorOfImported(entry: NewEntry, newest: Seq | null): object | undefined {
    if (!entry.call?.usage) return undefined;
    const reading = readGauge(branch, {
      overhead,
      model: entry.call.model,
      kin: () => anchorOf({ anchor: store.newestAnchor() }),
      session: { measured: newest, erased: store.session.erased },
    });
    const anchor = measured(reading, entry.call, entry);
    // Nobody predicted this call, so it says nothing of how good predictions are.
    return anchor && { ...anchor, accuracy: (reading.ledger.anchor ?? reading.ledger.kin)?.accuracy ?? NO_ACCURACY };
  }
}

/** A call that was never answered elsewhere is not run here: an import may bring what was said, not have tools run. */
export function withoutOpenServerCalls(message: UIMessage, tools: ToolSet): UIMessage {
  const parts = message.parts.map((part): Part => {
    const open = isToolPart(part) && !isAnswered(part) && runsOnServer(tools, toolNameOf(part));
    // SAFETY: a call with an error text in place of what was still to come.
    return open ? ({ ...part, state: "output-error", errorText: "The call was not run." } as Part) : part;
  });
  return { ...message, parts };
}

/** One entry per step. Usage that the message carries becomes the calls of its steps. */
function entriesOf(
  message: UIMessage,
  model: string,
  now: number,
): Omit<NewEntry, "parent" | "unitsBefore" | "unitsSaid" | "unitsReturned">[] {
  const steps = stepsOf(message.parts);
  const { calls, rest } = reportedCalls(message, steps.length, model, now);
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

/** Whether the usage of a message is a sum over its steps: booked as it is, and no size of the context. */
function bringsBill({ role, metadata, parts }: UIMessage): boolean {
  const steps = stepsOf(parts).length;
  const parsed = ANSWER_METADATA.safeParse(metadata);
  if (parsed.data?.steps?.length === steps) return false;
  const { contextInput, total } = usageOfMessage({ role, metadata }, steps);
  return !contextInput && !total;
}

/**
 * The calls that an imported answer reports: `steps` one each; without it `usage` is the last step's; `totalUsage` is a
 * step's only when there is just one. Usage on other roles is no report. What became a call is taken out of the
 * metadata, because it is derived from the calls when the message is read.
 */
function reportedCalls(
  message: UIMessage,
  steps: number,
  currentModel: string,
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
  const calls = reports.map((report) => report && importedCall(report, model ?? currentModel, now));
  return { calls, rest: Object.keys(others).length ? others : undefined };
}

function importedCall(reported: z.infer<typeof USAGE>, model: string, now: number): ModelCall {
  const usage = bookableUsage(reported);
  return { purpose: "turn", model, finishReason: "other", ...(usage && { usage }), startedAt: now, durationMs: 0 };
}
