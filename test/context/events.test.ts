/** One test for each event that makes the newest report speak of another prompt than the next one. */
import { describe, expect, it } from "vitest";
import { knownTokens, openLedger } from "../../src/context/ledger.ts";
import { normaliseUsage, usageOfMessage } from "../../src/context/usage.ts";
import { anchorIndex, branchSizes } from "../../src/context/tail.ts";
import { prompt, reported, Story } from "./story.ts";

/** Overhead 2,000, a question of 3,000, an answer of 1,000. */
function settled(): Story {
  return new Story({ systemUnits: 800, toolsUnits: 1200 }).user(3000).step(1000, reported(5000, 1000));
}

describe("compaction", () => {
  it("[AC7] takes out what it covers and adds the summary, although the newest report was of the uncut prompt", () => {
    const story = new Story().user(80_000).step(1000, reported(85_000, 1000)).user(19_000);
    expect(story.known().tokens).toBe(105_000);
    const uncut = story.prompt;
    story.prompt = prompt({ overlay: 1, covered: story.sizes().ledgerBetween(0, 80_000), summary: 2000 });
    story.step(1000, reported(105_000, 1000), 0, { prompt: uncut });
    expect(story.prompt.covered).toBe(80_000);
    expect(story.known()).toMatchObject({ tokens: 28_000, basis: "anchored", summary: 2000 });
    story.user(300);
    expect(story.known().tokens).toBe(28_300);
  });

  it("[AC8] lets the first report after it correct the overhead and nothing else", () => {
    const story = settled();
    const before = story.anchor!;
    story.prompt = prompt({ ...story.prompt, overlay: 1, covered: 3000, summary: 200 });
    story.user(100).step(50, reported(3400, 50));
    // 2,000 overhead + 200 summary + 1,000 answer + 100 new = 3,300 was expected
    expect(story.anchor!.accuracy.last).toEqual({ predicted: 3300, actual: 3400 });
    expect(story.anchor!.overhead).toBe(2100);
    expect(story.anchor!.models).toEqual(before.models);
    expect(story.sizes().between(3000, 4000)).toBe(1000);
    story.user(100);
    expect(story.known().tokens).toBe(3550);
  });

  it("[AC8] never takes the overhead below 0", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, overlay: 1, covered: 3000, summary: 200 });
    story.user(100).step(50, reported(900, 50));
    expect(story.anchor).toMatchObject({ overhead: 0, rebase: -400 });
    expect(story.known().tokens).toBe(950);
  });

  it("[AC8] settles an unexplained loss with the old content that it covers", () => {
    const story = new Story().user(50_000).step(1000, reported(52_000, 1000)).user(100).step(50, reported(33_000, 50));
    expect(story.anchor!.rebase).toBe(-20_100);
    story.prompt = prompt({ overlay: 1, covered: story.sizes().ledgerBetween(0, 50_000), summary: 500 });
    expect(story.known().tokens).toBe(2000 + 500 + 1000 + 100 + 50);
  });
});

describe("pruning and deleting", () => {
  it("[AC7] takes out a pruned result and adds its placeholder", () => {
    const story = new Story().user(100).step(50, reported(5000, 50), 8000).step(50, reported(13_450, 50));
    const size = story.sizes().ledgerBetween(150, 8150);
    expect(size).toBe(8400);
    story.prompt = prompt({ ...story.prompt, pruneKey: "3", pruned: size - 12 });
    expect(story.known().tokens).toBe(13_500 - 8388);
  });

  it("[AC7] takes out a deleted message at its measured size", () => {
    const story = settled().user(500).step(50, reported(6550, 50));
    story.prompt = prompt({ ...story.prompt, pruneKey: "deleted 3", pruned: story.sizes().ledgerBetween(4000, 4500) });
    expect(story.known().tokens).toBe(6600 - 550);
  });

  it("[AC7] does not move while nothing changes, even where the pruned size would be measured anew", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, pruneKey: "1", pruned: 700 });
    story.user(100).step(50, reported(5400, 50));
    story.prompt = { ...story.prompt, pruned: 760 };
    expect(story.known()).toMatchObject({ tokens: 5450, basis: "reported" });
  });
});

describe("overhead changes", () => {
  it("[AC7] adds the estimated difference of a changed system prompt", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, overheadKey: "second", systemUnits: 1300 });
    expect(story.known()).toMatchObject({ tokens: 6500, overhead: 2500, basis: "anchored" });
  });

  it("[AC7] takes off the estimated difference of a smaller tool set", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, overheadKey: "second", toolsUnits: 200 });
    expect(story.known()).toMatchObject({ tokens: 5000, overhead: 1000 });
  });

  it("[AC8] lets the next report correct the changed overhead", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, overheadKey: "second", systemUnits: 1300 });
    story.user(100).step(50, reported(6680, 50));
    expect(story.anchor!.overhead).toBe(2580);
  });
});

