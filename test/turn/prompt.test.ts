import type { ModelMessage, UIMessage } from "ai";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Part } from "../../src/records.ts";
import { hasOldFiles, promptOf } from "../../src/turn/prompt.ts";
import { ASSISTANT_BEGINS } from "../../src/turn/role-order.ts";
import { readByClient, streams } from "./chunk-streams.ts";
import { answeredWith, awaitingApproval, decided, failedWith, reasoning, text, toolCall } from "./entries.ts";

const START: Part = { type: "step-start" };
const signed = { providerMetadata: { anthropic: { signature: "s" } } };

const says = (role: UIMessage["role"], ...parts: Part[]): UIMessage => ({ id: `${role}-message`, role, parts });
const user = (said: string) => says("user", { type: "text", text: said });

async function messagesOf(...messages: UIMessage[]): Promise<ModelMessage[]> {
  return (await promptOf(messages, undefined, {})).messages;
}

/** What the model is shown of one answer that a user goes on from. */
async function shownOf(...parts: Part[]): Promise<ModelMessage[]> {
  const messages = await messagesOf(user("q"), says("assistant", ...parts), user("next"));
  return messages.slice(1, -1);
}

/** The types of the content of every message, by role. */
function outline(messages: readonly ModelMessage[]): string[] {
  return messages.map(({ role, content }) =>
    typeof content === "string" ? role : `${role}: ${content.map(({ type }) => type).join(", ")}`,
  );
}

describe("instructions", () => {
  const system = (said: string) => says("system", { type: "text", text: said });

  it.each<[string, string | undefined, UIMessage[], string | undefined]>([
    ["nothing", undefined, [user("q")], undefined],
    ["an empty system prompt", "", [user("q")], undefined],
    ["the system prompt", "Be brief.", [user("q")], "Be brief."],
    ["system messages at the start", undefined, [system("A"), system("B"), user("q")], "A\n\nB"],
    ["both", "Be brief.", [system("A"), user("q")], "Be brief.\n\nA"],
    ["a system message of several parts", undefined, [says("system", text("A"), text("B")), user("q")], "AB"],
    ["an empty system message", "Be brief.", [system(""), user("q")], "Be brief."],
  ])("[TN27] are made of %s", async (_name, prompt, messages, expected) => {
    expect(await promptOf(messages, prompt, {})).toEqual({
      instructions: expected,
      messages: [{ role: "user", content: [{ type: "text", text: "q" }] }],
    });
  });

  it("[TN27] a later system message is shown as a user message, in its place", async () => {
    const { instructions, messages } = await promptOf([system("A"), user("q"), system("B")], undefined, {});
    expect(instructions).toBe("A");
    const content = ["q", "B"].map((said) => ({ type: "text", text: said }));
    expect(messages).toEqual([{ role: "user", content }]);
  });

  it("[TN27] a conversation of system messages alone is all instructions", async () => {
    expect(await promptOf([system("A")], undefined, {})).toEqual({ instructions: "A", messages: [] });
  });
});

describe("reasoning", () => {
  it("[TN20] is sent back with its provider metadata before what it led to", async () => {
    expect(await shownOf(START, reasoning("think", signed), text("said"))).toEqual([
      {
        role: "assistant",
        content: [
          { type: "reasoning", text: "think", providerOptions: signed.providerMetadata },
          { type: "text", text: "said" },
        ],
      },
    ]);
  });

  it.each<[string, Part[], string[]]>([
    ["empty, with metadata: sent", [START, reasoning("", signed), text("a")], ["assistant: reasoning, text"]],
    ["empty, without metadata: not sent", [START, reasoning(""), text("a")], ["assistant: text"]],
    [
      "before a call and its result: sent",
      [START, reasoning("t", signed), toolCall("a", answeredWith(1))],
      ["assistant: reasoning, tool-call", "tool: tool-result"],
    ],
    ["alone in its step: not sent", [START, reasoning("t", signed)], []],
    ["after all else: not sent", [START, text("a"), reasoning("t", signed)], ["assistant: text"]],
    ["before an empty text: not sent", [START, reasoning("t", signed), text("")], []],
    [
      "before a call without result: not sent",
      [START, text("a"), reasoning("t", signed), toolCall("a")],
      ["assistant: text"],
    ],
    ["broken off: not sent", [START, reasoning("t", { state: "streaming" })], []],
    [
      "whole and signed, in a step that was broken off: sent",
      [START, reasoning("t", signed), text("a", { state: "streaming" })],
      ["assistant: reasoning, text"],
    ],
    [
      "known by a name alone, in a step that was broken off: not sent",
      [START, reasoning("t", { providerMetadata: { openai: { itemId: "rs_1" } } }), text("a", { state: "streaming" })],
      ["assistant: text"],
    ],
    [
      "without a signature, in a step that was broken off: not sent",
      [START, reasoning("t"), text("a", { state: "streaming" })],
      ["assistant: text"],
    ],
    [
      "before a call whose input broke off: not sent",
      [START, reasoning("t", signed), toolCall("a", { state: "input-streaming" })],
      [],
    ],
    [
      "whole, in the step before one that was broken off: sent",
      [START, reasoning("t", signed), text("a"), START, text("b", { state: "streaming" })],
      ["assistant: reasoning, text, text"],
    ],
  ])("[TN20] %s", async (_name, parts, expected) => {
    expect(outline(await shownOf(...parts))).toEqual(expected);
  });

  it("[TN20] a text that was broken off goes without the name that the provider gave it", async () => {
    const named = { providerMetadata: { openai: { itemId: "msg_1" } } };
    expect(await shownOf(START, text("par", { ...named, state: "streaming" }))).toEqual([
      { role: "assistant", content: [{ type: "text", text: "par" }] },
    ]);
    expect(await shownOf(START, text("whole", named))).toEqual([
      { role: "assistant", content: [{ type: "text", text: "whole", providerOptions: named.providerMetadata }] },
    ]);
  });
});

