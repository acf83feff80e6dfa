import { describe, expect, it } from "vitest";
import { summaryPrompt } from "../../src/compaction/summary-prompt.ts";
import { LONGEST_SUMMARY, readSummary, type SummaryAnswer } from "../../src/compaction/summary.ts";

const conversation = Array.from(
  { length: 40 },
  (_, index) =>
    `[user] Question ${index}: is the tide at pier ${index * 7} high enough?\n[assistant] At pier ${index * 7} it is.`,
).join("\n");
const prompt = summaryPrompt({ conversation, previousSummary: null, targetTokens: 500 });
const good = "## Goal\nKnow the tide at each pier.\n\n## Progress\n- 40 piers were asked about; all are high enough.";

const read = (text: string, overrides: Partial<SummaryAnswer> = {}) =>
  readSummary({ text, finishReason: "stop", toolCalls: 0, conversation, prompt, ...overrides });
const summary = (text: string) => ({ kind: "summary", text });
const rejected = (reason: string) => ({ kind: "rejected", reason });

describe("what is accepted", () => {
  it("[CM24] accepts a summary and trims it", () => {
    expect(read(` \n${good}\n\n`)).toEqual(summary(good));
    expect(read("要約：潮は高い。")).toEqual(summary("要約：潮は高い。"));
  });

  it("[CM24] takes the tag and the fence off that stand around a whole summary, and no others", () => {
    const wrapped = [
      `<summary>\n${good}\n</summary>`,
      `\`\`\`\n${good}\n\`\`\``,
      `\`\`\`markdown\n<summary>${good}</summary>\n\`\`\``,
      `<Summary>\n\`\`\`md \n${good}\n\`\`\`\n</Summary>`,
    ];
    expect(wrapped.map((text) => read(text))).toEqual(wrapped.map(() => summary(good)));
    const fenced = `${good}\n\`\`\`sh\nls\n\`\`\``;
    expect(read(`\`\`\`markdown\n${fenced}\n\`\`\``)).toEqual(summary(fenced));
    const untouched = [fenced, "```sh\nls\n```\nlisted\n```sh\npwd\n```", `${good} <summary>`, `<summary> ${good}`];
    expect(untouched.map((text) => read(text))).toEqual(untouched.map(summary));
  });

  it("[CM24] accepts quotations: what must be kept verbatim is no echo", () => {
    const quoted = conversation.slice(0, 600);
    const rest = "The keeper wants tables in metres, no feet, and the night shift told by eight. ".repeat(6);
    expect(read(`${quoted}\n${rest}`)).toMatchObject({ kind: "summary" });
    expect(read(conversation.slice(0, 300))).toMatchObject({ kind: "summary" });
  });
});

describe("what is rejected", () => {
  it("[CM24] rejects an answer without a word in it", () => {
    for (const text of ["", " \n", "…", "<summary></summary>", "<summary>\n</summary>", "```\n\n```", "---"]) {
      expect(read(text)).toEqual(rejected("The model wrote no summary."));
    }
  });

  it("[CM24] rejects a call that did not end by itself, however good its text", () => {
    const reasons = {
      length: "The summary was cut off at the model's output limit.",
      "tool-calls": "The model called a tool instead of writing a summary.",
      "content-filter": "The provider's content filter stopped the summary.",
      error: "The model failed while it wrote the summary.",
      aborted: "The summary was stopped before it was complete.",
      interrupted: "The summary was interrupted before it was complete.",
      other: "The model ended without saying that its summary is complete.",
    } as const;
    for (const [finishReason, reason] of Object.entries(reasons)) {
      expect(read(good, { finishReason: finishReason as keyof typeof reasons })).toEqual(rejected(reason));
    }
    // SAFETY: not a finish reason of this version, which is the point.
    expect(read(good, { finishReason: "pondering" as "other" })).toEqual(rejected(reasons.other));
    expect(read(good, { toolCalls: 1 })).toEqual(rejected(reasons["tool-calls"]));
  });

  it("[CM24] rejects a summary that is longer than 400,000 characters", () => {
    const text = "tide ".repeat(100_000);
    expect(LONGEST_SUMMARY).toBe(400_000);
    expect(read(text)).toEqual(rejected("The summary has 499999 characters, which is more than 400000."));
    expect(read(text.slice(0, LONGEST_SUMMARY - 1))).toMatchObject({ kind: "summary" });
  });

  it("[CM24] rejects its own prompt", () => {
    const framing = rejected("The model repeated its prompt instead of writing a summary.");
    expect(read(prompt.prompt)).toEqual(framing);
    expect(read(`${good}\n</conversation>`)).toEqual(framing);
    expect(read(`<previous-summary>\n${good}`)).toEqual(framing);
    const instructions = rejected("The model repeated its instructions instead of writing a summary.");
    expect(read(prompt.instructions)).toEqual(instructions);
    expect(read(`${good}\n${prompt.instructions.slice(500, 620).replaceAll("\n", "  ")}`)).toEqual(instructions);
  });

  it("[CM24] rejects the conversation said again, whole or in part, in another layout as well", () => {
    const echo = rejected("The model repeated the conversation instead of summarising it.");
    expect(read(conversation)).toEqual(echo);
    expect(read(conversation.slice(700, 1_700))).toEqual(echo);
    expect(read(conversation.replaceAll("\n", "\n\n"))).toEqual(echo);
    expect(read(`Here it is:\n${conversation.slice(0, 2_000)}\n${good}`)).toEqual(echo);
  });

  it("[CM24] reads the longest answers within a fraction of a second", () => {
    const long = "[user] tide and time. ".repeat(150_000);
    const before = Date.now();
    expect(read(long.slice(0, LONGEST_SUMMARY), { conversation: long })).toMatchObject({ kind: "rejected" });
    expect(read("<summary>".repeat(40_000) + "</summary>".repeat(3_000))).toMatchObject({ kind: "summary" });
    expect(Date.now() - before).toBeLessThan(2_000);
  });
});
