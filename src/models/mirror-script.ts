/**
 * The commands `mirror` takes from a user message, one to a line, between any other text:
 *
 *   /call name {json}      call a tool; several lines call several at once; without JSON the input is {}
 *   /then                  what follows belongs to the next step, the model call after the tools have answered
 *   /reason text           think this first; several lines are one thought
 *   /words N, /say N words answer with N words
 *   /slow MS               wait that many ms before each word, in every step
 *   /fail before           fail the call before anything is streamed
 *   /fail during           break the stream halfway through the words
 *   /fail after            report an error after the words, and no end
 *   /stall                 stop halfway through the words until the call is aborted
 *   /usage none            report no usage
 *   /usage garbage         report usage that cannot be true
 *
 * A line that only looks like a command is text.
 */
export interface ScriptedCall {
  toolName: string;
  /** what follows the name, as it stands: malformed JSON is passed on, to see what becomes of it */
  input: string;
}

/** What one model call was asked to do. */
export interface ScriptedStep {
  calls: ScriptedCall[];
  reasoning: string[];
  words?: number;
  fail?: "before" | "during" | "after";
  stall: boolean;
  usage: "honest" | "none" | "garbage";
}

export interface Script {
  /** in ms, before each word of every step */
  wordDelayMs?: number;
  /** at least one, in order; the steps after the last have no commands */
  steps: ScriptedStep[];
}

/** Words a single answer has at most, however many are asked for. */
const MOST_WORDS = 100_000;

type Rule = [pattern: RegExp, apply: (step: ScriptedStep, match: RegExpMatchArray, script: Script) => void];

const RULES: Rule[] = [
  [/^\/then$/, (_step, _match, script) => void script.steps.push(plainStep())],
  [
    /^\/call (\S+)(.*)$/,
    (step, [, toolName = "", input = ""]) => void step.calls.push({ toolName, input: input.trim() || "{}" }),
  ],
  [/^\/reason(.*)$/, (step, [, text = ""]) => void step.reasoning.push(text.trim())],
  [
    /^\/(?:say (\d+) words?|words (\d+))$/,
    (step, [, said, worded]) => void (step.words = atMost(said ?? worded, MOST_WORDS)),
  ],
  [/^\/slow (\d+)$/, (_step, [, ms], script) => void (script.wordDelayMs = atMost(ms, 60_000))],
  [/^\/fail (before|during|after)$/, (step, [, when]) => void (step.fail = when as ScriptedStep["fail"])],
  [/^\/stall$/, (step) => void (step.stall = true)],
  [/^\/usage (none|garbage)$/, (step, [, usage]) => void (step.usage = usage as ScriptedStep["usage"])],
];

/** A step that was asked for nothing. */
export function plainStep(): ScriptedStep {
  return { calls: [], reasoning: [], stall: false, usage: "honest" };
}

export function parseScript(text: string): Script {
  const script: Script = { steps: [plainStep()] };
  for (const line of text.split("\n").map((raw) => raw.trim())) {
    const step = script.steps.at(-1);
    if (!step || !line.startsWith("/")) continue;
    for (const [pattern, apply] of RULES) {
      const match = line.match(pattern);
      if (match) apply(step, match, script);
    }
  }
  return script;
}

function atMost(digits: string | undefined, most: number): number {
  return Math.min(Number(digits), most);
}
