/** The recordings the benches measure on, read and cut into what one model call had before it. */
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import type { RecordedMessage, RecordedPart, RecordedUsage } from "../scripts/replay/recording.ts";

export type { RecordedMessage, RecordedPart, RecordedUsage };

export interface RecordedCompaction {
  k: "compaction";
  summary: string;
  meta?: unknown;
}

export type RecordedItem = RecordedMessage | RecordedCompaction;

export interface Conversation {
  src: string;
  id: string;
  model: string;
  items: RecordedItem[];
  /** half of the conversations it belongs to: weights are fitted on one half and scored on the other */
  fold: 0 | 1;
}

/** A recording by the name the tables use. */
export interface Recording {
  name: string;
  conversations: Conversation[];
}

/** Every `conversations/*.jsonl.gz` (or plain `.jsonl`) below `corpus`. */
export function readRecordings(corpus: string): Recording[] {
  const folder = join(corpus, "conversations");
  return readdirSync(folder)
    .filter((file) => /\.jsonl(\.gz)?$/.test(file))
    .sort()
    .map((file) => ({
      name: file.replace(/\.jsonl(\.gz)?$/, ""),
      conversations: readConversations(join(folder, file)),
    }));
}

function readConversations(path: string): Conversation[] {
  const bytes = readFileSync(path);
  const text = (path.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8");
  return text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line, index) => ({ ...(JSON.parse(line) as Conversation), fold: (index % 2) as 0 | 1 }));
}

/** The same documentation pages by language, `{ en, ja, ko, zh }`; empty where the corpus has none. */
export function readPages(corpus: string): Record<string, string> {
  const folder = join(corpus, "i18n");
  if (!existsSync(folder)) return {};
  const pages: Record<string, string> = {};
  for (const file of readdirSync(folder)) {
    if (file.endsWith(".txt")) pages[file.slice(0, -4)] = readFileSync(join(folder, file), "utf8");
  }
  return pages;
}

/** Tokens one recorded call read, cached or not; 0 where nothing was reported. */
export function inputOf(usage: RecordedUsage | null | undefined): number {
  return usage ? usage.in + usage.cr + usage.cw : 0;
}

/** A recorded call taken apart; `undefined` where its arguments are not a JSON object. */
export function callOf(recorded: string): { name: string; input: Record<string, unknown> } | undefined {
  const brace = recorded.indexOf("{");
  if (brace < 0) return undefined;
  try {
    return { name: recorded.slice(0, brace), input: JSON.parse(recorded.slice(brace)) as Record<string, unknown> };
  } catch {
    return undefined;
  }
}

/** Two calls of one conversation in a row that reported, and what lies between them. */
export interface Gap {
  conversation: string;
  model: string;
  /** input and output of the earlier call, input of the later one */
  input: number;
  output: number;
  next: number;
  /** what the earlier call said */
  step: RecordedMessage;
  /** what was added before the later call */
  fresh: RecordedMessage[];
}

/** Gaps of a conversation; a recorded compaction starts over. */
export function gapsOf(conversation: Conversation): Gap[] {
  const gaps: Gap[] = [];
  let step: RecordedMessage | undefined;
  let fresh: RecordedMessage[] = [];
  for (const item of conversation.items) {
    if (item.k === "compaction") {
      step = undefined;
      fresh = [];
      continue;
    }
    const next = item.role === "assistant" ? inputOf(item.usage) : 0;
    if (next <= 0) {
      fresh.push(item);
      continue;
    }
    if (step?.usage) {
      const { id, model } = conversation;
      gaps.push({
        conversation: id,
        model: item.model ?? model,
        input: inputOf(step.usage),
        output: step.usage.out,
        next,
        step,
        fresh,
      });
    }
    step = item;
    fresh = [];
  }
  return gaps;
}

/** A short name of a conversation that does not change with its file: FNV-1a of its source and id. */
export function nameOf({ src, id }: Conversation): string {
  let hash = 2_166_136_261;
  for (const char of `${src} ${id}`) hash = Math.imul(hash ^ char.codePointAt(0)!, 16_777_619);
  return (hash >>> 0).toString(36);
}

/** The value below which a share `p` of `values` lies; `NaN` for none. */
export function quantile(values: number[], p: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(p * sorted.length))] ?? Number.NaN;
}
