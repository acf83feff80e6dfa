/** Streams of an assistant message: as models send them, and as they could be sent. */
import { readUIMessageStream, type ProviderMetadata, type UIMessage, type UIMessageChunk } from "ai";
import fc from "fast-check";
import { asJson } from "./entries.ts";

/** The message an AI SDK client makes of these chunks, as JSON. */
export async function readByClient(chunks: Iterable<UIMessageChunk>): Promise<UIMessage> {
  // The reader shows a message only when something visible changed; metadata always does.
  const all: UIMessageChunk[] = [...chunks, { type: "message-metadata", messageMetadata: { read: true } }];
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of all) controller.enqueue(asJson(chunk));
      controller.close();
    },
  });
  let last: UIMessage | undefined;
  for await (const message of readUIMessageStream({ stream, terminateOnError: true })) last = message;
  if (!last) throw new Error("the client read no message");
  return asJson(last);
}

const metadata = (from: string): { providerMetadata: ProviderMetadata } => ({
  providerMetadata: { anthropic: { from }, google: { thoughtSignature: `${from}==` } },
});

/** By name, streams that providers and tools really give. */
export const REAL_STREAMS: Record<string, UIMessageChunk[]> = {
  "one step of text": [
    { type: "start", messageId: "answer" },
    { type: "start-step" },
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: "Hel" },
    { type: "text-delta", id: "t", delta: "lo" },
    { type: "text-end", id: "t" },
    { type: "finish-step" },
    { type: "finish", finishReason: "stop" },
  ],
  "two steps with parallel tools whose outputs come in another order": [
    { type: "start-step" },
    { type: "reasoning-start", id: "r", ...metadata("start") },
    { type: "reasoning-delta", id: "r", delta: "Look twice." },
    { type: "reasoning-end", id: "r", ...metadata("signature") },
    { type: "tool-input-start", toolCallId: "a", toolName: "look", title: "Look", toolMetadata: { colour: "blue" } },
    { type: "tool-input-start", toolCallId: "b", toolName: "look", ...metadata("call") },
    { type: "tool-input-delta", toolCallId: "a", inputTextDelta: '{"at":' },
    { type: "tool-input-delta", toolCallId: "b", inputTextDelta: '{"at":2}' },
    { type: "tool-input-delta", toolCallId: "a", inputTextDelta: "1}" },
    { type: "tool-input-available", toolCallId: "a", toolName: "look", input: { at: 1 }, title: "Look" },
    { type: "tool-input-available", toolCallId: "b", toolName: "look", input: { at: 2 }, ...metadata("call") },
    { type: "tool-output-available", toolCallId: "b", output: { sea: true } },
    { type: "tool-output-error", toolCallId: "a", errorText: "fog", toolMetadata: { colour: "grey" } },
    { type: "finish-step" },
    { type: "start-step" },
    { type: "text-start", id: "t", ...metadata("text") },
    { type: "text-delta", id: "t", delta: "Sea." },
    { type: "text-end", id: "t", ...metadata("end") },
    { type: "finish-step" },
  ],
  "the same ids of text and reasoning in every step": [
    ...["one", "two"].flatMap((said): UIMessageChunk[] => [
      { type: "start-step" },
      { type: "reasoning-start", id: "0" },
      { type: "reasoning-delta", id: "0", delta: said },
      { type: "reasoning-end", id: "0" },
      { type: "text-start", id: "0" },
      { type: "text-delta", id: "0", delta: said, ...metadata(said) },
      { type: "text-end", id: "0" },
      { type: "finish-step" },
    ]),
  ],
  "interleaved texts, one of them never ended": [
    { type: "start-step" },
    { type: "text-start", id: "a" },
    { type: "text-start", id: "b" },
    { type: "text-delta", id: "a", delta: "A" },
    { type: "reasoning-start", id: "a" },
    { type: "text-delta", id: "b", delta: "B" },
    { type: "reasoning-delta", id: "a", delta: "because" },
    { type: "text-end", id: "b" },
  ],
  "an approval that is given, and its output after the next step began": [
    { type: "start-step" },
    { type: "tool-input-available", toolCallId: "a", toolName: "pay", input: { sum: 3 }, ...metadata("call") },
    {
      type: "tool-approval-request",
      approvalId: "p",
      toolCallId: "a",
      reason: "it costs",
      signature: "s",
      inputSchemaInput: { sum: "3" },
      approvalDescriptor: { kind: "once" },
    },
    { type: "tool-approval-response", approvalId: "p", approved: true, reason: "fine", ...metadata("yes") },
    { type: "finish-step" },
    { type: "start-step" },
    { type: "tool-output-available", toolCallId: "a", output: "paid" },
  ],
  "an approval that is denied, one that is automatic and one that waits": [
    { type: "start-step" },
    ...["a", "b", "c"].flatMap((id): UIMessageChunk[] => [
      { type: "tool-input-available", toolCallId: id, toolName: "pay", input: {} },
      { type: "tool-approval-request", approvalId: `p${id}`, toolCallId: id, isAutomatic: id === "b" },
    ]),
    { type: "tool-approval-response", approvalId: "pa", approved: false, reason: "no" },
    { type: "tool-output-denied", toolCallId: "a" },
    { type: "tool-approval-response", approvalId: "pb", approved: true, providerExecuted: true },
  ],
  "preliminary outputs, then the output": [
    { type: "start-step" },
    { type: "tool-input-available", toolCallId: "a", toolName: "scan", input: {} },
    { type: "tool-output-available", toolCallId: "a", output: { done: 1 }, preliminary: true },
    { type: "tool-output-available", toolCallId: "a", output: { done: 2 }, preliminary: true },
    { type: "tool-output-available", toolCallId: "a", output: { done: 3 }, ...metadata("result") },
  ],
  "a preliminary output, then a failure": [
    { type: "start-step" },
    { type: "tool-input-available", toolCallId: "a", toolName: "scan", input: {} },
    { type: "tool-output-available", toolCallId: "a", output: { done: 1 }, preliminary: true },
    { type: "tool-output-error", toolCallId: "a", errorText: "jammed", ...metadata("result") },
  ],
  "dynamic tools and tools that the provider runs": [
    { type: "start-step" },
    { type: "tool-input-start", toolCallId: "a", toolName: "found", dynamic: true, title: "Found" },
    { type: "tool-input-delta", toolCallId: "a", inputTextDelta: "{}" },
    { type: "tool-input-available", toolCallId: "a", toolName: "found", input: {}, dynamic: true },
    { type: "tool-output-available", toolCallId: "a", output: null, dynamic: true },
    { type: "tool-input-start", toolCallId: "b", toolName: "web", providerExecuted: true, ...metadata("call") },
    { type: "tool-input-available", toolCallId: "b", toolName: "web", input: "q", providerExecuted: true },
    { type: "tool-output-available", toolCallId: "b", output: [], providerExecuted: true, ...metadata("result") },
    { type: "tool-input-available", toolCallId: "c", toolName: "found", input: {}, dynamic: true },
    { type: "tool-output-error", toolCallId: "c", errorText: "gone", dynamic: true },
  ],
  "inputs that are wrong": [
    { type: "start-step" },
    { type: "tool-input-start", toolCallId: "a", toolName: "look" },
    { type: "tool-input-delta", toolCallId: "a", inputTextDelta: '{"at"' },
    {
      type: "tool-input-error",
      toolCallId: "a",
      toolName: "look",
      input: '{"at"',
      errorText: "not JSON",
      dynamic: true,
      title: "Look",
      ...metadata("call"),
    },
    {
      type: "tool-input-error",
      toolCallId: "b",
      toolName: "nowhere",
      input: {},
      errorText: "unknown",
      dynamic: true,
      title: "N",
    },
    {
      type: "tool-input-error",
      toolCallId: "c",
      toolName: "look",
      input: {},
      errorText: "wrong",
      providerExecuted: true,
    },
  ],
  "inputs that are text": [
    { type: "start-step" },
    { type: "tool-input-start", toolCallId: "a", toolName: "patch", inputEncoding: "text" },
    { type: "tool-input-delta", toolCallId: "a", inputTextDelta: "--- a" },
    { type: "tool-input-available", toolCallId: "a", toolName: "patch", input: "--- a\n+++ b" },
  ],
  "files, sources, custom content and steering": [
    { type: "start-step" },
    { type: "file", mediaType: "image/png", url: "data:image/png;base64,AAAA", ...metadata("file") },
    { type: "reasoning-file", mediaType: "image/png", url: "data:image/png;base64,AAAA" },
    { type: "source-url", sourceId: "s", url: "https://example.com/a", title: "A", ...metadata("source") },
    { type: "source-url", sourceId: "s2", url: "https://example.com/b" },
    { type: "source-document", sourceId: "d", mediaType: "text/plain", title: "D", filename: "d.txt" },
    { type: "custom", kind: "openai.compaction", ...metadata("custom") },
    { type: "custom", kind: "openai.other" },
    { type: "steering-message", id: "u", parts: [{ type: "text", text: "and the moon?" }] },
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: "Cited." },
    {
      type: "text-end",
      id: "t",
      citations: [{ type: "url", url: "https://example.com/a" }] as never,
    },
  ],
  "data parts: replaced by id across steps, repeated without one, transient ones not kept": [
    { type: "data-early", data: 0 },
    { type: "start-step" },
    { type: "data-note", id: "n", data: { v: 1 } },
    { type: "data-note", data: 1 },
    { type: "data-note", data: 2 },
    { type: "data-gone", data: 3, transient: true },
    { type: "data-kept", data: 4, transient: false },
    { type: "data-named", id: "", data: 5 },
    { type: "data-named", id: "", data: 6 },
    { type: "start-step" },
    { type: "data-note", id: "n", data: { v: 2 } },
    { type: "data-other", id: "n", data: { v: 3 } },
  ],
  "no step at all": [
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: "bare" },
    { type: "text-end", id: "t" },
  ],
  "steps without content": [
    { type: "start-step" },
    { type: "finish-step" },
    { type: "start-step" },
    { type: "finish-step" },
  ],
};

