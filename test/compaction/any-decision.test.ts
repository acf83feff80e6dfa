/** What holds of every decision, on generated branches and levers. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Decision, decide, type Known } from "../../src/compaction/decide.ts";
import { mergePrunes } from "../../src/compaction/prune.ts";
import type { CompactionTrigger } from "../../src/records.ts";
import {
  applied,
  firstLive,
  liveSeq,
  messages,
  newestUser,
  projected,
  shownTokens,
  type Situation,
  situations,
  sumTokens,
} from "./histories.ts";

const FORCED: readonly CompactionTrigger[] = ["manual", "no-room", "overflow"];

const decided = ({ known, settings: levers, history }: Situation): Decision => decide(known, levers, () => history);

/** Checks a claim about what any situation leads to. */
function always(claim: (decision: Decision, situation: Situation) => void, numRuns = 400): void {
  fc.assert(
    fc.property(situations, (situation) => claim(decided(situation), situation)),
    { numRuns },
  );
}

describe("whatever the branch and the levers are", () => {
  it("[CM1] it waits only where nothing was asked for, and then says why", () => {
    always((decision, { known, settings: { trigger, budget, isOff, providerCompacts, standing } }) => {
      const isAsked = trigger === "manual" || (!isOff && (FORCED.includes(trigger) || isAbove(known, budget)));
      const holds: Record<string, boolean> = {
        off: isOff || budget.threshold === null,
        "below-threshold": !isAbove(known, budget),
        "provider-compacts": providerCompacts,
        [standing().kind]: true,
        open: false,
      };
      const isRight = decision.kind === "wait" ? trigger !== "manual" && holds[decision.reason] : isAsked;
      expect(isRight).toBe(true);
    });
  });

  it("[CM7] what fired makes the number smaller, or says why nothing can", () => {
    const reasons = /^(Of \d+ tokens, |The provider compacts|Nothing has been said)/;
    always((decision, { known, settings: { budget } }) => {
      if (decision.kind === "wait") return;
      const isExplained = decision.kind === "no-progress" && reasons.test(decision.reason);
      expect(isExplained || projected(known, decision, budget) < known.tokens).toBe(true);
    });
  });

  it("[CM4] a cut falls behind a block, takes no live one, and what stays and what leaves is everything", () => {
    always((decision, { history }) => {
      if (decision.kind !== "summarise") return;
      const { until, pinned, kept, leaving } = decision.cut;
      const from = history.blocks.findIndex(({ seq }) => seq === until) + 1;
      expect(from).toBeGreaterThan(0);
      expect(from).toBeLessThanOrEqual(firstLive(history));
      const tail = sumTokens(history.blocks.slice(from)) + (pinned === null ? 0 : (newestUser(history)?.tokens ?? 0));
      expect(kept).toBeCloseTo(tail, 3);
      expect(kept + leaving).toBeCloseTo(shownTokens(history), 3);
    });
  });

  it("[CM5] the user's newest message stays: behind the cut, or pinned", () => {
    always((decision, { history }) => {
      if (decision.kind !== "summarise") return;
      const { until, pinned } = decision.cut;
      const user = newestUser(history);
      const isBehind = user !== undefined && user !== history.pinned && user.seq > until;
      expect(pinned).toBe(isBehind ? null : (user?.seq ?? null));
      expect(newestUser(applied(history, decision))).toEqual(user);
    });
  });

  it("[CM5] a budget is exceeded by nothing but that message, live blocks and the least number of messages", () => {
    always((decision, { known, history, settings: levers }) => {
      if (decision.kind !== "summarise" || decision.cut.kept <= levers.budget.tail) return;
      const { kept, rung } = decision.cut;
      const tail = applied(history, decision);
      const [first] = tail.blocks.filter((each) => each.seq < liveSeq(history) && each !== newestUser(history));
      if (first === undefined || rung === "last-turn" || rung === "inside-last-turn") return;
      expect(messages({ ...tail, blocks: tail.blocks.slice(1) })).toBeLessThan(levers.minTailMessages);
      const { threshold, summary } = levers.budget;
      const most = levers.insists || threshold === null ? Infinity : threshold - known.overhead - summary - 64;
      expect(kept).toBeLessThanOrEqual(most);
    });
  });

  it("[CM3] a cut by the tail budget keeps as much as fits", () => {
    always((decision, { history, settings: { budget } }) => {
      if (decision.kind !== "summarise" || decision.cut.rung !== "tail-budget") return;
      const { until, pinned, kept } = decision.cut;
      const next = history.blocks.find(({ seq }) => seq === until)!;
      const more = pinned === next.seq ? 0 : next.tokens;
      expect(kept + more).toBeGreaterThan(budget.tail);
    });
  });

  it("[CM12] a prune stands before a summary only where it brings the number to four fifths", () => {
    always((decision, { known, history, settings: levers }) => {
      if (decision.kind !== "prune" || decision.plan.until === 0) return;
      const limit = Math.min(known.tokens, levers.room ?? levers.budget.threshold ?? 0);
      expect(levers.trigger).not.toBe("manual");
      expect(known.tokens - decision.plan.saved).toBeLessThanOrEqual(limit * 0.8);
      expect(decision.plan.until).toBeLessThan(liveSeq(history));
    });
  });

  it("[CM13] the same input gives the same plan, and is not changed", () => {
    always((decision, situation) => {
      const before = structuredClone({ ...situation, settings: { ...situation.settings, standing: 0 } });
      expect(decided(situation)).toEqual(decision);
      expect({ ...situation, settings: { ...situation.settings, standing: 0 } }).toEqual(before);
    });
  });

  it("[CM13] a plan that is applied twice is applied once", () => {
    always((decision, { history }) => {
      const once = applied(history, decision);
      expect(applied(once, decision)).toEqual(once);
      if (decision.kind !== "prune") return;
      const pruning = mergePrunes(null, decision.plan);
      expect(mergePrunes(pruning, decision.plan)).toEqual(pruning);
    });
  });

  it("[CM7] decided again and again it comes to an end, smaller each time", () => {
    fc.assert(
      fc.property(situations, ({ known, settings: levers, history }) => {
        let [now, shown] = [known, history];
        for (let times = 0; ; times += 1) {
          const decision = decide(now, { ...levers, standing: () => ({ kind: "open" }) }, () => shown);
          if (decision.kind === "wait" || decision.kind === "no-progress") return;
          expect(times).toBeLessThan(80);
          const after = projected(now, decision, levers.budget);
          expect(after).toBeLessThan(now.tokens);
          shown = applied(shown, decision);
          now = { ...now, tokens: after, summary: now.summary - now.tokens + after + reclaimed(decision) };
        }
      }),
      { numRuns: 300 },
    );
  });

  it("[CM11] a cut by a budget that was made for the threshold leaves the number below it", () => {
    always((decision, { known, history, settings: { budget, trigger, insists } }) => {
      if (decision.kind !== "summarise" || decision.cut.rung !== "tail-budget" || trigger === "no-room") return;
      const { threshold, tail } = budget;
      const isTight = threshold === null || threshold - known.overhead < 1_200;
      const isHeld = insists || (newestUser(history)?.tokens ?? 0) > tail || history.blocks.some(({ live }) => live);
      if (isTight || isHeld) return;
      // the number is rounded, what it is made of is not
      expect(projected(known, decision, budget)).toBeLessThanOrEqual(threshold + 1);
    }, 1_000);
  });

  it("[CM1] the branch is looked at once, and only where it fires", () => {
    fc.assert(
      fc.property(situations, ({ known, settings: levers, history }) => {
        let looks = 0;
        const decision = decide(known, levers, () => {
          looks += 1;
          return history;
        });
        const standing = levers.standing();
        const mayLook = standing.kind === "stopped" && standing.isFree === true;
        const isFound = decision.kind !== "wait" && !levers.providerCompacts;
        expect(looks).toBe(isFound || (mayLook && decision.kind === "wait" && decision.reason === "stopped") ? 1 : 0);
      }),
      { numRuns: 200 },
    );
  });
});

function isAbove({ tokens }: Known, { threshold }: { threshold: number | null }): boolean {
  return threshold !== null && tokens > threshold;
}

/** What left the history by a decision. */
function reclaimed(decision: Decision): number {
  if (decision.kind === "prune") return decision.plan.saved;
  return decision.kind === "summarise" ? decision.cut.leaving : 0;
}
