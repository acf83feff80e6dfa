import { describe, expect, it } from "vitest";
import fc from "fast-check";
import { anchorIndex, branchSizes, findTailStart, firstIndex } from "../../src/context/tail.ts";
import { prompt, reported, Story } from "./story.ts";

/** Ten turns of 1,000 tokens each after an overhead of 500, every one reported. */
function tenTurns(): Story {
  const story = new Story();
  for (let n = 0; n < 10; n++) story.user(400).step(600, reported(500 + 1000 * n + 400, 600));
  return story;
}

const places = (story: Story) => story.entries.map((entry) => entry.unitsBefore);

describe("sizes", () => {
  it("[AC27] takes the size of a tail as the difference of two stored numbers", () => {
    const sizes = tenTurns().sizes();
    expect(sizes.tail(7000)).toBe(3000);
    expect(sizes.tail(7400)).toBe(2600);
    expect(sizes.tail(10_000)).toBe(0);
    expect(sizes.tail(0)).toBe(10_000);
  });

  it("[AC27] interpolates before the oldest anchor at hand when a branch was opened from its end", () => {
    const story = tenTurns();
    const sizes = branchSizes(story.ledger, anchorIndex(story.anchors.slice(-3)));
    expect(sizes.tail(8000)).toBe(2000);
    expect(sizes.tail(0)).toBe(10_000);
    expect(Math.round(sizes.tail(3000))).toBe(7000);
  });

  it("[AC27] scales sizes with the number when a counter spoke", () => {
    const story = tenTurns();
    const sizes = branchSizes(story.ledger, anchorIndex(story.anchors), { factor: 1, scale: 1.5 });
    expect(sizes.tail(7000)).toBe(4500);
  });

  it("[AC27] takes units for tokens while nothing was reported", () => {
    expect(new Story().user(300).user(200).sizes().tail(300)).toBe(200);
  });

  it("[AC13] never gives a negative size, and a longer tail is never smaller, whatever is reported", () => {
    const report = fc.record({
      said: fc.nat(2000),
      input: fc.nat(200_000),
      output: fc.nat(4000),
      returned: fc.nat(3000),
      user: fc.nat(500),
    });
    fc.assert(
      fc.property(fc.array(report, { minLength: 1, maxLength: 12 }), (calls) => {
        const story = new Story();
        for (const { said, input, output, returned, user } of calls)
          story.user(user).step(said, reported(input, output), returned);
        const sizes = story.sizes();
        const tails = places(story).map((place) => sizes.tail(place));
        expect(tails.every((size) => Number.isFinite(size) && size >= 0)).toBe(true);
        expect(Number.isFinite(story.known().tokens) && story.known().tokens >= 0).toBe(true);
      }),
    );
  });

  it("[AC5] agrees with the reports of any session that only grows", () => {
    const turn = fc.record({ user: fc.integer({ min: 1, max: 500 }), said: fc.integer({ min: 1, max: 900 }) });
    fc.assert(
      fc.property(
        fc.array(turn, { minLength: 2, maxLength: 15 }),
        fc.integer({ min: 0, max: 9000 }),
        (turns, overhead) => {
          const story = new Story();
          let input = overhead;
          for (const { user, said } of turns) {
            input += user;
            story.user(user).step(said, reported(input, said));
            input += said;
          }
          expect(story.known().tokens).toBe(input);
          expect(Math.round(story.sizes().tail(0))).toBe(input - overhead);
        },
      ),
    );
  });
});

describe("the cut", () => {
  it("[AC27] keeps as much as fits the budget, a tail of exactly the budget included", () => {
    const story = tenTurns();
    expect(findTailStart(story.sizes(), places(story), 3000)).toBe(14);
    expect(findTailStart(story.sizes(), places(story), 2999)).toBe(15);
    expect(findTailStart(story.sizes(), places(story), 50_000)).toBe(0);
    expect(findTailStart(story.sizes(), places(story), 599)).toBe(20);
    expect(findTailStart(story.sizes(), [], 100)).toBe(0);
  });

  it("[AC27] finds the same place as a walk over all of them", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 900 }), { minLength: 1, maxLength: 60 }),
        fc.nat(20_000),
        (units, budget) => {
          const story = new Story();
          for (const unit of units) story.user(unit);
          const sizes = story.sizes();
          const walked = places(story).findIndex((place) => sizes.tail(place) <= budget);
          expect(findTailStart(sizes, places(story), budget)).toBe(walked === -1 ? units.length : walked);
        },
      ),
    );
  });

  it("[AC27] reads as many anchors on a long branch as on a short one", () => {
    const rows = (turns: number) => {
      const story = new Story();
      for (let n = 0; n < turns; n++) story.user(400).step(600, reported(500 + 1000 * n + 400, 600));
      let reads = 0;
      const index = anchorIndex(story.anchors);
      const counted = {
        before: (at: number) => (reads++, index.before(at)),
        after: (at: number) => (reads++, index.after(at)),
      };
      findTailStart(branchSizes(story.ledger, counted), places(story), 8000);
      return reads;
    };
    expect(rows(2000)).toBe(rows(40));
  });

  it("[AC21] cuts after tool-5 with a counter that ignores its arguments (issue 1593)", () => {
    // ten tool steps of 1,200 units; the counter says 50,000 whatever it is shown
    const story = new Story();
    for (let n = 0; n < 10; n++) story.step(200, {}, 1000);
    const known = story.known();
    expect(known).toMatchObject({ tokens: 12_000, basis: "estimated" });
    const scale = (50_000 - known.overhead) / (known.tokens - known.overhead);
    const sizes = branchSizes(story.ledger, anchorIndex([]), { factor: 1, scale });
    // tool-6 to tool-9 are kept: 20,000 of the counter's tokens, where one count per message kept two
    expect(findTailStart(sizes, places(story), 20_000)).toBe(6);
  });

  it("[AC7] measures old content the same before and after a compaction", () => {
    const story = tenTurns();
    const before = story.sizes().tail(6000);
    story.prompt = prompt({ overlay: 1, covered: story.sizes().ledgerBetween(0, 6000), summary: 300 });
    expect(story.sizes().tail(6000)).toBe(before);
    expect(story.known().tokens).toBe(500 + 300 + 4000);
  });
});

describe("firstIndex", () => {
  it("[AC27] finds the first index that holds", () => {
    expect(firstIndex(10, (i) => i >= 7)).toBe(7);
    expect(firstIndex(10, () => false)).toBe(10);
    expect(firstIndex(0, () => true)).toBe(0);
  });
});
