import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Decision } from "../../src/compaction/decide.ts";
import { SessionBuilder } from "../../src/session-builder.ts";
import type { Branch } from "../../src/turn/branch.ts";
import { planAt, type Question } from "../../src/turn/compaction-plan.ts";
import type { Moment } from "../../src/turn/context-reading.ts";
import { History } from "../../src/turn/history.ts";
import { prunedOverlay, summaryOverlay } from "../../src/turn/new-overlay.ts";
import { branchAt } from "../../src/turn/overlay-in-force.ts";
import type { CompactionOptions } from "../../src/turn/settings.ts";
import { clear, inDatabase, inStore, openStore } from "../storage/database.ts";
import { call, text, toolCall } from "./entries.ts";
import {
  looked,
  MeasuredSession,
  MODEL,
  OVERHEAD,
  play,
  shownSummaryTokens,
  turns,
  words,
} from "./measured-session.ts";

const inSession = <T>(work: (session: MeasuredSession) => T): Promise<T> =>
  inStore((store) => work(new MeasuredSession(store)));

/** A branch as a decision sees it. */
function momentOf(
  session: MeasuredSession,
  { branch = session.branch, builder = new SessionBuilder().compactAfter(100_000), ...levers }: PlanOptions = {},
): Moment {
  const reading = session.reading(branch);
  return {
    branch,
    configuration: builder.model(MODEL).compaction(levers).build(),
    tools: {},
    overhead: OVERHEAD,
    kin: () => null,
    session: session.store.session,
    log: () => {},
    reading,
    known: reading.known,
    limits: { contextWindow: 200_000, maxOutput: 64_000 },
  };
}

interface PlanOptions extends CompactionOptions {
  branch?: Branch;
  builder?: SessionBuilder;
}

const ASKED: Question = { trigger: "manual", turnRuns: false, standing: () => ({ kind: "open" }) };

const planned = (session: MeasuredSession, options: PlanOptions = {}, question: Partial<Question> = {}): Decision =>
  planAt(momentOf(session, options), { ...ASKED, ...question });

/** So many turns of a question of about 20 tokens and an answer of about 100. */
function talk(session: MeasuredSession, count: number): void {
  for (let index = 0; index < count; index += 1) {
    session.user(words(16));
    session.step([text(words(96))]);
  }
}

describe("a branch that is not in memory", () => {
  it("[CM3][CM15] is cut where it would be cut if it were, whatever is left out or covered of it", async () => {
    const change = fc.constantFrom("none", "prune", "summary", "both");
    await inDatabase((storage) => {
      fc.assert(
        fc.property(
          turns,
          fc.integer({ min: 200, max: 6_000 }),
          change,
          fc.nat(),
          (played, tailTokenBudget, kind, pick) => {
            clear(storage);
            const session = new MeasuredSession(openStore(storage));
            play(session, played);
            if (kind === "summary" || kind === "both") summarise(session, pick);
            if (kind === "prune" || kind === "both") leaveOut(session, pick);
            play(session, played.slice(0, 2));
            const levers = { tailTokenBudget, minTailMessages: 1 };
            const inMemory = planned(session, levers);
            expect(placeOf(planned(session, { ...levers, branch: session.evicted() }))).toEqual(placeOf(inMemory));
          },
        ),
        { numRuns: 60 },
      );
    });
  });

  it("[CX10] is read as far as is kept, and a few entries more", async () => {
    const seen = await inSession((session) => {
      talk(session, 150);
      const branch = session.evicted();
      const decision = planned(session, { branch, tailTokenBudget: 500 });
      return [placeOf(decision), branch.loaded.length <= 28];
    });
    expect(seen).toEqual([{ until: 292, pinned: null, rung: "tail-budget" }, true]);
  });

  it("[CM5] is read back to the user's newest message", async () => {
    const seen = await inSession((session) => {
      talk(session, 10);
      session.user(words(50));
      for (let index = 0; index < 60; index += 1) {
        session.step([text("next"), looked("c", words(20))], { goesOn: index > 0 });
      }
      return placeOf(planned(session, { branch: session.evicted(), tailTokenBudget: 300 }));
    });
    expect(seen).toMatchObject({ pinned: 21, rung: "tail-budget" });
  });
});

