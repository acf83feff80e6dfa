/** Compactions upon compactions: what has to survive them, that nothing is read twice or never, and what all of it costs. */
import { tool } from "ai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { UsageRecord } from "../../src/records.ts";
import { compactionSession, scripted, type CompactionSession, type Scripted } from "./compaction-session.ts";
import { prose } from "./context-session.ts";
import { blockOf, ScriptedModel } from "./scripted-model.ts";

const SMALL = 1_500;
const DEPTH = 20;

function small(topic: string, threshold = SMALL): Promise<Scripted> {
  return scripted(topic, { configure: (builder) => builder.compactAfter(threshold) });
}

/** Asks until so many compactions are recorded, each ended before the next question. Returns how often it asked. */
async function askUntil(session: CompactionSession, depth: number): Promise<number> {
  for (let asked = 0; asked < 200; asked += 1) {
    const { length } = await session.list();
    if (length >= depth) return asked;
    await session.socket.ask(`${prose(70, asked)}\nask-${asked}`);
    if ((await session.context()).tokens > SMALL) await session.recorded(length + 1);
  }
  throw new Error(`two hundred questions did not bring ${depth} compactions`);
}

/** How often a text, or a line of that text alone, stands in texts. */
function countOf(texts: readonly string[], wanted: string | RegExp): number {
  return texts.reduce((sum, text) => sum + text.split(wanted).length - 1, 0);
}

function lineOf(text: string): RegExp {
  return new RegExp(`^${text}$`, "m");
}

