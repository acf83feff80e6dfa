/** Room in the window: a turn waits for a compaction only where it cannot go on without, and what cannot fit is not sent. */
import { describe, expect, it } from "vitest";
import {
  bytesOf,
  lastReport,
  newsIn,
  scripted,
  THRESHOLD,
  type CompactionSession,
  type Scripted,
} from "./compaction-session.ts";
import { logged, prose } from "./context-session.ts";
import { refusal, slowly, type Summarising } from "./scripted-model.ts";
import { eventually, pause } from "./service.ts";
import { userMessage } from "./socket.ts";

/** A session whose window holds 5,000 tokens beside the answer, and whose next summaries are those of the script. */
function narrow(topic: string, ...script: Summarising[]): Promise<Scripted> {
  return scripted(topic, { script, configure: (builder) => builder.contextWindow(6_000).maxOutputTokens(1_000) });
}

/** Text that fills the window, so that the turn has to wait for the summary that is being written. */
function submitLong(session: CompactionSession, requestId: string): void {
  session.socket.submit(requestId, [userMessage(`The last straw. ${prose(1_700)}\n/words 5`, requestId)]);
}

async function reported(session: CompactionSession, requestId: string): Promise<number> {
  return session.socket.frames.filter((frame) => frame.requestId === requestId).length;
}

describe("a turn", () => {
  it("[CM17] that has no room waits for the summary that is being written, and is made with it", async () => {
    const slow = slowly();
    const { model, session } = await narrow("waits", slow.summarise);
    await session.fill();
    submitLong(session, "waits");
    const { length } = model.turns;
    await pause(150);
    expect([model.turns.length, await session.list()]).toEqual([length, []]);
    slow.release();
    const reply = await session.socket.reply("waits");
    expect([reply.ending, reply.text.split(" ").length]).toEqual(["end", 5]);
    expect(model.shown[0]).toMatch(/^<summary>/);
    expect(newsIn(reply).map(({ phase }) => phase)).toEqual(["finished"]);
    expect(Math.max(...model.read)).toBeLessThan(5_000);
  });

  it("[CM17][TN19] that waits is ended by an abort, and the summary goes on", async () => {
    const slow = slowly();
    const { model, session } = await narrow("aborted", slow.summarise);
    await session.fill();
    const before = await session.http.messages();
    submitLong(session, "aborted");
    await eventually(
      "the turn",
      () => reported(session, "aborted"),
      (frames) => frames > 0,
    );
    session.socket.send({ type: "abort", requestId: "aborted" });
    const { chunks, ending } = await session.socket.reply("aborted");
    expect([ending, chunks.at(-1)?.type]).toEqual(["end", "abort"]);
    const { length } = model.turns;
    slow.release();
    expect((await session.recorded(1))[0]).toMatchObject({ outcome: "applied" });
    const after = await session.http.messages();
    expect(bytesOf(after.slice(0, before.length))).toBe(bytesOf(before));
    expect(after.slice(before.length).map(({ id }) => id)).toEqual(["aborted"]);
    expect((await session.say("Again.", 5)).ending).toBe("end");
    expect(model.turns).toHaveLength(length + 1);
  });

  it("[CM17][TN19] that waits after its provider found the prompt too long is ended by an abort", async () => {
    const slow = slowly();
    const { model, session } = await narrow("aborted-overflow", slow.summarise);
    await session.say(prose(600), 200);
    model.refusals.push(refusal(400, "prompt is too long: 9000 tokens > 8000 maximum"));
    session.socket.submit("refused", [userMessage("And?\n/words 5")]);
    await eventually(
      "a summary",
      () => model.summaries.length,
      (asked) => asked === 1,
    );
    session.socket.send({ type: "abort", requestId: "refused" });
    const { chunks, ending } = await session.socket.reply("refused");
    expect([ending, chunks.at(-1)?.type]).toEqual(["end", "abort"]);
    slow.release();
    expect((await session.recorded(1))[0]).toMatchObject({ outcome: "applied", trigger: "overflow" });
    expect((await session.say("Again.", 5)).ending).toBe("end");
  });

  it("[CM17] whose prompt fits, but not with the whole answer, is made with a shorter one", async () => {
    const { model, session } = await narrow("shorter");
    await session.http.call("PATCH", "", { compactAfter: "off" });
    await session.say(prose(3_300), 20);
    const reply = await session.say(prose(1_000), 20);
    const { maxOutputTokens = 0 } = model.turns.at(-1) ?? {};
    expect([reply.ending, maxOutputTokens < 1_000, maxOutputTokens > 500]).toEqual(["end", true, true]);
  });
});

// trap 13
describe("a message that is larger than the threshold", () => {
  it("[CM5][CM7] is answered, and what could not be made smaller is said with the numbers", async () => {
    const { model, session } = await narrow("giant");
    const reply = await session.say(prose(3_200), 20);
    const records = await session.recorded(1);
    expect(reply.ending).toBe("end");
    expect(new Set(records.map(({ outcome }) => outcome))).toEqual(new Set(["no-progress"]));
    expect(records[0]?.reason).toMatch(
      /^Of \d+ tokens, \d+ are system prompt and tools, \d+ the newest message and \d+ /,
    );
    expect([model.summaries.length, (await session.context()).tokens > THRESHOLD]).toEqual([0, true]);
    await session.say("And?", 5);
    await session.compact();
    expect((await session.context()).tokens).toBeLessThan(1_500);
  });
});

describe("a prompt that cannot fit the window", () => {
  it("[CM18] is refused before any call, and the next small message is answered", async () => {
    logged();
    const { model, session } = await narrow("too-large");
    await session.say("Hello.", 20);
    const before = await session.http.messages();
    const refused = await session.say(prose(7_000), 5);
    expect([refused.ending, refused.code]).toEqual(["error", "prompt-too-large"]);
    expect(refused.errorText).toMatch(
      /^prompt-too-large: The conversation has about \d+ tokens, .* the model reads 6000\./,
    );
    expect([model.turns.length, model.summaries.length]).toEqual([1, 0]);
    const [, ...rest] = (await session.http.messages()).slice(before.length - 1);
    expect(rest.map(({ role }) => role)).toEqual(["user"]);
    const next = await session.say("Shorter, then.", 5);
    expect([next.ending, next.text.split(" ").length, lastReport(next).tokens < 1_000]).toEqual(["end", 5, true]);
    expect(Math.max(...model.read)).toBeLessThan(1_000);
    expect(bytesOf((await session.http.messages()).slice(0, before.length))).toBe(bytesOf(before));
  });

  it("[CM18] is refused where system prompt and tools alone leave no room, and says how large they are", async () => {
    logged();
    const { model, session } = await narrow("overhead");
    await session.http.call("PATCH", "", { systemPrompt: prose(7_000) });
    const refused = await session.say("Hello.", 5);
    expect(refused).toMatchObject({
      ending: "error",
      code: "prompt-too-large",
      errorText: expect.stringMatching(/of which [67]\d{3} are system prompt and tools/),
    });
    expect(model.turns).toEqual([]);
    await session.http.call("PATCH", "", { systemPrompt: null });
    expect((await session.say("Hello.", 5)).ending).toBe("end");
  });
});
