/** Tools, frame by frame: what a client may and may not do to a call. */
import { evictDurableObject } from "cloudflare:test";
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { crash, eventually, HttpSession, newSessionId, pause, stubOf } from "./service.ts";
import { openSocket, textOf, userMessage, type Socket } from "./socket.ts";
import { toolRuns } from "./tool-runs.ts";

type ToolPart = Extract<UIMessage["parts"][number], { toolCallId: string }>;

const callsOf = (message: UIMessage | undefined): ToolPart[] =>
  message?.parts.filter((part): part is ToolPart => "toolCallId" in part) ?? [];

/** The stored call of the newest message. */
async function storedCall(http: HttpSession): Promise<ToolPart> {
  const call = callsOf((await http.messages()).at(-1))[0];
  if (!call) throw new Error("the newest message has no tool call");
  return call;
}

/** Posts the newest message with its first call changed, as a client that answers it does. */
async function answerCall(socket: Socket, http: HttpSession, requestId: string, change: object) {
  const message = (await http.messages()).at(-1);
  const parts = message?.parts.map((part) => (part === callsOf(message)[0] ? { ...part, ...change } : part));
  socket.submit(requestId, [{ ...message, parts }], { messageId: message?.id });
  return socket.reply(requestId);
}

describe("steps", () => {
  it("[TN13] steps follow each other while the model calls tools and every call has its result", async () => {
    const id = newSessionId("steps");
    const socket = await openSocket("tools", id);
    const reply = await socket.ask(
      '/call lookUp {"order":1}\n/call break\n/then\n/call lookUp {"order":2}\n/then\n/words 3',
    );
    expect(reply.ending).toBe("end");
    expect(reply.chunks.filter(({ type }) => type === "start-step")).toHaveLength(3);
    expect(toolRuns(id)).toEqual(["lookUp", "break", "lookUp"]);
    const [, answer] = await new HttpSession("tools", id).messages();
    expect(callsOf(answer).map(({ state }) => state)).toEqual(["output-available", "output-error", "output-available"]);
    expect(callsOf(answer)[1]?.errorText).toBe("Error: The shelf is empty.");
    expect(textOf(answer).split(" ")).toHaveLength(3);
  });

  it("[TN13] a turn stops at maxSteps with an error that says so, and its steps are kept", async () => {
    const id = newSessionId("max-steps");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    const script = Array.from({ length: 6 }, (_, order) => `/call lookUp {"order":${order}}`).join("\n/then\n");
    const reply = await socket.ask(script);
    expect([reply.ending, reply.code]).toEqual(["error", "step-limit"]);
    expect(callsOf((await http.messages())[1])).toHaveLength(4);
    expect((await http.summary()).usage.calls).toBe(4);
    expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
  });

  it("[TN13] a call with input that does not fit its schema is answered with an error, not with a run", async () => {
    const id = newSessionId("bad-input");
    const socket = await openSocket("tools", id);
    const reply = await socket.ask('/call lookUp {"order":"seven"}\n/call lookUp {"order":\n/then\n/words 2');
    expect(reply.ending).toBe("end");
    expect(toolRuns(id)).toEqual([]);
    const [, answer] = await new HttpSession("tools", id).messages();
    expect(callsOf(answer).map(({ state }) => state)).toEqual(["output-error", "output-error"]);
    expect(textOf(answer).split(" ")).toHaveLength(2);
  });

  it.each(["nothing", "date", "long"])("[TN13][ST3] a tool may answer with %s", async (kind) => {
    const id = newSessionId(`oddity-${kind}`);
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    const reply = await socket.ask(`/call oddity {"kind":"${kind}"}\n/then\n/words 3`);
    expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 3]);
    const sent = reply.chunks.find(({ type }) => type === "tool-output-available");
    await evictDurableObject(stubOf("tools", id));
    const call = callsOf((await http.messages())[1])[0];
    expect(call?.state).toBe("output-available");
    expect(sent).toMatchObject({ output: call?.output });
    expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
  });

  it.each(["bigint", "circle"])(
    "[TN18] a tool that answers with a %s ends its turn, and the next one works",
    async (kind) => {
      const id = newSessionId(`oddity-${kind}`);
      const http = new HttpSession("tools", id);
      const socket = await openSocket("tools", id);
      const reply = await socket.ask(`/call oddity {"kind":"${kind}"}`);
      expect([reply.ending, reply.code]).toEqual(["error", "model-failed"]);
      const call = callsOf((await http.messages())[1])[0];
      expect([call?.state, call?.errorText?.split(":")[0]]).toEqual([
        "output-error",
        "The tool ran, but its output cannot be kept",
      ]);
      expect((await http.summary()).turn).toBe(null);
      expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
      expect(toolRuns(id)).toEqual(["oddity"]);
    },
  );

  it("[TN19] an abort while a tool runs ends the turn, and the call that never answered does not come back", async () => {
    const id = newSessionId("abort-tool");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    socket.submit("r", [userMessage('/call wait {"ms":60000}')]);
    await eventually(
      "the tool to run",
      () => toolRuns(id),
      (runs) => runs.length === 1,
    );
    socket.send({ type: "abort", requestId: "r" });
    const reply = await socket.reply("r");
    expect([reply.ending, reply.chunks.at(-1)?.type]).toEqual(["end", "abort"]);
    expect((await http.summary()).turn).toBe(null);
    expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
    expect(toolRuns(id)).toEqual(["wait"]);
  });
});

