/** The AI SDK's WebSocket protocol, frame by frame, spoken rightly and wrongly. */
import { evictDurableObject } from "cloudflare:test";
import { describe, expect, it } from "vitest";
import { addressOf, eventually, HttpSession, newSessionId, pause, stubOf } from "./service.ts";
import { counted, openSocket, sequences, Socket, textOf, TRACES, upgrade, userMessage, type Reply } from "./socket.ts";

const ALLOWED = ["start", "chunk", "end", "error", "no-active"];

/** Without the news that a replay would only repeat. */
const content = (reply: Reply) => reply.chunks.filter((chunk) => chunk.type !== "data-queued");

describe("frames", () => {
  it("[WP1] a send is answered by chunks numbered from 0 without gaps, then one end, all under its id", async () => {
    const socket = await openSocket("chat", newSessionId("frames"));
    const reply = await socket.ask("/words 50", { requestId: "r-1" });
    expect(reply.ending).toBe("end");
    expect(sequences(reply)).toEqual(counted(reply.frames.length - 1));
    expect(socket.frames.map((frame) => frame.requestId)).toEqual(socket.frames.map(() => "r-1"));
    expect(socket.frames.filter((frame) => frame.type === "end")).toHaveLength(1);
    const structure = reply.chunks.map((chunk) => chunk.type).filter((type) => !/^(text-delta|data-.*)$/.test(type));
    expect(structure).toEqual([
      "start",
      "start-step",
      "text-start",
      "text-end",
      "message-metadata",
      "finish-step",
      "finish",
    ]);
    expect(reply.text.split(" ")).toHaveLength(50);
  });

  it("[WP3] any number of sockets resume a running turn: start, every chunk from the first, then the live ones", async () => {
    const id = newSessionId("resume");
    const sender = await openSocket("chat", id);
    sender.submit("sent", [userMessage("/words 30\n/slow 15")]);
    await sender.streaming("sent", 8);
    const followers = await Promise.all(["f-1", "f-2", "f-3"].map(() => openSocket("chat", id)));
    followers.forEach((socket, index) => socket.send({ type: "resume", requestId: `f-${index}` }));
    const sent = await sender.reply("sent");
    for (const [index, socket] of followers.entries()) {
      const reply = await socket.reply(`f-${index}`);
      expect(reply.frames[0]).toEqual({ type: "start", requestId: `f-${index}` });
      expect(reply.chunks).toEqual(sent.chunks);
      expect(sequences(reply)).toEqual(counted(sent.chunks.length));
      expect(reply.ending).toBe("end");
    }
  });

  it("[WP4] a resume with nothing to follow is answered by no-active alone", async () => {
    const socket = await openSocket("chat", newSessionId("idle"));
    socket.send({ type: "resume", requestId: "r" });
    await socket.reply("r");
    expect(socket.frames).toEqual([{ type: "no-active", requestId: "r" }]);
  });

  it("[WP4] a turn that has just ended is replayed to its end, and not any more after an eviction", async () => {
    const id = newSessionId("ended");
    const socket = await openSocket("chat", id);
    const sent = await socket.ask("hello");
    const late = await openSocket("chat", id);
    late.send({ type: "resume", requestId: "late" });
    expect(content(await late.reply("late"))).toEqual(sent.chunks);
    await evictDurableObject(stubOf("chat", id));
    late.send({ type: "resume", requestId: "later" });
    expect((await late.reply("later")).ending).toBe("no-active");
  });

  it("[WP5][TN19] an abort by another follower stops the turn for everyone, and what had arrived is kept", async () => {
    const id = newSessionId("abort");
    const sender = await openSocket("chat", id);
    const follower = await openSocket("chat", id);
    sender.submit("sent", [userMessage("/words 20\n/stall")]);
    await sender.streaming("sent", 10);
    follower.send({ type: "resume", requestId: "followed" });
    await follower.streaming("followed", 10);
    follower.send({ type: "abort", requestId: "followed" });
    const [sent, followed] = [await sender.reply("sent"), await follower.reply("followed")];
    expect([sent.ending, sent.chunks.at(-1)?.type]).toEqual(["end", "abort"]);
    expect(followed.chunks).toEqual(sent.chunks);
    const [, answer] = await new HttpSession("chat", id).messages();
    expect(textOf(answer)).toBe(sent.text);
    expect(sent.text.trim().split(" ")).toHaveLength(10);
    expect((await sender.ask("and now?")).ending).toBe("end");
  });

  it("[WP5] an abort of an unknown request, or of one that another socket follows, changes nothing", async () => {
    const id = newSessionId("no-abort");
    const sender = await openSocket("chat", id);
    const stranger = await openSocket("chat", id);
    sender.submit("sent", [userMessage("/words 12\n/slow 10")]);
    await sender.streaming("sent", 2);
    stranger.send({ type: "abort", requestId: "sent" });
    stranger.send({ type: "abort", requestId: "nothing" });
    sender.send({ type: "abort", requestId: "nothing" });
    const sent = await sender.reply("sent");
    expect([sent.ending, sent.text.split(" ").length]).toEqual(["end", 12]);
    expect(stranger.frames).toEqual([]);
  });

  it("[WP5] an abort right behind its send stops the turn, though the send was still being read", async () => {
    const id = newSessionId("quick-abort");
    const socket = await openSocket("chat", id);
    socket.submit("r", [userMessage("/words 20\n/stall", "m")]);
    socket.send({ type: "abort", requestId: "r" });
    const reply = await socket.reply("r");
    expect([reply.ending, reply.chunks.at(-1)?.type]).toEqual(["end", "abort"]);
    expect((await new HttpSession("chat", id).summary()).turn).toBe(null);
  });

  it("[WP5] an abort stops one turn of those that wait, and the next one runs", async () => {
    const id = newSessionId("abort-next");
    const socket = await openSocket("chat", id);
    socket.submit("1", [userMessage("/words 8\n/stall")]);
    await socket.streaming("1");
    socket.submit("2", [userMessage("/words 3")]);
    await socket.nextFrame("a place", (frame) => frame.chunk?.type === "data-queued");
    await new HttpSession("chat", id).call("POST", "/abort");
    expect((await socket.reply("1")).chunks.at(-1)?.type).toBe("abort");
    expect((await socket.reply("2")).text.split(" ")).toHaveLength(3);
  });

  it("[WP10] a socket that closes stops nothing: the turn ends and is stored", async () => {
    const id = newSessionId("closed");
    const http = new HttpSession("chat", id);
    const socket = await openSocket("chat", id);
    socket.submit("sent", [userMessage("/words 25\n/slow 10")]);
    await socket.streaming("sent", 3);
    socket.close();
    const { usage } = await eventually(
      "the turn's end",
      () => http.summary(),
      ({ turn }) => turn === null,
    );
    expect(usage.calls).toBe(1);
    expect(textOf((await http.messages())[1]).split(" ")).toHaveLength(25);
  });

  it("[WP8] a new socket is silent until it asks, and gets no frame but those of the protocol", async () => {
    const id = newSessionId("silent");
    const other = await openSocket("chat", id);
    const socket = await openSocket("chat", id);
    await socket.ask("hello");
    await pause(20);
    expect(other.frames).toEqual([]);
    expect(socket.frames.map((frame) => frame.type).filter((type) => !ALLOWED.includes(type))).toEqual([]);
  });
});

