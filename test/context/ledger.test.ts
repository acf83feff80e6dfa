import { describe, expect, it } from "vitest";
import { anchorPosition } from "../../src/context/anchor.ts";
import { knownTokens, openLedger } from "../../src/context/ledger.ts";
import { prompt, reported, Story } from "./story.ts";

describe("the one number", () => {
  it("[AC1] is estimated while nothing was reported", () => {
    const story = new Story({ systemUnits: 400, toolsUnits: 600 }).user(250);
    expect(story.known()).toEqual({
      tokens: 1250,
      basis: "estimated",
      overhead: 1000,
      summary: 0,
      fresh: 250,
      factor: 1,
      scale: 1,
    });
  });

  it("[AC2] is input plus output of the newest report when nothing came after it", () => {
    const story = new Story().user(100).step(50, reported(5000, 100));
    expect(story.known()).toMatchObject({ tokens: 5100, basis: "reported", fresh: 0 });
  });

  it("[AC3] adds what came after the report by estimate", () => {
    const story = new Story().user(100).step(50, reported(5000, 100), 20);
    expect(story.known()).toMatchObject({ tokens: 5120, basis: "anchored", fresh: 20 });
  });

  it("[AC25] keeps what was predicted beside what was reported, and their difference", () => {
    const story = new Story().user(100).step(50, reported(5000, 100), 20).step(50, reported(5115, 50));
    expect(story.anchor!.accuracy).toEqual({ calls: 2, recent: [-98, 0.098], last: { predicted: 5120, actual: 5115 } });
  });
});

describe("placeholder outputs", () => {
  it("[AC4] takes the estimate for an output that reports less than half of what can be seen", () => {
    const story = new Story().user(100).step(500, reported(5000, 1));
    expect(story.anchor).toMatchObject({ output: 500, outputReported: false });
    expect(story.known()).toMatchObject({ tokens: 5500, basis: "anchored" });
  });

  it("[AC4] believes an output of exactly half the estimate", () => {
    expect(new Story().user(100).step(500, reported(5000, 250)).anchor).toMatchObject({
      output: 250,
      outputReported: true,
    });
  });

  it("[AC4] lets the next report measure the output together with what follows it", () => {
    const story = new Story().user(100).step(400, reported(5000, 1), 600).step(50, reported(6100, 50));
    expect(story.anchor!.measured).toBe(1100);
    expect(story.sizes().between(100, 500)).toBe(440);
    expect(story.sizes().between(500, 1100)).toBe(660);
  });
});

describe("honest small outputs", () => {
  /** Steps whose output weighs 100 units, is reported at 40 and really is 40. */
  const modest = (steps: number) => {
    const story = new Story().user(100);
    for (let n = 0; n < steps; n++) story.step(100, reported(5000 + 80 * n, 40), 40);
    return story;
  };

  it("[AC4] believes them once two reports have proved them right", () => {
    expect(modest(2).anchor!.outputReported).toBe(false);
    expect(modest(3).anchor!).toMatchObject({ outputReported: true, output: 40 });
  });

  it("[AC4] never believes a zero", () => {
    expect(modest(3).step(100, reported(5240, 0)).anchor!).toMatchObject({ outputReported: false });
  });
});

describe("segments", () => {
  it("[AC5] measures what lies between two reports of one version exactly", () => {
    const story = new Story().user(100).step(50, reported(5000, 100), 300).step(50, reported(5450, 60));
    expect(story.sizes().between(150, 450)).toBe(350);
  });

  it("[AC6] interpolates between the anchors around a position", () => {
    const story = new Story().user(100).step(50, reported(5000, 100), 200).user(100).step(50, reported(5400, 60));
    // 300 units were measured at 300 tokens: two thirds of them are results
    expect(story.sizes().between(150, 350)).toBe(200);
    expect(story.sizes().tail(350)).toBe(160);
  });

  it("[AC6] leaves earlier anchors as they were written", () => {
    const story = new Story().user(100).step(50, reported(5000, 100), 300);
    const before = JSON.stringify(story.anchors[0]);
    story.step(50, reported(9000, 60));
    expect(JSON.stringify(story.anchors[0])).toBe(before);
  });

  it("[AC6] stores an anchor in under 1,500 characters after 200 reports", () => {
    const story = new Story().user(100);
    for (let n = 0; n < 200; n++) story.step(50, reported(5000 + 120 * n, 50), 70);
    expect(JSON.stringify(story.anchor).length).toBeLessThan(1500);
  });
});

