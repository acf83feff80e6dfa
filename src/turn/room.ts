/**
 * Room for the next call. A turn goes on with what is shown while prompt and reserved answer fit the window; only then it
 * waits for a compaction, and a prompt that cannot fit is not sent.
 */
import { promptRoom, reservedOutput } from "../context/usage.ts";
import { SessionError } from "../errors.ts";
import type { Compaction, CompactionTrigger } from "../records.ts";
import type { Compactor } from "./compactor.ts";
import type { Moment } from "./context-reading.ts";

export interface RoomRequest {
  /** reads the context as it is now */
  read: () => Promise<Moment>;
  compactor: Compactor;
  /** what the call is for, when nothing is in its way */
  trigger: CompactionTrigger;
  /** ends the waiting */
  signal: AbortSignal;
}

/** Compactions that one call is worth: a prune, a summary, a shortening, and one that was running already. */
const TRIES = 4;

/**
 * Share by which what no call has measured may be larger than its estimate: with 5 % recorded prompts of 64,100 tokens were
 * sent into a window of 64,000. Before the first report of all less, where nothing but the estimate speaks.
 */
const UNMEASURED_MARGIN = 0.2;
const UNREPORTED_MARGIN = 0.1;

/**
 * Share by which the number may be too high: nobody waits for that. What it takes from the reserved answer is taken from the
 * output that is asked for.
 */
const SLACK = 0.01;

/** The context that the call is to be made with. Throws `prompt-too-large`. */
export async function makeRoom({ read, compactor, trigger, signal }: RoomRequest): Promise<Moment> {
  let moment = await read();
  // Without room it is compacted for that, which asks for more.
  if (hasRoom(moment)) compactor.consider(moment, { trigger, turnRuns: true });
  for (let tries = 0; ; tries += 1) {
    moment = await read();
    if (signal.aborted || hasRoom(moment)) return moment;
    if (tries === TRIES || !(await relieve(compactor, moment, signal))) break;
  }
  if (fits(moment)) return moment;
  throw tooLarge(moment);
}

/** Output tokens to ask for: what was configured, unless the window has less beside the prompt. */
export function outputLimit({ configuration, known, limits }: Omit<Moment, "reading" | "tools">): number | undefined {
  const { contextWindow, maxOutput } = limits;
  const wanted = configuration.maxOutputTokens ?? reservedOutput(maxOutput);
  if (!contextWindow || known.tokens + wanted <= contextWindow) return configuration.maxOutputTokens;
  return Math.max(1, Math.floor(contextWindow - known.tokens));
}

/** Waits for the compaction that runs, or for one of its own. Answers whether looking again is worth it. */
async function relieve(compactor: Compactor, moment: Moment, signal: AbortSignal): Promise<boolean> {
  const { running } = compactor;
  if (running) {
    await madeSmaller(running, signal);
    return true;
  }
  return relieveAnew(compactor, moment, { trigger: "no-room", signal });
}

/** Compacts because a call cannot be made as it is. Answers whether it can be made now, or need not be: it was aborted. */
export async function relieveAnew(
  compactor: Compactor,
  moment: Moment,
  { trigger, signal }: Pick<RoomRequest, "trigger" | "signal">,
): Promise<boolean> {
  // What fits can be sent with a shorter answer: it is not compacted again and again for nothing.
  const isOptional = trigger === "no-room" && fits(moment);
  const begun = compactor.consider(moment, { trigger, turnRuns: true, isOptional });
  if (begun.kind === "nothing") return false;
  return madeSmaller(begun.kind === "settled" ? Promise.resolve(begun.compaction) : begun.done, signal);
}

/** Waits for a compaction, no longer than a turn runs. Answers whether it changed what is shown, or nobody waits any more. */
export async function madeSmaller(compaction: Promise<Compaction>, signal: AbortSignal): Promise<boolean> {
  const settled = await Promise.race([compaction, aborted(signal)]);
  return settled === undefined || settled.outcome === "applied" || settled.outcome === "pruned";
}

/** Whether prompt and reserved answer fit the window, as far as that is known. An unknown window has room. */
function hasRoom({ known, limits }: Moment): boolean {
  const room = promptRoom(limits);
  return room === undefined || known.tokens * (1 - SLACK) <= room;
}

/** Whether the prompt alone fits, whatever the estimate missed. */
function fits({ known, limits }: Moment): boolean {
  const { contextWindow } = limits;
  if (!contextWindow) return true;
  if (known.basis === "counter") return known.tokens <= contextWindow;
  const margin = known.basis === "estimated" ? UNREPORTED_MARGIN : UNMEASURED_MARGIN;
  return known.tokens + known.fresh * margin <= contextWindow;
}

function tooLarge({ known, limits }: Moment): SessionError {
  return new SessionError(
    "prompt-too-large",
    `The conversation has about ${known.tokens} tokens, of which ${Math.round(known.overhead)} are system prompt and tools; the model reads ${limits.contextWindow}. It could not be made shorter: send a shorter message, or begin another session.`,
  );
}

function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener("abort", () => resolve(undefined), { once: true });
  });
}
