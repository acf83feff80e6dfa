/** Histories of 3.7 million characters, which no summariser reads at once. */
import type { Conversation } from "../corpus.ts";
import type { Figures } from "./figures.ts";
import type { LongHistoryRecord } from "./records.ts";
import type { Stages } from "./stages.ts";

const CHARACTERS = 3_700_000;

/** UTF-16 code units of a message at most, where there are many. */
const MESSAGE_LENGTH = 20_000;

export async function addLongHistories(
  stages: Stages,
  conversations: readonly Conversation[],
  figures: Figures,
): Promise<void> {
  const texts = materialOf(conversations);
  const histories = {
    "one message": [texts.join("\n"), "I have read it.", "What is next?"],
    "many messages": texts,
  };
  for (const [name, said] of Object.entries(histories)) {
    // SAFETY: the Worker answers this path with this record.
    const record = (await stages.perform("/long-history", { texts: said })) as LongHistoryRecord;
    addHistory(`3.7 million characters in ${name}`, record, figures);
  }
}

function addHistory(name: string, record: LongHistoryRecord, figures: Figures): void {
  const { outcome, reason, characters, window, summariser } = record;
  figures.add(`${name}: characters`, characters, "");
  figures.add(`${name}: not summarised`, outcome === "applied" ? 0 : 1, "", 0, [`${outcome}: ${reason}`]);
  figures.add(`${name}: calls of the summariser`, summariser.calls, "");
  figures.add(`${name}: largest input of the summariser`, summariser.largest, "tokens", window);
  figures.add(`${name}: inputs over its window`, summariser.refused, "", 0);
}

/** What was said in the recordings, over and over if that is too little. */
function materialOf(conversations: readonly Conversation[]): string[] {
  const all = conversations
    .flatMap(({ items }) => items.flatMap((item) => (item.k === "msg" ? item.parts : [])))
    .map(({ s }) => s.slice(0, MESSAGE_LENGTH))
    .filter((text) => text.trim() !== "");
  const texts: string[] = [];
  for (let length = 0, index = 0; length < CHARACTERS && all.length > 0; index += 1) {
    const text = all[index % all.length]!;
    texts.push(text);
    length += text.length + 1;
  }
  return texts;
}
