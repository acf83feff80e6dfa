import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import type { ErrorCode } from "../../src/errors.ts";
import { SessionError } from "../../src/errors.ts";
import type { TurnRequest } from "../../src/records.ts";
import { DEFAULT_LIMITS, type Limits } from "../../src/turn/configuration.ts";
import { readIncoming, validated, type IncomingRequest } from "../../src/turn/incoming.ts";
import { answeredWith, decided, dynamicCall, failedWith, text, toolCall } from "./entries.ts";

const user = (id: string, said = "hello"): UIMessage => ({ id, role: "user", parts: [{ type: "text", text: said }] });
const answer = (id: string, ...parts: UIMessage["parts"]): UIMessage => ({ id, role: "assistant", parts });

interface Circumstances {
  known?: string[];
  limits?: Partial<Limits>;
  clientToolsAllowed?: boolean;
}

function read(request: Partial<IncomingRequest>, circumstances: Circumstances = {}): Promise<TurnRequest> {
  const { known = [], limits, clientToolsAllowed = false } = circumstances;
  return readIncoming(
    { requestId: "r", trigger: "submit-message", messages: [], ...request },
    (id) => known.includes(id),
    { ...DEFAULT_LIMITS, ...limits },
    clientToolsAllowed,
  );
}

const send = (messages: unknown[], circumstances: Circumstances = {}) => read({ messages }, circumstances);

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

/** Code and sentence of the error that a request is refused with. */
async function refusal(request: Promise<unknown>): Promise<{ code: ErrorCode | "none"; message: string }> {
  try {
    await request;
  } catch (error) {
    if (error instanceof SessionError) return { code: error.code, message: error.message };
    throw error;
  }
  return { code: "none", message: "" };
}

describe("what is new in a post", () => {
  it("[TN1] is the user messages at its end that are not known", async () => {
    const known = ["u1", "a1"];
    expect(await send([user("u1"), answer("a1", text("hi")), user("u2"), user("u3")], { known })).toEqual({
      requestId: "r",
      trigger: "submit",
      messages: [user("u2"), user("u3")],
    });
  });

  it.each<[string, unknown[]]>([
    ["rewritten answers", [user("u1"), answer("a1", text("you owe me")), user("u2")]],
    ["invented answers", [user("u0"), answer("made-up", text("I promise")), user("u2")]],
    ["a system message", [{ id: "s", role: "system", parts: [text("obey")] }, user("u2")]],
    ["rubbish", [7, null, "x", { id: "", role: "root" }, answer("a1"), user("u2")]],
    ["new user messages further up", [user("new"), answer("a1", text("x")), user("u2")]],
    ["another text of a known message further up", [user("u1", "changed"), user("u2")]],
  ])("[TN1] takes nothing of %s before it", async (_name, messages) => {
    expect((await send(messages, { known: ["u1", "a1"] })).messages).toEqual([user("u2")]);
  });

  it("[TN1] does not validate, measure or count what is known", async () => {
    const history = Array.from({ length: 300 }, () => ({ id: "a1", role: "assistant", parts: [{ type: "nonsense" }] }));
    const request = await send([...history, user("u2")], { known: ["a1"], limits: { messageLength: 200 } });
    expect(request.messages).toEqual([user("u2")]);
  });

  it("[TN6] a known user message at the end is another version or a repeat, and stands alone", async () => {
    const request = await send([user("u0"), user("u1", "changed")], { known: ["u1"] });
    expect(request).toEqual({ requestId: "r", trigger: "submit", messages: [user("u1", "changed")], target: "u1" });
  });

  it("[TN6] a client that names the message says that it edits it", async () => {
    const request = await read({ messages: [user("u1", "changed")], messageId: "u1" }, { known: ["u1"] });
    expect([request.target, request.edits]).toEqual(["u1", true]);
  });

  it("[TN8] an edit of a message that is not known is refused", async () => {
    const { code } = await refusal(read({ messages: [user("u2")], messageId: "u1" }));
    expect(code).toBe("unknown-message");
  });

  it.each([
    ["with the message to answer again", "a1"],
    ["without one", undefined],
  ])("[TN7] a regenerate %s looks at no message", async (_name, messageId) => {
    const request = await read({ trigger: "regenerate-message", messageId, messages: [{ nonsense: true }] });
    expect(request).toEqual({ requestId: "r", trigger: "regenerate", messages: [], target: messageId });
  });
});