describe("overhead", () => {
  it("[AC10] finds an overhead that nobody can see", () => {
    const story = new Story().user(167).step(10, reported(2775, 10));
    expect(story.anchor!.overhead).toBe(2608);
  });

  it("[AC10] keeps it through a compaction", () => {
    const story = new Story().user(167).step(10, reported(2775, 10)).user(50_000).step(10, reported(52_785, 10));
    story.prompt = prompt({ overlay: 1, covered: story.sizes().ledgerBetween(0, story.end), summary: 500 });
    expect(story.known()).toMatchObject({ tokens: 2608 + 500, overhead: 2608 });
  });

  it("[AC10] is 0 and not less when the messages alone were estimated above the input", () => {
    const story = new Story().user(3000).step(10, reported(2775, 10));
    expect(story.anchor).toMatchObject({ overhead: 0, head: 2775 });
    expect(story.sizes().tail(0)).toBe(2785);
  });

  it("[AC11] is split anew when the ratio is learned", () => {
    const story = new Story().user(1000).step(100, reported(5000, 100)).user(10_000).step(10, reported(15_600, 10));
    // 10,500 tokens for 10,000 units: ratio 1.025
    expect(story.anchor!.overhead).toBeCloseTo(3974.6, 1);
    expect(story.anchor!.head).toBeCloseTo(1025.4, 1);
  });
});

describe("the ratio", () => {
  it("[AC15] follows measured segments, half way while they are near the fitted weights", () => {
    const story = new Story().user(1000).step(100, reported(5000, 100)).user(10_000).step(10, reported(15_600, 10));
    expect(story.user(1000).known().fresh).toBeCloseTo(1025.4, 1);
  });

  it("[AC15] follows them at once where they can only be another tokenizer's", () => {
    const story = new Story().user(1000).step(100, reported(5000, 100)).user(10_000).step(10, reported(20_100, 10));
    expect(story.user(1000).known().fresh).toBeCloseTo(1467.8, 1);
  });

  it("[AC15] stays between 0.25 and 4 whatever is reported", () => {
    const story = new Story().user(10).step(10, reported(1000, 10));
    for (let n = 1; n < 40; n++) story.user(50_000).step(10, reported(1000 + n * 120_000, 10));
    story.user(100);
    expect(story.known().fresh).toBeGreaterThan(200);
    expect(story.known().fresh).toBeLessThanOrEqual(400);
  });

  it("[AC15] is not moved by a segment that holds what nobody recorded", () => {
    const story = new Story().user(100).step(100, reported(5000, 100)).user(1000).step(10, reported(95_100, 10));
    expect(story.user(1000).known().fresh).toBe(1000);
  });
});