/** A run of chunks that stay in order; runs of one step are mixed. */
type Track = UIMessageChunk[];

const json = fc.jsonValue({ maxDepth: 2 });
const maybeMetadata = fc.option(fc.constantFrom("x", "y").map(metadata), { nil: {} });
const maybe = <T extends object>(value: T) => fc.constantFrom(value, {});

const texts = (kind: "text" | "reasoning", id: string): fc.Arbitrary<Track> =>
  fc
    .tuple(maybeMetadata, fc.array(fc.tuple(fc.string(), maybeMetadata), { maxLength: 3 }), maybeMetadata, fc.boolean())
    .map(([start, deltas, end, ended]) => [
      { type: `${kind}-start` as const, id, ...start },
      ...deltas.map(([delta, extra]) => ({ type: `${kind}-delta` as const, id, delta, ...extra })),
      ...(ended ? [{ type: `${kind}-end` as const, id, ...end }] : []),
    ]);

const things = (id: string): fc.Arbitrary<Track> =>
  fc.oneof(
    fc
      .tuple(json, fc.constantFrom("n", undefined))
      .map(([data, name]) => [{ type: "data-note" as const, ...(name && { id: name }), data }]),
    maybeMetadata.map((extra) => [{ type: "custom" as const, kind: "made.up" as const, ...extra }]),
    maybeMetadata.map((extra) => [{ type: "file" as const, mediaType: "a/b", url: "data:a/b;base64,AA", ...extra }]),
    maybeMetadata.map((extra) => [{ type: "source-url" as const, sourceId: id, url: "https://example.com", ...extra }]),
  );