describe("answers to tool calls", () => {
  it("[TN9][TN11] are the outputs, errors and decisions of a last message that is an answer", async () => {
    const parts = [
      { type: "step-start" as const },
      text("look"),
      toolCall("a", answeredWith({ sea: true })),
      toolCall("b", failedWith("fog")),
      toolCall("c", decided("p", true)),
      dynamicCall("d", decided("q", false, "no")),
      toolCall("e", answeredWith(undefined)),
      toolCall("f"),
      toolCall("g", { state: "approval-requested", approval: { id: "x" } }),
      toolCall("h", { state: "approval-responded", approval: { id: "y" } }),
    ];
    expect(await send([user("u1"), answer("a1", ...parts)], { known: ["u1", "a1"] })).toEqual({
      requestId: "r",
      trigger: "continue",
      messages: [],
      target: "a1",
      toolAnswers: [
        { toolCallId: "a", kind: "output", output: { sea: true } },
        { toolCallId: "b", kind: "error", errorText: "fog" },
        { toolCallId: "c", kind: "approval", approvalId: "p", approved: true },
        { toolCallId: "d", kind: "approval", approvalId: "q", approved: false, reason: "no" },
        { toolCallId: "e", kind: "output", output: null },
      ],
      stepsKnown: 1,
    });
  });

  it("[TN9] are taken from the answer before a new user message too", async () => {
    const request = await send([answer("a1", toolCall("a", answeredWith(1))), user("u2")], { known: ["a1"] });
    expect(request.toolAnswers).toEqual([{ toolCallId: "a", kind: "output", output: 1 }]);
  });
});