describe("dropped reasoning", () => {
  it("[AC12] reads a smaller growth as dropped reasoning when that is nearer to what is new", () => {
    const story = new Story()
      .user(100)
      .step(1000, reported(5000, 1000, 900))
      .user(500)
      .step(50, reported(5600, 50));
    // −400 by difference; 500 with the 900 of reasoning that went
    expect(story.sizes().between(1100, 1600)).toBe(500);
    expect(story.anchor!.droppedBefore).toBe(1100);
  });

  it("[AC12] remembers the habit per model and predicts with it", () => {
    const story = new Story()
      .user(100)
      .step(1000, reported(5000, 1000, 900))
      .user(500)
      .step(1000, reported(5600, 1000, 900));
    story.user(100);
    expect(story.known().tokens).toBe(5600 + 1000 - 900 + 100);
  });

  it("[AC12] keeps the reasoning of a turn while the turn goes on", () => {
    const story = new Story()
      .user(100)
      .step(1000, reported(5000, 1000, 900))
      .user(500)
      .step(1000, reported(5600, 1000, 900), 200);
    expect(story.known().tokens).toBe(6800);
  });

  it("[AC12] takes a kept tail for what is left of it after the drop", () => {
    const story = new Story()
      .user(100)
      .step(1000, reported(5000, 1000, 900), 300)
      .step(1000, reported(6300, 1000, 900));
    story.user(500).step(50, reported(6000, 50));
    // from the second step on: 1,000 less its 900 of reasoning, the question, the answer
    expect(story.sizes().tail(1400)).toBe(100 + 500 + 50);
  });

  it("[AC12] leaves the reasoning of earlier turns in place when a later turn's is dropped for the first time", () => {
    // the first turn's 900 were kept, the second turn's 900 go with the third question
    const story = new Story()
      .user(100)
      .step(1000, reported(5000, 1000, 900))
      .user(500)
      .step(1000, reported(6500, 1000, 900));
    const before = story.sizes().between(100, 1100);
    story.user(500).step(50, reported(7100, 50));
    expect(before).toBe(1000);
    expect(story.sizes().between(100, 1100)).toBe(1000);
    expect(story.sizes().tail(2600)).toBe(550);
  });

  it("[AC12] does not take an estimate that was too high for dropped reasoning", () => {
    const story = new Story()
      .user(100)
      .step(1000, reported(5000, 1000, 50))
      .user(1000)
      .step(50, reported(6800, 50));
    expect(story.sizes().between(1100, 2100)).toBe(800);
    expect(story.anchor!.droppedBefore).toBe(0);
  });

  it("[AC13] measures nothing when no reading is positive, and keeps every size at or above 0", () => {
    const story = new Story().user(100).step(50, reported(30_000, 50)).user(400).step(50, reported(5000, 50));
    expect(story.sizes().between(150, 550)).toBe(400);
    expect(story.anchor!.rebase).toBe(-25_450);
    expect(story.known().tokens).toBe(5050);
  });

  it("[AC13] takes a few missing tokens for a miscount and not for much dropped reasoning", () => {
    const story = new Story()
      .user(100)
      .step(1000, reported(5000, 1000, 660))
      .user(6)
      .step(50, reported(5994, 50));
    expect(story.sizes().between(1100, 1106)).toBe(6);
    expect(story.anchor!.droppedBefore).toBe(0);
  });
});

describe("which report counts", () => {
  it("[AC16] ignores a report of zero, and the earlier one stands", () => {
    const story = new Story().user(100).step(50, reported(5000, 100)).user(30).step(20, reported(0, 0));
    expect(story.anchors.length).toBe(1);
    expect(story.known()).toMatchObject({ tokens: 5000 + 100 + 30 + 20, basis: "anchored" });
  });

  it("[AC16] ignores a missing report", () => {
    expect(new Story().user(100).step(50, {}).anchor).toBeNull();
  });

  it("[AC16] takes a total without parts for where the context stood after the call", () => {
    const story = new Story().user(100).step(50, { total: 12_000 });
    expect(story.anchor).toMatchObject({ input: 11_950, output: 50 });
    expect(story.known()).toMatchObject({ tokens: 12_000, basis: "reported" });
  });

  it("[AC16] opens from the newest anchor and the entries after it alone", () => {
    const story = new Story().user(100).step(50, reported(5000, 100), 300).step(50, reported(5450, 60)).user(40);
    const short = openLedger(story.anchor, story.entries.slice(-2));
    expect(knownTokens(short, story.prompt)).toEqual(story.known());
    expect(anchorPosition(story.anchor!)).toBe(500);
  });
});

describe("branches", () => {
  it("[AC26] keeps the anchors before an edit", () => {
    const story = new Story().user(100).step(50, reported(5000, 100)).user(30).step(20, reported(5130, 20));
    const edited = openLedger(story.anchors[0]!, [
      ...story.entries.slice(0, 2),
      { role: "user", unitsBefore: 150, unitsSaid: 80, unitsReturned: 0 },
    ]);
    expect(knownTokens(edited, story.prompt)).toMatchObject({ tokens: 5180, basis: "anchored" });
  });

  it("[AC26] knows the overhead of its session on a branch without a report", () => {
    const story = new Story().user(167).step(10, reported(2775, 10));
    const sibling = new Story();
    sibling.kin = story.anchor;
    sibling.user(400);
    expect(sibling.known()).toMatchObject({ tokens: 3008, basis: "estimated", overhead: 2608 });
  });
});