interface CallTracks {
  /** in the step of the call */
  now: Track;
  /** in the step after it */
  later: Track;
}

const calls = (id: string): fc.Arbitrary<CallTracks> =>
  fc
    .record({
      dynamic: maybe({ dynamic: true }),
      title: maybe({ title: "T" }),
      tool: maybe({ toolMetadata: { m: 1 } }),
      provider: maybe({ providerExecuted: true }),
      start: fc.boolean(),
      extras: fc.tuple(maybeMetadata, maybeMetadata, maybeMetadata),
      input: json,
      approval: fc.constantFrom("none", "asked", "yes", "no"),
      preliminary: fc.array(json, { maxLength: 2 }),
      outcome: fc.constantFrom("none", "output", "error", "input-error"),
      output: json,
      late: fc.boolean(),
    })
    .map(({ dynamic, title, tool, provider, start, extras, input, approval, preliminary, outcome, output, late }) => {
      const named = { toolCallId: id, toolName: "look", ...dynamic, ...title, ...tool, ...provider };
      const opening: Track = start
        ? [
            { type: "tool-input-start", ...named, ...extras[0] },
            { type: "tool-input-delta", toolCallId: id, inputTextDelta: JSON.stringify(input) },
          ]
        : [];
      if (outcome === "input-error") {
        return {
          now: [...opening, { type: "tool-input-error", ...named, input, errorText: "wrong", ...extras[1] }],
          later: [],
        };
      }
      const asked: Track = [{ type: "tool-approval-request", approvalId: `p${id}`, toolCallId: id, reason: "why" }];
      const decision: Track = [{ type: "tool-approval-response", approvalId: `p${id}`, approved: approval === "yes" }];
      const result = { toolCallId: id, ...provider, ...dynamic };
      const outcomes: Track = [
        ...preliminary.map((part) => ({
          type: "tool-output-available" as const,
          ...result,
          output: part,
          preliminary: true,
        })),
        ...(outcome === "output" ? [{ type: "tool-output-available" as const, ...result, output, ...extras[2] }] : []),
        ...(outcome === "error"
          ? [{ type: "tool-output-error" as const, ...result, errorText: "broke", ...tool, ...extras[2] }]
          : []),
      ];
      const end: Track =
        approval === "asked" ? [] : approval === "no" ? [{ type: "tool-output-denied", toolCallId: id }] : outcomes;
      const now: Track = [
        ...opening,
        { type: "tool-input-available", ...named, input, ...extras[1] },
        ...(approval === "none" ? [] : asked),
        ...(approval === "yes" || approval === "no" ? decision : []),
      ];
      return late ? { now, later: end } : { now: [...now, ...end], later: [] };
    });

