import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Entry, Overlay, Seq } from "../../src/records.ts";
import type { Branch } from "../../src/turn/branch.ts";
import { sizeOf } from "../../src/turn/gauge.ts";
import { History } from "../../src/turn/history.ts";
import { prunedOverlay, summaryOverlay, type WrittenSummary } from "../../src/turn/new-overlay.ts";
import { branchAt } from "../../src/turn/overlay-in-force.ts";
import { clear, inDatabase, inStore, openStore } from "../storage/database.ts";
import { text, toolCall } from "./entries.ts";
import { looked, MeasuredSession, MODEL, play, shownSummaryTokens, turns, words } from "./measured-session.ts";

const inSession = <T>(work: (session: MeasuredSession) => T): Promise<T> =>
  inStore((store) => work(new MeasuredSession(store)));

/** Three turns: plain text, a tool loop denser than the estimator expects, and one that is less dense. */
function threeTurns(session: MeasuredSession) {
  const q1 = session.user(words(100));
  const a1 = session.step([text(words(300))], { ratio: 1.1 });
  const q2 = session.user(words(50), { ratio: 1.2 });
  const a2 = session.step([text("looking"), looked("c1", words(900))], { ratio: 1.05, outputs: 1.4 });
  const a2b = session.step([text(words(200))], { goesOn: true, ratio: 0.9 });
  const q3 = session.user(words(80), { ratio: 0.8 });
  const a3 = session.step([text("looking again"), looked("c2", words(700))], { outputs: 0.7 });
  const a3b = session.step([text(words(60))], { goesOn: true });
  return { q1, a1, q2, a2, a2b, q3, a3, a3b };
}

const SUMMARY = words(120);

const covering = (until: Entry, pinned: Entry | null = null, more: Partial<WrittenSummary> = {}): WrittenSummary => ({
  id: 1,
  cut: { until: until.seq, pinned: pinned?.seq ?? null },
  head: [],
  text: SUMMARY,
  tokens: 120,
  ...more,
});

/** What is known of the branch in memory, and under an overlay. */
function knownUnder(session: MeasuredSession, overlay: Overlay): { before: number; after: number } {
  const before = session.reading().known.tokens;
  return { before, after: session.reading(session.branch.under(overlay)).known.tokens };
}