describe.each(["aborted", "failed", "interrupted"])("an answer that ended %s", (ending) => {
  const named = { providerMetadata: { openai: { itemId: "x_1" } } };

  it("[TN19][TN20] loses in its last step what its provider never completed, and nothing in earlier ones", async () => {
    const parts = [START, reasoning("a", named), text("b", named), START, reasoning("c", named), text("d", named)];
    const messages = await messagesOf(
      user("q"),
      { ...says("assistant", ...parts), metadata: { ending } },
      user("next"),
    );
    expect(messages.slice(1, -1)).toEqual([
      {
        role: "assistant",
        content: [
          { type: "reasoning", text: "a", providerOptions: named.providerMetadata },
          { type: "text", text: "b", providerOptions: named.providerMetadata },
          { type: "text", text: "d" },
        ],
      },
    ]);
  });
});

describe("tool calls", () => {
  it.each<[string, Part, string[]]>([
    ["an output: sent", toolCall("a", answeredWith(1)), ["assistant: tool-call", "tool: tool-result"]],
    ["an error: sent", toolCall("a", failedWith("x")), ["assistant: tool-call", "tool: tool-result"]],
    [
      "a denial: sent",
      toolCall("a", { state: "output-denied", approval: { id: "p", approved: false } }),
      ["assistant: tool-call, tool-approval-request", "tool: tool-approval-response, tool-result"],
    ],
    [
      "a denial that no turn has seen: sent",
      toolCall("a", decided("p", false)),
      ["assistant: tool-call, tool-approval-request", "tool: tool-approval-response, tool-result"],
    ],
    ["no output: left out", toolCall("a"), []],
    ["half an input: left out", toolCall("a", { state: "input-streaming", input: undefined, rawInput: "{" }), []],
    ["a preliminary output: left out", toolCall("a", { ...answeredWith(1), preliminary: true }), []],
    ["a requested approval: left out", toolCall("a", awaitingApproval("p")), []],
    ["an approval and no run: left out", toolCall("a", decided("p", true)), []],
  ])("[TN21] with %s", async (_name, part, expected) => {
    expect(outline(await shownOf(START, part))).toEqual(expected);
  });

  it("[TN21] without a result are left out beside ones that have theirs", async () => {
    const shown = await shownOf(START, text("look"), toolCall("a", answeredWith(1)), toolCall("b"));
    expect(outline(shown)).toEqual(["assistant: text, tool-call", "tool: tool-result"]);
  });

  it("[TN11] an approved call at the end of the conversation is sent, so that it runs", async () => {
    const messages = await messagesOf(user("q"), says("assistant", START, toolCall("a", decided("p", true))));
    expect(outline(messages.slice(1))).toEqual([
      "assistant: tool-call, tool-approval-request",
      "tool: tool-approval-response",
    ]);
  });

  it("[TN21] an approved call that never ran is left out when its message has gone on", async () => {
    const parts = [START, toolCall("a", decided("p", true)), START, text("so")];
    expect(outline(await messagesOf(user("q"), says("assistant", ...parts)))).toEqual([
      "user: text",
      "assistant: text",
    ]);
  });
});