describe("client tools", () => {
  async function waiting(topic: string, said = "/call locate\n/then\n/words 3") {
    const id = newSessionId(topic);
    const socket = await openSocket("tools", id);
    const http = new HttpSession("tools", id);
    expect((await socket.ask(said, { requestId: "call", id: "u" })).ending).toBe("end");
    return { id, socket, http };
  }

  it("[TN9] an output, or an error, is taken for an open call and continues its message", async () => {
    for (const change of [
      { state: "output-available", output: { city: "Porto" } },
      { state: "output-error", errorText: "no signal" },
    ]) {
      const { socket, http } = await waiting("client-tool");
      const reply = await answerCall(socket, http, "answer", change);
      expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 3]);
      expect(await storedCall(http)).toMatchObject(change);
      expect(await http.messages()).toHaveLength(2);
    }
  });

  it("[TN9][WP3] whoever resumes the continued message gets the whole of it", async () => {
    const { id, socket, http } = await waiting(
      "resume-continued",
      "/words 2\n/call locate\n/then\n/words 20\n/slow 10",
    );
    const answered = answerCall(socket, http, "answer", { state: "output-available", output: 1 });
    await socket.streaming("answer", 3);
    const late = await openSocket("tools", id);
    late.send({ type: "resume", requestId: "late" });
    await answered;
    expect((await late.reply("late")).text).toBe(textOf((await http.messages())[1]));
  });

  it("[TN9] an output for a call that the message does not have is refused, and the call stays open", async () => {
    const { socket, http } = await waiting("unknown-call");
    const change = { toolCallId: "made-up", state: "output-available", output: 1 };
    const reply = await answerCall(socket, http, "answer", change);
    expect([reply.ending, reply.code]).toEqual(["error", "unknown-tool-call"]);
    expect((await storedCall(http)).state).toBe("input-available");
  });

  it("[TN9] an output for a message that nobody knows is refused", async () => {
    const { socket, http } = await waiting("unknown-continued");
    const message = (await http.messages())[1];
    socket.submit("answer", [{ ...message, id: "made-up" }]);
    expect((await socket.reply("answer")).code).toBe("unknown-message");
  });

  it("[TN10] an answered call is not answered again, and the model is not called for it", async () => {
    const { socket, http } = await waiting("answered");
    await answerCall(socket, http, "first", { state: "output-available", output: "here" });
    const before = await http.messages();
    const again = await answerCall(socket, http, "second", { state: "output-available", output: "there" });
    // The client has the answer already; it would show it twice.
    expect([again.ending, again.text]).toEqual(["end", ""]);
    expect(await http.messages()).toEqual(before);
    expect((await http.summary()).usage.calls).toBe(2);
  });

  it("[TN9] one of two outputs waits for the other, and then the message goes on once", async () => {
    const { socket, http } = await waiting("two-calls", "/call locate\n/call locate\n/then\n/words 3");
    const message = (await http.messages())[1];
    const [first, second] = callsOf(message);
    const withOutputs = (...answered: (ToolPart | undefined)[]) => ({
      ...message,
      parts: message?.parts.map((part) =>
        answered.some((call) => call === part) ? { ...part, state: "output-available", output: 1 } : part,
      ),
    });
    socket.submit("one", [withOutputs(first)]);
    expect((await socket.reply("one")).text).toBe("");
    expect(callsOf((await http.messages())[1]).map(({ state }) => state)).toEqual([
      "output-available",
      "input-available",
    ]);
    socket.submit("both", [withOutputs(first, second)]);
    expect((await socket.reply("both")).text.split(" ")).toHaveLength(3);
    expect((await http.summary()).usage.calls).toBe(2);
  });

  it("[TN9] an output that comes together with the next user message is taken, and the model sees both", async () => {
    const { socket, http } = await waiting("output-and-more");
    const [asked, message] = await http.messages();
    const parts = message?.parts.map((part) =>
      "toolCallId" in part ? { ...part, state: "output-available", output: "Porto" } : part,
    );
    socket.submit("both", [asked ?? {}, { ...message, parts }, userMessage("go on")]);
    // what it was shown: the question, the call, its output, and what was said now
    expect((await socket.reply("both")).text).toContain("I was shown 4 messages");
    expect(callsOf((await http.messages())[1])[0]).toMatchObject({ state: "output-available", output: "Porto" });
  });

  it("[TN9] a user who talks on instead of answering is heard, and the open call is left behind", async () => {
    const { socket, http } = await waiting("talk-on");
    const reply = await socket.ask("/words 4");
    expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 4]);
    expect(await http.messages()).toHaveLength(4);
    const [, message] = await http.messages();
    const parts = message?.parts.map((part) =>
      "toolCallId" in part ? { ...part, state: "output-available", output: 1 } : part,
    );
    socket.submit("late", [{ ...message, parts }]);
    expect((await socket.reply("late")).code).toBe("unknown-tool-call");
  });
});