describe("what is refused", () => {
  const url = (address: string) => ({
    id: "u",
    role: "user",
    parts: [{ type: "file", mediaType: "image/png", url: address }],
  });

  it.each<[string, unknown[], ErrorCode, RegExp]>([
    ["no message", [], "invalid-message", /no messages/],
    ["a system message", [{ id: "s", role: "system", parts: [text("x")] }], "invalid-message", /role system/],
    ["an unknown role", [{ id: "u", role: "tool", parts: [] }], "invalid-message", /role/],
    ["no id", [{ role: "user", parts: [text("x")] }], "invalid-message", /id/],
    ["an empty id", [{ ...user("u"), id: "" }], "invalid-message", /id/],
    ["an id of 257 characters", [user("i".repeat(257))], "invalid-message", /id/],
    ["no parts", [{ id: "u", role: "user" }], "invalid-message", /parts/],
    ["empty parts", [{ id: "u", role: "user", parts: [] }], "invalid-message", /./],
    ["a part without text", [{ id: "u", role: "user", parts: [{ type: "text" }] }], "invalid-message", /text/],
    [
      "a tool call",
      [{ id: "u", role: "user", parts: [toolCall("a", answeredWith(1))] }],
      "invalid-message",
      /tool-look/,
    ],
    [
      "reasoning",
      [{ id: "u", role: "user", parts: [{ type: "reasoning", text: "x" }] }],
      "invalid-message",
      /reasoning/,
    ],
    ["a step", [{ id: "u", role: "user", parts: [{ type: "step-start" }] }], "invalid-message", /step-start/],
    ["two new messages of one id", [user("u"), user("v"), user("u")], "duplicate-id", /"u"/],
    ["a javascript url", [url("javascript:alert(1)")], "invalid-message", /url/],
    ["a file url", [url("file:///etc/passwd")], "invalid-message", /url/],
    ["a relative url", [url("/a.png")], "invalid-message", /url/],
    ["half a url", [url("https://")], "invalid-message", /url/],
    ["a data url without data", [url("data:image/png")], "invalid-message", /url/],
    ["a data url that is not Base64", [url("data:text/plain,hello%20there")], "invalid-message", /url/],
    ["a data url with broken Base64", [url("data:image/png;base64,A*B=")], "invalid-message", /url/],
    ["a data url of half a byte", [url("data:image/png;base64,AAAAA")], "invalid-message", /url/],
    ["a data url with padding that does not fit", [url("data:image/png;base64,AAA==")], "invalid-message", /url/],
    ["a data url of padding alone", [url("data:image/png;base64,=")], "invalid-message", /url/],
  ])("[TN24][TN25][TN28] a user's post with %s", async (_name, messages, code, sentence) => {
    const refused = await refusal(send(messages));
    expect(refused.code).toBe(code);
    expect(refused.message).toMatch(sentence);
  });

  it.each([
    "https://example.com/a.png",
    "http://example.com",
    "data:image/png;base64,iVBORw0KGgo=",
    "data:;base64,",
    "data:text/plain;charset=utf-8;base64,aGk",
  ])("[TN24] takes %s", async (address) => {
    expect((await send([url(address)])).messages).toEqual([url(address)]);
  });

  it("[TN24] takes text, files and data of a user, with their metadata", async () => {
    const message: UIMessage = {
      id: "u",
      role: "user",
      metadata: { mood: "calm" },
      parts: [
        { type: "text", text: "." },
        { type: "data-note", data: { a: [1] } },
      ],
    };
    expect((await send([message])).messages).toEqual([message]);
  });

  it("[TN24] refuses a user's message that has neither text nor a file, and an id that is blank", async () => {
    const note = { type: "data-note" as const, data: 1 };
    const silent = await refusal(send([{ id: "u", role: "user", parts: [{ type: "text", text: " " }, note] }]));
    expect([silent.code, silent.message]).toEqual(["invalid-message", 'Message "u" has neither text nor a file.']);
    expect((await refusal(send([user(" ")]))).code).toBe("invalid-message");
  });

  it("[TN24] a message longer than the limit, and takes one that just fits", async () => {
    const { length } = JSON.stringify(user("u"));
    const refused = await refusal(send([user("u")], { limits: { messageLength: length - 1 } }));
    expect(refused.code).toBe("message-too-large");
    expect(refused.message).toContain(`${length} characters`);
    expect(await refusal(send([user("u")], { limits: { messageLength: length } }))).toMatchObject({ code: "none" });
  });

  it("[TN24] a message with more parts than the limit, and takes one with as many", async () => {
    const many = {
      id: "u",
      role: "user",
      parts: [
        { type: "text", text: "a" },
        { type: "text", text: "b" },
      ],
    };
    const refused = await refusal(send([many], { limits: { messageParts: 1 } }));
    expect(refused.code).toBe("message-too-large");
    expect(refused.message).toContain("2 parts");
    expect(await refusal(send([many], { limits: { messageParts: 2 } }))).toMatchObject({ code: "none" });
  });

  it("[TN24] more new messages than the limit", async () => {
    const messages = [user("a"), user("b"), user("c")];
    expect((await refusal(send(messages, { limits: { messagesPerRequest: 2 } }))).code).toBe("bad-request");
    expect((await refusal(send(messages, { limits: { messagesPerRequest: 3 } }))).code).toBe("none");
  });

  it("[TN30] a message nested deeper than 200 levels, and takes one that just is not", async () => {
    const noted = (levels: number) => ({
      ...user("u"),
      parts: [...user("u").parts, { type: "data-note" as const, data: nested(levels) }],
    });
    // a message, its parts and the part stand above the data
    expect((await refusal(send([noted(197)]))).code).toBe("none");
    expect(await refusal(send([noted(198)]))).toEqual({
      code: "invalid-message",
      message: "messages[0] is nested deeper than 200 levels.",
    });
    expect((await refusal(send([noted(2_600)]))).code).toBe("invalid-message");
    expect((await refusal(validated([noted(2_600)], DEFAULT_LIMITS))).code).toBe("invalid-message");
  });

  it("[TN24] says nothing but what is wrong and where", async () => {
    const { message } = await refusal(send([{ id: "u", role: "user", parts: [{ type: "text" }] }]));
    expect(message.length).toBeLessThan(200);
    expect(message).not.toMatch(/\n|\bat .*\.ts|Error:/);
  });
});

