/** Corners in which compaction went wrong once: nothing measured behind the cut, deaf summarisers, settings that change meanwhile. */
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { scripted } from "./compaction-session.ts";
import { prose } from "./context-session.ts";
import { addressOf, eventually, pause, request } from "./service.ts";
import { userMessage } from "./socket.ts";

/** Messages of an import that nothing was reported of. */
function unmeasured(count: number, from: number): UIMessage[] {
  return Array.from({ length: count }, (_, index) => ({
    id: crypto.randomUUID(),
    role: index % 2 === 0 ? "user" : "assistant",
    parts: [{ type: "text", text: `Imported ${index}. ${prose(150, from + index)}` }],
  }));
}

describe("a session", () => {
  it("[CM7][CM15] where no call measured what is behind the cut goes on compacting", async () => {
    const { session } = await scripted("unmeasured", {
      configure: (builder) => builder.contextWindow(6_000).maxOutputTokens(1_000).compactAfter("auto"),
    });
    for (let turn = 0; turn < 4; turn += 1) await session.say(`Turn ${turn}. ${prose(100, turn)}`, 200);
    for (let round = 0; round < 4; round += 1) {
      await session.http.call("POST", "/messages", { messages: unmeasured(10, round) });
      await pause(80);
    }
    expect((await session.list()).map(({ outcome }) => outcome)).not.toContain("no-progress");
    expect((await session.say("Next.", 5)).ending).toBe("end");
  });

  it("[HT10] that was asked to compact while it was empty takes an archive", async () => {
    const { session: full } = await scripted("archived");
    await full.fillAndCompact();
    const { session: empty } = await scripted("asked");
    expect(await empty.compact()).toMatchObject({ outcome: "no-progress" });
    const archive = await (await request(addressOf("configured", full.id, "/export"))).text();
    const response = await request(addressOf("configured", empty.id, "/messages"), {
      method: "POST",
      headers: { "content-type": "application/jsonl" },
      body: archive,
    });
    expect([response.status, await empty.list()]).toEqual([200, await full.list()]);
  });

  it("[CM2][HT3] that is told not to compact while a turn runs does not after it", async () => {
    const { session } = await scripted("off-meanwhile");
    await session.talk(6);
    session.socket.submit("long", [userMessage("Go on.\n/words 900\n/slow 1")]);
    await session.socket.streaming("long", 10);
    await session.http.call("PATCH", "", { compactAfter: "off" });
    await session.socket.reply("long");
    await pause(200);
    expect([await session.list(), (await session.context()).threshold]).toEqual([[], null]);
  });
});

describe("a summariser", () => {
  it("[CM24] that does not heed that it is late is given up all the same", async () => {
    const { session } = await scripted("deaf", {
      script: [() => new Promise(() => {})],
      configure: (builder) => builder.compaction({ timeoutMs: 200 }),
    });
    await session.fill();
    const [compaction] = await eventually(
      "an outcome",
      () => session.list(),
      (list) => list.length === 1,
    );
    expect(compaction).toMatchObject({ outcome: "failed", reason: "The summary was not written within 200 ms." });
    expect((await session.say("Go on.", 5)).ending).toBe("end");
  });
});