describe("bad frames", () => {
  const longText = "x".repeat(3_000);
  const send = { type: "send", requestId: "r", trigger: "submit-message", messages: [] as unknown[] };
  const cases: [name: string, frame: string, requestId: string][] = [
    ["no JSON", "hello?", ""],
    ["cut JSON", `{"type":"send","requestId":"r","messages":[`, "r"],
    ["an array", "[]", ""],
    ["null", "null", ""],
    ["a number", "7", ""],
    ["no type", `{"requestId":"r"}`, "r"],
    ["an unknown type", `{"type":"subscribe","requestId":"r"}`, "r"],
    ["no request id", `{"type":"resume"}`, ""],
    ["an empty request id", `{"type":"resume","requestId":""}`, ""],
    ["a request id that is no text", `{"type":"resume","requestId":7}`, ""],
    ["messages that are no array", JSON.stringify({ ...send, messages: "hello" }), "r"],
    ["an unknown trigger", JSON.stringify({ ...send, trigger: "shout" }), "r"],
    ["a body that is no object", JSON.stringify({ ...send, body: [1] }), "r"],
    ["the id of something else in front", `{"body":{"requestId":"inner"},"type":"shout","requestId":"r"}`, "r"],
    ["its id behind much else", JSON.stringify({ type: "shout", text: longText, requestId: "r" }), "r"],
    ["an id with a quote in it", JSON.stringify({ type: "shout", requestId: 'a "b"' }), 'a "b"'],
    ["state of the framework", `{"type":"cf_agent_state","requestId":"r","state":{"admin":true}}`, "r"],
    ["a call of the framework", `{"type":"rpc","requestId":"r","id":"1","method":"destroy","args":[]}`, "r"],
  ];

  it.each(cases)(
    "[WP6][WP8][WP9] %s gets one error on its request id, and the socket goes on",
    async (_name, frame, id) => {
      const session = newSessionId("bad-frame");
      const socket = await openSocket("chat", session);
      socket.send(frame);
      const error = await socket.nextFrame("an error");
      expect([error.type, error.requestId, error.code]).toEqual(["error", id, "invalid-frame"]);
      expect(error.errorText).toMatch(/^invalid-frame: [A-Z]/);
      expect(error.errorText).not.toMatch(TRACES);
      expect((await socket.ask("still there?")).ending).toBe("end");
      expect(socket.frames.filter((other) => other.type === "error")).toHaveLength(1);
      expect(await new HttpSession("chat", session).messages()).toHaveLength(2);
    },
  );

  it("[WP6] a binary frame gets one error, and the socket goes on", async () => {
    const socket = await openSocket("chat", newSessionId("binary"));
    socket.sendBytes(new TextEncoder().encode(`{"type":"resume","requestId":"r"}`));
    expect((await socket.nextFrame("an error")).code).toBe("invalid-frame");
    expect((await socket.ask("still there?")).ending).toBe("end");
  });

  it("[WP6] a refused request whose id stands behind its messages is refused under that id", async () => {
    const socket = await openSocket("chat", newSessionId("late-id"));
    const messages = [{ id: "m", role: "robot", parts: [{ type: "text", text: longText }] }];
    socket.send({ type: "send", trigger: "submit-message", messages, requestId: "r" });
    expect((await socket.reply("r")).code).toBe("invalid-message");
  });

  it("[WP7] a frame of 17 MiB is refused on its request id, and the session goes on", async () => {
    const socket = await openSocket("chat", newSessionId("huge"));
    socket.submit("huge", [userMessage("x".repeat(17 * 1024 * 1024))]);
    const reply = await socket.reply("huge", 10_000);
    expect([reply.ending, reply.code]).toEqual(["error", "frame-too-large"]);
    expect(reply.errorText).toMatch(/^frame-too-large: The frame has 178\d{5} characters; at most 16777216/);
    expect((await socket.ask("smaller")).ending).toBe("end");
  });

  it("[WP7] a frame above the length is refused before it is parsed", async () => {
    const socket = await openSocket("tight", newSessionId("unparsed"));
    socket.send(`{"type":"send","requestId":"r",${"x".repeat(8_192)}`);
    expect((await socket.reply("r")).code).toBe("frame-too-large");
  });

  it("[WP9] a session that cannot start refuses frames and requests without a stack", async () => {
    const id = newSessionId("misconfigured");
    const socket = new Socket(await upgrade(addressOf("misconfigured", id)));
    socket.submit("r", [userMessage("hello")]);
    const reply = await socket.reply("r");
    expect(reply.errorText).toBe("misconfigured: maxSteps is -1; it must be a whole number above 0.");
    const refused = await new HttpSession("misconfigured", id).refused("GET", "");
    expect([refused.status, refused.code]).toEqual([503, "misconfigured"]);
    socket.close();
  });
});