describe("the pieces of a branch", () => {
  it("[CM15] weigh together what is known, less overhead and summary", async () => {
    await inDatabase((storage) => {
      fc.assert(
        fc.property(turns, fc.nat(), fc.boolean(), (played, pick, isPruned) => {
          clear(storage);
          const session = new MeasuredSession(openStore(storage));
          play(session, played);
          summarise(session, pick);
          if (isPruned) leaveOut(session, pick);
          play(session, played.slice(0, 2));
          const { known } = session.reading();
          const decision = planned(session, { tailTokenBudget: 100, minTailMessages: 1 });
          if (decision.kind !== "summarise") return;
          const pieces = decision.cut.kept + decision.cut.leaving;
          expect(Math.abs(known.tokens - known.overhead - known.summary - pieces)).toBeLessThan(8);
        }),
        { numRuns: 60 },
      );
    });
  });

  it("[CM15][HT7] weigh nothing where they were erased", async () => {
    const seen = await inSession((session) => {
      talk(session, 6);
      new History(session.store).erase("m6");
      session.branch = branchAt(session.store, session.store.session.leaf);
      const { known } = session.reading();
      const decision = planned(session, { tailTokenBudget: 300, minTailMessages: 1 });
      const pieces = decision.kind === "summarise" ? decision.cut.kept + decision.cut.leaving : 0;
      return Math.abs(known.tokens - known.overhead - pieces);
    });
    expect(seen).toBeLessThan(3);
  });

  it("[CM15] that are pinned weigh what they weighed when they were pinned", async () => {
    const seen = await inSession((session) => {
      session.user(words(300), { ratio: 1.3 });
      for (let index = 0; index < 6; index += 1) {
        session.step([text(words(50)), looked("c", words(50))], { goesOn: index > 0 });
      }
      const [asked] = session.branch.entries;
      const cut = { until: 4, pinned: 1 };
      const written = { id: 1, cut, head: [], text: words(40), tokens: 40 };
      session.show(summaryOverlay(session.place(), written), shownSummaryTokens(words(40), 40));
      const decision = planned(session, { tailTokenBudget: 100, minTailMessages: 1 });
      return { decision, pinned: session.branch.overlay?.pinnedTokens, asked: session.tokensOf(asked ? [asked] : []) };
    });
    expect(seen.decision).toMatchObject({ kind: "summarise", cut: { until: 7, pinned: 1, kept: seen.pinned } });
  });
});

describe("what is live", () => {
  /** A question, and an answer of two steps; the second called a tool. */
  function calling(session: MeasuredSession, last: ReturnType<typeof toolCall>): void {
    talk(session, 8);
    session.user(words(20));
    session.step([text(words(100)), looked("c1", words(100))]);
    const leaf = session.step([text(words(100)), last], { goesOn: true });
    session.settle(leaf, call({ model: MODEL, finishReason: "tool-calls" }));
  }

  const RESULT = looked("c2", words(900)) as ReturnType<typeof toolCall>;

  it("[CM4] are results that the model has not read, also when the turn that would have read them was stopped", async () => {
    const seen = await inSession((session) => {
      calling(session, RESULT);
      const until = (turnRuns: boolean) =>
        placeOf(planned(session, { tailTokenBudget: 10, minTailMessages: 1 }, { turnRuns }));
      return [until(true), until(false)];
    });
    expect(seen).toMatchObject([
      { until: 18, pinned: 17 },
      { until: 18, pinned: 17 },
    ]);
  });

  it.each(["input-available", "approval-requested", "approval-responded"])(
    "[CM4] is a call that waits for a client, whether or not a turn runs: %s",
    async (state) => {
      const open = toolCall("c2", { state, approval: { id: "a", approved: true } });
      const seen = await inSession((session) => {
        calling(session, open);
        return [true, false].map((turnRuns) =>
          placeOf(planned(session, { tailTokenBudget: 10, minTailMessages: 1 }, { turnRuns })),
        );
      });
      expect(seen).toMatchObject([{ until: 18 }, { until: 18 }]);
    },
  );

  it("[CM4] is a call no more once the user has gone on without an answer", async () => {
    const seen = await inSession((session) => {
      calling(session, toolCall("c2"));
      session.user(words(4));
      return placeOf(planned(session, { tailTokenBudget: 10, minTailMessages: 1 }));
    });
    expect(seen).toMatchObject({ until: 19, pinned: null });
  });
});

describe("the head", () => {
  it("[CM6] leaves with no cut: system messages that open the branch, and as many messages as are protected", async () => {
    const leaving = (levers: CompactionOptions, instruction?: string) =>
      inSession((session) => {
        if (instruction) session.system(instruction);
        talk(session, 10);
        const decision = planned(session, { tailTokenBudget: 300, minTailMessages: 1, ...levers });
        return decision.kind === "summarise" ? Math.round(decision.cut.leaving) : 0;
      });
    const all = await leaving({});
    expect(Math.abs((await leaving({}, words(500))) - all)).toBeLessThan(5);
    // two messages of ten turns, and the budget with them
    const two = await leaving({ protectHead: 2, tailTokenBudget: 430 });
    expect(all - two).toBeGreaterThan(110);
    expect(all - two).toBeLessThan(140);
  });

  it("[CM3] is charged to the tail budget, half of it at most", async () => {
    const kept = (levers: CompactionOptions) =>
      inSession((session) => {
        talk(session, 20);
        const decision = planned(session, { tailTokenBudget: 1_000, minTailMessages: 1, ...levers });
        return decision.kind === "summarise" ? decision.cut.kept : 0;
      });
    const [none, two, eight] = [await kept({}), await kept({ protectHead: 2 }), await kept({ protectHead: 16 })];
    expect(none).toBeGreaterThan(860);
    expect(none).toBeLessThanOrEqual(1_000);
    expect(two).toBeLessThanOrEqual(1_000 - 110);
    expect(two).toBeGreaterThan(600);
    expect(eight).toBeLessThanOrEqual(500);
    expect(eight).toBeGreaterThan(360);
  });
});

