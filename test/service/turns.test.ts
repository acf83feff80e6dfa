/** Turns over the socket: repeated, queued, branched, failed. */
import { evictDurableObject } from "cloudflare:test";
import { describe, expect, it } from "vitest";
import { crash, eventually, HttpSession, newSessionId, stubOf } from "./service.ts";
import { counted, openSocket, sequences, textOf, textOfChunks, TRACES, userMessage } from "./socket.ts";

describe("asked again", () => {
  it("[TN3] the same request id follows the running turn, and gets the stored answer afterwards; the model is called once", async () => {
    const id = newSessionId("same-request");
    const http = new HttpSession("chat", id);
    const [first, second] = [await openSocket("chat", id), await openSocket("chat", id)];
    const message = userMessage("/words 20\n/slow 10\n/reason because");
    first.submit("r", [message]);
    await first.streaming("r", 5);
    second.submit("r", [message]);
    const [sent, repeated] = [await first.reply("r"), await second.reply("r")];
    expect(repeated.chunks).toEqual(sent.chunks);
    await evictDurableObject(stubOf("chat", id));
    const third = await openSocket("chat", id);
    third.submit("r", [message]);
    const stored = await third.reply("r");
    expect([stored.ending, stored.text]).toEqual(["end", sent.text]);
    expect(sequences(stored)).toEqual(counted(stored.chunks.length));
    const { messages, usage } = await http.summary();
    expect([messages, usage.calls]).toEqual([2, 1]);
  });

  it("[TN3] two frames of one request id in a row are one turn", async () => {
    const id = newSessionId("double-click");
    const socket = await openSocket("chat", id);
    const other = await openSocket("chat", id);
    const message = userMessage("/words 6\n/slow 5");
    socket.submit("r", [message]);
    other.submit("r", [message]);
    const replies = [await socket.reply("r"), await other.reply("r")];
    expect(replies[1]?.text).toBe(replies[0]?.text);
    expect((await new HttpSession("chat", id).summary()).usage.calls).toBe(1);
  });

  it("[TN4] the same message under other request ids, at once, later and after an eviction, is answered once", async () => {
    const id = newSessionId("same-message");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    const other = await openSocket("chat", id);
    const message = userMessage("/words 20\n/slow 10", "m");
    socket.submit("a", [message]);
    other.submit("b", [message]);
    await socket.streaming("a", 5);
    other.submit("c", [message]);
    const sent = await socket.reply("a");
    expect([(await other.reply("b")).text, (await other.reply("c")).text]).toEqual([sent.text, sent.text]);
    socket.submit("d", [message]);
    expect((await socket.reply("d")).text).toBe(sent.text);
    await evictDurableObject(stubOf("chat", id));
    socket.submit("e", [message]);
    expect((await socket.reply("e")).text).toBe(sent.text);
    const { messages, usage, queued } = await http.summary();
    expect([messages, usage.calls, queued]).toEqual([2, 1, 0]);
  });

  it("[TN3][TN4] a waiting turn is followed, not repeated, by its request id and by its message", async () => {
    const id = newSessionId("same-waiting");
    const socket = await openSocket("chat", id);
    const other = await openSocket("chat", id);
    const waiting = userMessage("/words 5", "w");
    socket.submit("running", [userMessage("/words 10\n/slow 20")]);
    await socket.streaming("running");
    socket.submit("w-1", [waiting]);
    await socket.nextFrame("data-queued", (frame) => frame.chunk?.type === "data-queued");
    other.submit("w-1", [waiting]);
    other.submit("w-2", [waiting]);
    const replies = [await socket.reply("w-1"), await other.reply("w-1"), await other.reply("w-2")];
    expect(replies.map((reply) => [reply.ending, reply.text])).toEqual(replies.map(() => ["end", replies[0]?.text]));
    const { messages, usage } = await new HttpSession("chat", id).summary();
    expect([messages, usage.calls]).toEqual([4, 2]);
  });

  it("[TN4] an earlier message that arrives a second time does not take the conversation back", async () => {
    const id = newSessionId("late-repeat");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    const first = await socket.ask("/words 5", { id: "u-1" });
    await socket.ask("/words 7", { id: "u-2" });
    const before = await http.messages();
    socket.submit("again", [userMessage("/words 5", "u-1")]);
    expect((await socket.reply("again")).text).toBe(first.text);
    expect(await http.messages()).toEqual(before);
    expect((await http.summary()).usage.calls).toBe(2);
  });
});