describe("twenty compactions", () => {
  const STANDING = "Answer in French and never touch /srv/tide/gate-7.yaml";

  it("[CM31][CM19] keep a standing instruction, carry every summary on, and no prompt outgrows the threshold and a turn", async () => {
    const { model, session } = await small("deep");
    await session.socket.ask(`${STANDING}. That holds throughout.\n/words 10`);
    await askUntil(session, DEPTH);
    const compactions = (await session.list()).reverse();
    expect(compactions.map(({ outcome }) => outcome)).toEqual(compactions.map(() => "applied"));
    // trap 28: it was said first, and is in every summary and every prompt since
    expect(compactions.filter(({ summary }) => !summary?.includes(STANDING))).toEqual([]);
    expect(model.turns.filter(({ prompt }) => !JSON.stringify(prompt).includes(STANDING))).toEqual([]);
    // trap 16: the next summary is made of the one before
    const previous = model.asked.map((asked) => blockOf(asked, "previous-summary"));
    expect(previous).toEqual(["", ...compactions.slice(0, -1).map(({ summary }) => summary)]);
    expect(Math.max(...model.read)).toBeLessThan(SMALL + 250);
    // trap 29
    const orders = model.turns.map(({ prompt }) => prompt.map(({ role }) => role).join(" "));
    expect(orders.filter((order) => !/^user( assistant user)*$/.test(order))).toEqual([]);
    expect(compactions.filter(({ tokensAfter }) => (tokensAfter ?? SMALL) > 0.85 * SMALL)).toEqual([]);
    expect((await session.context()).compactions).toBe(DEPTH);
    const covered = compactions.map(({ coveredMessages }) => coveredMessages);
    expect(covered).toEqual(covered.toSorted((a, b) => a - b));
    const shown = model.shown.length;
    expect((await session.http.messages()).length - (covered.at(-1) ?? 0)).toBeLessThanOrEqual(shown + 2);
  });

  // trap 16: an earlier tail is never lost, and nothing is told twice
  it("[CM31][CM23] give everything that left to exactly one summariser, and keep the rest", async () => {
    const { model, session } = await small("once");
    const asked = await askUntil(session, DEPTH);
    await session.socket.ask("The last one.\n/words 5");
    const read = model.asked.map((prompt) => blockOf(prompt, "conversation"));
    const kept = model.shown;
    const places = Array.from({ length: asked }, (_, index) => ({
      index,
      question: [countOf(read, lineOf(`ask-${index}`)), countOf(kept, lineOf(`ask-${index}`))],
      answer: [countOf(read, `Last: "ask-${index}"`), countOf(kept, `Last: "ask-${index}"`)],
    }));
    const once = ([inInputs = 0, inPrompt = 0]: number[]) => inInputs + inPrompt === 1;
    expect(places.filter(({ question, answer }) => !once(question) || !once(answer))).toEqual([]);
    const left = places.filter(({ question }) => question[0] === 1).length;
    expect([left > 30, left < asked]).toEqual([true, true]);
    expect(places.slice(0, left).map(({ question }) => question[0])).toEqual(Array.from({ length: left }, () => 1));
  });

  // traps 14 and 30
  it("[CM31][CM4] of one long turn give each result to one summariser, with its call, and keep the question", async () => {
    const read = tool({
      description: "Reads a page.",
      inputSchema: z.object({ page: z.number() }),
      execute: async ({ page }) => {
        await new Promise((resolve) => setTimeout(resolve, 25));
        return `page-${page}: ${prose(150, page)}`;
      },
    });
    const { model, session } = await scripted("loop", {
      configure: (builder) => builder.compactAfter(2_000).maxSteps(60).compaction({ prune: false }).tools({ read }),
    });
    const script = Array.from({ length: 40 }, (_, page) => `/call read {"page":${page}}`).join("\n/then\n");
    session.socket.submit("long", [
      { id: "u", role: "user", parts: [{ type: "text", text: `Read it all.\n${script}\n/then\n/words 5` }] },
    ]);
    const reply = await session.socket.reply("long", 15_000);
    expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 5]);
    const compactions = await session.list();
    expect(compactions.length).toBeGreaterThan(5);
    expect(new Set(compactions.map(({ trigger, outcome }) => `${trigger} ${outcome}`))).toEqual(
      new Set(["between-steps applied"]),
    );
    const inputs = model.asked.map((prompt) => blockOf(prompt, "conversation"));
    const pages = Array.from({ length: 40 }, (_, page) => [
      countOf(inputs, `] {"page":${page}}`) + countOf(model.shown, lineOf(`read {"page":${page}}`)),
      countOf(inputs, `] page-${page}: `) + countOf(model.shown, `→ page-${page}: `),
    ]);
    expect(new Set(pages.map(String))).toEqual(new Set(["1,1"]));
    // what it works on is told to the first summariser, and shown in every prompt as it was said
    expect(inputs.map((text) => text.includes("Read it all."))).toEqual(inputs.map((_, index) => index === 0));
    const prompts = model.turns.map(({ prompt }) => JSON.stringify(prompt));
    expect(new Set(prompts.map((prompt) => countOf([prompt], '"Read it all.\\n/call')))).toEqual(new Set([1]));
    const parted = prompts.filter(
      (prompt) => countOf([prompt], '"type":"tool-call"') !== countOf([prompt], '"type":"tool-result"'),
    );
    expect(parted).toEqual([]);
  });
});