describe("the levers of a session", () => {
  const full = (builder: SessionBuilder, question: Partial<Question> = {}) =>
    inSession((session) => {
      talk(session, 20);
      return planned(session, { builder, tailTokenBudget: 500 }, { trigger: "after-turn", ...question });
    });

  it("[CM1] fire above the threshold", async () => {
    expect((await full(new SessionBuilder().compactAfter(1_000))).kind).toBe("summarise");
    expect(await full(new SessionBuilder().compactAfter(90_000))).toEqual({ kind: "wait", reason: "below-threshold" });
  });

  it.each(["after-turn", "no-room", "overflow"] as const)(
    "[CM2] switch it off on %s, or leave it to the client",
    async (trigger) => {
      const off = new SessionBuilder().compactAfter(false);
      const suggesting = new SessionBuilder().compactAfter(1_000, { mode: "suggest" });
      expect(await full(off, { trigger })).toEqual({ kind: "wait", reason: "off" });
      expect(await full(suggesting, { trigger })).toEqual({ kind: "wait", reason: "off" });
    },
  );

  it("[CM2] let a person compact all the same", async () => {
    expect((await full(new SessionBuilder().compactAfter(false), { trigger: "manual" })).kind).toBe("summarise");
  });

  it("[CM5] keep as many messages as they insist on", async () => {
    const until = (minTailMessages: number) =>
      inSession((session) => {
        talk(session, 20);
        return placeOf(planned(session, { tailTokenBudget: 10, minTailMessages }));
      });
    expect([await until(3), await until(6)]).toMatchObject([{ until: 37 }, { until: 34 }]);
  });

  it("[CM5] insist on it above the threshold, and do not where they say nothing", async () => {
    const kept = (levers: CompactionOptions) =>
      inSession((session) => {
        talk(session, 20);
        session.user(words(5));
        session.step([text(words(3_000))]);
        const builder = new SessionBuilder().compactAfter(2_000);
        return placeOf(planned(session, { builder, ...levers }, { trigger: "after-turn" }));
      });
    expect(await kept({ minTailMessages: 2 })).toMatchObject({ until: 40, pinned: null });
    expect(await kept({})).toMatchObject({ until: 42, pinned: 41 });
  });

  it("[CM12] leave out what is older than the tail, as many tokens as they say, or nothing", async () => {
    const plan = (levers: CompactionOptions) =>
      inSession((session) => {
        session.user(words(10));
        for (let index = 0; index < 4; index += 1) {
          session.step([text("look"), looked(`c${index}`, words(1_000))], { goesOn: index > 0 });
        }
        session.step([text("done")], { goesOn: true });
        const builder = new SessionBuilder().compactAfter(4_000);
        const decision = planned(session, { builder, tailTokenBudget: 1_300, ...levers }, { trigger: "after-turn" });
        return decision.kind === "prune" ? decision.plan.until : decision.kind;
      });
    expect([
      await plan({}),
      await plan({ prune: 2_400 }),
      await plan({ prune: 4_000 }),
      await plan({ prune: false }),
    ]).toEqual([4, 3, "summarise", "summarise"]);
  });

  it("[CM20] keep off where the provider compacts", async () => {
    const seen = await inSession((session) => {
      talk(session, 20);
      session.user(words(4));
      session.step([text("S", { providerMetadata: { anthropic: { type: "compaction" } } }), text("on")]);
      const builder = new SessionBuilder().compactAfter(1_000);
      return planned(session, { builder }, { trigger: "after-turn" });
    });
    expect(seen).toEqual({ kind: "wait", reason: "provider-compacts" });
  });
});

/** Where a cut falls. */
function placeOf(decision: Decision): unknown {
  if (decision.kind !== "summarise") return decision;
  const { until, pinned, rung } = decision.cut;
  return { until, pinned, rung };
}

/** A summary up to an entry that a step follows: its report says where the rest begins. */
function summarise(session: MeasuredSession, pick: number): void {
  const { entries } = session.branch;
  const places = entries.filter((_, index) => entries[index + 1]?.role === "assistant");
  const until = places[pick % places.length]!.seq;
  const user = entries.findLast(({ role }) => role === "user");
  const pinned = user && user.seq <= until ? user.seq : null;
  const written = {
    id: session.store.compactions.nextId,
    cut: { until, pinned },
    head: [],
    text: words(40),
    tokens: 40,
  };
  session.show(summaryOverlay(session.place(), written), shownSummaryTokens(words(40), 40));
}

function leaveOut(session: MeasuredSession, pick: number): void {
  const { entries } = session.branch;
  const until = entries[pick % entries.length]!.seq;
  session.show(prunedOverlay(session.place(), session.store.compactions.nextId, { until, shortened: [], saved: 1 }));
}