describe("the queue", () => {
  it("[TN5] turns wait in the order they came, are told their place, and run one after the other", async () => {
    const id = newSessionId("queue");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    socket.submit("1", [userMessage("first\n/words 10\n/slow 20", "m-1")]);
    await socket.streaming("1");
    socket.submit("2", [userMessage("second", "m-2")]);
    socket.submit("3", [userMessage("third", "m-3")]);
    const told = [
      await socket.nextFrame("a place", (frame) => frame.chunk?.type === "data-queued"),
      await socket.nextFrame("a place", (frame) => frame.chunk?.type === "data-queued"),
    ];
    expect(told.map(({ requestId, sequence, chunk }) => ({ requestId, sequence, chunk }))).toEqual([
      { requestId: "2", sequence: 0, chunk: { type: "data-queued", data: { ahead: 1 }, transient: true } },
      { requestId: "3", sequence: 0, chunk: { type: "data-queued", data: { ahead: 2 }, transient: true } },
    ]);
    expect((await http.summary()).queued).toBe(2);
    const third = await socket.reply("3");
    expect(third.text).toContain(`I was shown 5 messages`);
    expect(sequences(third)).toEqual(counted(third.chunks.length));
    const ends = socket.frames.filter((frame) => frame.type === "end").map((frame) => frame.requestId);
    expect(ends).toEqual(["1", "2", "3"]);
    expect((await http.messages()).map((message) => message.role)).toEqual([
      "user",
      "assistant",
      "user",
      "assistant",
      "user",
      "assistant",
    ]);
  });

  it("[TN5] sends in a row on one socket are taken in their order, however long it takes to read one", async () => {
    const id = newSessionId("in-order");
    const socket = await openSocket("chat", id);
    const parts = Array.from({ length: 900 }, (_, index) => ({ type: "text", text: `part ${index}` }));
    socket.submit("1", [{ id: "m-1", role: "user", parts }]);
    for (const number of [2, 3, 4, 5]) socket.submit(`${number}`, [userMessage(`turn ${number}`, `m-${number}`)]);
    await socket.reply("5");
    const said = (await new HttpSession("chat", id).messages()).filter(({ role }) => role === "user");
    expect(said.map((message) => message.id)).toEqual(["m-1", "m-2", "m-3", "m-4", "m-5"]);
  });

  it("[TN5][TN6] a message that is sent again with other content while it waits becomes a version, and both are answered", async () => {
    const id = newSessionId("edit-waiting");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    socket.submit("1", [userMessage("/words 10\n/slow 20", "m-1")]);
    await socket.streaming("1");
    socket.submit("2", [userMessage("draft", "m-2")]);
    socket.submit("3", [userMessage("better", "m-2")]);
    expect((await socket.reply("2")).text).toContain('Last: "draft"');
    expect((await socket.reply("3")).text).toContain('Last: "better"');
    expect((await http.messages()).map((message) => textOf(message))[2]).toBe("better");
    expect((await http.branches()).map(({ messages }) => messages)).toEqual([4, 4]);
  });

  it("[TN5][WP5] a waiting turn that is aborted is taken back and never runs", async () => {
    const id = newSessionId("taken-back");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    socket.submit("1", [userMessage("/words 10\n/slow 20")]);
    await socket.streaming("1");
    socket.submit("2", [userMessage("never mind")]);
    await socket.nextFrame("a place", (frame) => frame.chunk?.type === "data-queued");
    socket.send({ type: "abort", requestId: "2" });
    const taken = await socket.reply("2");
    expect(taken.chunks.map((chunk) => chunk.type)).toEqual(["data-queued", "abort"]);
    expect((await socket.reply("1")).text.split(" ")).toHaveLength(10);
    const { messages, queued, usage } = await http.summary();
    expect([messages, queued, usage.calls]).toEqual([2, 0, 1]);
  });

  it("[TN26] more waiting turns than the queue holds are refused, and those that wait still run", async () => {
    const id = newSessionId("full");
    const socket = await openSocket("tight", id);
    socket.submit("1", [userMessage("/words 10\n/slow 20")]);
    await socket.streaming("1");
    for (const request of ["2", "3", "4"]) socket.submit(request, [userMessage(`turn ${request}`)]);
    expect((await socket.reply("4")).code).toBe("queue-full");
    expect([(await socket.reply("2")).ending, (await socket.reply("3")).ending]).toEqual(["end", "end"]);
    expect((await new HttpSession("tight", id).summary()).messages).toBe(6);
  });

  it("[TN17][ST7] what waits when the object dies still runs, in order, with nobody connected", async () => {
    const id = newSessionId("queue-crash");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    socket.submit("1", [userMessage("one\n/words 30\n/slow 30", "m-1")]);
    await socket.streaming("1");
    socket.submit("2", [userMessage("two\n/words 2", "m-2")]);
    socket.submit("3", [userMessage("three\n/words 3", "m-3")]);
    await eventually(
      "both to wait",
      () => http.summary(),
      ({ queued }) => queued === 2,
    );
    await crash("chat", id);
    const done = await eventually(
      "the queue to end",
      () => http.summary(),
      ({ turn, queued }) => !turn && queued === 0,
    );
    expect([done.messages, done.usage.calls]).toEqual([6, 3]);
    const messages = await http.messages();
    expect(messages.filter(({ role }) => role === "user").map((message) => message.id)).toEqual(["m-1", "m-2", "m-3"]);
    const words = messages
      .filter(({ role }) => role === "assistant")
      .map((message) => textOf(message).split(" ").length);
    expect(words).toEqual([30, 2, 3]);
  });
});

