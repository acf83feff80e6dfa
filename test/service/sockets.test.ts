/** What one socket may ask for, and how it ends. */
import { describe, expect, it } from "vitest";
import { addressOf, newSessionId } from "./service.ts";
import { counted, openSocket, textOfChunks, upgrade, userMessage } from "./socket.ts";

describe("a socket", () => {
  it("[WP11] that resumes an eleventh time at once is refused, goes on working, and takes nothing from others", async () => {
    const id = newSessionId("resumes");
    const socket = await openSocket("chat", id);
    const sent = await socket.ask("/words 3");
    const endings: (string | undefined)[] = [];
    for (let number = 1; number <= 11; number += 1) {
      socket.send({ type: "resume", requestId: `resume-${number}` });
      const reply = await socket.reply(`resume-${number}`);
      endings.push(reply.code ?? reply.text);
    }
    expect(endings).toEqual([...Array.from({ length: 10 }, () => sent.text), "too-many-requests"]);
    expect((await socket.reply("resume-11")).errorText).toBe(
      "too-many-requests: A socket may resume 10 times in 10 seconds.",
    );
    expect((await socket.ask("/words 2")).text.split(" ")).toHaveLength(2);
    const other = await openSocket("chat", id);
    other.send({ type: "resume", requestId: "r" });
    expect((await other.reply("r")).ending).toBe("end");
  });

  it("[WP11] that uses a request id again while its turn runs is sent one stream, not two", async () => {
    const id = newSessionId("id-again");
    const socket = await openSocket("chat", id);
    socket.submit("sent", [userMessage("/words 30\n/slow 15")]);
    await socket.streaming("sent", 3);
    const follower = await openSocket("chat", id);
    follower.send({ type: "resume", requestId: "r" });
    await follower.streaming("r", 4);
    const before = follower.frames.length;
    follower.send({ type: "resume", requestId: "r" });
    await socket.reply("sent");
    await follower.reply("r");
    const again = follower.frames.findIndex(({ type }, index) => index >= before && type === "start");
    const numbers = follower.frames.slice(again).flatMap(({ sequence }) => sequence ?? []);
    expect(numbers).toEqual(counted(numbers.length));
    expect(follower.frames.filter(({ type }) => type === "end")).toHaveLength(1);
  });

  it("[WP11] that uses the id of a request for another one is answered with the other one alone", async () => {
    const socket = await openSocket("chat", newSessionId("id-for-another"));
    socket.submit("other", [userMessage("/words 10\n/slow 20")]);
    await socket.streaming("other", 2);
    socket.send({ type: "resume", requestId: "r" });
    await socket.streaming("r", 2);
    socket.submit("r", [userMessage("/words 2")]);
    const { frames } = await socket.reply("r");
    const own = frames.slice(frames.findIndex(({ chunk }) => chunk?.type === "data-queued"));
    const numbers = own.flatMap(({ sequence }) => sequence ?? []);
    expect(numbers).toEqual(counted(own.length - 1));
    expect(textOfChunks(own.flatMap(({ chunk }) => chunk ?? [])).split(" ")).toHaveLength(2);
    expect((await socket.reply("other")).text.split(" ")).toHaveLength(10);
  });

  it.each([
    ["without a code", undefined, 1000],
    ["with a code", 4001, 4001],
  ])("[WP12] that is closed %s is closed in turn", async (_name, code, answered) => {
    const socket = await upgrade(addressOf("chat", newSessionId("close")));
    const closed = new Promise<number>((resolve) => {
      socket.addEventListener("close", (event) => resolve(event.code));
    });
    socket.accept();
    socket.send(JSON.stringify({ type: "resume", requestId: "r" }));
    await new Promise((resolve) => socket.addEventListener("message", resolve, { once: true }));
    if (code === undefined) socket.close();
    else socket.close(code, "done");
    const late = new Promise<string>((resolve) => setTimeout(() => resolve("never closed"), 3_000));
    expect(await Promise.race([closed, late])).toBe(answered);
  });
});
