/** What a decision reads of a session with many messages. */
import type { UIMessage } from "ai";
import type { SessionEvent } from "../../src/events.ts";
import type { Compaction } from "../../src/records.ts";
import { SessionBuilder } from "../../src/session-builder.ts";
import { SessionStore } from "../../src/storage/session-store.ts";
import { Session } from "../../src/turn/session.ts";
import { StorageCounter } from "../../test/service/counted-storage.ts";
import type { RowsRecord } from "./records.ts";

/** Messages of one import. */
const BATCH = 2_000;

/** Tokens of a question and of an answer, as the answers report them. */
const QUESTION_TOKENS = 12;
const ANSWER_TOKENS = 14;

const WINDOW = 200_000;
const THRESHOLD = 100_000;

export interface RowsRequest {
  messages: number;
  /** whether answers say what they read, so that reports tell the sizes; or nothing does */
  reported: boolean;
}

/** Tail budgets that are tried: rows are read in stretches, so it matters how many messages a tail happens to hold. */
const TAILS = Array.from({ length: 9 }, (_, index) => 20_000 + 2 * index * QUESTION_TOKENS);

/**
 * Stores messages, then opens the session anew for each tail budget and has it decide: by an import of what is stored
 * already, which adds nothing and looks whether to compact. The cut is known when the compaction says that it has started.
 * Each is taken back for the next, so that in the end the session has some behind it.
 */
export async function countRows(
  { messages, reported }: RowsRequest,
  storage: DurableObjectStorage,
): Promise<RowsRecord[]> {
  const counter = new StorageCounter(storage);
  const writer = open(storage);
  writer.changeSettings({ compactAfter: "off" });
  for (let from = 0; from < messages; from += BATCH) {
    await writer.importMessages(batch(from, Math.min(BATCH, messages - from), reported));
    counter.take();
  }
  const records: RowsRecord[] = [];
  for (const [index, tailTokenBudget] of TAILS.entries()) {
    // What a person took back is not done again by itself under the same threshold.
    writer.changeSettings({ compactAfter: THRESHOLD + index, tailTokenBudget });
    records.push(await countDecision(open(storage), counter, batch(messages - 1, 1, reported)));
  }
  return records;
}

async function countDecision(session: Session, counter: StorageCounter, known: UIMessage[]): Promise<RowsRecord> {
  let read = 0;
  const done = new Promise<Compaction>((resolve) => {
    session.news.follow(({ json }) => {
      // SAFETY: what is told is an event as JSON.
      const event = JSON.parse(json) as SessionEvent;
      if (event.type !== "compaction") return;
      if (event.data.phase === "started") read = counter.take().rowsRead;
      else resolve(event.data.compaction);
    });
  });
  counter.take();
  await session.importMessages(known);
  if (read === 0) throw new Error("nothing was decided");
  const { id, outcome, reason } = await done;
  if (outcome !== "applied") throw new Error(`the compaction was ${outcome}: ${reason}`);
  const kept = [...session.line.branch.backwards()].length;
  session.undoCompaction(id);
  return { read, kept };
}

function open(storage: DurableObjectStorage): Session {
  const configuration = new SessionBuilder()
    .model("openai/gpt-4.1")
    .contextWindow(WINDOW)
    .compaction({ onCompaction: () => ({ summary: "Many short questions were asked and answered." }) })
    .build();
  const session = new Session({
    id: "rows",
    store: new SessionStore(storage),
    configuration,
    languageModel: () => {
      throw new Error("no model is called");
    },
    clock: () => Date.now(),
    newId: () => crypto.randomUUID(),
    keepAwake: () => {},
    log: () => {},
  });
  session.start();
  return session;
}

function batch(from: number, count: number, reported: boolean): UIMessage[] {
  return Array.from({ length: count }, (_, index) => messageAt(from + index, reported));
}

function messageAt(index: number, reported: boolean): UIMessage {
  const isAnswer = index % 2 === 1;
  const text = isAnswer
    ? `It is berth ${index % 97}, and the tide is at ${index % 24}:15.`
    : `Where does ship ${index} lie?`;
  const input = QUESTION_TOKENS + ((index - 1) / 2) * (QUESTION_TOKENS + ANSWER_TOKENS);
  const usage = { prompt_tokens: input, completion_tokens: ANSWER_TOKENS };
  return {
    id: `m${index}`,
    role: isAnswer ? "assistant" : "user",
    parts: [{ type: "text", text }],
    ...(isAnswer && reported && { metadata: { usage } }),
  };
}
