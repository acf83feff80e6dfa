import { describe, expect, it } from "vitest";
import type { Entry, OpenTurn, Part } from "../../src/records.ts";
import { planRecovery, type RecoveryPlan } from "../../src/turn/recovery.ts";
import {
  answeredWith,
  asJson,
  awaitingApproval,
  call,
  decided,
  failedWith,
  NOON,
  openTurn,
  reasoning,
  step,
  text,
  toolCall,
} from "./entries.ts";

const INTERRUPTED = failedWith("The call was cut off while it ran. It may or may not have taken effect.");

const calledTools = call({ finishReason: "tool-calls" });
const streaming = { state: "streaming" as const, call: undefined };

const closedAs = (...repaired: Entry[]): RecoveryPlan => ({ kind: "close", repaired });
const runAgain: RecoveryPlan = { kind: "run-again" };
const nothingToRepair = closedAs();

/** A step that was being generated, as it is closed. */
const interruptedStep = (seq: number, ...parts: Part[]) => step(seq, parts, { state: "interrupted", call: undefined });

const answeredStep = step(2, [toolCall("a", answeredWith(1))], { call: calledTools });
const approvedStep = step(2, [toolCall("a", decided("p", true))], { call: calledTools });
const continued: Partial<OpenTurn> = { trigger: "continue", parent: 2, startedAt: NOON + 60_000 };

describe("a turn found open", () => {
  it.each<[string, Partial<OpenTurn>, Entry[], RecoveryPlan]>([
    ["before its first chunk", {}, [], runAgain],
    ["before its first chunk, a second time", { interruptions: 1 }, [], runAgain],
    ["before its first chunk, a third time", { interruptions: 2 }, [], nothingToRepair],
    [
      "while it streamed text",
      {},
      [step(2, [text("so fa", { state: "streaming" })], streaming)],
      closedAs(interruptedStep(2, text("so fa", { state: "done" }))),
    ],
    [
      "while it streamed an input",
      {},
      [step(2, [toolCall("a", { state: "input-streaming", input: undefined })], streaming)],
      closedAs(interruptedStep(2, toolCall("a", { state: "input-streaming", input: undefined }))),
    ],
    [
      "while its first tool ran",
      {},
      [step(2, [text("look"), toolCall("a")], streaming)],
      closedAs(interruptedStep(2, text("look"), toolCall("a", INTERRUPTED))),
    ],
    [
      "while the second of two tools ran",
      {},
      [step(2, [toolCall("a", answeredWith(1)), toolCall("b")], streaming)],
      closedAs(interruptedStep(2, toolCall("a", answeredWith(1)), toolCall("b", INTERRUPTED))),
    ],
    [
      "while a tool gave preliminary outputs",
      {},
      [step(2, [toolCall("a", { ...answeredWith(1), preliminary: true })], streaming)],
      closedAs(interruptedStep(2, toolCall("a", INTERRUPTED))),
    ],
    [
      "while a call waited for approval beside one that ran",
      {},
      [step(2, [toolCall("a", awaitingApproval("p")), toolCall("b")], streaming)],
      closedAs(interruptedStep(2, toolCall("a", awaitingApproval("p")), toolCall("b", INTERRUPTED))),
    ],
    ["after a step with its tools was stored", {}, [answeredStep], runAgain],
    ["after a step with its tools was stored, too often", { interruptions: 2 }, [answeredStep], nothingToRepair],
    [
      "in the second step",
      {},
      [answeredStep, step(3, [text("so", { state: "streaming" })], { ...streaming, step: 1 })],
      closedAs({ ...interruptedStep(3, text("so", { state: "done" })), step: 1 }),
    ],
    [
      "while a tool of the second step ran",
      {},
      [answeredStep, step(3, [toolCall("b")], { ...streaming, step: 1 })],
      closedAs({ ...interruptedStep(3, toolCall("b", INTERRUPTED)), step: 1 }),
    ],
    ["between its last step and its end", {}, [step(2, [text("done")])], nothingToRepair],
    [
      "after its step failed",
      {},
      [step(2, [text("d")], { state: "failed", call: call({ finishReason: "error" }) })],
      nothingToRepair,
    ],
    [
      "after it was aborted",
      {},
      [step(2, [text("d")], { state: "aborted", call: call({ finishReason: "aborted" }) })],
      nothingToRepair,
    ],
    ["with a call that waits for the client", {}, [step(2, [toolCall("a")], { call: calledTools })], nothingToRepair],
    [
      "with a call that waits for approval",
      {},
      [step(2, [toolCall("a", awaitingApproval("p"))], { call: calledTools })],
      nothingToRepair,
    ],
    ["that went on after the client's output, before its next step", continued, [answeredStep], runAgain],
    ["that went on after an approval, before the call ran", continued, [approvedStep], runAgain],
    [
      "while an approved call ran",
      { ...continued, running: ["a"] },
      [approvedStep],
      closedAs(step(2, [toolCall("a", { ...decided("p", true), ...INTERRUPTED })], { call: calledTools })),
    ],
    [
      "after one of two approved calls had its output stored",
      { ...continued, running: ["a", "b"] },
      [
        step(2, [toolCall("a", { ...decided("p", true), ...answeredWith(1) }), toolCall("b", decided("q", true))], {
          call: calledTools,
        }),
      ],
      closedAs(
        step(
          2,
          [
            toolCall("a", { ...decided("p", true), ...answeredWith(1) }),
            toolCall("b", { ...decided("q", true), ...INTERRUPTED }),
          ],
          {
            call: calledTools,
          },
        ),
      ),
    ],
    [
      "while it streamed on after an approved call",
      { ...continued, running: ["a"] },
      [
        step(2, [toolCall("a", { ...decided("p", true), ...answeredWith(1) })], { call: calledTools }),
        step(3, [text("s")], { ...streaming, step: 1 }),
      ],
      closedAs({ ...interruptedStep(3, text("s")), step: 1 }),
    ],
    [
      "after the step it went on with",
      continued,
      [answeredStep, step(3, [text("done")], { step: 1 })],
      nothingToRepair,
    ],
  ])("[TN16] %s", (_name, turn, answer, expected) => {
    expect(asJson(planRecovery(openTurn(turn), answer))).toEqual(asJson(expected));
  });

  it.each([-60_000, 0, 60_000])("[TN16][ST1] goes by what was stored and not by clocks that are %i ms off", (off) => {
    const finished = step(3, [text("done")], { step: 1, call: call({ startedAt: NOON + 60_000 + off }) });
    const before = { ...answeredStep, call: call({ finishReason: "stop", startedAt: NOON + 60_000 + off }) };
    expect(planRecovery(openTurn(continued), [answeredStep, finished])).toEqual(nothingToRepair);
    expect(planRecovery(openTurn(continued), [before])).toEqual(runAgain);
  });

  it("[TN16] keeps what was checkpointed and does not change the entries it is given", () => {
    const parts = [reasoning("think"), toolCall("a")];
    const open = step(2, parts, streaming);
    const before = structuredClone(open);
    const plan = planRecovery(openTurn(), [open]);
    expect(open).toEqual(before);
    expect(plan).toEqual(closedAs(interruptedStep(2, reasoning("think"), toolCall("a", INTERRUPTED))));
  });
});
