/** Branches, erased messages and archives: which summary stands where, and that the number knows it. */
import { describe, expect, it } from "vitest";
import type { UIMessage } from "ai";
import { configureSession } from "./configured-sessions.ts";
import { compactionSession, scripted, type CompactionSession, type Scripted } from "./compaction-session.ts";
import { prose } from "./context-session.ts";
import { HttpSession, newSessionId, request, addressOf } from "./service.ts";
import { refusal, ScriptedModel } from "./scripted-model.ts";

/** Percent. A cut parts what one report measured, and mirror's tokens are not those the estimator was fitted on. */
const CLOSE = 3;

/** What a model is shown of the active branch, by its next turn, and how far the prediction of that was off in percent. */
async function nextPrompt({ model, session }: Scripted) {
  await session.say("And now?", 10);
  const [error = NaN] = await session.errors();
  return { summarised: isSummary(model.shown[0]), messages: model.shown.length, close: Math.abs(error) <= CLOSE };
}

function isSummary(text: string | undefined): boolean {
  return text?.startsWith("<summary>") ?? false;
}

async function leafOf(session: CompactionSession): Promise<number> {
  const active = (await session.http.branches()).find((branch) => branch.active);
  if (!active) throw new Error("no branch is active");
  return active.leaf;
}

async function switchTo(session: CompactionSession, leaf: number): Promise<void> {
  const { status } = await session.http.call("PUT", "/leaf", { leaf });
  expect(status).toBe(200);
}

/** The users' messages, oldest first. */
async function questions(session: CompactionSession): Promise<UIMessage[]> {
  return (await session.http.messages()).filter(({ role }) => role === "user");
}

// trap 27
describe("a branch", () => {
  it("[CM14] that parts behind the cut has the summary, whether by a regenerate or by an edit", async () => {
    const { model, session } = await scripted("behind");
    await session.fillAndCompact();
    const before = await session.context();
    await session.regenerate();
    expect(isSummary(model.shown[0])).toBe(true);
    const shown = model.shown.length;
    const asked = await questions(session);
    await session.edit(asked.at(-1)?.id ?? "", "Something else.\n/words 450");
    expect([isSummary(model.shown[0]), model.shown.length]).toEqual([true, shown]);
    const { tokens, breakdown } = await session.context();
    expect([breakdown.summary, Math.abs(tokens - before.tokens) < 0.02 * before.tokens]).toEqual([
      before.breakdown.summary,
      true,
    ]);
    expect(await nextPrompt({ model, session })).toMatchObject({ summarised: true, close: true });
    expect(await session.list()).toHaveLength(1);
  });

  it("[CM14] that parts before the cut is shown whole, and the one with the summary is found again", async () => {
    const { model, session } = await scripted("before");
    await session.fillAndCompact();
    const compacted = await leafOf(session);
    const before = await session.context();
    const asked = await questions(session);
    await session.edit(asked[3]?.id ?? "", `Another third question. ${prose(60)}\n/words 30`);
    const whole = await leafOf(session);
    expect(model.shown.filter(isSummary)).toEqual([]);
    expect(model.shown).toHaveLength(7);
    expect((await session.errors()).slice(0, 1).filter((error) => Math.abs(error) > 2)).toEqual([]);
    const edited = await session.context();
    expect(edited.breakdown.summary).toBe(0);
    await switchTo(session, compacted);
    expect(await session.context()).toMatchObject({ tokens: before.tokens, breakdown: before.breakdown });
    await switchTo(session, whole);
    expect(await session.context()).toMatchObject({ tokens: edited.tokens, breakdown: edited.breakdown });
    expect(await nextPrompt({ model, session })).toEqual({ summarised: false, messages: 9, close: true });
    await switchTo(session, compacted);
    await session.evict();
    expect((await session.context()).tokens).toBe(before.tokens);
    expect(await nextPrompt({ model, session })).toMatchObject({ summarised: true, close: true });
  });

  it("[CM14] a regenerate of an answer before the cut is made without the summary", async () => {
    const { model, session } = await scripted("regenerate");
    await session.fillAndCompact();
    const [, answer] = await session.http.messages();
    await session.regenerate(answer?.id);
    expect(model.shown).toEqual([expect.stringMatching(/^Turn 0\./)]);
    expect((await session.context()).breakdown.summary).toBe(0);
  });

  it("[CM14] an answer that fails on another branch gives the branch with the summary back", async () => {
    const { model, session } = await scripted("silent");
    await session.fillAndCompact();
    const before = await session.context();
    const messages = await session.http.messages();
    model.refusals.push(refusal(400, "Not now."));
    const reply = await session.regenerate(messages[1]?.id);
    expect([reply.ending, reply.code]).toEqual(["error", "model-failed"]);
    expect(await session.http.messages()).toEqual(messages);
    expect(await session.context()).toEqual(before);
    expect(await nextPrompt({ model, session })).toMatchObject({ summarised: true, close: true });
  });

  it("[CM14] that is compacted by itself leaves the others' summaries as they are", async () => {
    const { model, session } = await scripted("both");
    await session.fillAndCompact();
    const [first, before] = [await leafOf(session), await session.context()];
    const asked = await questions(session);
    await session.edit(asked[2]?.id ?? "", `Elsewhere. ${prose(60)}\n/words 30`);
    const { id, coveredMessages } = await session.fillAndCompact();
    const [second, after] = [await leafOf(session), await session.context()];
    expect([id, coveredMessages > 4, after.breakdown.summary > 0]).toEqual([2, true, true]);
    await switchTo(session, first);
    expect((await session.context()).tokens).toBe(before.tokens);
    expect(await session.http.refused("DELETE", "/compactions/2")).toMatchObject({ code: "not-in-force" });
    await nextPrompt({ model, session });
    expect(model.shown[0]).not.toContain("Elsewhere.");
    await switchTo(session, second);
    expect((await session.context()).tokens).toBe(after.tokens);
    await nextPrompt({ model, session });
    expect(model.shown[0]).toContain("Elsewhere.");
    expect(await session.http.refused("DELETE", "/compactions/1")).toMatchObject({ code: "not-in-force" });
  });

  it("[CM14][CM5] where the pinned question is edited has no summary that was made after it", async () => {
    const { model, session } = await scripted("pinned");
    await session.say("A first question.", 100);
    await session.socket.ask("The one question.\n/words 3000", { id: "pinned" });
    const [compaction] = await session.recorded(1);
    await session.say("And?", 10);
    expect([compaction?.outcome, isSummary(model.shown[0])]).toEqual(["applied", true]);
    await session.edit("pinned", "Another question.\n/words 5");
    expect(model.shown).toEqual([
      expect.stringMatching(/^A first question\./),
      expect.any(String),
      expect.stringMatching(/^Another question\./),
    ]);
  });
});