describe("branches", () => {
  it("[TN6] another text under a known id is a version on a branch of its own, and the earlier one stays reachable", async () => {
    const id = newSessionId("edit");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    await socket.ask("first text", { id: "u-1" });
    await socket.ask("more", { id: "u-2" });
    const before = await http.messages();
    socket.submit("edit", [userMessage("second text", "u-1")], { messageId: "u-1" });
    expect((await socket.reply("edit")).text).toContain('First: "second text"');
    expect((await http.messages()).map((message) => textOf(message))[0]).toBe("second text");
    expect(await http.messages()).toHaveLength(2);
    const branches = await http.branches();
    expect(branches.map(({ active, messages }) => [active, messages])).toEqual([
      [true, 2],
      [false, 4],
    ]);
    const back = await http.call("PUT", "/leaf", { leaf: branches[1]?.leaf });
    expect(back).toEqual({ status: 200, body: { leaf: branches[1]?.leaf } });
    expect(await http.messages()).toEqual(before);
    expect((await socket.ask("and on")).text).toContain("I was shown 5 messages");
  });

  it("[TN7] a regenerate makes the old answer a sibling, however short the posted transcript is", async () => {
    const id = newSessionId("regenerate");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    await socket.ask("one", { id: "u-1" });
    await socket.ask("two", { id: "u-2" });
    const before = await http.messages();
    socket.submit("again", [], { trigger: "regenerate-message" });
    expect((await socket.reply("again")).text).toContain("I was shown 3 messages");
    const after = await http.messages();
    expect(after.slice(0, 3)).toEqual(before.slice(0, 3));
    expect([after.length, after[3]?.id === before[3]?.id]).toEqual([4, false]);
    expect((await http.branches()).map(({ active, messages }) => [active, messages])).toEqual([
      [true, 4],
      [false, 4],
    ]);
    socket.submit("first", [], { trigger: "regenerate-message", messageId: before[1]?.id });
    await socket.reply("first");
    expect(await http.messages()).toHaveLength(2);
    await http.call("PUT", "/leaf", { messageId: before[3]?.id });
    expect(await http.messages()).toEqual(before);
  });

  it("[TN8] a regenerate of an unknown message is refused, on an empty session too", async () => {
    const id = newSessionId("unknown");
    const socket = await openSocket("chat", id);
    socket.submit("1", [], { trigger: "regenerate-message" });
    expect((await socket.reply("1")).code).toBe("unknown-message");
    await socket.ask("hello");
    socket.submit("2", [], { trigger: "regenerate-message", messageId: "nobody" });
    expect((await socket.reply("2")).code).toBe("unknown-message");
    expect(await new HttpSession("chat", id).messages()).toHaveLength(2);
  });

  it("[TN8] an edit that names a message nobody knows is refused, and nothing is stored", async () => {
    const id = newSessionId("unknown-edit");
    const socket = await openSocket("chat", id);
    socket.submit("1", [userMessage("new text", "nobody")], { messageId: "nobody" });
    expect((await socket.reply("1")).code).toBe("unknown-message");
    expect(await new HttpSession("chat", id).messages()).toHaveLength(0);
  });

  it("[TN8] a regenerate that brings nothing leaves the old answer active", async () => {
    const id = newSessionId("silent");
    const http = new HttpSession("chat", id);
    const old = { id: "a", role: "assistant", parts: [{ type: "text", text: "the old answer" }] };
    await http.call("POST", "/messages", { messages: [userMessage("/fail before", "u"), old] });
    const socket = await openSocket("chat", id);
    socket.submit("again", [], { trigger: "regenerate-message", messageId: "a" });
    expect((await socket.reply("again")).code).toBe("model-failed");
    expect((await http.messages()).map((message) => textOf(message))).toEqual(["/fail before", "the old answer"]);
    expect((await socket.ask("go on")).text).toContain("I was shown 3 messages");
  });
});

describe("failures", () => {
  it.each([
    ["before", 0],
    ["during", 4],
    ["after", 8],
  ])(
    "[TN18] a model that fails %s streaming ends the turn with an error, and what had arrived is stored",
    async (when, words) => {
      const id = newSessionId(`fail-${when}`);
      const http = new HttpSession("chat", id);
      const socket = await openSocket("chat", id);
      const reply = await socket.ask(`/words 8\n/fail ${when}`);
      expect([reply.ending, reply.code]).toEqual(["error", "model-failed"]);
      expect(reply.errorText).toMatch(/^model-failed: The model failed: mirror (failed|broke)/);
      expect(reply.errorText).not.toMatch(TRACES);
      const stored = await http.messages();
      expect(textOf(stored[1]).split(" ").filter(Boolean)).toHaveLength(words);
      expect(textOf(stored[1])).toBe(textOfChunks(reply.chunks));
      expect((await http.summary()).turn).toBe(null);
      expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
    },
  );

  it("[TN18] a failed message sent again is answered anew", async () => {
    const id = newSessionId("retry");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    await http.call("PATCH", "", { model: "mirror" });
    expect((await socket.ask("/fail before", { id: "u" })).code).toBe("model-failed");
    socket.submit("again", [userMessage("/fail before", "u")]);
    expect((await socket.reply("again")).code).toBe("model-failed");
    expect((await http.messages()).map((message) => message.role)).toEqual(["user"]);
  });
});
