/** Each event that changes what a prompt is built from, in sessions whose truth is known, and the predictions after it. */
import { compareFamilies } from "../src/context/estimator.ts";
import { findTailStart } from "../src/context/tail.ts";
import type { Conversation } from "./corpus.ts";
import { type Habits, type Material, materialFrom, type ModelName, Session } from "./generated.ts";

export interface EventErrors {
  event: string;
  /** absolute relative errors of the first and the second prediction after the event, one for each session */
  first: number[];
  second: number[];
}

export interface GeneratedCut {
  budget: number;
  kept: number;
  ideal: number;
  hit: boolean;
}

interface Event {
  name: string;
  habits?: Partial<Habits>;
  /** Makes it happen in a grown session. What it leaves is predicted, then called, then predicted again. */
  happen(session: Session): void;
}

const SESSIONS = 40;

const EVENTS: readonly Event[] = [
  { name: "nothing, between steps", happen: (session) => lookUp(session) },
  { name: "a long result in CJK", happen: (session) => session.step("", session.text("ja", 4_000)) },
  { name: "an image", happen: (session) => session.ask(session.text("prose", 200), true) },
  { name: "hidden overhead", habits: { hidden: 2_600 }, happen: (session) => lookUp(session) },
  {
    name: "dropped reasoning",
    habits: { reasons: true, dropsReasoning: true },
    happen: (session) => session.ask(session.text("prose", 200)),
  },
  { name: "reasoning dropped for the first time", habits: { reasons: true }, happen: dropReasoning },
  { name: "placeholder outputs", habits: { placeholders: 0.67 }, happen: (session) => lookUp(session) },
  { name: "system prompt changed", happen: changeSystem },
  { name: "pruned", happen: prune },
  { name: "compacted", happen: (session) => commit(session, plan(session)) },
  { name: "compacted in mid-turn", happen: compactInMidTurn },
  { name: "model changed", happen: (session) => changeModel(session, "openai/gpt-4") },
  { name: "model changed and back", happen: changeThereAndBack },
];

function lookUp(session: Session): void {
  session.ask(session.text("prose", 200));
  session.lookUp();
}

/** Nothing can foresee a first drop; its report tells, and the predictions after that are measured. */
function dropReasoning(session: Session): void {
  session.habits.dropsReasoning = true;
  lookUp(session);
}

function changeSystem(session: Session): void {
  session.system = session.text("prose", 6_000);
  const { branch } = session;
  branch.prompt = { ...branch.prompt, overheadKey: "second", systemUnits: session.systemUnits() };
  session.ask(session.text("prose", 200));
}

const PLACEHOLDER = "[Old output removed]";

/** Takes out the results before the newest 10,000 tokens. */
function prune(session: Session): void {
  const { branch } = session;
  const sizes = branch.sizes();
  let pruned = 0;
  for (const piece of session.pieces) {
    if (piece.kind !== "result" || sizes.tail(piece.from) < 10_000) continue;
    piece.placeholder = PLACEHOLDER;
    // framing stays: only the text is replaced
    pruned += Math.max(0, sizes.ledgerBetween(piece.from, piece.to) - 9 - session.summaryUnits(PLACEHOLDER));
  }
  branch.prompt = { ...branch.prompt, pruneKey: "a", pruned };
  session.ask(session.text("prose", 200));
}

interface Plan {
  position: number;
  covered: number;
  text: string;
}

function plan(session: Session): Plan {
  const { branch } = session;
  const sizes = branch.sizes();
  const places = branch.entries.map((entry) => entry.unitsBefore);
  const position = places[findTailStart(sizes, places, 8_000)] ?? branch.end;
  return { position, covered: sizes.ledgerBetween(0, position), text: session.text("prose", 4_000) };
}

/** Puts the overlay in force. Its summary is sized by what the summariser reported to have put out. */
function commit(session: Session, { position, covered, text }: Plan): void {
  const { branch } = session;
  session.summary = { text, position };
  branch.prompt = { ...branch.prompt, overlay: 1, covered, summary: session.countOf(text) };
  session.ask(session.text("prose", 200));
}

