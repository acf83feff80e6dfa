/** Archives over HTTP: out of one session, into another, and by hand. */
import { tool } from "ai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { ContextReport } from "../../src/context/report.ts";
import { configureSession } from "./configured-sessions.ts";
import { conversation } from "./conversation.ts";
import { addressOf, errorOf, HttpSession, newSessionId, request } from "./service.ts";
import { openSocket, textOf } from "./socket.ts";
import { noteToolRun, toolRuns } from "./tool-runs.ts";
import type { Service } from "./worker.ts";

async function exported(service: Service, id: string): Promise<string> {
  return (await request(addressOf(service, id, "/export"))).text();
}

function restore(service: Service, id: string, body: string): Promise<Response> {
  const headers = { "content-type": "application/jsonl" };
  return request(addressOf(service, id, "/messages"), { method: "POST", body, headers });
}

const linesOf = (archive: string): unknown[] =>
  archive
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));

/** A value in so many lists. */
function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

describe("an archive", () => {
  it("[HT10] gives the same messages, branches, usage, settings and context in another session", async () => {
    const { id, http, socket } = await conversation("archived");
    socket.submit("again", [], { trigger: "regenerate-message" });
    await socket.reply("again");
    await http.call("PATCH", "", { systemPrompt: "Be brief.", compactAfter: "50%" });
    await http.send("DELETE", "/messages/u-1");
    await socket.ask("/words 5");
    const archive = await exported("chat", id);
    const other = new HttpSession("chat", newSessionId("restored"));
    expect((await restore("chat", other.id, archive)).status).toBe(200);
    for (const path of ["/messages", "/branches", "/usage", "/context"]) {
      expect(await other.get(path)).toEqual(await http.get(path));
    }
    expect((await other.summary()).settings).toEqual((await http.summary()).settings);
    expect(linesOf(await exported("chat", other.id))).toEqual(linesOf(archive));
    const next = await openSocket("chat", other.id);
    expect((await next.ask("/words 2")).text.split(" ")).toHaveLength(2);
  });

  it("[HT10] of an empty session, and of one whose every message was erased, can be imported", async () => {
    const empty = await exported("chat", newSessionId("empty-archive"));
    const { id, http } = await conversation("erased-archive");
    for (const message of await http.messages()) await http.send("DELETE", `/messages/${message.id}`);
    for (const archive of [empty, await exported("chat", id)]) {
      const other = newSessionId("restored-empty");
      const response = await restore("chat", other, archive);
      expect([response.status, await response.json()]).toMatchObject([200, { inserted: 0, skipped: 0 }]);
      expect(await new HttpSession("chat", other).messages()).toEqual([]);
      expect((await (await openSocket("chat", other)).ask("/words 2")).text.split(" ")).toHaveLength(2);
    }
  });

  it.each<[string, (entry: Record<string, unknown>) => object, string, RegExp]>([
    ["a sequence at the end of integers", (entry) => ({ ...entry, seq: 2 ** 53 - 3 }), "bad-request", /^Line 2 /],
    ["an anchor of nothing", (entry) => ({ ...entry, anchor: {} }), "bad-request", /^Line 2 /],
    ["units beyond all sums", (entry) => ({ ...entry, unitsSaid: 1e308 }), "bad-request", /^Line 2 /],
    [
      "parts that are no message's",
      (entry) => ({ ...entry, parts: [{ type: "text", text: 7 }] }),
      "invalid-message",
      /not a valid UI message/,
    ],
    [
      "parts nested too deep",
      (entry) => ({ ...entry, parts: [{ type: "data-note", data: nested(2_600) }] }),
      "invalid-message",
      /nested deeper than 200 levels/,
    ],
  ])("[HT10][TN30] with %s is refused, and the session stays empty and works", async (_n, change, code, sentence) => {
    const { id } = await conversation("changed-archive");
    const lines = (await exported("chat", id)).trim().split("\n");
    const broken = lines.with(1, JSON.stringify(change(JSON.parse(lines[1] ?? "{}"))));
    const other = newSessionId("hostile");
    const refused = await errorOf(await restore("chat", other, broken.join("\n")));
    expect([refused.status, refused.code]).toEqual([400, code]);
    expect(refused.message).toMatch(sentence);
    const http = new HttpSession("chat", other);
    expect(await http.messages()).toEqual([]);
    expect((await http.get<ContextReport>("/context")).tokens).toBe(0);
    expect((await (await openSocket("chat", other)).ask("/words 2")).text.split(" ")).toHaveLength(2);
  });

  it("[TN30] of a session whose tool answered deeper than can be kept is imported like any other", async () => {
    const id = newSessionId("deep-output");
    const dig = tool({ inputSchema: z.object({}), execute: () => nested(2_600) });
    configureSession(id, (builder) => builder.tools({ dig }));
    const socket = await openSocket("configured", id);
    const http = new HttpSession("configured", id);
    await socket.ask("/call dig\n/then\n/words 3");
    expect((await http.summary()).turn).toBe(null);
    expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
    const messages = await http.messages();
    expect(messages[1]?.parts[1]).toMatchObject({
      state: "output-error",
      errorText: "The tool ran, but its output cannot be kept: it is nested deeper than 200 levels",
    });
    const other = newSessionId("deep-restored");
    expect((await restore("chat", other, await exported("configured", id))).status).toBe(200);
    expect(await new HttpSession("chat", other).messages()).toEqual(messages);
    expect(textOf(messages.at(-1)).split(" ")).toHaveLength(2);
  });

  it.each([210, 2_600])(
    "[TN30] of a session whose model called a tool with an input %s deep is imported too",
    async (levels) => {
      const id = newSessionId("deep-input");
      const keep = tool({ inputSchema: z.looseObject({}), execute: () => (noteToolRun(id, "keep"), "kept") });
      configureSession(id, (builder) => builder.tools({ keep }));
      const socket = await openSocket("configured", id);
      const failed = await socket.ask(`/call keep ${JSON.stringify({ a: nested(levels) })}\n/then\n/words 3`);
      expect([failed.ending, failed.errorText]).toEqual([
        "error",
        "model-failed: The model failed: it called a tool with an input that is nested deeper than 200 levels.",
      ]);
      expect(toolRuns(id)).toEqual([]);
      expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
      const other = newSessionId("deep-input-restored");
      expect((await restore("chat", other, await exported("configured", id))).status).toBe(200);
      expect(await new HttpSession("chat", other).messages()).toEqual(
        await new HttpSession("configured", id).messages(),
      );
    },
  );
});
