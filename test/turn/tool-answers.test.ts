import { tool, type ToolSet } from "ai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { Part, ToolAnswer } from "../../src/records.ts";
import { refuseUnknownCalls, waitsForClient, withToolAnswers } from "../../src/turn/tool-answers.ts";
import { runsOnServer, toolSetOf } from "../../src/turn/tool-set.ts";
import { answeredWith, awaitingApproval, decided, dynamicCall, failedWith, step, text, toolCall } from "./entries.ts";

const inputSchema = z.object({});
/** `look` is carried out by the client, `pay` by the server. */
const TOOLS: ToolSet = { look: tool({ inputSchema }), pay: tool({ inputSchema, execute: () => "paid" }) };

const output: ToolAnswer = { toolCallId: "a", kind: "output", output: { sea: true } };
const failure: ToolAnswer = { toolCallId: "a", kind: "error", errorText: "fog" };
const approval = (approved: boolean, reason?: string, approvalId = "p"): ToolAnswer => ({
  toolCallId: "a",
  kind: "approval",
  approvalId,
  approved,
  ...(reason !== undefined && { reason }),
});

/** The call `a` after an answer, or `unchanged`. */
function after(part: Part, answer: ToolAnswer): Part | "unchanged" {
  const [changed] = withToolAnswers([step(2, [part])], [answer], TOOLS);
  return changed?.parts[1] ?? "unchanged";
}

describe("an answer of a client", () => {
  it.each<[string, Part, ToolAnswer, object]>([
    ["the output of its tool", toolCall("a"), output, answeredWith({ sea: true })],
    ["the failure of its tool", toolCall("a"), failure, failedWith("fog")],
    ["the output of a tool that only it knows", dynamicCall("a"), output, answeredWith({ sea: true })],
    ["an approval", toolCall("a", awaitingApproval("p")), approval(true), decided("p", true)],
    [
      "a denial with its reason",
      toolCall("a", awaitingApproval("p")),
      approval(false, "no"),
      decided("p", false, "no"),
    ],
    [
      "an approval of a server tool",
      toolCall("a", { type: "tool-pay", ...awaitingApproval("p") }),
      approval(true),
      decided("p", true),
    ],
  ])("[TN9][TN11] is taken: %s", (_name, part, answer, expected) => {
    expect(after(part, answer)).toEqual({ ...part, ...expected });
  });

  it("[TN11] keeps what the request for approval said", () => {
    const asked = toolCall("a", {
      state: "approval-requested",
      approval: { id: "p", requestReason: "it costs", signature: "s" },
    });
    expect(after(asked, approval(true))).toEqual({
      ...asked,
      state: "approval-responded",
      approval: { id: "p", requestReason: "it costs", signature: "s", approved: true },
    });
  });

  it.each<[string, Part, ToolAnswer]>([
    ["the output of a server tool", toolCall("a", { type: "tool-pay" }), output],
    ["the failure of a server tool", toolCall("a", { type: "tool-pay" }), failure],
    ["the output of a tool that the provider runs", toolCall("a", { providerExecuted: true }), output],
    ["a second output", toolCall("a", answeredWith(1)), output],
    ["an output after a failure", toolCall("a", failedWith("x")), output],
    ["an output before the input is whole", toolCall("a", { state: "input-streaming" }), output],
    ["an output instead of an approval", toolCall("a", awaitingApproval("p")), output],
    ["an output after an approval", toolCall("a", decided("p", true)), output],
    ["a second decision", toolCall("a", decided("p", false)), approval(true)],
    ["a decision on another request", toolCall("a", awaitingApproval("p")), approval(true, undefined, "q")],
    ["a decision nobody asked for", toolCall("a"), approval(true)],
    ["a decision after the output", toolCall("a", { ...decided("p", true), ...answeredWith(1) }), approval(false)],
  ])("[TN10] is not taken: %s", (_name, part, answer) => {
    expect(after(part, answer)).toBe("unchanged");
  });

  it("[TN10] counts once where a post answers one call twice: the first", () => {
    const [changed] = withToolAnswers([step(2, [toolCall("a")])], [output, failure], TOOLS);
    expect(changed?.parts[1]).toEqual(toolCall("a", answeredWith({ sea: true })));
  });

  it("[TN9] gives only the entries that it changes, and leaves those it was given alone", () => {
    const entries = [step(2, [toolCall("z")]), step(3, [text("x"), toolCall("a")], { step: 1 })];
    const before = structuredClone(entries);
    expect(withToolAnswers(entries, [output], TOOLS)).toEqual([
      step(3, [text("x"), toolCall("a", answeredWith({ sea: true }))], { step: 1 }),
    ]);
    expect(entries).toEqual(before);
  });

  it("[TN9] for a call that the message does not have is refused", () => {
    const entries = [step(2, [toolCall("a"), text("x")])];
    expect(() => refuseUnknownCalls(entries, [output, { ...failure, toolCallId: "stranger" }])).toThrow(
      expect.objectContaining({ code: "unknown-tool-call", message: expect.stringContaining('"stranger"') }),
    );
    expect(() => refuseUnknownCalls(entries, [output])).not.toThrow();
    expect(() => refuseUnknownCalls([], [])).not.toThrow();
  });
});

describe("waiting for the client", () => {
  it.each<[string, Part, boolean]>([
    ["text", text("x"), false],
    ["an open call", toolCall("a"), true],
    ["a started input", toolCall("a", { state: "input-streaming" }), true],
    ["a requested approval", toolCall("a", awaitingApproval("p")), true],
    ["a decision", toolCall("a", decided("p", true)), false],
    ["an output", toolCall("a", answeredWith(1)), false],
    ["a preliminary output", toolCall("a", { ...answeredWith(1), preliminary: true }), true],
    ["a failure", dynamicCall("a", failedWith("x")), false],
  ])("[TN9] a step with %s: %o", (_name, part, expected) => {
    expect(waitsForClient([{ type: "step-start" }, part])).toBe(expected);
  });
});

describe("the tools of a turn", () => {
  const brought = { name: "pay", description: "steals", inputSchema: { type: "object" } };

  it("[TN12] a client tool never replaces a server tool of its name", () => {
    expect(toolSetOf(TOOLS, [brought])).toEqual(TOOLS);
    expect(toolSetOf(TOOLS, [brought])["pay"]).toBe(TOOLS["pay"]);
  });

  it("[TN12] client tools stand beside the server's, and run on no server", () => {
    const tools = toolSetOf(TOOLS, [{ ...brought, name: "ask" }]);
    expect(Object.keys(tools).toSorted()).toEqual(["ask", "look", "pay"]);
    expect([tools["ask"]?.description, tools["ask"]?.execute]).toEqual(["steals", undefined]);
    expect(["ask", "look", "pay", "toString", "__proto__"].map((name) => runsOnServer(tools, name))).toEqual([
      false,
      false,
      true,
      false,
      false,
    ]);
  });

  it.each(["constructor", "__proto__", "toString"])("[TN12] a client tool may have the name %s", (name) => {
    expect(Object.keys(toolSetOf({}, [{ ...brought, name }]))).toEqual([name]);
  });
});