describe("messages", () => {
  it.each<[string, UIMessage]>([
    ["data alone", says("user", { type: "data-note", data: 1 })],
    ["no text", says("user", { type: "text", text: "" })],
    ["blanks", says("user", { type: "text", text: " \n" })],
    ["sources alone", says("assistant", START, { type: "source-url", sourceId: "s", url: "https://example.com" })],
    ["a step that said nothing", says("assistant", START)],
    ["what Anthropic begins with", says("assistant", START, { type: "custom", kind: "anthropic.message_start" })],
  ])("[TN21] with nothing to show are left out: %s", async (_name, message) => {
    const { messages } = await promptOf([user("q"), message, user("next")], undefined, {});
    const content = ["q", "next"].map((said) => ({ type: "text", text: said }));
    expect(messages).toEqual([{ role: "user", content }]);
  });

  it("[CM19] are shown in an order of roles that every provider takes", async () => {
    const greeting = says("assistant", text("Hello."));
    expect(await messagesOf(greeting, user("q"), user("next"))).toEqual([
      { role: "user", content: [{ type: "text", text: ASSISTANT_BEGINS }] },
      { role: "assistant", content: [{ type: "text", text: "Hello." }] },
      { role: "user", content: ["q", "next"].map((said) => ({ type: "text", text: said })) },
    ]);
  });

  it("[TN20][TN21][CM19] any history, cut off anywhere, gives a prompt that providers take", async () => {
    const answer = fc.tuple(streams, fc.nat());
    const said = fc.constantFrom("hello", "", " ");
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(said, answer), { minLength: 1, maxLength: 4 }), async (turns) => {
        const history: UIMessage[] = [];
        for (const [question, [chunks, pick]] of turns) {
          const { parts } = await readByClient(chunks.slice(0, 1 + (pick % chunks.length)));
          history.push(user(question), says("assistant", ...parts));
        }
        expect(illegalities(await messagesOf(...history, user("next")))).toEqual([]);
      }),
      { numRuns: 150 },
    );
  });
});

/** What providers refuse, in words. */
function illegalities(messages: readonly ModelMessage[]): string[] {
  const found = roleFaults(messages);
  const known = new Set<string>();
  const open = new Set<string>();
  for (const { role, content } of messages) {
    if (content.length === 0) found.push(`an empty ${role} message`);
    if (typeof content === "string") continue;
    if (role !== "tool") for (const id of open) found.push(`${id} has no result before the next ${role} message`);
    if (role !== "tool") open.clear();
    for (const part of content) {
      if (part.type === "tool-call") known.add(part.toolCallId);
      if (part.type === "tool-call" && !part.providerExecuted) open.add(part.toolCallId);
      if (part.type !== "tool-result") continue;
      if (!known.has(part.toolCallId)) found.push(`a result for ${part.toolCallId} without its call`);
      open.delete(part.toolCallId);
    }
    if (role === "assistant" && content.at(-1)?.type === "reasoning") found.push("reasoning at the end of a step");
  }
  return [...found, ...[...open].map((id) => `${id} has no result`)];
}

/** Who may not speak where they do. */
function roleFaults(messages: readonly ModelMessage[]): string[] {
  const roles = messages.map(({ role }) => role);
  const repeated = roles
    .filter((role, index) => role === roles[index - 1])
    .map((role) => `two ${role} messages in a row`);
  return roles[0] === "user" ? repeated : [`it begins with ${roles[0]}`, ...repeated];
}

describe("files of earlier messages", () => {
  const file = (overrides: object = {}): Part => ({
    type: "file",
    mediaType: "image/png",
    url: "https://files.test/a.png",
    ...overrides,
  });
  const withFile = [
    says("user", text("Look:"), file({ filename: "a.png" })),
    says("assistant", START, text("Nice."), file()),
    says("user", text("And this:"), file()),
  ];

  it("[TN28] are lines where the model cannot be shown them; the newest message keeps its own", async () => {
    const { messages } = await promptOf(withFile, undefined, {}, { oldFiles: false });
    expect(messages[0]?.content).toEqual([
      { type: "text", text: "Look:" },
      { type: "text", text: "[A file was sent here that cannot be shown again: a.png, image/png]" },
    ]);
    expect(outline(messages)).toEqual(["user: text, text", "assistant: text, text", "user: text, file"]);
  });

  it("[TN28] are shown as long as nothing was refused", async () => {
    expect(outline((await promptOf(withFile, undefined, {})).messages)[0]).toBe("user: text, file");
  });

  it.each<[string, UIMessage[], boolean]>([
    ["a file before the newest message", withFile, true],
    ["only the newest message's file", withFile.slice(2), false],
    ["an answer's file, which another model may have made", [user("q"), ...withFile.slice(1)], true],
    ["nothing", [], false],
  ])("[TN28] are told from others: %s", (_name, messages, old) => {
    expect(hasOldFiles(messages)).toBe(old);
  });
});