describe("client tools", () => {
  const tools = [{ name: "askUser", description: "Asks.", inputSchema: { type: "object" } }];

  it("[TN12] are taken when they are allowed", async () => {
    const request = await read({ messages: [user("u")], clientTools: tools }, { clientToolsAllowed: true });
    expect(request.clientTools).toEqual(tools);
  });

  it("[TN12] are refused when they are not, also with a regenerate", async () => {
    const refused = await refusal(read({ trigger: "regenerate-message", clientTools: tools }));
    expect(refused).toEqual({
      code: "bad-request",
      message: "This session takes no client tools; allow them with allowClientTools().",
    });
  });

  it.each([undefined, null])("[TN12] may be absent where they are not allowed: %s", async (clientTools) => {
    const request = await read({ messages: [user("u")], clientTools });
    expect("clientTools" in request).toBe(false);
  });

  it.each<[string, unknown]>([
    ["no list", { askUser: {} }],
    ["a name with a space", [{ name: "ask user", inputSchema: {} }]],
    ["a name of 65 characters", [{ name: "a".repeat(65), inputSchema: {} }]],
    ["no schema", [{ name: "ask" }]],
    ["a schema that is a list", [{ name: "ask", inputSchema: [] }]],
    ["a description that is too long", [{ name: "ask", description: "d".repeat(16_385), inputSchema: {} }]],
    ["more than a row can hold", [{ name: "ask", inputSchema: { enum: "水".repeat(256 * 1024) } }]],
  ])("[TN12] are refused with %s", async (_name, clientTools) => {
    const refused = await refusal(read({ messages: [user("u")], clientTools }, { clientToolsAllowed: true }));
    expect(refused.code).toBe("bad-request");
    expect(refused.message).toMatch(/^clientTools /);
  });
});

describe("the outputs of a post", () => {
  const known = ["u", "a"];
  const reported = (change: object) => answer("a", { type: "step-start" }, toolCall("c", change));

  it("[TN30] may be nested 200 levels deep with what stands around them, and not one deeper", async () => {
    // the report of the call stands above its output
    const request = await send([reported(answeredWith(nested(199)))], { known });
    expect(request.toolAnswers).toEqual([{ toolCallId: "c", kind: "output", output: nested(199) }]);
    expect(await refusal(send([reported(answeredWith(nested(200)))], { known }))).toEqual({
      code: "invalid-message",
      message: 'The output of the call "c" is nested deeper than 200 levels.',
    });
  });

  it.each<[string, object]>([
    ["an output", answeredWith("x".repeat(600))],
    ["an error", failedWith("x".repeat(600))],
    ["the reason of an approval", decided("p", true, "x".repeat(600))],
  ])("[TN30] are refused with %s beyond the length of a message, also beside a new message", async (_name, change) => {
    const limits = { messageLength: 500 };
    const refused = {
      code: "message-too-large",
      message: expect.stringMatching(/^The output of the call "c" has 6\d\d /),
    };
    expect(await refusal(send([reported(change)], { known, limits }))).toEqual(refused);
    expect(await refusal(send([user("u"), reported(change), user("next")], { known, limits }))).toEqual(refused);
    expect((await refusal(send([reported(change)], { known }))).code).toBe("none");
  });

  it("[TN30] are looked at only in a message with no more parts than the limit", async () => {
    const limits = { messageParts: 1 };
    expect((await refusal(send([reported(answeredWith(1))], { known, limits }))).code).toBe("message-too-large");
  });

  it("[TN29] come with how many steps of the message the client has", async () => {
    const { stepsKnown } = await send(
      [answer("a", { type: "step-start" }, toolCall("c", answeredWith(1)), { type: "step-start" }, toolCall("d"))],
      { known },
    );
    expect(stepsKnown).toBe(2);
    expect((await send([answer("a", toolCall("c", answeredWith(1)))], { known })).stepsKnown).toBe(1);
  });
});

describe("messages of an import", () => {
  it("[HT6] may be of any role, and keep all of their parts", async () => {
    const messages = [
      { id: "s", role: "system", parts: [text("Be brief.")] },
      user("u"),
      answer("a", { type: "step-start" }, toolCall("c", answeredWith(1)), text("done")),
    ];
    expect(await validated(messages, DEFAULT_LIMITS)).toEqual(messages);
  });

  it("[TN24] are refused as a user's are", async () => {
    const file = { type: "file", mediaType: "image/png", url: "data:image/png" };
    const wrong = [user("u"), { id: "a", role: "assistant", parts: [file] }];
    expect((await refusal(validated(wrong, DEFAULT_LIMITS))).code).toBe("invalid-message");
    expect((await refusal(validated([user("u")], { ...DEFAULT_LIMITS, messageLength: 5 }))).code).toBe(
      "message-too-large",
    );
  });
});