describe("a summary", () => {
  /** What a session has to know after a compaction, in the words it was said in. */
  const RUBRIC = {
    instruction: "Never push to main without a green build",
    path: "src/gates/tide_gate_4.ts",
    url: "status.harbour.example/incidents/4711",
    number: "TIDE-2087",
    decision: "We keep SQLite and drop the queue_v2 table",
    openItem: "Still open: the lock of gate-12 is not released",
    latest: "Then write the test for lockGate9",
  };

  // trap 28
  it("[CM21][CM22][CM5] rubric: instructions, identifiers, decisions, open items and the latest request survive", async () => {
    const { model, session } = await small("rubric", 2_500);
    await session.say(`${RUBRIC.instruction}. That is a rule.`, 20);
    await session.say(`The fault is in ${RUBRIC.path}. See https://${RUBRIC.url} for it.`, 60);
    await session.say(`It is filed as ${RUBRIC.number}. ${prose(200)}`, 60);
    await session.say(`${RUBRIC.decision}. ${prose(200, 3)}`, 60);
    await session.say(`${RUBRIC.openItem}. ${prose(200, 5)}`, 60);
    await session.http.call("PATCH", "", { tailTokenBudget: 150 });
    await session.socket.ask(`${RUBRIC.latest}. ${prose(60, 7)}\n/words 1500`);
    const [compaction] = await session.recorded(1);
    expect(compaction?.outcome).toBe("applied");
    const { latest, ...earlier } = RUBRIC;
    const input = model.asked[0] ?? "";
    expect(Object.entries(earlier).filter(([, words]) => !blockOf(input, "conversation").includes(words))).toEqual([]);
    await session.say("Go on.", 5);
    const prompt = model.shown.join("\n");
    expect(model.shown[0]).toMatch(/^<summary>/);
    expect(Object.entries(RUBRIC).filter(([, words]) => !prompt.includes(words))).toEqual([]);
    expect(prompt).toContain(latest);
  });

  // traps 7 and 36: billed once, in the totals and in the list, and never context
  it("[CM30][US4][HT11] is booked once: in the pages of the usage and in the totals, and never as context", async () => {
    const { model, session } = await small("booked");
    await askUntil(session, 4);
    await session.compact("Briefly.");
    const compactions = await session.list();
    const { records, totals } = await session.http.usage();
    const summaries = records.filter(({ purpose }) => purpose === "summary");
    expect(summaries.map(({ compaction, model: name, usage }) => [compaction, name, usage])).toEqual(
      compactions.map(({ id, model: name, summaryUsage }) => [id, name, summaryUsage]),
    );
    expect(summaries.filter((record) => "messageId" in record || "predictedTokens" in record)).toEqual([]);
    expect(await paged(session)).toEqual(records);
    const sum = (field: "inputTokens" | "outputTokens") =>
      records.reduce((total, { usage }) => total + (usage?.[field] ?? 0), 0);
    expect(totals).toMatchObject({
      calls: model.turns.length + model.summaries.length,
      inputTokens: sum("inputTokens"),
      outputTokens: sum("outputTokens"),
    });
    const lastTurn = records.find(({ purpose }) => purpose === "turn");
    expect((await session.context()).calculation).toMatchObject({
      lastInput: lastTurn?.usage?.inputTokens,
      lastOutput: lastTurn?.usage?.outputTokens,
    });
    await session.evict();
    expect((await session.http.usage()).totals).toEqual(totals);
  });

  it("[CM30][CM23] that took several calls is booked as one, with all that they cost", async () => {
    const model = new ScriptedModel();
    const session = await compactionSession("chunks", (builder) =>
      builder.model(model).contextWindow(8_000).maxOutputTokens(500).compactAfter(6_000),
    );
    await session.http.call("PATCH", "", { tailTokenBudget: 300 });
    const compaction = await session.fillAndCompact(6_000);
    const calls = model.summaries.length;
    expect([compaction.outcome, calls > 1]).toEqual(["applied", true]);
    const { records, totals } = await session.http.usage();
    expect(records[0]).toMatchObject({ purpose: "summary", compaction: 1, calls, usage: compaction.summaryUsage });
    expect(totals.calls).toBe(model.turns.length + calls);
    expect(blockOf(model.asked[1] ?? "", "previous-summary")).toMatch(/^Goal: Turn 0\./);
  });
});

/** Every booked call, read three at a time. */
async function paged(session: CompactionSession): Promise<UsageRecord[]> {
  const all: UsageRecord[] = [];
  for (let cursor: string | null = ""; cursor !== null;) {
    const page = await session.http.usage(`?limit=3${cursor && `&before=${cursor}`}`);
    all.push(...page.records);
    cursor = page.cursor;
  }
  return all;
}
