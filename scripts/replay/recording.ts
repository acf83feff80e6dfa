/** Recorded conversations as they stand in a `.jsonl` or `.jsonl.gz` file: one conversation a line. */
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { createGunzip } from "node:zlib";

export interface RecordedPart {
  t: "text" | "think" | "call" | "result" | "image";
  /** of a `call`: the tool's name followed at once by its arguments as JSON */
  s: string;
}

/** What one model call reported; its input is `in + cr + cw`. */
export interface RecordedUsage {
  in: number;
  out: number;
  /** cache read */
  cr: number;
  /** cache write */
  cw: number;
}

export interface RecordedMessage {
  k: "msg";
  role: "system" | "user" | "assistant" | "tool";
  parts: RecordedPart[];
  usage?: RecordedUsage | null;
  stop?: string;
  model?: string;
}

/** The recorded client compacted here: its context restarted from the summary. */
export interface RecordedCompaction {
  k: "compaction";
  summary?: string | null;
}

export interface Recording {
  src: string;
  id: string;
  model: string;
  items: (RecordedMessage | RecordedCompaction)[];
}

export async function* readRecordings(file: string, limit = Infinity): AsyncGenerator<Recording> {
  const bytes = createReadStream(file);
  const lines = createInterface({ input: file.endsWith(".gz") ? bytes.pipe(createGunzip()) : bytes });
  let read = 0;
  for await (const line of lines) {
    if (read >= limit) break;
    if (line.trim() === "") continue;
    read += 1;
    yield JSON.parse(line) as Recording;
  }
  bytes.destroy();
}

export function inputOf(usage: RecordedUsage): number {
  return usage.in + usage.cr + usage.cw;
}