/** Any stream that keeps the order of each text and each call, over one to three steps. */
export const streams: fc.Arbitrary<UIMessageChunk[]> = fc
  .integer({ min: 1, max: 3 })
  .chain((count) => fc.tuple(...Array.from({ length: count }, (_, index) => stepTracks(index))))
  .map((steps) =>
    steps.flatMap(({ tracks, picks, called }, index): UIMessageChunk[] => {
      const late = steps[index - 1]?.called.map(({ later }) => later) ?? [];
      const mixed = mix([...tracks, ...called.map(({ now }) => now), ...late], picks);
      return [{ type: "start-step" }, ...mixed, { type: "finish-step" }];
    }),
  );

function stepTracks(index: number) {
  return fc.record({
    tracks: fc.tuple(texts("text", "0"), texts("reasoning", `r${index}`), things(`s${index}`), things(`t${index}`)),
    called: fc
      .array(fc.nat(99), { maxLength: 3 })
      .chain((names) => fc.tuple(...[...new Set(names)].map((name) => calls(`${index}-${name}`)))),
    picks: fc.array(fc.nat(), { minLength: 8, maxLength: 30 }),
  });
}

function mix(tracks: readonly Track[], picks: readonly number[]): UIMessageChunk[] {
  const left = tracks.map((track) => [...track]).filter((track) => track.length > 0);
  const mixed: UIMessageChunk[] = [];
  for (let turn = 0; left.length > 0; turn += 1) {
    const index = (picks[turn % picks.length] ?? 0) % left.length;
    const chunk = left[index]?.shift();
    if (chunk) mixed.push(chunk);
    if (left[index]?.length === 0) left.splice(index, 1);
  }
  return mixed;
}