describe("server tools", () => {
  it("[TN10] an output that a client claims for a server tool is passed over", async () => {
    const id = newSessionId("claimed");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    await socket.ask('/call refund {"amount":9}');
    const reply = await answerCall(socket, http, "claim", { state: "output-available", output: { paid: 900 } });
    expect([reply.ending, toolRuns(id)]).toEqual(["end", []]);
    expect((await storedCall(http)).state).toBe("approval-requested");
    expect((await http.summary()).usage.calls).toBe(1);
  });

  it("[TN11] an approval under another approval's id changes nothing", async () => {
    const id = newSessionId("wrong-approval");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    await socket.ask('/call refund {"amount":9}');
    const approval = { id: "made-up", approved: true };
    await answerCall(socket, http, "approve", { state: "approval-responded", approval });
    expect([(await storedCall(http)).state, toolRuns(id)]).toEqual(["approval-requested", []]);
  });

  it("[TN11] an approval sent twice, under two request ids, pays once", async () => {
    const id = newSessionId("approve-twice");
    const http = new HttpSession("tools", id);
    const [socket, other] = [await openSocket("tools", id), await openSocket("tools", id)];
    await socket.ask('/call refund {"amount":9,"ms":100}\n/then\n/words 3');
    const message = (await http.messages())[1];
    const approved = {
      ...message,
      parts: message?.parts.map((part) =>
        "toolCallId" in part
          ? { ...part, state: "approval-responded", approval: { ...part.approval, approved: true } }
          : part,
      ),
    };
    socket.submit("one", [approved]);
    await pause(30);
    other.submit("two", [approved]);
    const replies = [await socket.reply("one"), await other.reply("two")];
    expect(replies.map(({ ending }) => ending)).toEqual(["end", "end"]);
    expect(toolRuns(id)).toEqual(["refund"]);
    expect((await storedCall(http)).output).toEqual({ paid: 9 });
    expect((await http.summary()).usage.calls).toBe(2);
  });

  it("[TN11][TN16] an approved call that was running in a crash is answered with an error, and does not pay again", async () => {
    const id = newSessionId("approve-crash");
    const http = new HttpSession("tools", id);
    const socket = await openSocket("tools", id);
    await socket.ask('/call refund {"amount":9,"ms":60000}');
    const { approval } = await storedCall(http);
    const sent = answerCall(socket, http, "yes", {
      state: "approval-responded",
      approval: { ...approval, approved: true },
    });
    const broken = sent.catch((error: unknown) => String(error));
    await eventually(
      "the refund to run",
      () => toolRuns(id),
      (runs) => runs.length === 1,
    );
    await crash("tools", id);
    expect(await broken).toContain("the socket closed");
    await eventually(
      "the turn's end",
      () => http.summary(),
      ({ turn }) => turn === null,
    );
    const call = await storedCall(http);
    expect([call.state, call.errorText]).toEqual([
      "output-error",
      "The call was cut off while it ran. It may or may not have taken effect.",
    ]);
    expect(toolRuns(id)).toEqual(["refund"]);
    const next = await openSocket("tools", id);
    expect((await next.ask("/words 2")).text.split(" ")).toHaveLength(2);
    expect(toolRuns(id)).toEqual(["refund"]);
  });
});
