/** What a session's model can hold, and what it says where that leaves no room for the answer. */
import { describe, expect, it } from "vitest";
import { configureFrom, type SessionEnvironment } from "../../src/environment.ts";
import { contextSession } from "./context-session.ts";
import { MirrorAs } from "./mirror-as.ts";

const WARNING =
  'The window of 8192 tokens leaves nothing beside the 32000 reserved for the answer, so "auto" never fires; set MAX_OUTPUT_TOKENS, or tokens or a share to compact after.';

const reduced = (threshold: number, kept: number) =>
  `tailTokenBudget is 20000 tokens, but ${threshold} less 0 for system prompt and tools leaves ${threshold}; ${kept} are kept.`;

const local = (variables: SessionEnvironment) =>
  contextSession("small-window", {
    configure: (builder) => configureFrom(variables, builder).model(new MirrorAs("acme", "unknown")),
  });

describe("a window without room for the answer", () => {
  it.each<[string, SessionEnvironment, number | null, string[]]>([
    ["an unknown output limit", { CONTEXT_WINDOW: "8192" }, null, [WARNING]],
    ["an output limit", { CONTEXT_WINDOW: "8192", MAX_OUTPUT_TOKENS: "2048" }, 6_144, [reduced(6_144, 3_072)]],
    ["a share", { CONTEXT_WINDOW: "8192", COMPACT_AFTER: "50%" }, 4_096, [reduced(4_096, 2_048)]],
    ["compaction off", { CONTEXT_WINDOW: "8192", COMPACT_AFTER: "off" }, null, []],
    ["an unknown window", {}, null, []],
  ])("[CX9] is warned of where auto cannot fire, with %s", async (_name, variables, threshold, warnings) => {
    const session = await local(variables);
    expect(await session.context()).toMatchObject({ threshold, warnings });
    const reply = await session.say("hello", 3);
    expect(reply.chunks.findLast(({ type }) => type === "data-context")).toMatchObject({
      data: { threshold, warnings },
    });
  });
});

describe("another model of a session", () => {
  it("[CX9][HT3] has its own limits where they are known, and the configured one gets its own back", async () => {
    const session = await local({ CONTEXT_WINDOW: "8192", MAX_OUTPUT_TOKENS: "2048" });
    const configured = { contextWindow: 8_192, reservedOutput: 2_048, threshold: 6_144 };
    expect(await session.context()).toMatchObject(configured);
    await session.http.call("PATCH", "", { model: "mirror" });
    const known = { contextWindow: 32_000, reservedOutput: 4_096, threshold: 27_904, warnings: [] };
    expect(await session.context()).toMatchObject(known);
    const reply = await session.say("hello", 3);
    expect(reply.chunks.findLast(({ type }) => type === "data-context")).toMatchObject({ data: known });
    await session.http.call("PATCH", "", { model: null });
    expect(await session.context()).toMatchObject(configured);
  });
});