describe("a summary over a branch", () => {
  it("[CM15] weighs what was measured of the entries it covers, and the number falls by that and rises by the summary", async () => {
    const seen = await inSession((session) => {
      const { q1, a1, q2, a2, a2b } = threeTurns(session);
      const overlay = summaryOverlay(session.place(), covering(a2b));
      return { overlay, covered: session.tokensOf([q1, a1, q2, a2, a2b]), ...knownUnder(session, overlay) };
    });
    const { overlay, covered, before, after } = seen;
    expect(overlay).toMatchObject({ id: 1, until: 5, head: [], pinned: null, summary: SUMMARY, pinnedTokens: 0 });
    expect(overlay.pruning).toBeNull();
    expect(near(overlay.rangeTokens, covered)).toBe(true);
    expect(after).toBe(Math.round(before - overlay.rangeTokens + overlay.summaryTokens));
  });

  it("[CM15] leaves the pinned message in the number, by what was measured of it", async () => {
    const seen = await inSession((session) => {
      const { q3, a3, a3b } = threeTurns(session);
      const overlay = summaryOverlay(session.place(), covering(a3, q3));
      const all = [...session.branch.entries].filter((entry) => entry !== a3b);
      return {
        overlay,
        covered: session.tokensOf(all),
        asked: session.tokensOf([q3]),
        ...knownUnder(session, overlay),
      };
    });
    const { overlay, covered, asked, before, after } = seen;
    expect(overlay).toMatchObject({ until: 7, pinned: 6 });
    expect(near(overlay.rangeTokens, covered)).toBe(true);
    expect(overlay.pinnedTokens).toBeCloseTo(asked, 0);
    expect(after).toBe(Math.round(before - overlay.rangeTokens + overlay.pinnedTokens + overlay.summaryTokens));
  });

  it("[CM15] covers nothing of the head", async () => {
    const seen = await inSession((session) => {
      session.system(words(40));
      const { q1, a1, q2, a2, a2b } = threeTurns(session);
      const head = session.branch.entries.slice(0, 3);
      const overlay = summaryOverlay(session.place(), covering(a2b, null, { head }));
      return {
        overlay,
        covered: session.tokensOf([q2, a2, a2b]),
        headed: session.tokensOf([q1, a1]),
        shown: session.branch.under(overlay).kept.head.map(({ seq }) => seq),
        ...knownUnder(session, overlay),
      };
    });
    const { overlay, covered, before, after } = seen;
    expect([overlay.head, seen.shown]).toEqual([
      [1, 2, 3],
      [1, 2, 3],
    ]);
    expect(seen.headed).toBeGreaterThan(400);
    expect(near(overlay.rangeTokens, covered)).toBe(true);
    expect(after).toBe(Math.round(before - overlay.rangeTokens + overlay.summaryTokens));
  });

  it("[CM15] over all of it leaves overhead and summary, whatever the first report could not tell apart", async () => {
    const seen = await inSession((session) => {
      session.user(words(900), { ratio: 1.3 });
      const last = threeTurns(session).a3b;
      const overlay = summaryOverlay(session.place(), covering(last));
      const { known } = session.reading(session.branch.under(overlay));
      return { overlay, known, overhead: session.reading().known.overhead };
    });
    expect(seen.known.overhead).toBe(seen.overhead);
    expect(seen.known.tokens).toBe(Math.round(seen.overhead + seen.overlay.summaryTokens));
  });

  it("[CM15] of a branch that nothing was reported of is estimated by the same units", async () => {
    const seen = await inStore((store) => {
      const session = new MeasuredSession(store);
      const q1 = session.user(words(500));
      session.user(words(30));
      const overlay = summaryOverlay(session.place(), covering(q1));
      return { overlay, size: sizeOf("user", q1.parts, MODEL).unitsSaid, ...knownUnder(session, overlay) };
    });
    expect(seen.overlay.rangeTokens).toBeCloseTo(seen.size, 5);
    expect(seen.after).toBe(Math.round(seen.before - seen.overlay.rangeTokens + seen.overlay.summaryTokens));
  });
});

describe("a summary's own tokens", () => {
  const summaryTokens = (tokens: number | undefined) =>
    inSession((session) => {
      const { a2b } = threeTurns(session);
      return summaryOverlay(session.place(), covering(a2b, null, { tokens })).summaryTokens;
    });

  it("[CM15] are what its writer reported, and what is put around it", async () => {
    const [hundred, more] = [await summaryTokens(100), await summaryTokens(117)];
    expect(more - hundred).toBeCloseTo(17, 5);
    expect(hundred - 100).toBeGreaterThan(30);
    expect(hundred - 100).toBeLessThan(60);
  });

  it.each([0, 1, 5, 100_000, Number.NaN])(
    "[CM15] are estimated where the report cannot be the text's: %s",
    async (reported) => {
      expect(await summaryTokens(reported)).toBe(await summaryTokens(undefined));
    },
  );

  it("[CM15] are near what the text has where nobody reported them", async () => {
    const estimated = await summaryTokens(undefined);
    expect(Math.abs(estimated - (await summaryTokens(120)))).toBeLessThan(30);
  });
});

