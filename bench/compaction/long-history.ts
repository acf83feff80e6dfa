/** A history many times as long as its summariser's window, in one message or in many. */
import type { UIMessage } from "ai";
import { limitsOf } from "../../src/models/catalogue.ts";
import { SessionBuilder } from "../../src/session-builder.ts";
import { SessionStore } from "../../src/storage/session-store.ts";
import { Session } from "../../src/turn/session.ts";
import { Double } from "./double.ts";
import { Pace } from "./pace.ts";
import type { LongHistoryRecord } from "./records.ts";
import { Scales } from "./scales.ts";
import type { Script } from "./script.ts";

/** A model that the catalogue knows to read 32,000 tokens. Here a double stands in for it that really refuses more. */
const SUMMARISER = "mirror";

export interface LongHistory {
  /** what was said, in order, by the user and the assistant in turn */
  texts: string[];
}

/** Imports the history and has it compacted. */
export async function summarise({ texts }: LongHistory, storage: DurableObjectStorage): Promise<LongHistoryRecord> {
  const { contextWindow = 0 } = limitsOf(SUMMARISER);
  const double = new Double({
    script: NOTHING_SAID,
    scales: new Scales(NOTHING_SAID),
    pace: new Pace(0),
    contextWindow,
    heard: () => {},
    spared: () => {},
  });
  const session = new Session({
    id: "long-history",
    store: new SessionStore(storage),
    configuration: new SessionBuilder()
      .model("openai/gpt-4.1")
      .compactAfter("off")
      .compaction({ model: SUMMARISER })
      .build(),
    languageModel: () => double,
    clock: () => Date.now(),
    newId: () => crypto.randomUUID(),
    keepAwake: () => {},
    log: () => {},
  });
  session.start();
  for (const [index, text] of texts.entries()) await session.importMessages([messageOf(text, index)]);
  const { outcome, reason } = await session.compact();
  const characters = texts.reduce((sum, text) => sum + text.length, 0);
  return { outcome, reason, characters, window: contextWindow, summariser: double.summariser };
}

function messageOf(text: string, index: number): UIMessage {
  return { id: `m${index}`, role: index % 2 === 0 ? "user" : "assistant", parts: [{ type: "text", text }] };
}

/** Of a model whose tokens are o200k's. */
const NOTHING_SAID: Script = {
  name: "long-history",
  model: "openai/gpt-4.1",
  system: null,
  tools: [],
  overhead: 0,
  perToken: 1,
  frame: 0,
  spans: 0,
  contradictions: 0,
  entries: [],
  acts: [],
};
