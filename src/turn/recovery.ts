/**
 * What to do with a turn that is found open when the object starts: its object died while it ran.
 *
 * Pure: from the turn and the entries of its answer to a plan. Nothing that was acknowledged is lost and nothing runs
 * twice: a turn is run again only from a point where nothing of the next step was stored and no tool may have started.
 */
import type { Entry, OpenTurn, Part } from "../records.ts";
import { awaitsModel, isToolPart, toolNameOf } from "./answer.ts";

/** Times a turn may die before it is given up: a prompt that kills its object would kill it for ever. */
const INTERRUPTIONS_ALLOWED = 2;

export type RecoveryPlan =
  /** call the model again for the step that left nothing behind */
  | { kind: "run-again" }
  /** close the turn; `repaired` are entries to store as they are given */
  | { kind: "close"; repaired: Entry[] };

/**
 * `answer` are the entries of the turn's message on its branch, in order of their steps; `runsHere` says whether calls of
 * a tool are carried out by the server.
 */
export function planRecovery(
  turn: OpenTurn,
  answer: readonly Entry[],
  runsHere: (toolName: string) => boolean = () => true,
): RecoveryPlan {
  const last = answer.at(-1);
  const toolMayHaveRun = answer.some((entry) => entry.parts.some(wasApproved));
  if (last?.call && last.seq > turn.parent && !awaitsModel(last)) return { kind: "close", repaired: [] };
  const midStep = last !== undefined && (last.state === "streaming" || last.parts.some(isRunning));
  if (!midStep && !toolMayHaveRun && turn.interruptions < INTERRUPTIONS_ALLOWED) return { kind: "run-again" };
  return { kind: "close", repaired: answer.filter(needsRepair).map(repaired) };

  function needsRepair(entry: Entry): boolean {
    return entry.state === "streaming" || entry.parts.some((part) => isRunning(part) || wasApproved(part));
  }

  function repaired(entry: Entry): Entry {
    return {
      ...entry,
      state: entry.state === "streaming" ? "interrupted" : entry.state,
      parts: entry.parts.map((part) => (isRunning(part) || wasApproved(part) ? interruptedCall(part) : closed(part))),
    };
  }

  function wasApproved(part: Part): boolean {
    return isToolPart(part) && (turn.running ?? []).includes(part.toolCallId) && part.state === "approval-responded";
  }

  /** In a step that was being generated, an input without output is a server tool that was let run. */
  function isRunning(part: Part): boolean {
    if (last?.state !== "streaming" || !last.parts.includes(part)) return false;
    return (
      isToolPart(part) &&
      runsHere(toolNameOf(part)) &&
      (part.state === "input-available" || (part.state === "output-available" && !!part.preliminary))
    );
  }
}

/** What was being written will not be completed, so clients need not show it as if it were. */
function closed(part: Part): Part {
  const open = (part.type === "text" || part.type === "reasoning") && part.state === "streaming";
  return open ? { ...part, state: "done" } : part;
}

/** A call that was running when its turn broke off: answered, so that it is not run a second time. */
export function interruptedCall(part: Part): Part {
  if (!isToolPart(part)) return part;
  const { output: _, preliminary: __, ...call } = part as typeof part & { preliminary?: boolean };
  // SAFETY: a tool part in state `output-error` is a call with an error text; everything else of the call stays.
  return {
    ...call,
    state: "output-error",
    errorText: "The call was cut off while it ran. It may or may not have taken effect.",
  } as Part;
}
