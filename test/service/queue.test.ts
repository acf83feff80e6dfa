/** The requests that wait, over HTTP. */
import { describe, expect, it } from "vitest";
import { crash, eventually, HttpSession, newSessionId } from "./service.ts";
import { openSocket, textOf, userMessage } from "./socket.ts";
import { configureSession } from "./configured-sessions.ts";

interface Waiting {
  position: number;
  requestId: string;
  trigger: string;
  messages: { id: string }[];
}

const queueOf = async (http: HttpSession) => (await http.get<{ queue: Waiting[] }>("/queue")).queue;

/** A session in which one turn runs and two wait. */
async function queued(topic: string, running: string) {
  const id = newSessionId(topic);
  const http = new HttpSession("chat", id);
  const socket = await openSocket("chat", id);
  socket.submit("1", [userMessage(running, "m-1")]);
  await socket.streaming("1");
  socket.submit("2", [userMessage("two\n/words 2", "m-2")]);
  socket.submit("3", [userMessage("three\n/words 3", "m-3")]);
  const queue = await eventually(
    "both to wait",
    () => queueOf(http),
    ({ length }) => length === 2,
  );
  return { id, http, socket, queue };
}

const NOT_FOUND = (position: string) => ({
  status: 404,
  code: "not-found",
  message: `No request waits at position ${position}.`,
});

const NO_POSITION = (text: string) => ({
  status: 400,
  code: "bad-request",
  message: `"${text}" is not a position; list them with GET /sessions/:id/queue.`,
});

describe("the queue", () => {
  it("[HT15] of an idle session is empty", async () => {
    const http = new HttpSession("chat", newSessionId("idle-queue"));
    expect(await queueOf(http)).toEqual([]);
  });

  it("[HT15] lists what waits in order, and what is taken back ends for its client and never runs", async () => {
    const { http, socket, queue } = await queued("queue", "/words 12\n/slow 20");
    expect(queue).toEqual([
      {
        position: queue[0]?.position,
        requestId: "2",
        trigger: "submit",
        messages: [userMessage("two\n/words 2", "m-2")],
      },
      {
        position: (queue[0]?.position ?? 0) + 1,
        requestId: "3",
        trigger: "submit",
        messages: [userMessage("three\n/words 3", "m-3")],
      },
    ]);
    const path = `/queue/${queue[0]?.position}`;
    expect(await http.call("DELETE", path)).toEqual({ status: 200, body: { removed: true } });
    expect((await socket.reply("2")).chunks.map(({ type }) => type)).toEqual(["data-queued", "abort"]);
    expect(await http.refused("DELETE", path)).toEqual(NOT_FOUND(String(queue[0]?.position)));
    expect((await socket.reply("3")).text.split(" ")).toHaveLength(3);
    expect((await http.messages()).filter(({ role }) => role === "user").map(({ id }) => id)).toEqual(["m-1", "m-3"]);
    expect(await queueOf(http)).toEqual([]);
  });

  it("[HT15] is listed and taken back after a restart, when nobody follows it", async () => {
    const { id, http } = await queued("queue-restart", "/words 40\n/slow 40");
    await crash("chat", id);
    const [first, second] = await queueOf(http);
    expect([first?.requestId, second?.requestId]).toEqual(["2", "3"]);
    expect((await http.call("DELETE", `/queue/${first?.position}`)).body).toEqual({ removed: true });
    const done = await eventually(
      "the queue to end",
      () => http.summary(),
      ({ turn, queued: waiting }) => !turn && waiting === 0,
    );
    expect(done.messages).toBe(4);
    expect((await http.messages()).map((message) => textOf(message).split("\n")[0])).toContain("three");
  });

  it.each([
    ["9", NOT_FOUND("9")],
    ["-1", NO_POSITION("-1")],
    ["1.5", NO_POSITION("1.5")],
    ["x", NO_POSITION("x")],
  ])("[HT15] has nothing at position %s", async (position, refused) => {
    const http = new HttpSession("chat", newSessionId("no-position"));
    expect(await http.refused("DELETE", `/queue/${position}`)).toEqual(refused);
  });

  it("[HT15][HT12] is only listed, and its requests only taken back", async () => {
    const http = new HttpSession("chat", newSessionId("queue-method"));
    expect(await http.refused("POST", "/queue", {})).toMatchObject({ status: 405, code: "method-not-allowed" });
    expect(await http.refused("GET", "/queue/1")).toMatchObject({ status: 405, code: "method-not-allowed" });
  });

  it("[TN26] takes no more than its size, and what fits beside it still waits", async () => {
    const id = newSessionId("queue-size");
    configureSession(id, (builder) => builder.limits({ queueSize: 2_000 }));
    const socket = await openSocket("configured", id);
    socket.submit("1", [userMessage("/words 12\n/slow 20")]);
    await socket.streaming("1");
    socket.submit("2", [userMessage(`${"a".repeat(1_200)}\n/words 2`)]);
    socket.submit("3", [userMessage("b".repeat(1_200))]);
    socket.submit("4", [userMessage("/words 3")]);
    const refused = await socket.reply("3");
    expect([refused.code, refused.errorText]).toEqual([
      "queue-full",
      "queue-full: What waits has 2000 characters at most; try again when a turn has ended.",
    ]);
    expect((await socket.reply("2")).text.split(" ")).toHaveLength(2);
    expect((await socket.reply("4")).text.split(" ")).toHaveLength(3);
  });
});
