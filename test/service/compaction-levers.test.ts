/** What an application and a person can set: when it compacts, what it keeps, what it leaves out first, and a say of their own. */
import { tool, type UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { CompactionProposal } from "../../src/turn/configuration.ts";
import {
  bytesOf,
  compactionSession,
  scripted,
  THRESHOLD,
  type CompactionSession,
  type Scripted,
} from "./compaction-session.ts";
import { configureSession } from "./configured-sessions.ts";
import { logged, prose } from "./context-session.ts";
import { blockOf, ScriptedModel } from "./scripted-model.ts";
import { HttpSession, newSessionId } from "./service.ts";
import type { SessionBuilder } from "../../src/session-builder.ts";

const PLACEHOLDER = "[Left out to save room: ";

function recorded(topic: string, configure: (session: SessionBuilder) => SessionBuilder): Promise<Scripted> {
  return scripted(topic, { configure });
}

/** A tool that gives so many words for each page. */
const read = tool({
  description: "Reads a page.",
  inputSchema: z.object({ page: z.number(), words: z.number() }),
  execute: ({ page, words }) => prose(words, page),
});

/** A turn that reads a page. */
async function readPage(session: CompactionSession, page: number, words = 500): Promise<void> {
  await session.socket.ask(`Page ${page}.\n/call read {"page":${page},"words":${words}}\n/then\n/words 20`);
}

function outputsOf(messages: readonly UIMessage[]): unknown[] {
  return messages.flatMap(({ parts }) => parts.flatMap((part) => ("output" in part ? [part.output] : [])));
}

describe("the mode", () => {
  // trap 32: what is off stays off
  it.each<[string, (session: SessionBuilder) => SessionBuilder, boolean]>([
    ["off", (builder) => builder.compactAfter(false), false],
    ["suggest", (builder) => builder.compactAfter(THRESHOLD, { mode: "suggest" }), true],
  ])("[CM2][AC28] %s never compacts by itself, and a person can", async (_mode, configure, suggestion) => {
    const session = await compactionSession("mode", configure);
    await session.fill();
    await session.say(prose(800), 50);
    await session.reconsider();
    expect(await session.list()).toEqual([]);
    const before = await session.context();
    expect([before.tokens > THRESHOLD, before.suggestion]).toEqual([true, suggestion]);
    expect(await session.compact()).toMatchObject({ outcome: "applied", trigger: "manual" });
    expect((await session.context()).suggestion).toBe(false);
  });
});

describe("settings", () => {
  it("[CM1][HT3] of a session say after how many tokens it compacts, and how many it keeps", async () => {
    const session = await compactionSession("settings", (builder) => builder.compactAfter(20_000));
    await session.fill();
    for (let turn = 0; turn < 3; turn += 1) await session.say("A word.", 40);
    expect(await session.list()).toEqual([]);
    const { status } = await session.http.call("PATCH", "", { compactAfter: THRESHOLD, tailTokenBudget: 300 });
    expect(status).toBe(200);
    await session.reconsider();
    const [compaction] = await session.recorded(1);
    expect(compaction?.outcome).toBe("applied");
    const { tokens, breakdown } = await session.context();
    expect(tokens - breakdown.summary).toBeLessThan(300 + 60);
    await session.http.call("PATCH", "", { compactAfter: null, tailTokenBudget: null });
    expect(await session.context()).toMatchObject({ threshold: 20_000 });
  });

  // trap 12
  it("[CM11] that leave no room for the tail, or exceed the window, are reduced with a warning that says the numbers", async () => {
    const session = await compactionSession("reduced", (builder) => builder.system(prose(100)));
    const { threshold, breakdown, warnings } = await session.context();
    const room = THRESHOLD - breakdown.system;
    expect([threshold, warnings]).toEqual([
      THRESHOLD,
      [
        `tailTokenBudget is 20000 tokens, but 3000 less ${breakdown.system} for system prompt and tools leaves ${room}; ${Math.floor(room / 2)} are kept.`,
      ],
    ]);
    await session.http.call("PATCH", "", { compactAfter: 40_000, tailTokenBudget: 1_000 });
    expect(await session.context()).toMatchObject({
      threshold: 27_904,
      warnings: [
        "compactAfter is 40000 tokens, but the window holds 27904 beside the answer; it compacts after 27904.",
      ],
    });
  });

  it.each([
    [{ compactAfter: -1 }],
    [{ compactAfter: 0 }],
    [{ compactAfter: "120%" }],
    [{ compactAfter: "soon" }],
    [{ tailTokenBudget: 0 }],
    [{ tailTokenBudget: 1.5 }],
    [{ tailTokenBudget: "many" }],
    [{ minTailMessages: 3 }],
  ])("[HT3] %j are refused and change nothing", async (settings) => {
    const session = await compactionSession("settings-refused");
    expect(await session.http.refused("PATCH", "", settings)).toMatchObject({ status: 400, code: "invalid-settings" });
    expect((await session.http.summary()).settings).toEqual({});
  });
});

describe("levers", () => {
  it.each<[unknown, object?]>([
    [-1],
    [0],
    [Number.NaN],
    [1.5],
    ["soon"],
    ["120%"],
    [true],
    [THRESHOLD, { mode: "later" }],
  ])("[CF2][HT12] compactAfter(%j, %j) is refused by name", async (threshold, options) => {
    const id = newSessionId("threshold");
    // SAFETY: what nobody should write is what is tested.
    configureSession(id, (builder) => builder.compactAfter(threshold as number, options));
    const refused = await new HttpSession("configured", id).refused("GET", "/context");
    expect(refused).toMatchObject({
      status: 503,
      code: "misconfigured",
      message: expect.stringMatching(/^(compactAfter|mode) is .*; it must be /),
    });
  });

  it.each<[string, object]>([
    ["tailTokenBudget", { tailTokenBudget: -1 }],
    ["tailTokenBudget", { tailTokenBudget: Number.NaN }],
    ["minTailMessages", { minTailMessages: 0 }],
    ["protectHead", { protectHead: -1 }],
    ["protectHead", { protectHead: "2" }],
    ["prune", { prune: true }],
    ["prune", { prune: -5 }],
    ["timeoutMs", { timeoutMs: Infinity }],
    ["model", { model: "" }],
    ["instructions", { instructions: 7 }],
    ["onCompaction", { onCompaction: "cancel" }],
    ["keepMessages", { keepMessages: 3 }],
  ])("[CF2][HT12] a wrong %s is refused by name: %j", async (name, levers) => {
    const id = newSessionId("levers");
    configureSession(id, (builder) => builder.compaction(levers));
    const refused = await new HttpSession("configured", id).refused("POST", "/compact");
    expect(refused).toMatchObject({ status: 503, code: "misconfigured", message: expect.stringContaining(name) });
  });

  it("[CM3] protectHead keeps messages in front of every summary, and no summariser reads them", async () => {
    const { model, session } = await recorded("head", (builder) => builder.compaction({ protectHead: 2 }));
    await session.say("The head stays: TIDE-4711.", 20);
    const first = await session.fillAndCompact();
    const messages = await session.http.messages();
    await session.say("And?", 10);
    const head = (text: string | undefined) => text?.includes("TIDE-4711") ?? false;
    expect([head(model.shown[0]), model.shown[2]?.startsWith("<summary>")]).toEqual([true, true]);
    // where a question follows the summary, both are of one role, so that a model is shown them as one message
    const joined = /\nTurn \d+\./.test(model.shown[2] ?? "") ? 1 : 0;
    const kept = model.shown.length - "head, head, summary, new".split(",").length + joined;
    expect(first.coveredMessages).toBe(messages.length - 2 - kept);
    const second = await session.compact();
    await session.say("And now?", 10);
    expect([second.outcome, head(model.shown[0]), model.shown[2]?.startsWith("<summary>")]).toEqual([
      "applied",
      true,
      true,
    ]);
    expect(model.asked.filter(head)).toEqual([]);
    expect((await session.errors()).slice(0, 1).filter((error) => Math.abs(error) > 2)).toEqual([]);
  });

  it("[CM5] minTailMessages keeps that many, also above the tail budget", async () => {
    const { model, session } = await recorded("least", (builder) =>
      builder.compaction({ minTailMessages: 6, tailTokenBudget: 100 }),
    );
    await session.fillAndCompact();
    await session.say("And?", 10);
    expect(model.shown).toHaveLength(6 + 1);
    const other = await recorded("budget", (builder) => builder.compaction({ tailTokenBudget: 100 }));
    await other.session.fillAndCompact();
    await other.session.say("And?", 10);
    expect(other.model.shown.length).toBeLessThan(6);
  });

  it("[CM21] another model writes the summary, and its calls are booked under its name", async () => {
    const writer = new ScriptedModel({ modelId: "writer" });
    const { model, session } = await recorded("writer", (builder) => builder.compaction({ model: writer }));
    const { model: by, summaryUsage } = await session.fillAndCompact();
    expect([by, writer.summaries.length, model.summaries.length]).toEqual(["scripted/writer", 1, 0]);
    const { records } = await session.http.usage();
    expect(records[0]).toMatchObject({ purpose: "summary", model: "scripted/writer", usage: summaryUsage });
    expect((await session.context()).model).toBe("scripted/mirror");
    await session.say("And?", 10);
    expect((await session.errors()).slice(0, 1).filter((error) => Math.abs(error) > 2)).toEqual([]);
  });
});

describe("pruning", () => {
  // trap 37
  it("[CM12] leaves old outputs out of the prompt in one batch, without a summary; storage keeps them", async () => {
    const { model, session } = await recorded("pruned", (builder) => builder.tools({ read }));
    for (let page = 0; page < 3; page += 1) await readPage(session, page);
    const before = await session.http.messages();
    await session.fill();
    const [compaction] = await session.recorded(1);
    expect(compaction).toMatchObject({
      outcome: "pruned",
      reason: null,
      summary: null,
      summaryUsage: null,
      model: null,
      coveredMessages: 0,
    });
    expect(compaction?.tokensAfter).toBeLessThan(0.8 * THRESHOLD);
    expect(model.summaries).toEqual([]);
    expect(bytesOf((await session.http.messages()).slice(0, before.length))).toBe(bytesOf(before));
    await session.say("And?", 10);
    expect(model.shown.filter((text) => text.includes(PLACEHOLDER))).toHaveLength(3);
    expect((await session.errors()).slice(0, 1).filter((error) => Math.abs(error) > 2)).toEqual([]);
    expect((await session.newest()).reportedAfter).toBe((await session.predictions())[0]?.actual);
  });

  it("[CM12][CM29] is taken back, and a later summary reads the outputs whole", async () => {
    const { model, session } = await recorded("pruned-back", (builder) => builder.tools({ read }));
    for (let page = 0; page < 3; page += 1) await readPage(session, page);
    const { id } = await (async () => (await session.fill(), (await session.recorded(1))[0] ?? { id: 0 }))();
    const pruned = await session.context();
    await session.undo(id);
    expect((await session.context()).tokens).toBeGreaterThan(pruned.tokens + 1_000);
    await session.say("Go on.", 5);
    await session.recorded(2);
    const summary = await session.compact();
    expect(summary.outcome).toBe("applied");
    const [first = ""] = outputsOf(await session.http.messages());
    expect(model.asked.join("\n")).toContain(String(first).slice(0, 1_000));
    await session.say("And?", 10);
    expect(model.shown.filter((text) => text.includes(PLACEHOLDER))).toEqual([]);
  });

  it("[CM12] `false` leaves none out: a summary is written instead", async () => {
    const { model, session } = await recorded("unpruned", (builder) =>
      builder.tools({ read }).compaction({ prune: false }),
    );
    for (let page = 0; page < 3; page += 1) await readPage(session, page);
    await session.fill();
    expect((await session.recorded(1))[0]).toMatchObject({ outcome: "applied" });
    await session.say("And?", 10);
    expect([model.summaries.length, model.shown.filter((text) => text.includes(PLACEHOLDER))]).toEqual([1, []]);
  });

  it("[CM12] protects as many of the newest tokens as it is told", async () => {
    const { model, session } = await recorded("protected", (builder) =>
      builder.tools({ read }).compaction({ prune: 100 }),
    );
    await session.say(prose(500), 300);
    for (let page = 0; page < 3; page += 1) await readPage(session, page, 560);
    const [compaction] = await session.recorded(1);
    expect(compaction?.outcome).toBe("pruned");
    await session.say("And?", 10);
    expect(model.shown.filter((text) => text.includes(PLACEHOLDER)).length).toBeGreaterThan(1);
  });
});

describe("onCompaction", () => {
  it("[CM28] is told what is about to be done, and nothing is stored when it cancels", async () => {
    const proposals: CompactionProposal[] = [];
    const covered: UIMessage[][] = [];
    const { model, session } = await recorded("cancel", (builder) =>
      builder.compaction({
        instructions: "Briefly.",
        onCompaction: (proposal) => {
          proposals.push(proposal);
          covered.push(proposal.messages());
          return { cancel: "A person is looking." };
        },
      }),
    );
    const compaction = await session.fillAndCompact();
    expect(compaction).toMatchObject({ outcome: "cancelled", reason: "A person is looking.", tokensAfter: null });
    expect([model.summaries.length, (await session.context()).compactions]).toEqual([0, 0]);
    const [proposal] = proposals;
    expect(proposal).toMatchObject({
      trigger: "after-turn",
      contextTokens: compaction.tokensBefore,
      threshold: THRESHOLD,
      previousSummary: null,
      instructions: ["Briefly."],
    });
    const { keptTokens = 0, leavingTokens = 0 } = proposal ?? {};
    expect(Math.abs(compaction.tokensBefore - keptTokens - leavingTokens)).toBeLessThan(60);
    const messages = await session.http.messages();
    expect(covered[0]).toEqual(messages.slice(0, covered[0]?.length));
    expect([(covered[0]?.length ?? 0) > 4, (covered[0]?.length ?? 0) < messages.length]).toEqual([true, true]);
  });

  it("[CM28] that cancelled is asked again when the context has grown by a twentieth, and not before", async () => {
    const asked: number[] = [];
    const { session } = await recorded("declines", (builder) =>
      builder.compaction({ onCompaction: ({ contextTokens }) => (asked.push(contextTokens), { cancel: "Not now." }) }),
    );
    const { tokensBefore } = await session.fillAndCompact();
    await session.say("Go on.", 5);
    expect(asked).toEqual([tokensBefore]);
    await session.say("And on.", 200);
    expect((await session.recorded(2))[0]).toMatchObject({ outcome: "cancelled", reason: "Not now." });
    expect(asked).toHaveLength(2);
    expect((asked[1] ?? 0) / tokensBefore).toBeGreaterThan(1.05);
  });

  it("[CM28] gives a summary of its own, and no model is asked", async () => {
    const { model, session } = await recorded("own", (builder) =>
      builder.compaction({ onCompaction: async () => ({ summary: "Goal: TIDE-4711, as we wrote it." }) }),
    );
    expect(await session.fillAndCompact()).toMatchObject({
      outcome: "applied",
      summary: "Goal: TIDE-4711, as we wrote it.",
      summaryUsage: null,
      model: null,
    });
    await session.say("And?", 10);
    expect([model.summaries.length, model.shown[0]]).toEqual([0, expect.stringContaining("as we wrote it.")]);
    expect((await session.errors()).slice(0, 1).filter((error) => Math.abs(error) > 2)).toEqual([]);
    expect((await session.http.usage()).records.map(({ purpose }) => purpose)).not.toContain("summary");
  });

  it("[CM28] lets it be done by saying nothing", async () => {
    const asked: string[] = [];
    const session = await compactionSession("say-nothing", (builder) =>
      builder.compaction({ onCompaction: ({ trigger }) => void asked.push(trigger) }),
    );
    expect([(await session.fillAndCompact()).outcome, asked]).toEqual(["applied", ["after-turn"]]);
  });

  // trap 18
  it.each<[string, () => { summary: string }, string]>([
    [
      "throws",
      () => {
        throw new Error("secret of the application");
      },
      "The session failed to compact; it has been logged.",
    ],
    ["gives an empty summary", () => ({ summary: " \n" }), "onCompaction gave no summary"],
    ["gives a summary longer than any", () => ({ summary: "x".repeat(400_001) }), "onCompaction gave no summary"],
  ])("[CM28][CM24] that %s changes nothing, and says so", async (_what, onCompaction, reason) => {
    logged();
    const { model, session } = await recorded("hook-fails", (builder) => builder.compaction({ onCompaction }));
    const compaction = await session.fillAndCompact();
    expect(compaction).toMatchObject({ outcome: "failed", reason: expect.stringContaining(reason), tokensAfter: null });
    const { length } = await session.http.messages();
    await session.say("And?", 10);
    expect(model.shown).toHaveLength(length + 1);
  });
});

it("[CM21] instructions of the application reach the summariser", async () => {
  const { model, session } = await recorded("instructions", (builder) =>
    builder.compaction({ instructions: "Keep every price." }),
  );
  await session.fillAndCompact();
  expect(model.asked.map((asked) => blockOf(asked, "summary-instructions"))).toEqual(["Keep every price."]);
});
