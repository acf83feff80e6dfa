import { describe, expect, it } from "vitest";
import type { Entry, ModelCall, OpenTurn, SessionRecord, UsageTotals } from "../../src/records.ts";
import { Branch } from "../../src/turn/branch.ts";
import { addCall, closeTurn } from "../../src/turn/closing.ts";
import { inStore } from "../storage/database.ts";
import { asked, call, NOON, openTurn, step, text, usage } from "./entries.ts";

const NONE: UsageTotals = {
  calls: 0,
  inputTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
};

/** The session after a turn was closed that left these entries on its branch, the oldest first. */
function closed(
  turn: OpenTurn,
  entries: Entry[],
  before: Partial<SessionRecord> = {},
): Promise<Readonly<SessionRecord>> {
  return inStore((store) => {
    for (const entry of entries) store.restore(entry);
    store.saveSession({ turn, leaf: turn.parent, messages: 1, ...before });
    const answer = new Branch(store, entries.at(-1)?.seq ?? null).answer(turn.messageId);
    closeTurn(store, turn, answer, NOON + 9);
    return store.session;
  });
}

describe("totals", () => {
  it("[US4] add up every kind of token that a call reported", () => {
    const reported: ModelCall = call({
      usage: {
        ...usage(10, 5),
        inputTokenDetails: { noCacheTokens: 1, cacheReadTokens: 6, cacheWriteTokens: 3 },
        outputTokenDetails: { textTokens: 1, reasoningTokens: 4 },
      },
    });
    expect([reported, reported].reduce(addCall, NONE)).toEqual({
      calls: 2,
      inputTokens: 20,
      outputTokens: 10,
      reasoningTokens: 8,
      cacheReadTokens: 12,
      cacheWriteTokens: 6,
    });
  });

  it.each<[string, unknown]>([
    ["nothing", undefined],
    ["not a number", Number.NaN],
    ["infinity", Number.POSITIVE_INFINITY],
    ["a negative number", -5],
    ["a string", "12"],
    ["null", null],
  ])("[US3] count a call that reported %s as a call without tokens", (_name, reported) => {
    // SAFETY: an import or a provider may give anything; the type says what it should be.
    const tokens = reported as number;
    expect(addCall(NONE, call({ usage: usage(tokens, tokens) }))).toEqual({ ...NONE, calls: 1 });
    expect(addCall(NONE, call())).toEqual({ ...NONE, calls: 1 });
  });
});

describe("closing a turn", () => {
  it("[TN2] moves the leaf to the answer, counts it, and remembers the request", async () => {
    const session = await closed(openTurn(), [
      asked(1, "q"),
      step(2, [text("a")], { call: call({ usage: usage(3, 4) }) }),
    ]);
    expect(session).toEqual({
      createdAt: NOON,
      activeAt: NOON + 9,
      leaf: 2,
      messages: 2,
      erased: 0,
      measured: null,
      overlay: null,
      compactions: 0,
      settings: {},
      turn: null,
      finished: [{ requestId: "request", messageId: "answer" }],
      totals: { ...NONE, calls: 1, inputTokens: 3, outputTokens: 4 },
    });
  });

  it("[TN8] gives the old leaf back when nothing was said", async () => {
    const turn = openTurn({ trigger: "regenerate", leafIfSilent: 7 });
    expect(await closed(turn, [asked(1, "q")])).toMatchObject({ leaf: 7, messages: 1, totals: NONE });
  });

  it("[US4] books the calls of this turn and not those the message had before it, whatever the clocks say", async () => {
    const turn = openTurn({ trigger: "continue", parent: 2, leafIfSilent: 2 });
    const older = step(2, [], { call: call({ usage: usage(100, 100), startedAt: NOON + 5 }) });
    const newer = step(3, [], { step: 1, call: call({ usage: usage(1, 1), startedAt: NOON - 5 }) });
    const session = await closed(turn, [asked(1, "q"), older, newer]);
    expect(session).toMatchObject({
      leaf: 3,
      messages: 1,
      totals: { ...NONE, calls: 1, inputTokens: 1, outputTokens: 1 },
    });
  });

  it("[US4] books nothing for another message on the branch", async () => {
    const other = step(2, [], { messageId: "earlier", call: call({ usage: usage(5, 5) }) });
    const session = await closed(openTurn({ parent: 3 }), [asked(1, "q"), other, asked(3, "r"), step(4, [])]);
    expect(session.totals).toEqual({ ...NONE, calls: 1 });
  });

  it("[TN3] remembers the newest 16 requests", async () => {
    const finished = Array.from({ length: 16 }, (_, index) => ({ requestId: `r${index}`, messageId: `a${index}` }));
    const session = await closed(openTurn(), [asked(1, "q"), step(2, [])], { finished });
    expect(session.finished.map(({ requestId }) => requestId)).toEqual([
      ...finished.slice(1).map(({ requestId }) => requestId),
      "request",
    ]);
  });
});
