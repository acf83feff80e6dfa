/**
 * The order of roles that every provider takes: a user speaks first, and no role speaks twice in a row.
 *
 * Some providers mend other orders themselves, some refuse them, and the chat templates of many open models do either.
 * A prompt comes to such an order by an import, an edit, an answer that failed, or a cut.
 */
import type { ModelMessage } from "ai";

/** What stands in front of a conversation that the assistant began. */
export const ASSISTANT_BEGINS = "[The conversation begins with the assistant.]";

/** Parts stay as they are and in their order. Changes nothing that it is given, and nothing in a legal order. */
export function inLegalOrder(messages: ModelMessage[]): ModelMessage[] {
  const ordered = runsOf(messages).map(merged);
  const first = ordered.findIndex(({ role }) => role !== "system");
  if (first < 0 || ordered[first]?.role === "user") return ordered;
  return ordered.toSpliced(first, 0, { role: "user", content: [{ type: "text", text: ASSISTANT_BEGINS }] });
}

/** Neighbours that one message can stand for. System messages are text, each with options of its own. */
function runsOf(messages: readonly ModelMessage[]): ModelMessage[][] {
  const runs: ModelMessage[][] = [];
  for (const message of messages) {
    const run = runs.at(-1);
    if (run && message.role !== "system" && run[0]?.role === message.role) run.push(message);
    else runs.push([message]);
  }
  return runs;
}

function merged(run: ModelMessage[]): ModelMessage {
  const [first] = run;
  if (first && run.length === 1) return first;
  // SAFETY: all messages of a run have the first one's role, so their parts may stand in it.
  return { role: first?.role, content: run.flatMap(partsOf) } as ModelMessage;
}

type Part = Exclude<ModelMessage["content"], string>[number];

/** Options of a whole message go to its last part: that is where providers apply what marks a place, such as a cache. */
function partsOf({ content, providerOptions: options }: ModelMessage): Part[] {
  const parts: Part[] = typeof content === "string" ? [{ type: "text", text: content }] : content;
  const last = parts.at(-1);
  return options && last ? [...parts.slice(0, -1), withOptions(last, options)] : parts;
}

/** What a part says for itself wins. */
function withOptions(part: Part, options: NonNullable<ModelMessage["providerOptions"]>): Part {
  // SAFETY: an approval takes no options and loses them; all other parts do.
  const own = ("providerOptions" in part && part.providerOptions) || {};
  const providers = Object.keys({ ...options, ...own });
  const both = providers.map((name) => [name, { ...options[name], ...own[name] }]);
  return { ...part, providerOptions: Object.fromEntries(both) } as Part;
}
