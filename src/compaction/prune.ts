/**
 * Leaving out what nobody reads any more: old tool outputs, in prompts only.
 *
 * A prune costs the prompt cache everything behind the first output it touches, so it is done in batches: only where it
 * makes room enough that a summary can wait.
 */
import type { Entry, Part, Pruning, Seq, ShortenedOutput } from "../records.ts";
import type { Block, History } from "./history.ts";

/** UTF-16 code units of JSON up to which an output stays: its placeholder would save next to nothing. */
export const PRUNABLE_LENGTH = 400;

/** Model tokens of a placeholder, about. */
const PLACEHOLDER_TOKENS = 24;

/** UTF-16 code units that a shortened output keeps, half of them from each end. */
const SHORTENED_LENGTH = 2_000;

/** Share of the threshold below which a prune has to bring the context, or a summary is written instead. */
const WORTHWHILE_SHARE = 0.8;

/** How placeholders begin: what is shown in the place of an output, and no output. */
export const PLACEHOLDER = "[Left out to save room: ";

/** What a prune takes out. `saved`: model tokens. */
export interface PrunePlan {
  until: Seq;
  shortened: ShortenedOutput[];
  saved: number;
}

/** The prune that leaves out every long output older than the `protect` newest model tokens; `null` if that is not worth it. */
export function planPrune(
  history: History,
  { known, threshold, protect }: { known: number; threshold: number; protect: number },
): PrunePlan | null {
  const unread = history.blocks.findIndex(({ live }) => live);
  const read = unread < 0 ? history.blocks.length : unread;
  const old = history.blocks.slice(0, Math.min(read, protectedFrom(history.blocks, protect)));
  const saved = old.flatMap(({ outputs }) => outputs).reduce((sum, output) => sum + savedBy(output), 0);
  const until = old.at(-1)?.seq;
  if (until === undefined || saved <= 0 || known - saved > threshold * WORTHWHILE_SHARE) return null;
  return { until, shortened: [], saved };
}

/**
 * Cuts the largest outputs at both ends until `need` model tokens are saved, the largest first, or all of them; `null` if that
 * saves nothing. Unread outputs only where `unread` says so: then the alternative is a prompt that cannot be sent at all.
 */
export function planShortening(history: History, need: number, unread: boolean): PrunePlan | null {
  const candidates = history.blocks
    .filter((block) => unread || !block.live)
    .flatMap(({ seq, outputs }) => outputs.map((output) => ({ seq, ...output, saved: savedByShortening(output) })))
    .filter(({ saved }) => saved > 0)
    .toSorted((a, b) => b.saved - a.saved);
  const shortened: ShortenedOutput[] = [];
  let saved = 0;
  for (const { seq, toolCallId, saved: more } of candidates) {
    if (saved >= need) break;
    shortened.push({ seq, toolCallId, length: SHORTENED_LENGTH });
    saved += more;
  }
  return saved > 0 ? { until: 0, shortened, saved } : null;
}

/** Both prunes together: what is left out stays left out. */
export function mergePrunes(
  before: Pick<Pruning, "until" | "shortened"> | null,
  plan: PrunePlan,
): Pick<Pruning, "until" | "shortened"> {
  const until = Math.max(before?.until ?? 0, plan.until);
  const shortened = [...(before?.shortened ?? []), ...plan.shortened].filter(({ seq }) => seq > until);
  const distinct = new Map(shortened.map((output) => [`${output.seq} ${output.toolCallId}`, output]));
  return { until, shortened: [...distinct.values()] };
}

/** An entry as it is shown under a prune; the same entry where nothing of it is left out. */
export function pruned(entry: Entry, pruning: Pick<Pruning, "until" | "shortened"> | null): Entry {
  if (!pruning) return entry;
  const isOld = entry.seq <= pruning.until;
  const shortened = pruning.shortened.filter(({ seq }) => seq === entry.seq);
  if (!isOld && shortened.length === 0) return entry;
  const parts = entry.parts.map((part) => {
    const cut = isPrunable(part) && shortened.find(({ toolCallId }) => toolCallId === part.toolCallId);
    if (cut) return shorten(part, cut.length);
    return isOld && isPrunable(part) ? leaveOut(part) : part;
  });
  return parts.some((part, index) => part !== entry.parts[index]) ? { ...entry, parts } : entry;
}

type ToolOutput = Extract<Part, { state: "output-available"; toolCallId: string }>;

/** Whether an output may be shown shorter: a final one of a tool of ours. A provider knows its own results by heart. */
export function isPrunable(part: Part): part is ToolOutput {
  const isCall = part.type === "dynamic-tool" || part.type.startsWith("tool-");
  return isCall && "state" in part && part.state === "output-available" && isFinal(part as ToolOutput);
}

/** UTF-16 code units of an output as JSON. */
export function outputLength({ output }: { output: unknown }): number {
  return asText(output).length;
}

function isFinal({ preliminary, providerExecuted }: ToolOutput): boolean {
  return preliminary !== true && providerExecuted !== true;
}

function leaveOut(part: ToolOutput): Part {
  const { length } = asText(part.output);
  if (length <= PRUNABLE_LENGTH) return part;
  return { ...part, output: `${PLACEHOLDER}an output of ${length} characters. Call the tool again if it is needed.]` };
}

function shorten(part: ToolOutput, length: number): Part {
  const text = asText(part.output);
  if (text.length <= length) return part;
  const half = Math.floor(length / 2);
  const left = text.length - 2 * half;
  const output = `${PLACEHOLDER}${left} of ${text.length} characters, from the middle.]\n${text.slice(0, half).toWellFormed()}\n[…]\n${text.slice(-half).toWellFormed()}`;
  return { ...part, output };
}

function asText(output: unknown): string {
  return typeof output === "string" ? output : (JSON.stringify(output) ?? "");
}

function savedBy({ tokens, length }: { tokens: number; length: number }): number {
  return length <= PRUNABLE_LENGTH ? 0 : Math.max(0, tokens - PLACEHOLDER_TOKENS);
}

function savedByShortening({ tokens, length }: { tokens: number; length: number }): number {
  if (length <= 2 * SHORTENED_LENGTH) return 0;
  return Math.max(0, tokens * (1 - SHORTENED_LENGTH / length) - PLACEHOLDER_TOKENS);
}

/** Index of the first block of the newest ones that have `protect` tokens together. */
function protectedFrom(blocks: readonly Block[], protect: number): number {
  let kept = 0;
  const last = blocks.findLastIndex(({ tokens }) => (kept += tokens) > protect);
  return last + 1;
}
