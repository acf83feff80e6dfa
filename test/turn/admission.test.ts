import { tool, type ToolSet, type UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { Entry, Part, Seq, TurnRequest } from "../../src/records.ts";
import { admit, type Admission, type KnownHistory } from "../../src/turn/admission.ts";
import { Branch, type EntrySource } from "../../src/turn/branch.ts";
import { answeredWith, asked, awaitingApproval, call, decided, step, text, toolCall } from "./entries.ts";

const inputSchema = z.object({});
const TOOLS: ToolSet = { look: tool({ inputSchema }), pay: tool({ inputSchema, execute: () => "paid" }) };

const user = (id: string, said: string): UIMessage => ({ id, role: "user", parts: [{ type: "text", text: said }] });
const calledTools = call({ finishReason: "tool-calls" });

/** q1 (m1) → a1 → q2 (m3) → a2 */
const TALK: Entry[] = [
  asked(1, "q1"),
  step(2, [text("one")], { messageId: "a1" }),
  asked(3, "q2"),
  step(4, [text("two")], { messageId: "a2" }),
];

/** The entries of one branch, oldest first, given out as a store does it. */
function sourceOf(branch: readonly Entry[]): EntrySource {
  const upTo = (from: Seq | null) => branch.filter(({ seq }) => from !== null && seq <= from).toReversed();
  return {
    entry: (seq) => branch.find((entry) => entry.seq === seq),
    *walk(from) {
      yield* upTo(from);
    },
    stretch(from, limit, above) {
      const entries = upTo(from)
        .filter(({ seq }) => seq > above)
        .slice(0, limit);
      return { entries, next: entries.at(-1)?.parent ?? null };
    },
  };
}

/** `branch` is the active one, oldest first; `elsewhere` stands on others. */
function historyOf(branch: readonly Entry[], elsewhere: readonly Entry[] = []): KnownHistory {
  const active = new Branch(sourceOf(branch), branch.at(-1)?.seq ?? null);
  const all = [...branch, ...elsewhere].toSorted((a, b) => a.seq - b.seq);
  return {
    leaf: active.leaf,
    onBranch: (id) => active.message(id),
    newest: (role) => active.newest(role),
    answerTo: (seq) => active.answerTo(seq),
    versions: (id) => all.filter((entry) => entry.messageId === id && entry.step === 0),
    entry: (seq) => all.find((entry) => entry.seq === seq),
  };
}

function admitted(request: Partial<TurnRequest>, history: KnownHistory): Admission {
  return admit({ requestId: "r", trigger: "submit", messages: [], ...request }, history, TOOLS);
}

function refusedWith(request: Partial<TurnRequest>, history: KnownHistory): unknown {
  try {
    admitted(request, history);
  } catch (error) {
    return error instanceof Error && "code" in error ? error.code : error;
  }
  return "admitted";
}

const run = (plan: Partial<Extract<Admission, { kind: "run" }>>): Admission => ({
  kind: "run",
  parent: null,
  store: [],
  update: [],
  ...plan,
});

describe("new messages", () => {
  it("[TN1] are appended to the active branch in order", () => {
    const messages = [user("u", "a"), user("v", "b")];
    expect(admitted({ messages }, historyOf(TALK))).toEqual(
      run({ parent: 4, store: messages.map((message) => ({ message, version: 0 })) }),
    );
    expect(admitted({ messages: [user("u", "a")] }, historyOf([]))).toEqual(
      run({ store: [{ message: user("u", "a"), version: 0 }] }),
    );
  });

  it("[TN5] that a turn before them has stored meanwhile are not stored again, and the others are", () => {
    const messages = [user("m3", "q2"), user("u", "a")];
    expect(admitted({ messages }, historyOf(TALK))).toEqual(
      run({ parent: 4, store: [{ message: user("u", "a"), version: 0 }] }),
    );
  });

  it("[TN4] that were all stored and answered meanwhile get that answer", () => {
    expect(admitted({ messages: [user("m3", "q2")] }, historyOf(TALK))).toEqual({ kind: "answered", messageId: "a2" });
  });

  it("[TN9] bring the outputs for the answer before them", () => {
    const waiting = step(2, [toolCall("a")], { call: calledTools });
    const plan = admitted(
      {
        messages: [user("u", "b")],
        toolAnswers: [{ toolCallId: "a", kind: "output", output: 1 }],
        answeredMessage: "answer",
      },
      historyOf([asked(1, "q"), waiting]),
    );
    expect(plan).toEqual(
      run({
        parent: 2,
        store: [{ message: user("u", "b"), version: 0 }],
        update: [step(2, [toolCall("a", answeredWith(1))], { call: calledTools })],
      }),
    );
  });

  it("[TN9] answer no call of another message, though its id is the same", () => {
    const waiting = step(2, [toolCall("a")], { call: calledTools });
    const stale = { toolAnswers: [{ toolCallId: "a", kind: "output", output: 1 } as const], answeredMessage: "older" };
    const plan = admitted({ messages: [user("u", "b")], ...stale }, historyOf([asked(1, "q"), waiting]));
    expect(plan).toEqual(run({ parent: 2, store: [{ message: user("u", "b"), version: 0 }] }));
  });
});

describe("a message sent again", () => {
  it("[TN6] with other content is another version beside the earlier one", () => {
    expect(admitted({ messages: [user("m3", "new")], target: "m3" }, historyOf(TALK))).toEqual(
      run({ parent: 2, store: [{ message: user("m3", "new"), version: 1 }] }),
    );
    expect(admitted({ messages: [user("m1", "new")], target: "m1" }, historyOf(TALK))).toEqual(
      run({ parent: null, store: [{ message: user("m1", "new"), version: 1 }] }),
    );
  });

  it("[TN6] with other content counts the versions on every branch", () => {
    const other = asked(5, "third", { messageId: "m3", version: 1, parent: 2 });
    expect(admitted({ messages: [user("m3", "new")], target: "m3" }, historyOf(TALK, [other]))).toMatchObject({
      parent: 2,
      store: [{ version: 2 }],
    });
  });

  it("[TN6] that stands on no active branch goes on from its newest version", () => {
    const old = asked(5, "elsewhere", { messageId: "far", parent: 1 });
    expect(admitted({ messages: [user("far", "new")], target: "far" }, historyOf(TALK, [old]))).toMatchObject({
      parent: 1,
      store: [{ version: 1 }],
    });
  });

  it("[TN4] with the same content is answered by its answer, the newest or an earlier one", () => {
    expect(admitted({ messages: [user("m3", "q2")], target: "m3" }, historyOf(TALK))).toEqual({
      kind: "answered",
      messageId: "a2",
    });
    expect(admitted({ messages: [user("m1", "q1")], target: "m1" }, historyOf(TALK))).toEqual({
      kind: "answered",
      messageId: "a1",
    });
  });

  it("[TN4] with the same content is answered by an answer of several steps", () => {
    const history = historyOf([
      asked(1, "q1"),
      step(2, [toolCall("a", answeredWith(1))], { call: calledTools }),
      step(3, [text("done")], { step: 1 }),
    ]);
    expect(admitted({ messages: [user("m1", "q1")], target: "m1" }, history)).toEqual({
      kind: "answered",
      messageId: "answer",
    });
  });

  it("[TN4] with the same content is run when it has no answer yet, and stored no second time", () => {
    expect(admitted({ messages: [user("m3", "q2")], target: "m3" }, historyOf(TALK.slice(0, 3)))).toEqual(
      run({ parent: 3 }),
    );
  });

  it("[TN6] as an edit that changes nothing is run from there, unless its answer is the newest", () => {
    const edit = (id: string, said: string) =>
      admitted({ messages: [user(id, said)], target: id, edits: true }, historyOf(TALK));
    expect(edit("m1", "q1")).toEqual(run({ parent: 1 }));
    expect(edit("m3", "q2")).toEqual({ kind: "answered", messageId: "a2" });
  });

  it("[TN4] is compared by its parts and not by the order of their fields or its metadata", () => {
    const again = { ...user("m3", ""), metadata: { at: 2 }, parts: [{ text: "q2", type: "text" }] as Part[] };
    expect(admitted({ messages: [again], target: "m3" }, historyOf(TALK)).kind).toBe("answered");
  });

  it("[TN8] is refused when it is unknown or an answer", () => {
    expect(refusedWith({ messages: [user("x", "a")], target: "x" }, historyOf(TALK))).toBe("unknown-message");
    expect(refusedWith({ messages: [user("a1", "a")], target: "a1" }, historyOf(TALK))).toBe("invalid-message");
  });
});

describe("a regenerate", () => {
  it.each<[string, string | undefined, number]>([
    ["the newest answer", undefined, 3],
    ["the newest answer by its id", "a2", 3],
    ["an earlier answer", "a1", 1],
    ["a user message", "m1", 1],
  ])("[TN7] of %s goes on from where that answer began", (_name, target, parent) => {
    expect(admitted({ trigger: "regenerate", target }, historyOf(TALK))).toEqual(run({ parent }));
  });

  it("[TN7] of an answer of several steps goes on from before the first", () => {
    const history = historyOf([
      ...TALK.slice(0, 1),
      step(2, [toolCall("a", answeredWith(1))]),
      step(3, [], { step: 1 }),
    ]);
    expect(admitted({ trigger: "regenerate", target: "answer" }, history)).toEqual(run({ parent: 1 }));
    expect(admitted({ trigger: "regenerate" }, history)).toEqual(run({ parent: 1 }));
  });

  it("[TN7] answers a message that has no answer yet", () => {
    expect(admitted({ trigger: "regenerate" }, historyOf(TALK.slice(0, 3)))).toEqual(run({ parent: 3 }));
  });

  it("[TN7] of an answer on another branch goes on there", () => {
    const old = step(5, [text("other")], { messageId: "a3", parent: 1 });
    expect(admitted({ trigger: "regenerate", target: "a3" }, historyOf(TALK, [old]))).toEqual(run({ parent: 1 }));
  });

  it("[TN8] is refused where there is nothing to answer", () => {
    expect(refusedWith({ trigger: "regenerate", target: "x" }, historyOf(TALK))).toBe("unknown-message");
    expect(refusedWith({ trigger: "regenerate" }, historyOf([]))).toBe("unknown-message");
    expect(refusedWith({ trigger: "regenerate" }, historyOf([step(1, [text("hi")])]))).toBe("bad-request");
  });
});

describe("answers to tool calls", () => {
  const output = { toolCallId: "a", kind: "output" as const, output: 1 };
  const waiting = (...parts: Part[]) => historyOf([asked(1, "q"), step(2, parts, { call: calledTools })]);
  const goOn = (history: KnownHistory, ...toolAnswers: NonNullable<TurnRequest["toolAnswers"]>) =>
    admitted({ trigger: "continue", target: "answer", toolAnswers }, history);

  it("[TN9] that are complete let the message go on", () => {
    expect(goOn(waiting(toolCall("a")), output)).toEqual(
      run({
        parent: 2,
        continues: "answer",
        update: [step(2, [toolCall("a", answeredWith(1))], { call: calledTools })],
      }),
    );
  });

  it("[TN9] that leave a call open are stored, and the message waits", () => {
    expect(goOn(waiting(toolCall("a"), toolCall("b")), output)).toEqual({
      kind: "wait-for-client",
      messageId: "answer",
      update: [step(2, [toolCall("a", answeredWith(1)), toolCall("b")], { call: calledTools })],
    });
  });

  it("[TN10] a post of the same output again runs nothing: the message went on", () => {
    const history = historyOf([
      asked(1, "q"),
      step(2, [toolCall("a", answeredWith(1))], { call: calledTools }),
      step(3, [text("done")], { step: 1 }),
    ]);
    expect(goOn(history, { ...output, output: 2 })).toEqual({ kind: "answered", messageId: "answer" });
  });

  it("[TN10] the output of a server tool changes nothing, and the message goes on waiting", () => {
    expect(goOn(waiting(toolCall("a", { type: "tool-pay" })), output)).toEqual({
      kind: "answered",
      messageId: "answer",
    });
  });

  it.each([true, false])("[TN11] a decision lets the message go on: %s", (approved) => {
    const decision = { toolCallId: "a", kind: "approval" as const, approvalId: "p", approved };
    expect(goOn(waiting(toolCall("a", { type: "tool-pay", ...awaitingApproval("p") })), decision)).toEqual(
      run({
        parent: 2,
        continues: "answer",
        update: [step(2, [toolCall("a", { type: "tool-pay", ...decided("p", approved) })], { call: calledTools })],
      }),
    );
  });

  it("[TN18] a message whose calls are answered and whose next step failed goes on when asked again", () => {
    expect(goOn(waiting(toolCall("a", answeredWith(1))))).toEqual(run({ parent: 2, continues: "answer" }));
  });

  it("[TN9] are refused for an unknown message, an unknown call, and after the conversation has moved on", () => {
    expect(refusedWith({ trigger: "continue", target: "x", toolAnswers: [output] }, waiting(toolCall("a")))).toBe(
      "unknown-message",
    );
    expect(refusedWith({ trigger: "continue", target: "answer", toolAnswers: [output] }, waiting(toolCall("b")))).toBe(
      "unknown-tool-call",
    );
    const moved = historyOf([asked(1, "q"), step(2, [toolCall("a")], { call: calledTools }), asked(3, "and?")]);
    expect(refusedWith({ trigger: "continue", target: "answer", toolAnswers: [output] }, moved)).toBe(
      "unknown-tool-call",
    );
  });
});
