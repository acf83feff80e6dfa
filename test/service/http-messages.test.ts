/** The HTTP API for messages: pages, imports, branches, archives, usage. */
import { evictDurableObject } from "cloudflare:test";
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { conversation } from "./conversation.ts";
import { addressOf, errorOf, HttpSession, newSessionId, pause, request, stubOf } from "./service.ts";
import { openSocket, userMessage } from "./socket.ts";

const answered = (text: string, id: string, metadata?: unknown): UIMessage => ({
  id,
  role: "assistant",
  ...(metadata !== undefined && { metadata }),
  parts: [{ type: "text", text }],
});

describe("messages", () => {
  it("[HT5] are paged from the newest back, each page in order of time, until the cursor is null", async () => {
    const http = new HttpSession("chat", newSessionId("pages"));
    const messages = Array.from({ length: 7 }, (_, index) => userMessage(`${index}`, `m-${index}`));
    await http.call("POST", "/messages", { messages });
    const pages: string[][] = [];
    for (let query = "?limit=3"; ;) {
      const page = await http.get<{ messages: UIMessage[]; cursor: string | null }>(`/messages${query}`);
      pages.push(page.messages.map((message) => message.id));
      if (page.cursor === null) break;
      query = `?limit=3&before=${page.cursor}`;
    }
    expect(pages).toEqual([["m-4", "m-5", "m-6"], ["m-1", "m-2", "m-3"], ["m-0"]]);
  });

  it("[HT5] are paged by whole messages, however many steps they have", async () => {
    const id = newSessionId("step-pages");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    await socket.ask('/call lookUp {"order":1}\n/then\n/call lookUp {"order":2}\n/then\n/words 3');
    const newest = await http.get<{ messages: UIMessage[]; cursor: string }>("/messages?limit=1");
    expect(newest.messages[0]?.parts.filter(({ type }) => type === "step-start")).toHaveLength(3);
    const first = await http.get<{ messages: UIMessage[]; cursor: string | null }>(
      `/messages?limit=1&before=${newest.cursor}`,
    );
    expect([first.messages[0]?.role, first.cursor]).toEqual(["user", null]);
  });

  it("[HT6] are stored without calling a model, and ids that are known are skipped", async () => {
    const http = new HttpSession("chat", newSessionId("import"));
    const messages = [
      { id: "s", role: "system", parts: [{ type: "text", text: "Be brief." }] },
      userMessage("hello", "u"),
      answered("hi", "a"),
    ];
    expect(await http.call("POST", "/messages", { messages })).toMatchObject({
      status: 200,
      body: { inserted: 3, skipped: 0 },
    });
    const again = [...messages, userMessage("more", "u-2")];
    expect(await http.call("POST", "/messages", { messages: again })).toMatchObject({
      body: { inserted: 1, skipped: 3 },
    });
    expect((await http.messages()).map((message) => message.id)).toEqual(["s", "u", "a", "u-2"]);
    expect((await http.summary()).usage.calls).toBe(0);
  });

  it("[TN25][HT6] an import with an id twice is refused, and nothing of it is stored", async () => {
    const http = new HttpSession("chat", newSessionId("import-twins"));
    const refused = await http.refused("POST", "/messages", {
      messages: [userMessage("a", "m"), userMessage("b", "m")],
    });
    expect([refused.status, refused.code]).toEqual([409, "duplicate-id"]);
    expect((await http.summary()).messages).toBe(0);
  });

  it("[HT6] an import that is wrong in its last message stores none of it", async () => {
    const http = new HttpSession("chat", newSessionId("import-wrong"));
    const messages = [userMessage("a", "m"), { id: "n", role: "user", parts: [{ type: "text" }] }];
    expect((await http.refused("POST", "/messages", { messages })).code).toBe("invalid-message");
    expect((await http.summary()).messages).toBe(0);
  });

  it("[US5] an imported answer brings its usage, and usage on other roles books nothing", async () => {
    const http = new HttpSession("chat", newSessionId("import-usage"));
    const usage = (inputTokens: number) => ({ inputTokens, outputTokens: 1, totalTokens: inputTokens + 1 });
    const steps = [
      { type: "step-start" },
      { type: "text", text: "a" },
      { type: "step-start" },
      { type: "text", text: "b" },
    ];
    await http.call("POST", "/messages", {
      messages: [
        { ...userMessage("q", "u"), metadata: { usage: usage(1_000_000) } },
        { id: "a-1", role: "assistant", parts: steps, metadata: { steps: [usage(10), usage(20)], model: "m/x" } },
        { id: "a-2", role: "assistant", parts: steps, metadata: { usage: usage(300), totalUsage: usage(9_000_000) } },
        answered("c", "a-3", { totalUsage: usage(4_000) }),
        answered("d", "a-4", { usage: "plenty" }),
      ],
    });
    const { records, totals } = await http.usage();
    expect(records.map((record) => [record.messageId, record.step, record.usage?.inputTokens])).toEqual([
      ["a-3", 0, 4_000],
      ["a-2", 1, 300],
      ["a-1", 1, 20],
      ["a-1", 0, 10],
    ]);
    expect(totals).toMatchObject({ calls: 4, inputTokens: 4_330, outputTokens: 4 });
    expect((await http.messages())[1]?.metadata).toMatchObject({
      usage: usage(20),
      steps: [usage(10), usage(20)],
      model: "m/x",
    });
  });

  it("[HT7] are erased for good; the rest of the conversation and the usage stay", async () => {
    const { id, http, socket } = await conversation("erase");
    const [, answer] = await http.messages();
    const before = await http.usage();
    expect(await http.call("DELETE", `/messages/${answer?.id}`)).toMatchObject({ status: 200 });
    expect((await http.messages()).map(({ role }) => role)).toEqual(["user", "user", "assistant"]);
    expect((await http.summary()).messages).toBe(3);
    expect((await http.usage()).totals).toEqual(before.totals);
    expect(await (await http.send("GET", "/export")).text()).not.toContain("the tide comes.");
    await evictDurableObject(stubOf("chat", id));
    // the first two follow each other now, so they are shown as one
    expect((await socket.ask("and now?")).text).toContain("I was shown 3 messages");
    expect((await http.refused("DELETE", `/messages/${answer?.id}`)).code).toBe("unknown-message");
    expect((await http.refused("DELETE", "/messages/nobody")).status).toBe(404);
  });

  it("[HT8] stand on branches that are listed, and another one is made active by its leaf or by a message", async () => {
    const { http, socket } = await conversation("branches");
    const first = await http.messages();
    socket.submit("edit", [userMessage("/words 5", "u-2")], { messageId: "u-2" });
    await socket.reply("edit");
    const second = await http.messages();
    const [active, other] = await http.branches();
    expect([active?.active, other?.active]).toEqual([true, false]);
    expect([active?.messageId, other?.messageId]).toEqual([second[3]?.id, first[3]?.id]);
    expect((await http.call("PUT", "/leaf", { messageId: "u-2", version: 0 })).body).toEqual({ leaf: other?.leaf });
    expect(await http.messages()).toEqual(first);
    await http.call("PUT", "/leaf", { leaf: active?.leaf });
    expect(await http.messages()).toEqual(second);
    expect((await http.refused("PUT", "/leaf", { leaf: 4_711 })).code).toBe("unknown-branch");
    expect((await http.refused("PUT", "/leaf", { messageId: "nobody" })).code).toBe("unknown-message");
  });

  it("[HT10] are exported as JSON Lines that give the same session when imported elsewhere", async () => {
    const id = newSessionId("export");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    await socket.ask('/reason why\n/call lookUp {"order":1}', { id: "u-1" });
    socket.submit("edit", [userMessage("/words 3 🌊", "u-1")], { messageId: "u-1" });
    await socket.reply("edit");
    await http.call("PATCH", "", { systemPrompt: "Be brief." });
    const response = await http.send("GET", "/export");
    expect(response.headers.get("content-type")).toContain("application/jsonl");
    const archive = await response.text();
    const copy = new HttpSession("tools", newSessionId("copy"));
    const restored = await request(addressOf("tools", copy.id, "/messages"), {
      method: "POST",
      body: archive,
      headers: { "content-type": "application/jsonl" },
    });
    expect([restored.status, await restored.json()]).toMatchObject([200, { inserted: 4, skipped: 0 }]);
    for (const path of ["/messages", "/branches", "/usage"]) expect(await copy.get(path)).toEqual(await http.get(path));
    const [original, copied] = [await http.summary(), await copy.summary()];
    expect([copied.messages, copied.settings, copied.usage]).toEqual([4, original.settings, original.usage]);
    const lines = (text: string) =>
      text
        .trim()
        .split("\n")
        .map((line): unknown => JSON.parse(line));
    expect(lines(await (await copy.send("GET", "/export")).text())).toEqual(lines(archive));
    const twice = await request(addressOf("tools", copy.id, "/messages"), {
      method: "POST",
      body: archive,
      headers: { "content-type": "application/jsonl" },
    });
    expect(await errorOf(twice)).toMatchObject({ status: 409, code: "not-empty" });
    const next = await openSocket("tools", copy.id);
    expect((await next.ask("and on")).text).toContain("I was shown 3 messages");
  });

  it("[HT10] are exported while a turn runs as an archive that can be imported", async () => {
    const id = newSessionId("export-running");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    socket.submit("r", [userMessage('/call wait {"ms":600}\n/then\n/words 10\n/slow 20')]);
    const restored: number[] = [];
    for (let copies = 0; copies < 8; copies += 1) {
      const archive = await (await http.send("GET", "/export")).text();
      const response = await request(addressOf("tools", newSessionId("export-copy"), "/messages"), {
        method: "POST",
        body: archive,
        headers: { "content-type": "application/jsonl" },
      });
      restored.push(response.status);
      await response.text();
      await pause(100);
    }
    expect(restored).toEqual(restored.map(() => 200));
    expect((await socket.reply("r")).ending).toBe("end");
  });

  it("[HT10][HT12] an archive that is broken is refused with its line, and nothing of it is stored", async () => {
    const { http } = await conversation("broken-archive");
    const lines = (await (await http.send("GET", "/export")).text()).trim().split("\n");
    const copy = new HttpSession("chat", newSessionId("broken-copy"));
    const broken = [...lines.slice(0, 3), "{}", ...lines.slice(3)].join("\n");
    const refused = await errorOf(
      await request(addressOf("chat", copy.id, "/messages"), {
        method: "POST",
        body: broken,
        headers: { "content-type": "application/jsonl" },
      }),
    );
    expect([refused.status, refused.code]).toEqual([400, "bad-request"]);
    expect(refused.message).toContain("Line 4");
    expect((await copy.summary()).messages).toBe(0);
  });

  it("[HT11] their calls are paged, newest first, with the totals", async () => {
    const { http } = await conversation("usage-pages");
    const first = await http.usage("?limit=1");
    const second = await http.usage(`?limit=1&before=${first.cursor}`);
    expect([first.records.length, second.records.length]).toEqual([1, 1]);
    expect((first.records[0]?.seq ?? 0) > (second.records[0]?.seq ?? 0)).toBe(true);
    expect(second.totals).toEqual(first.totals);
    expect(first.totals.calls).toBe(2);
    const third = second.cursor === null ? { records: [] } : await http.usage(`?limit=1&before=${second.cursor}`);
    expect(third.records).toEqual([]);
  });
});