describe("one summary after another", () => {
  it("[CM15] covers what the first one covered and what leaves now", async () => {
    const seen = await inSession((session) => {
      const first = threeTurns(session);
      session.show(summaryOverlay(session.place(), covering(first.a1)), shownSummaryTokens(SUMMARY, 120));
      const overlay = summaryOverlay(session.place(), covering(first.a2b, null, { id: 2 }));
      const { q1, a1, q2, a2, a2b } = first;
      return { overlay, covered: session.tokensOf([q1, a1, q2, a2, a2b]), ...knownUnder(session, overlay) };
    });
    expect(seen.overlay).toMatchObject({ id: 2, until: 5 });
    expect(near(seen.overlay.rangeTokens, seen.covered)).toBe(true);
    expect(seen.after).toBeLessThan(seen.before);
  });

  it("[CM15] keeps the weight of a message that stays pinned, though it is not in memory", async () => {
    const seen = await inSession((session) => {
      const { q3, a3, a3b } = threeTurns(session);
      session.show(summaryOverlay(session.place(), covering(a3, q3)), shownSummaryTokens(SUMMARY, 120));
      const next = summaryOverlay(session.place(session.evicted()), covering(a3b, q3, { id: 2 }));
      return { next, before: session.branch.overlay, asked: session.tokensOf([q3]) };
    });
    expect(seen.next).toMatchObject({ until: 8, pinned: 6, pinnedTokens: seen.before?.pinnedTokens });
    expect(seen.next.pinnedTokens).toBeCloseTo(seen.asked, 0);
  });

  it("[CM15] gives a pinned message to the summary once the user has said something newer", async () => {
    const seen = await inSession((session) => {
      const { q3, a3 } = threeTurns(session);
      session.show(summaryOverlay(session.place(), covering(a3, q3)), shownSummaryTokens(SUMMARY, 120));
      session.user(words(9));
      const a4 = session.step([text(words(90))]);
      session.user(words(9));
      const overlay = summaryOverlay(session.place(), covering(a4, null, { id: 2 }));
      const all = [...session.store.walk(a4.seq)];
      return { overlay, covered: session.tokensOf(all), ...knownUnder(session, overlay) };
    });
    expect(seen.overlay).toMatchObject({ pinned: null, pinnedTokens: 0 });
    expect(near(seen.overlay.rangeTokens, seen.covered)).toBe(true);
  });

  it("[CM15] is as exact after an eviction, and however often it is done", async () => {
    await inDatabase((storage) => {
      fc.assert(
        fc.property(
          turns,
          fc.array(fc.nat(), { minLength: 3, maxLength: 3 }),
          fc.boolean(),
          (played, cuts, isEvicted) => {
            clear(storage);
            const session = new MeasuredSession(openStore(storage));
            play(session, played);
            for (const [index, pick] of cuts.entries()) {
              const { until, pinned } = anyCut(session.branch, pick);
              const branch = isEvicted ? session.evicted() : session.branch;
              const written = covering(until, pinned, { id: index + 1 });
              const overlay = summaryOverlay(session.place(branch), written);
              expect(near(overlay.rangeTokens, session.tokensOf([...session.store.walk(until.seq)]))).toBe(true);
              expect(near(overlay.pinnedTokens, pinned ? session.tokensOf([pinned]) : 0)).toBe(true);
              session.show(overlay, shownSummaryTokens(SUMMARY, 120));
              expect(near(session.reading().known.tokens, session.shownTokens)).toBe(true);
              expect(session.reading(session.evicted()).known.tokens).toBe(session.reading().known.tokens);
              play(session, played.slice(0, 3));
              expect(session.reading().known.tokens).toBe(session.shownTokens);
            }
          },
        ),
        { numRuns: 40 },
      );
    });
  });
});