describe("model changes", () => {
  const other = "openai/gpt-4.1";

  it("[AC9] scales the context by what the content is expected to weigh with the new model", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, model: other, rescale: 0.8 });
    expect(story.known()).toMatchObject({ tokens: 4800, basis: "anchored" });
  });

  it("[AC9] lets the new model's first report correct its factor and nothing else", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, model: other, rescale: 0.8 });
    story.user(100).step(50, reported(4600, 50));
    expect(story.anchor!.models[other]!.factor).toBe(0.75);
    expect(story.anchor!.overhead).toBe(2000);
    expect(story.sizes().between(3000, 4000)).toBe(750);
    story.user(100);
    expect(story.known().tokens).toBe(4750);
  });

  it("[AC9] tells sizes in the tokens of the model that is to be called", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, model: other, rescale: 0.8 });
    expect(branchSizes(story.ledger, anchorIndex(story.anchors), story.known()).tail(3000)).toBe(800);
  });

  it("[AC9] remembers the first model's scale when it returns", () => {
    const story = settled();
    const first = story.prompt;
    story.prompt = prompt({ ...first, model: other, rescale: 0.8 });
    story.user(100).step(50, reported(4600, 50));
    story.prompt = first;
    expect(story.known().tokens).toBe(6200);
  });

  it("[AC9] treats another provider's model of the same name as another model", () => {
    const story = settled();
    story.prompt = prompt({ ...story.prompt, model: "bedrock/claude-sonnet-4-5" });
    expect(story.known()).toMatchObject({ tokens: 6000, basis: "anchored" });
  });
});

describe("history changes", () => {
  it("[AC26] trusts the report before an edited message and not the one after it", () => {
    const story = settled().user(500).step(50, reported(6500, 50));
    const ledger = openLedger(story.anchors[0]!, [
      story.entries[1]!,
      { role: "user", unitsBefore: 4000, unitsSaid: 900, unitsReturned: 0 },
    ]);
    expect(knownTokens(ledger, story.prompt).tokens).toBe(6900);
  });

  it("[AC26] goes back to the question when its answer is generated again", () => {
    const story = settled().user(500).step(50, reported(6500, 50));
    const ledger = openLedger(story.anchors[0]!, story.entries.slice(1, 3));
    expect(knownTokens(ledger, story.prompt).tokens).toBe(6500);
  });

  it("[AC10] finds the overhead of an imported transcript at its first report", () => {
    const story = new Story().user(2000).step(500, {}).user(1500).step(100, reported(6600, 100));
    expect(story.anchor!.overhead).toBe(2600);
    expect(story.sizes().tail(0)).toBe(4100);
  });
});

describe("odd reports", () => {
  it("[AC16] counts the parts of an aborted call as new content", () => {
    const story = settled().user(100).step(70, {});
    expect(story.known()).toMatchObject({ tokens: 6170, basis: "anchored" });
  });

  it("[AC13] follows a usage that shrinks", () => {
    const story = settled().user(100).step(50, reported(4000, 50));
    expect(story.known()).toMatchObject({ tokens: 4050, basis: "reported" });
  });

  const usage = (inputTokens: number, outputTokens: number) => ({
    inputTokens,
    outputTokens,
    inputTokenDetails: {},
    outputTokenDetails: {},
  });
  const answer = (metadata: unknown) => ({ role: "assistant" as const, metadata });

  it("[AC17] takes a sum over several steps for a bill", () => {
    const sum = usage(15_000, 300);
    expect(usageOfMessage(answer({ totalUsage: sum }), 3)).toEqual({});
    expect(usageOfMessage(answer({ usage: sum, totalUsage: sum }), 3)).toEqual({});
    expect(usageOfMessage(answer({ totalUsage: sum }), 1).contextInput).toBe(15_000);
  });

  it("[AC17] takes the last step's own usage on a message of several steps", () => {
    const metadata = { usage: usage(6000, 100), totalUsage: usage(15_000, 300) };
    expect(usageOfMessage(answer(metadata), 3).contextInput).toBe(6000);
  });

  it("[AC16] ignores usage on other roles, and metadata that is none", () => {
    expect(usageOfMessage({ role: "user", metadata: { usage: usage(6000, 100) } }, 1)).toEqual({});
    expect(usageOfMessage({ role: "system", metadata: { usage: usage(6000, 100) } }, 1)).toEqual({});
    expect(usageOfMessage(answer("none"), 1)).toEqual({});
  });

  it("[AC18] counts cached tokens once with providers that include them and with those that do not", () => {
    expect(
      normaliseUsage({ prompt_tokens: 1000, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 900 } })
        .contextInput,
    ).toBe(1000);
    expect(normaliseUsage({ input_tokens: 100, cache_read_input_tokens: 900, output_tokens: 5 }).contextInput).toBe(
      1000,
    );
  });
});
