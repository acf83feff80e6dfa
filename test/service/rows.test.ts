/** What a turn costs in rows, counted at the cursors of the Durable Object, the base class included. */
import { evictDurableObject, runInDurableObject } from "cloudflare:test";
import { describe, expect, it } from "vitest";
import type { StorageCounts } from "./counted-storage.ts";
import { HttpSession, newSessionId, stubOf } from "./service.ts";
import { openSocket, userMessage, type Socket } from "./socket.ts";
import { CountedSession } from "./worker.ts";

function takeCounts(id: string): Promise<StorageCounts> {
  return runInDurableObject(stubOf("counted", id), (object) => {
    if (!(object instanceof CountedSession)) throw new TypeError("this session does not count");
    return object.takeCounts();
  });
}

/** A warm session that holds so many messages, and a socket to it. */
async function warmSession(messages: number): Promise<{ id: string; socket: Socket; http: HttpSession }> {
  const id = newSessionId(`rows-${messages}`);
  const http = new HttpSession("counted", id);
  const stored = Array.from({ length: messages - 2 }, (_, index) => ({
    id: `m-${index}`,
    role: index % 2 === 0 ? "user" : "assistant",
    parts: [{ type: "text", text: `message ${index}` }],
  }));
  for (let start = 0; start < stored.length; start += 200) {
    expect((await http.call("POST", "/messages", { messages: stored.slice(start, start + 200) })).status).toBe(200);
  }
  const socket = await openSocket("counted", id);
  await socket.ask("/words 3");
  expect((await http.summary()).messages).toBe(messages);
  await takeCounts(id);
  return { id, socket, http };
}

/** The statements with their rows, if there are more than so many of either kind; a failing test shows them. */
function above(
  { rowsRead, rowsWritten, statements }: StorageCounts,
  most: { written: number; read: number },
): string[] {
  const within = rowsWritten <= most.written && rowsRead <= most.read;
  return within ? [] : [`${rowsWritten} written, ${rowsRead} read`, ...statements];
}

describe("rows", () => {
  it.each([10, 1_000])(
    "[ST6] a streamed turn of 200 words writes at most 8 rows and reads at most 20 at %i messages",
    async (messages) => {
      const { id, socket } = await warmSession(messages);
      const reply = await socket.ask("/words 200");
      expect(reply.chunks.filter(({ type }) => type === "text-delta")).toHaveLength(200);
      const counts = await takeCounts(id);
      expect(above(counts, { written: 8, read: 20 })).toEqual([]);
      expect(counts.keyValueWrites).toBe(0);
    },
  );

  it("[ST6] a further step writes at most 2 rows, one before its server tool runs and one after", async () => {
    const { id, socket } = await warmSession(10);
    const rows = async (said: string) => {
      await socket.ask(said);
      const counts = await takeCounts(id);
      return counts.rowsWritten;
    };
    const one = await rows("/words 2");
    const two = await rows('/call lookUp {"order":1}\n/then\n/words 2');
    const three = await rows('/call lookUp {"order":1}\n/then\n/call lookUp {"order":2}\n/then\n/words 2');
    expect([two - one, three - two]).toEqual([2, 2]);
  });

  it("[ST6][TN15] a checkpoint writes one row, and there is at most one a second", async () => {
    const { id, socket } = await warmSession(10);
    await socket.ask("/words 2");
    const { rowsWritten: quick } = await takeCounts(id);
    await socket.ask("/words 100\n/slow 25");
    const counts = await takeCounts(id);
    expect(counts.rowsWritten - quick).toBeGreaterThanOrEqual(2);
    expect(counts.rowsWritten - quick).toBeLessThanOrEqual(3);
  });

  it("[ST6] what a message that is already known costs, posted in a transcript of 1,000: nothing", async () => {
    const { id, socket, http } = await warmSession(1_000);
    const transcript = await http.messages();
    await takeCounts(id);
    socket.submit("r", [...transcript, userMessage("/words 200")]);
    expect((await socket.reply("r")).ending).toBe("end");
    const counts = await takeCounts(id);
    expect(above(counts, { written: 8, read: 20 })).toEqual([]);
  });

  it("[ST6] the first start and a wake are counted apart, and a wake writes nothing", async () => {
    const id = newSessionId("rows-start");
    const http = new HttpSession("counted", id);
    await http.summary();
    const start = await takeCounts(id);
    expect(above(start, { written: 65, read: 480 })).toEqual([]);
    const warm = await warmSession(1_000);
    await evictDurableObject(stubOf("counted", warm.id));
    await warm.http.summary();
    const wake = await takeCounts(warm.id);
    expect(above(wake, { written: 0, read: 30 })).toEqual([]);
  });
});