describe("outputs that are left out", () => {
  const leaveOut = (until: Entry) => ({ until: until.seq, shortened: [], saved: 1 });
  const shorten = (entry: Entry, toolCallId: string) => ({
    until: 0,
    shortened: [{ seq: entry.seq, toolCallId, length: 2_000 }],
    saved: 1,
  });

  it("[CM15][CM12] weigh what was measured of them, less the lines in their places", async () => {
    const seen = await inSession((session) => {
      const { a2, q3 } = threeTurns(session);
      const overlay = prunedOverlay(session.place(), 1, leaveOut(q3));
      return { overlay, returned: session.returnedTokens(a2.seq), ...knownUnder(session, overlay) };
    });
    const { overlay, returned, before, after } = seen;
    expect(overlay).toMatchObject({ id: 1, until: null, summary: null, pruning: { until: 6, shortened: [] } });
    expect(overlay.pruning?.tokens).toBeLessThan(returned);
    expect(overlay.pruning?.tokens).toBeGreaterThan(returned * 0.95);
    expect(after).toBe(Math.round(before - (overlay.pruning?.tokens ?? 0)));
  });

  it("[CM15][CM6] weigh the share that is cut where they are shortened", async () => {
    const seen = await inSession((session) => {
      const { a2 } = threeTurns(session);
      const overlay = prunedOverlay(session.place(), 1, shorten(a2, "c1"));
      return { overlay, returned: session.returnedTokens(a2.seq), ...knownUnder(session, overlay) };
    });
    // 4,499 characters, of which 2,000 stay
    expect((seen.overlay.pruning?.tokens ?? 0) / seen.returned).toBeCloseTo(0.53, 1);
    expect(seen.after).toBe(Math.round(seen.before - (seen.overlay.pruning?.tokens ?? 0)));
  });

  it("[CM13] are left out once, however often they are", async () => {
    const seen = await inSession((session) => {
      const { a2b } = threeTurns(session);
      const once = prunedOverlay(session.place(), 1, leaveOut(a2b));
      session.show(once);
      return { once, twice: prunedOverlay(session.place(), 2, leaveOut(a2b)) };
    });
    expect(seen.twice).toEqual({ ...seen.once, id: 2 });
  });

  it("[CM15] keep the summary that is in force, and what it covers", async () => {
    const seen = await inSession((session) => {
      const { a1, a2b } = threeTurns(session);
      session.show(summaryOverlay(session.place(), covering(a1)), shownSummaryTokens(SUMMARY, 120));
      const overlay = prunedOverlay(session.place(session.evicted()), 2, leaveOut(a2b));
      return { before: session.branch.overlay, overlay, inMemory: prunedOverlay(session.place(), 2, leaveOut(a2b)) };
    });
    const { pruning, ...rest } = seen.overlay;
    expect({ ...rest, pruning: null }).toEqual({ ...seen.before, id: 2 });
    expect(pruning?.tokens).toBeGreaterThan(1_000);
    expect(seen.overlay).toEqual(seen.inMemory);
  });

  it("[CM15] stay left out behind a summary, and are forgotten with what it covers", async () => {
    const seen = await inSession((session) => {
      const { a1, a2b, a3b, q3 } = threeTurns(session);
      const prune = prunedOverlay(session.place(), 1, leaveOut(q3));
      session.show(prune);
      const short = summaryOverlay(session.place(), covering(a1, null, { id: 2 }));
      const long = summaryOverlay(session.place(), covering(a2b, null, { id: 2 }));
      const all = summaryOverlay(session.place(), covering(a3b, q3, { id: 2 }));
      return { prune, short, long, all, ...knownUnder(session, short), afterLong: knownUnder(session, long).after };
    });
    expect(seen.short.pruning).toEqual(seen.prune.pruning);
    expect(seen.after).toBe(Math.round(seen.before - seen.short.rangeTokens + seen.short.summaryTokens));
    expect(seen.long.pruning).toMatchObject({ until: 6, tokens: 0 });
    expect(seen.all.pruning).toBeNull();
    const left = seen.prune.pruning?.tokens ?? 0;
    expect(seen.afterLong).toBe(Math.round(seen.before + left - seen.long.rangeTokens + seen.long.summaryTokens));
  });

  it("[CM15] of the head stay left out, and out of the number", async () => {
    const seen = await inSession((session) => {
      const q1 = session.user(words(5));
      const a1 = session.step([text("looking"), looked("c0", words(900))]);
      session.step([text(words(20))], { goesOn: true });
      const { a2b } = threeTurns(session);
      session.show(prunedOverlay(session.place(), 1, leaveOut(a1)));
      const overlay = summaryOverlay(session.place(), covering(a2b, null, { id: 2, head: [q1, a1] }));
      return { pruning: [session.branch.overlay?.pruning, overlay.pruning], ...knownUnder(session, overlay), overlay };
    });
    expect(seen.pruning[0]?.tokens).toBeGreaterThan(800);
    expect(seen.pruning[1]).toEqual(seen.pruning[0]);
    expect(seen.after).toBe(Math.round(seen.before - seen.overlay.rangeTokens + seen.overlay.summaryTokens));
  });

  it("[CM32][CM15] and then erased are taken out of the number once", async () => {
    const seen = await inSession((session) => {
      const { a2, a2b, q3 } = threeTurns(session);
      const whole = session.reading().known.tokens;
      session.show(prunedOverlay(session.place(), 1, leaveOut(q3)));
      new History(session.store).erase(a2.messageId);
      const branch = branchAt(session.store, session.store.session.leaf);
      return { whole, erased: session.tokensOf([a2, a2b]), after: session.reading(branch).known.tokens };
    });
    expect(seen.after).toBe(seen.whole - seen.erased);
  });
});