/** Planned before a call, in force after it: the newest report is of the uncut prompt. */
function compactInMidTurn(session: Session): void {
  session.ask(session.text("prose", 200));
  const planned = plan(session);
  session.lookUp();
  session.lookUp();
  commit(session, planned);
}

function changeModel(session: Session, model: ModelName): void {
  const { branch } = session;
  const texts = [session.system, ...session.pieces.map((piece) => piece.text)];
  const rescale = compareFamilies(texts, branch.weightsOf(session.model), branch.weightsOf(model));
  session.model = model;
  branch.prompt = { ...branch.prompt, model, rescale };
  session.ask(session.text("prose", 200));
}

function changeThereAndBack(session: Session): void {
  const first = session.model;
  changeModel(session, "openai/gpt-4");
  session.lookUp();
  session.lookUp();
  changeModel(session, first);
}

/** Whether a corpus has the texts that sessions are generated from: pages in four languages, and results of tools. */
export function canGenerate(conversations: Conversation[], pages: Record<string, string>): boolean {
  const { prose, code, ja, ko, zh } = materialFrom(conversations, pages);
  return [prose, code, ja, ko, zh].every((text) => text.length > 10_000);
}

export function playEvents(conversations: Conversation[], pages: Record<string, string>): EventErrors[] {
  const material = materialFrom(conversations, pages);
  return EVENTS.map((event) => playEvent(event, material));
}

function playEvent({ name, habits, happen }: Event, material: Material): EventErrors {
  const errors: EventErrors = { event: name, first: [], second: [] };
  for (let seed = 1; seed <= SESSIONS; seed++) {
    const session = new Session(seed, material, habits);
    session.grow(session.chance.between(15_000, 60_000));
    happen(session);
    errors.first.push(Math.abs(session.error()));
    session.lookUp();
    errors.second.push(Math.abs(session.error()));
  }
  return errors;
}

/** First calls of fresh sessions in one kind of text: nothing is measured, system prompt and tools are known. */
export function playFirstCalls(conversations: Conversation[], pages: Record<string, string>): Record<string, number[]> {
  const material = materialFrom(conversations, pages);
  const errors: Record<string, number[]> = {};
  for (const [kind, name] of [
    ["prose", "en"],
    ["ja", "ja"],
    ["ko", "ko"],
    ["zh", "zh"],
    ["code", "code"],
  ] as const) {
    errors[name] = [];
    for (let seed = 1; seed <= SESSIONS; seed++) {
      const session = new Session(seed, material);
      session.ask(session.text(kind, session.chance.between(100, 20_000)));
      errors[name].push(Math.abs(session.error()));
    }
  }
  return errors;
}

/** Cuts in grown sessions, before the next report arrives, at every entry, against the exact size of what is kept. */
export function playCuts(conversations: Conversation[], pages: Record<string, string>): GeneratedCut[] {
  const material = materialFrom(conversations, pages);
  const cuts: GeneratedCut[] = [];
  for (let seed = 1; seed <= SESSIONS; seed++) {
    const session = new Session(seed, material, seed % 2 === 0 ? { hidden: 3_000 } : { placeholders: 0.5 });
    for (const size of [30_000, 45_000, 60_000]) {
      session.grow(size);
      lookUp(session);
      const sizes = session.branch.sizes();
      const places = session.branch.entries.map((entry) => entry.unitsBefore);
      const truth = places.map((position) => session.truthFrom(position));
      for (const budget of [20_000, Math.round(size * 0.15), Math.round(size * 0.3)]) {
        const mine = findTailStart(sizes, places, budget);
        const ideal = truth.findIndex((kept) => kept <= budget);
        cuts.push({ budget, kept: truth[mine] ?? 0, ideal: truth[ideal] ?? 0, hit: mine === ideal });
      }
    }
  }
  return cuts;
}