describe("an erased message", () => {
  it("[CM32] that a summary covers takes it back and erases its text", async () => {
    const { model, session } = await scripted("erased");
    await session.say("The safe opens with TIDE-4711. Remember it.", 20);
    const { id, summary } = await session.fillAndCompact();
    expect(summary).toContain("TIDE-4711");
    const second = await session.compact();
    expect([second.outcome, second.summary?.includes("TIDE-4711")]).toEqual(["applied", true]);
    const [secret] = await session.http.messages();
    expect(await session.http.call("DELETE", `/messages/${secret?.id}`)).toMatchObject({ status: 200 });
    expect((await session.list()).map((compaction) => [compaction.id, compaction.undone, compaction.summary])).toEqual([
      [2, true, null],
      [id, true, null],
    ]);
    await session.http.call("PATCH", "", { compactAfter: "off" });
    expect(await nextPrompt({ model, session })).toMatchObject({ summarised: false, close: true });
    expect(JSON.stringify(model.turns.at(-1)?.prompt)).not.toContain("TIDE-4711");
    expect(await (await session.http.send("GET", "/export")).text()).not.toContain("TIDE-4711");
  });

  it("[CM32] that no summary covers leaves them in force", async () => {
    const { model, session } = await scripted("erased-kept");
    const { id } = await session.fillAndCompact();
    const before = await session.context();
    const kept = (await session.http.messages()).at(-1);
    await session.http.call("DELETE", `/messages/${kept?.id}`);
    expect(await session.newest()).toMatchObject({ id, undone: false });
    const after = await session.context();
    expect([after.breakdown.summary, after.tokens < before.tokens]).toEqual([before.breakdown.summary, true]);
    expect(await nextPrompt({ model, session })).toMatchObject({ summarised: true, close: true });
  });
});

describe("an archive", () => {
  it("[HT10][CM14] brings every compaction back: the same list, number and prompt, and the same one to take back", async () => {
    const { session } = await scripted("archived");
    await session.fillAndCompact();
    await session.say("On.", 10);
    await session.compact("Keep it short.");
    await session.undo(2);
    await session.compact();
    const archive = await (await session.http.send("GET", "/export")).text();
    const { status, copy } = await restored(archive, (builder) =>
      builder.compactAfter(3_000).model(new ScriptedModel()).contextWindow(32_000).maxOutputTokens(4_096),
    );
    expect(status).toBe(200);
    expect(await copy.get("/compactions")).toEqual(await session.http.get("/compactions"));
    expect(await copy.usage()).toEqual(await session.http.usage());
    expect(await copy.get("/context")).toEqual(await session.context());
    expect(linesOf(await (await copy.send("GET", "/export")).text())).toEqual(linesOf(archive));
    await session.undo(3);
    expect((await copy.call("DELETE", "/compactions/3")).status).toBe(200);
    expect((await copy.get<{ tokens: number }>("/context")).tokens).toBe((await session.context()).tokens);
  });

  it("[HT10] brings back what failed, was cancelled or brought nothing, whatever the reason says", async () => {
    const cancel = "Not now. ".repeat(400);
    const session = await compactionSession("archived-reasons", (builder) =>
      builder.compaction({ onCompaction: () => ({ cancel }) }),
    );
    await session.compact();
    await session.fill();
    await session.recorded(2);
    const archive = await (await session.http.send("GET", "/export")).text();
    const { status, copy } = await restored(archive);
    expect(status).toBe(200);
    expect(await copy.get("/compactions")).toEqual(await session.http.get("/compactions"));
  });
});

function linesOf(archive: string): unknown[] {
  return archive.split("\n").map((line) => line && JSON.parse(line));
}

/** Another session that an archive was imported into. */
async function restored(archive: string, configure: Parameters<typeof configureSession>[1] = (builder) => builder) {
  const copy = new HttpSession("configured", newSessionId("restored"));
  configureSession(copy.id, configure);
  const headers = { "content-type": "application/jsonl" };
  const { status } = await request(addressOf("configured", copy.id, "/messages"), {
    method: "POST",
    headers,
    body: archive,
  });
  return { status, copy };
}