describe("what is on the branch and not sent", () => {
  it("[CM15] is covered with the rest, and counted no second time", async () => {
    const seen = await inSession((session) => {
      session.user(words(5));
      session.step([text(words(30)), toolCall("open", { input: { q: words(200) } })]);
      session.user(words(50));
      const a2 = session.step([text(words(20))]);
      session.user(words(50));
      session.step([text(words(20)), toolCall("other", { input: { q: words(300) } })]);
      session.user(words(50));
      session.step([text(words(20))]);
      const { prompt } = session.reading();
      const overlay = summaryOverlay(session.place(), covering(a2));
      const then = session.reading(session.branch.under(overlay)).prompt;
      return { omitted: [prompt.omitted ?? 0, then.omitted ?? 0], overlay, ...knownUnder(session, overlay) };
    });
    const [before = 0, behind = 0] = seen.omitted;
    expect(behind).toBeGreaterThan(200);
    expect(before - behind).toBeGreaterThan(150);
    const covered = seen.overlay.rangeTokens - (before - behind);
    expect(seen.after).toBe(Math.round(seen.before - covered + seen.overlay.summaryTokens));
  });

  it("[CM15][HT7] is covered where it was erased, and counted no second time", async () => {
    const seen = await inSession((session) => {
      const { a1, a2b } = threeTurns(session);
      const q4 = session.user(words(70), { ratio: 1.3 });
      session.step([text(words(30))]);
      const whole = session.reading().known.tokens;
      for (const { messageId } of [a1, q4]) new History(session.store).erase(messageId);
      session.branch = branchAt(session.store, session.store.session.leaf);
      const overlay = summaryOverlay(session.place(), covering(a2b));
      const [covered, left] = [session.tokensOf([a1]), session.tokensOf([q4])];
      return { whole, covered, left, overlay, ...knownUnder(session, overlay) };
    });
    const { whole, covered, left, overlay, before, after } = seen;
    expect(before).toBe(whole - covered - left);
    expect(after).toBe(Math.round(whole - left - overlay.rangeTokens + overlay.summaryTokens));
  });
});

/** Tokens of rounding: each report is a whole number, and what is put around a summary is as estimated. */
const near = (a: number, b: number): boolean => Math.abs(a - b) <= 8;

/** A cut behind any entry but the last. */
function anyCut({ entries, kept }: Branch, pick: number): { until: Entry; pinned: Entry | null } {
  const until = entries[pick % (entries.length - 1)]!;
  const user = entries.findLast(({ role }) => role === "user");
  const isBehind = (seq: Seq) => seq > until.seq;
  if (user) return { until, pinned: isBehind(user.seq) ? null : user };
  return { until, pinned: kept.pinned[0] ?? null };
}
