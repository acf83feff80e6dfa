/** Compactions inside a turn: calls and results that stay together, questions that stay, turns that die or wait for a person. */
import { tool, type UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { SessionBuilder } from "../../src/session-builder.ts";
import { newsIn, scripted, type CompactionSession, type Scripted } from "./compaction-session.ts";
import { logged, prose } from "./context-session.ts";
import { refusal, type ScriptedModel } from "./scripted-model.ts";
import { crash, eventually } from "./service.ts";
import { openSocket, userMessage } from "./socket.ts";
import { noteToolRun, toolRuns } from "./tool-runs.ts";

const TOO_LONG = refusal(400, "prompt is too long: 5000 tokens > 4000 maximum");

/** A session that reads pages of 600 words, each long enough under way for a summary, and asks its client where it is. */
async function reading(
  topic: string,
  configure: (session: SessionBuilder) => SessionBuilder = (session) => session,
): Promise<Scripted> {
  let read: Scripted | undefined;
  const page = tool({
    description: "Reads a page.",
    inputSchema: z.object({ page: z.number(), refuseNext: z.boolean().optional(), ms: z.number().optional() }),
    execute: async ({ page: number, refuseNext, ms = 40 }) => {
      noteToolRun(read?.session.id ?? "", `page ${number}`);
      if (refuseNext) read?.model.refusals.push(TOO_LONG);
      await new Promise((resolve) => setTimeout(resolve, ms));
      return `page-${number}: ${prose(600, number)}`;
    },
  });
  const locate = tool({ description: "Asks the client where it is.", inputSchema: z.object({}) });
  read = await scripted(topic, {
    configure: (builder) => configure(builder.compaction({ prune: false }).tools({ page, locate })),
  });
  return read;
}

function pages(from: number, to: number): string {
  const calls = Array.from(
    { length: to - from },
    (_, index) => `/reason Page ${from + index}.\n/call page {"page":${from + index}}`,
  );
  return calls.join("\n/then\n");
}

function promptOf(model: ScriptedModel): string {
  return JSON.stringify(model.turns.at(-1)?.prompt);
}

/** Posts the newest message with its last call answered, as a client does. */
async function answer(session: CompactionSession, requestId: string, output: unknown) {
  const message = (await session.http.messages()).at(-1);
  const parts = (message?.parts ?? []) as (UIMessage["parts"][number] & { state?: string })[];
  const answered = parts.map((part) =>
    part.type === "tool-locate" ? { ...part, state: "output-available", output } : part,
  );
  session.socket.submit(requestId, [{ ...message, parts: answered }], { messageId: message?.id });
  return session.socket.reply(requestId);
}

describe("a call that waits for its client", () => {
  // trap 14
  it("[CM4][TN9] stays where its message is compacted before it, and is answered as if nothing had happened", async () => {
    const { model, session } = await reading("client-call");
    const reply = await session.socket.ask(`Read, then ask me.\n${pages(0, 6)}\n/then\n/call locate\n/then\n/words 5`);
    expect(reply.ending).toBe("end");
    expect((await session.recorded(1)).at(-1)).toMatchObject({ outcome: "applied", trigger: "between-steps" });
    expect((await session.compact()).outcome).not.toBe("failed");
    await session.evict();
    const before = (await session.http.messages()).at(-1);
    const continued = await answer(session, "answer", { pier: 7 });
    expect([continued.ending, continued.text.split(" ").length]).toEqual(["end", 5]);
    expect(promptOf(model)).toContain('{"pier":7}');
    expect(model.shown[0]).toMatch(/^<summary>[\s\S]*\nRead, then ask me\./);
    const after = (await session.http.messages()).at(-1);
    expect([after?.id, after?.parts.filter(({ type }) => type === "tool-page").length]).toEqual([before?.id, 6]);
    expect(toolRuns(session.id)).toHaveLength(6);
  });
});

describe("a turn", () => {
  // trap 15
  it("[CM4][TN20] shows reasoning with its signature or not at all, and no summariser reads it", async () => {
    const { model, session } = await reading("reasoning");
    await session.socket.ask(`Read.\n${pages(0, 6)}\n/then\n/words 5`);
    await session.recorded(1);
    await session.say("And?", 5);
    const thoughts = model.turns.flatMap(({ prompt }) =>
      prompt.flatMap(({ content }) =>
        typeof content === "string" ? [] : content.filter(({ type }) => type === "reasoning"),
      ),
    );
    expect(thoughts.length).toBeGreaterThan(5);
    expect(thoughts.filter((part) => !JSON.stringify(part).includes('"signature":"signed-'))).toEqual([]);
    expect(model.asked.filter((asked) => asked.includes("Page 0."))).toEqual([
      expect.stringContaining("/reason Page 0."),
    ]);
    expect(model.asked.join("\n")).not.toContain("] Page 0.");
  });

  // traps 22 and 30
  it("[CM9][CM4] whose provider refuses a later step is compacted before that step, and no tool runs again", async () => {
    const { model, session } = await reading("late-overflow", (builder) => builder.compactAfter(20_000));
    await session.http.call("PATCH", "", { tailTokenBudget: 500 });
    await session.say(prose(300), 100);
    const script = `/call page {"page":0}\n/then\n/call page {"page":1,"refuseNext":true}\n/then\n/words 5`;
    const reply = await session.socket.ask(`Read.\n${script}`);
    expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 5]);
    expect(reply.chunks.filter(({ type }) => type === "start-step")).toHaveLength(3);
    expect(newsIn(reply).map(({ phase }) => phase)).toEqual(["started", "finished"]);
    expect(await session.list()).toMatchObject([{ outcome: "applied", trigger: "overflow" }]);
    expect(toolRuns(session.id)).toEqual(["page 0", "page 1"]);
    // the results that the model had not read yet stay whole
    expect(promptOf(model)).toContain("page-1: ");
    expect((await session.http.usage()).totals.calls).toBe(model.turns.length - 1 + model.summaries.length);
  });

  it("[CM27][TN16] whose object dies after a compaction within it is closed, and the next one goes on from the summary", async () => {
    logged();
    const { model, session } = await reading("crash-in-turn");
    session.socket.submit("long", [
      userMessage(`Read.\n${pages(0, 6)}\n/then\n/call page {"page":6,"ms":60000}\n/then\n/words 5`, "long"),
    ]);
    await eventually(
      "the last page",
      () => toolRuns(session.id).length,
      (runs) => runs === 7,
    );
    const compactions = await session.recorded(1);
    await crash("configured", session.id);
    const socket = await openSocket("configured", session.id);
    const after = await session.list();
    expect(after).toEqual(compactions);
    const message = (await session.http.messages()).at(-1);
    expect(message?.parts.filter(({ type }) => type === "tool-page")).toHaveLength(7);
    const reply = await socket.ask("And?\n/words 5");
    expect([reply.ending, model.shown[0]?.startsWith("<summary>")]).toEqual(["end", true]);
    expect(toolRuns(session.id)).toHaveLength(7);
    expect((await session.errors()).slice(0, 1).filter((error) => Math.abs(error) > 3)).toEqual([]);
  });

  it("[CM14][CM5] that is regenerated after a compaction within it begins from its question, without the summary", async () => {
    const { model, session } = await reading("regenerated");
    await session.say("Hello.", 10);
    await session.socket.ask(`Read.\n${pages(0, 6)}\n/then\n/words 5`);
    await session.recorded(1);
    const compacted = (await session.http.branches()).find(({ active }) => active)?.leaf;
    const { tokens } = await session.context();
    const { length } = model.turns;
    const reply = await session.regenerate();
    expect(reply.ending).toBe("end");
    const first = model.turns[length]?.prompt ?? [];
    expect([first.length, JSON.stringify(first).includes("<summary>")]).toEqual([3, false]);
    expect(toolRuns(session.id)).toHaveLength(12);
    await session.http.call("PUT", "/leaf", { leaf: compacted });
    expect((await session.context()).tokens).toBe(tokens);
  });
});

describe("instructions at the front", () => {
  // trap 28
  it("[CM19][TN27] stay instructions through every compaction, and no summariser reads them", async () => {
    const { model, session } = await scripted("front");
    const rules = { id: "rules", role: "system", parts: [{ type: "text", text: "Rule 4711: speak of tides only." }] };
    await session.http.call("POST", "/messages", { messages: [rules] });
    await session.fillAndCompact();
    await session.fillAndCompact();
    await session.say("And?", 5);
    const systems = model.turns.map(({ prompt }) => prompt.filter(({ role }) => role === "system"));
    expect(new Set(systems.map((system) => JSON.stringify(system)))).toEqual(
      new Set([
        JSON.stringify([{ role: "system", content: "Rule 4711: speak of tides only.", providerOptions: undefined }]),
      ]),
    );
    expect(model.asked.filter((asked) => asked.includes("4711"))).toEqual([]);
    expect(model.shown[0]).toMatch(/^<summary>/);
  });
});
