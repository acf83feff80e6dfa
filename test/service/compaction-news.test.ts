/** What clients are told of a compaction: parts of an open stream, events of the session, and the methods they can call. */
import { env } from "cloudflare:workers";
import { getAgentByName } from "agents";
import { describe, expect, it } from "vitest";
import type { CompactionNews } from "../../src/events.ts";
import type { Compaction } from "../../src/records.ts";
import { compactionSession, newsIn, THRESHOLD } from "./compaction-session.ts";
import { logged, prose } from "./context-session.ts";
import { saysNothing, ScriptedModel } from "./scripted-model.ts";
import type { ServiceEnvironment } from "./worker.ts";

function phasesOf(news: readonly CompactionNews[]): string[] {
  return news.map(({ phase }) => phase);
}

describe("an open stream", () => {
  it("[CM30] says that a compaction began and what came of it, in parts that no message keeps", async () => {
    const session = await compactionSession("parts");
    await session.talk(6);
    const reply = await session.socket.ask(`${prose(1_600)}\n/words 20\n/slow 10`);
    const [compaction] = await session.recorded(1);
    const parts = reply.chunks.filter(({ type }) => type === "data-compaction");
    expect(parts).toEqual([
      {
        type: "data-compaction",
        data: { phase: "started", id: 1, trigger: "before-turn", tokensBefore: compaction?.tokensBefore },
        transient: true,
      },
      { type: "data-compaction", data: { phase: "finished", compaction }, transient: true },
    ]);
    expect(compaction).toMatchObject({ outcome: "applied", tokensAfter: expect.any(Number) });
    expect(JSON.stringify(await session.http.messages())).not.toContain("data-compaction");
  });

  it("[CM30] says that one failed, with the reason, and goes on", async () => {
    const model = new ScriptedModel();
    model.script.push(saysNothing);
    const session = await compactionSession("part-failed", (builder) => builder.model(model).contextWindow(32_000));
    await session.talk(6);
    const reply = await session.socket.ask(`${prose(1_600)}\n/words 20\n/slow 10`);
    expect([reply.ending, reply.text.split(" ").length, phasesOf(newsIn(reply))]).toEqual([
      "end",
      20,
      ["started", "failed"],
    ]);
    expect(newsIn(reply)[1]).toMatchObject({
      compaction: { outcome: "failed", reason: "The model wrote no summary.", tokensAfter: null },
    });
  });

  it("[CM30][CM17] tells of a person's request as well, and of nothing in a stream that has ended", async () => {
    const session = await compactionSession("part-manual");
    await session.talk(5);
    session.socket.submit("slow", [{ id: "u", role: "user", parts: [{ type: "text", text: "/words 30\n/slow 15" }] }]);
    await session.socket.streaming("slow");
    const compaction = await session.compact();
    const reply = await session.socket.reply("slow");
    expect(newsIn(reply)).toEqual([
      { phase: "started", id: 1, trigger: "manual", tokensBefore: compaction.tokensBefore },
      { phase: "finished", compaction },
    ]);
    const { length } = session.socket.frames;
    await session.compact("Once more.");
    expect(session.socket.frames).toHaveLength(length);
  });
});

describe("events", () => {
  it("[CM30][EV1] tell of a compaction after a turn, and of the number it leaves", async () => {
    const session = await compactionSession("events");
    const listener = await session.listen();
    const compaction = await session.fillAndCompact();
    expect(await listener.compactions(2)).toEqual([
      { phase: "started", id: 1, trigger: "after-turn", tokensBefore: compaction.tokensBefore },
      { phase: "finished", compaction },
    ]);
    const report = await session.context();
    const told = listener.events.flatMap(({ type, data }) => (type === "context" ? [data] : []));
    expect(told.at(-1)).toEqual(report);
    expect(told.at(-2)).toMatchObject({ tokens: compaction.tokensBefore });
  });

  it("[CM30][CM24] tell of a failure and its reason, and of no other number", async () => {
    const model = new ScriptedModel();
    model.script.push(saysNothing);
    const session = await compactionSession("event-failed", (builder) => builder.model(model).contextWindow(32_000));
    const listener = await session.listen();
    const compaction = await session.fillAndCompact();
    expect((await listener.compactions(2))[1]).toEqual({ phase: "failed", compaction });
    expect([compaction.outcome, compaction.reason]).toEqual(["failed", "The model wrote no summary."]);
    expect(listener.events.at(-1)?.type).toBe("compaction");
  });

  it("[CM30][CM28] tell of one that was cancelled as failed", async () => {
    const session = await compactionSession("event-cancelled", (builder) =>
      builder.compaction({ onCompaction: () => ({ cancel: "Not now." }) }),
    );
    const listener = await session.listen();
    const compaction = await session.fillAndCompact();
    expect((await listener.compactions(2))[1]).toEqual({ phase: "failed", compaction });
    expect(compaction).toMatchObject({ outcome: "cancelled", reason: "Not now." });
  });

  it("[CM30][CM7] tell of one that brought nothing, which never began", async () => {
    const session = await compactionSession("event-nothing");
    const listener = await session.listen();
    const compaction = await session.compact();
    expect(await listener.compactions(1)).toEqual([{ phase: "finished", compaction }]);
    expect(compaction.outcome).toBe("no-progress");
  });

  it("[CM30][CM29] tell of one that was taken back, and of the number then", async () => {
    const session = await compactionSession("event-undone");
    const { id } = await session.fillAndCompact();
    const listener = await session.listen();
    const undone = await session.undo(id);
    expect(await listener.compactions(1)).toEqual([{ phase: "undone", compaction: undone }]);
    const report = await session.context();
    expect(report.tokens).toBeGreaterThan(THRESHOLD);
    await expect.poll(() => listener.events.at(-1)).toEqual({ type: "context", data: report });
  });
});

interface Methods {
  compact(instructions?: string): Promise<Compaction>;
  getCompactions(before?: string, limit?: number): Promise<{ compactions: Compaction[]; cursor: string | null }>;
  undoCompaction(id: number): Promise<Compaction>;
}

describe("methods", () => {
  it("[CM29] compact, list and take back as the routes do", async () => {
    logged();
    const session = await compactionSession("methods");
    await session.talk(4);
    // SAFETY: the environment of these tests is that of wrangler.toml beside them.
    const { ConfiguredSession } = env as unknown as ServiceEnvironment;
    // SAFETY: a stub has the methods of its class, with promises of what they return.
    const agent = (await getAgentByName(ConfiguredSession, session.id)) as unknown as Methods;
    const first = await agent.compact();
    await session.talk(2);
    const second = await agent.compact("Keep the harbour.");
    expect([first.outcome, second.outcome]).toEqual(["applied", "applied"]);
    const listed = await session.list();
    expect(await agent.getCompactions()).toEqual({ compactions: listed, cursor: null });
    expect(await agent.getCompactions(undefined, 1)).toEqual({ compactions: [listed[0]], cursor: "2" });
    expect(await agent.getCompactions("2")).toEqual({ compactions: [listed[1]], cursor: null });
    expect(await agent.undoCompaction(2)).toEqual({ ...second, undone: true });
    expect((await session.context()).tokens).toBe(second.tokensBefore);
  });
});
