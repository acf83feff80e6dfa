/** The HTTP API through the Worker: addresses, the session as a whole, and what is out of a client's reach. */
import { listDurableObjectIds } from "cloudflare:test";
import { env } from "cloudflare:workers";
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { conversation } from "./conversation.ts";
import { addressOf, errorOf, eventually, HttpSession, newSessionId, request } from "./service.ts";
import { openSocket, Socket, textOf, upgrade, userMessage } from "./socket.ts";
import type { ServiceEnvironment } from "./worker.ts";

const answered = (text: string, id: string, metadata?: unknown): UIMessage => ({
  id,
  role: "assistant",
  ...(metadata !== undefined && { metadata }),
  parts: [{ type: "text", text }],
});

describe("addresses", () => {
  it.each(["a b", "a.b", "ä", "a%2Fb", "x".repeat(129), "a~b", "%00"])(
    "[HT1] the session id %s is refused before an object is touched",
    async (id) => {
      // SAFETY: the environment of these tests is that of wrangler.toml beside them.
      const namespace = (env as unknown as ServiceEnvironment).MisconfiguredSession;
      const before = await listDurableObjectIds(namespace);
      const refused = await errorOf(
        await request(addressOf("misconfigured", encodeURIComponent(decodeURIComponent(id)))),
      );
      expect([refused.status, refused.code]).toEqual([400, "invalid-session-id"]);
      expect(await listDurableObjectIds(namespace)).toEqual(before);
    },
  );

  it("[HT1] ids of 1 and of 128 characters of A-Z a-z 0-9 _ - name sessions", async () => {
    for (const id of ["-", `${newSessionId("Az_")}${"x".repeat(128)}`.slice(0, 128)]) {
      expect(await new HttpSession("chat", id).summary()).toMatchObject({ id });
    }
  });

  it("[HT12] GET /health answers without a session", async () => {
    const response = await request("http://chat.test/health");
    expect([response.status, await response.json()]).toEqual([200, { status: "ok" }]);
  });

  it.each([
    ["GET", "/nothing", 404, "not-found"],
    ["POST", "", 405, "method-not-allowed"],
    ["PUT", "/messages", 405, "method-not-allowed"],
    ["GET", "/messages/m-1", 405, "method-not-allowed"],
    ["POST", "/leaf", 405, "method-not-allowed"],
    ["GET", "/messages/m-1/parts", 404, "not-found"],
    ["GET", "/messages?limit=0", 400, "bad-request"],
    ["GET", "/messages?limit=201", 400, "bad-request"],
    ["GET", "/messages?limit=many", 400, "bad-request"],
    ["GET", "/messages?before=x", 400, "bad-request"],
    ["GET", "/usage?before=-1", 400, "bad-request"],
    ["GET", "/sub/chat-session/other", 404, "not-found"],
    ["GET", "/get-messages", 404, "not-found"],
    ["GET", "/__proto__", 404, "not-found"],
    ["GET", "/constructor", 404, "not-found"],
    ["DELETE", "/messages/%E0%A4%A", 404, "unknown-message"],
  ])("[HT12] %s %s is refused with a status, a code and a sentence", async (method, path, status, code) => {
    const refused = await new HttpSession("chat", "refusals").refused(method, path);
    expect([refused.status, refused.code]).toEqual([status, code]);
    expect(refused.message).toMatch(/^[A-Z"].*[^:]$/);
    expect(refused.message).not.toMatch(/\bat \S+ \(|\.ts:|SELECT|SQLITE|function/);
  });

  it.each([
    ["POST", "/messages", "{"],
    ["POST", "/messages", "[]"],
    ["POST", "/messages", `{"messages":7}`],
    ["POST", "/messages", ""],
    ["PUT", "/leaf", "{}"],
    ["PUT", "/leaf", `{"leaf":"1"}`],
    ["PUT", "/leaf", `{"leaf":1,"messageId":"m"}`],
    ["PATCH", "", "{"],
  ])("[HT12] %s %s with the body %s is refused as a bad request", async (method, path, body) => {
    const response = await request(addressOf("chat", "refusals", path), { method, body });
    const refused = await errorOf(response);
    expect([refused.status, refused.code]).toEqual([400, "bad-request"]);
  });

  it("[HT12] a body above the frame length is refused, with or without a content length", async () => {
    const http = new HttpSession("tight", newSessionId("body"));
    const body = JSON.stringify({ messages: [answered("x".repeat(9_000), "a")] });
    const streamed = new ReadableStream({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(body));
        controller.close();
      },
    });
    for (const sent of [body, streamed]) {
      const response = await request(addressOf("tight", http.id, "/messages"), { method: "POST", body: sent });
      expect(await errorOf(response)).toMatchObject({ status: 413, code: "body-too-large" });
    }
  });
});

describe("the session", () => {
  it("[HT2] is summarised: messages, activity, model, settings, turn, queue and usage", async () => {
    const { id, http } = await conversation("summary");
    const summary = await http.summary();
    expect(summary).toMatchObject({ id, messages: 4, model: "mirror", settings: {}, turn: null, queued: 0 });
    expect(summary.usage).toMatchObject({ calls: 2, inputTokens: 35, outputTokens: 9 });
    const [newest] = (await http.usage()).records;
    expect(summary.tokens).toBe(newest?.usage?.totalTokens);
    expect(summary.lastActivity).toBeGreaterThanOrEqual(summary.createdAt);
  });

  it("[HT2] an empty session has a summary too", async () => {
    const summary = await new HttpSession("chat", newSessionId("empty")).summary();
    expect(summary).toMatchObject({ messages: 0, tokens: 0, turn: null, queued: 0, usage: { calls: 0 } });
  });

  it("[HT3] takes settings for the following turns, and gives one back for null", async () => {
    const { http, socket } = await conversation("settings");
    const settings = { systemPrompt: "Speak like a sailor.", compactAfter: "80%", tailTokenBudget: 5_000 };
    const changed = await http.call("PATCH", "", settings);
    expect(changed).toMatchObject({ status: 200, body: { settings } });
    await socket.ask("/words 1");
    const [last] = (await http.usage()).records;
    const back = await http.call("PATCH", "", { systemPrompt: null, tailTokenBudget: null });
    expect(back).toMatchObject({ status: 200, body: { settings: { compactAfter: "80%" } } });
    await socket.ask("/words 1");
    const [newest] = (await http.usage()).records;
    // without the system prompt the later prompt is the shorter one, although it holds more messages
    expect([last?.usage?.inputTokens, newest?.usage?.inputTokens]).toEqual([50, 54]);
  });

  it.each([
    [{ model: "nobody/knows" }],
    [{ model: "anthropic/claude-sonnet-4-5" }],
    [{ model: "" }],
    [{ compactAfter: "120%" }],
    [{ compactAfter: -1 }],
    [{ tailTokenBudget: 0.5 }],
    [{ systemPrompt: 7 }],
    [{ systemPrompt: "good", compactAfter: "often" }],
    [{ colour: "red" }],
  ])("[HT3] the wrong setting %j is refused and changes nothing", async (patch) => {
    const http = new HttpSession("chat", "wrong-settings");
    const refused = await http.refused("PATCH", "", patch);
    expect([refused.status, refused.code]).toEqual([400, "invalid-settings"]);
    expect((await http.summary()).settings).toEqual({});
  });

  it("[HT4] is removed for good; the id then names an empty session that works", async () => {
    const { id, http } = await conversation("removed");
    expect(await http.call("DELETE", "")).toEqual({ status: 200, body: { deleted: true } });
    expect(await http.summary()).toMatchObject({ messages: 0, turn: null, usage: { calls: 0 } });
    expect(await http.messages()).toEqual([]);
    const socket = await openSocket("chat", id);
    expect((await socket.ask("hello again")).text).toContain("I was shown 1 message ");
    expect(await http.messages()).toHaveLength(2);
  });

  it("[HT4][ST7] what is stored right behind a removal is kept, or refused", async () => {
    const http = new HttpSession("chat", newSessionId("removed-again"));
    const messages = [userMessage("hello", "m")];
    for (let round = 0; round < 5; round += 1) {
      await http.call("POST", "/messages", { messages });
      await http.call("DELETE", "");
      const { status } = await http.call("POST", "/messages", { messages });
      expect([200, 503]).toContain(status);
      expect(await http.messages()).toHaveLength(status === 200 ? 1 : 0);
      await http.call("DELETE", "");
    }
  });

  it("[HT4] is removed while a turn runs and another waits; neither comes back", async () => {
    const id = newSessionId("removed-running");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    socket.submit("1", [userMessage("/words 50\n/slow 20")]);
    await socket.streaming("1");
    socket.submit("2", [userMessage("/words 2")]);
    await socket.nextFrame("a place", (frame) => frame.chunk?.type === "data-queued");
    expect((await http.call("DELETE", "")).status).toBe(200);
    await eventually(
      "an empty session",
      () => http.summary(),
      ({ messages, queued }) => messages === 0 && queued === 0,
    );
    const later = await openSocket("chat", id);
    expect((await later.ask("/words 2")).ending).toBe("end");
    expect(await http.summary()).toMatchObject({ messages: 2, usage: { calls: 1 } });
  });

  it("[HT9] stops its running turn, and says when there is none", async () => {
    const id = newSessionId("stop");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    expect((await http.call("POST", "/abort")).body).toEqual({ aborted: false });
    socket.submit("r", [userMessage("/words 8\n/stall")]);
    await socket.streaming("r", 4);
    expect((await http.call("POST", "/abort")).body).toEqual({ aborted: true });
    const reply = await socket.reply("r");
    expect([reply.ending, reply.chunks.at(-1)?.type]).toEqual(["end", "abort"]);
  });

  it("[HT13] does not let its history be changed while a turn runs", async () => {
    const { http, socket } = await conversation("busy");
    socket.submit("r", [userMessage("/words 20\n/slow 20")]);
    await socket.streaming("r");
    const attempts = [
      await http.refused("POST", "/messages", { messages: [userMessage("hi", "new")] }),
      await http.refused("DELETE", "/messages/u-1"),
      await http.refused("PUT", "/leaf", { messageId: "u-1" }),
    ];
    expect(attempts.map(({ status, code }) => [status, code])).toEqual(attempts.map(() => [409, "turn-open"]));
    expect((await socket.reply("r")).text.split(" ")).toHaveLength(20);
    expect(await http.messages()).toHaveLength(6);
  });
});

describe("the framework", () => {
  it("[HT14] start-up properties and connection ids of a client do not reach it", async () => {
    const id = newSessionId("steering");
    const headers = { "x-agents-lifecycle-props": JSON.stringify({ role: "admin" }) };
    const address = `${addressOf("chat", id)}?_pk=same&__agents_transport=capnweb`;
    const sockets = [new Socket(await upgrade(address, headers)), new Socket(await upgrade(address, headers))];
    const replies = await Promise.all(sockets.map((socket, index) => socket.ask(`/words ${index + 2}`)));
    expect(replies.map((reply) => reply.text.split(" ").length)).toEqual([2, 3]);
    expect(
      sockets
        .flatMap((socket) => socket.frames.map((frame) => frame.type))
        .filter((type) => !["chunk", "end"].includes(type)),
    ).toEqual([]);
    for (const socket of sockets) socket.close();
    expect(textOf((await new HttpSession("chat", id).messages())[0])).toBe("/words 2");
  });

  it("[HT14] there is no socket below a session, and its state cannot be written", async () => {
    const id = newSessionId("state");
    for (const path of ["/messages", "/sub/chat-session/other", "/events/more"]) {
      const response = await request(addressOf("chat", id, path), { headers: { upgrade: "websocket" } });
      expect([response.status, response.webSocket]).toEqual([404, null]);
      await response.text();
    }
    const socket = await openSocket("chat", id);
    socket.send({ type: "cf_agent_state", requestId: "r", state: { admin: true } });
    expect((await socket.reply("r")).code).toBe("invalid-frame");
  });
});
