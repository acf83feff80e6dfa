import type { AssistantContent, ModelMessage, ToolContent } from "ai";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ASSISTANT_BEGINS, inLegalOrder } from "../../src/turn/role-order.ts";

const user = (content: string): ModelMessage => ({ role: "user", content });
const assistant = (content: AssistantContent): ModelMessage => ({ role: "assistant", content });
const tool = (...content: ToolContent): ModelMessage => ({ role: "tool", content });
const text = (said: string) => ({ type: "text" as const, text: said });
const call = (id: string) => ({ type: "tool-call" as const, toolCallId: id, toolName: "look", input: {} });
const result = (id: string) => ({
  type: "tool-result" as const,
  toolCallId: id,
  toolName: "look",
  output: { type: "text" as const, value: id },
});
const cached = { anthropic: { cacheControl: { type: "ephemeral" } } };

describe("the first message", () => {
  const opening = { role: "user", content: [text(ASSISTANT_BEGINS)] };

  it.each<[string, ModelMessage[], unknown[]]>([
    ["nothing stays nothing", [], []],
    ["a user's stays", [user("q")], [user("q")]],
    ["an assistant's gets one in front", [assistant("hi"), user("q")], [opening, assistant("hi"), user("q")]],
    ["an assistant's alone gets one as well", [assistant("hi")], [opening, assistant("hi")]],
    [
      "instructions stay at the very front",
      [{ role: "system", content: "Be brief." }, assistant("hi")],
      [{ role: "system", content: "Be brief." }, opening, assistant("hi")],
    ],
    ["instructions alone need none", [{ role: "system", content: "A" }], [{ role: "system", content: "A" }]],
  ])("[CM19] is a user's: %s", (_name, messages, expected) => {
    expect(inLegalOrder(messages)).toEqual(expected);
  });
});

describe("messages of one role in a row", () => {
  it.each<[string, ModelMessage[], ModelMessage]>([
    [
      "a user's, texts becoming parts",
      [user("q"), { role: "user", content: [text("and"), { type: "file", mediaType: "image/png", data: "AA" }] }],
      { role: "user", content: [text("q"), text("and"), { type: "file", mediaType: "image/png", data: "AA" }] },
    ],
    ["three of a user's", [user("a"), user("b"), user("c")], { role: "user", content: ["a", "b", "c"].map(text) }],
  ])("[CM19] become one: %s", (_name, messages, expected) => {
    expect(inLegalOrder(messages)).toEqual([expected]);
  });

  it("[CM19] become one: an assistant's, and the results of its calls", () => {
    const thought = { type: "reasoning" as const, text: "t", providerOptions: { anthropic: { signature: "s" } } };
    const messages = [
      user("q"),
      assistant("Let me see."),
      assistant([thought, call("a"), call("b")]),
      tool(result("a")),
      tool(result("b")),
      assistant("So."),
    ];
    expect(inLegalOrder(messages)).toEqual([
      user("q"),
      assistant([text("Let me see."), thought, call("a"), call("b")]),
      tool(result("a"), result("b")),
      assistant("So."),
    ]);
  });

  it("[CM19] stay apart where another speaks between them, and as instructions", () => {
    const messages: ModelMessage[] = [
      { role: "system", content: "A" },
      { role: "system", content: "B" },
      user("a"),
      assistant([call("x")]),
      tool(result("x")),
      assistant("b"),
      user("c"),
    ];
    expect(inLegalOrder(messages)).toEqual(messages);
  });
});

describe("options of a message that is merged", () => {
  it("[CM19] go to its last part, whose own win", () => {
    const own = { anthropic: { signature: "s" }, openai: { itemId: "i" } };
    const messages: ModelMessage[] = [
      { role: "user", content: [text("a"), text("b")], providerOptions: cached },
      { role: "user", content: "c", providerOptions: cached },
      {
        role: "user",
        content: [{ ...text("d"), providerOptions: own }],
        providerOptions: { anthropic: { signature: "x" } },
      },
      user("e"),
    ];
    expect(inLegalOrder(messages)).toEqual([
      {
        role: "user",
        content: [
          text("a"),
          { ...text("b"), providerOptions: cached },
          { ...text("c"), providerOptions: cached },
          { ...text("d"), providerOptions: own },
          text("e"),
        ],
      },
    ]);
  });

  it("[CM19] join those of the same provider on the part", () => {
    const signed = { ...text("b"), providerOptions: { anthropic: { signature: "s" } } };
    const [message] = inLegalOrder([user("a"), { role: "user", content: [signed], providerOptions: cached }]);
    const both = { anthropic: { signature: "s", cacheControl: { type: "ephemeral" } } };
    expect(message?.content).toEqual([text("a"), { ...signed, providerOptions: both }]);
  });

  it("[CM19] stay where nothing is merged", () => {
    const messages: ModelMessage[] = [{ role: "user", content: "a", providerOptions: cached }];
    expect(inLegalOrder(messages)).toEqual(messages);
  });
});

/** A conversation whose tool messages follow their calls, in any order of roles otherwise. */
const conversations: fc.Arbitrary<ModelMessage[]> = fc
  .array(
    fc.oneof(
      fc
        .oneof(fc.string(), fc.array(fc.string().map(text), { maxLength: 3 }))
        .map((content): ModelMessage[] => [{ role: "user", content }]),
      fc.oneof(fc.string(), fc.array(fc.string().map(text), { maxLength: 3 })).map((content) => [assistant(content)]),
      fc.array(fc.boolean(), { minLength: 1, maxLength: 3 }).map((apart): ModelMessage[] => {
        const ids = apart.map((_, index) => `c${index}`);
        const results = apart[0] ? ids.map((id) => tool(result(id))) : [tool(...ids.map(result))];
        return [assistant(ids.map(call)), ...results];
      }),
    ),
    { maxLength: 8 },
  )
  .map((turns) => turns.flat());

const flat = (messages: readonly ModelMessage[]) =>
  messages.flatMap(({ role, content }) => {
    const parts: readonly object[] = typeof content === "string" ? [text(content)] : content;
    return parts.map((part) => ({ role, ...part }));
  });

describe("any conversation", () => {
  it("[CM19] comes out legal, with every part in its place, the same a second time, and untouched itself", () => {
    fc.assert(
      fc.property(conversations, (messages) => {
        const before = structuredClone(messages);
        const ordered = inLegalOrder(messages);
        const roles = ordered.map(({ role }) => role);
        expect(roles.filter((role, index) => role === roles[index - 1])).toEqual([]);
        expect(roles.slice(0, 1)).toEqual(messages.length > 0 ? ["user"] : []);
        expect(roles.filter((role, index) => role === "tool" && roles[index - 1] !== "assistant")).toEqual([]);
        const added = messages.length > 0 && messages[0]?.role !== "user" ? 1 : 0;
        expect(flat(ordered).slice(added)).toEqual(flat(messages));
        expect(inLegalOrder(ordered)).toEqual(ordered);
        expect(messages).toEqual(before);
      }),
    );
  });
});
