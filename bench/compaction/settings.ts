/** The ways in which each conversation is played. */
import { promptRoom } from "../../src/context/usage.ts";
import { limitsOf } from "../../src/models/catalogue.ts";
import type { Setting } from "./records.ts";
import { type Script, sizeOfEntry } from "./script.ts";

/** A user who waits for an answer, and a summary that is done by the next call. */
const PATIENT = { delay: 1, restless: false };

/** A user who writes again at once, and a summary that takes the next three calls. */
const HURRIED = { delay: 3, restless: true };

const WINDOW = 200_000;

/** For conversations of some thousand tokens. */
const SHORT: readonly Setting[] = [
  { name: "4,000", compactAfter: 4_000, tailTokenBudget: 400, contextWindow: WINDOW, ...PATIENT },
  { name: "6,000", compactAfter: 6_000, tailTokenBudget: 1_000, contextWindow: WINDOW, ...PATIENT },
  { name: "10,000", compactAfter: 10_000, tailTokenBudget: 3_000, contextWindow: WINDOW, ...PATIENT },
  { name: "6,000, slow summaries", compactAfter: 6_000, tailTokenBudget: 1_000, contextWindow: WINDOW, ...HURRIED },
  {
    name: "window 8,000",
    compactAfter: "auto",
    tailTokenBudget: 1_000,
    contextWindow: 8_000,
    maxOutputTokens: 1_000,
    pastes: true,
    ...PATIENT,
  },
];

const TAIL = 20_000;

/** For long ones. */
const LONG: readonly Setting[] = [
  { name: "50,000", compactAfter: 50_000, tailTokenBudget: TAIL, contextWindow: WINDOW, ...PATIENT },
  { name: "100,000", compactAfter: 100_000, tailTokenBudget: TAIL, contextWindow: WINDOW, ...PATIENT },
  { name: "150,000", compactAfter: 150_000, tailTokenBudget: TAIL, contextWindow: WINDOW, ...PATIENT },
  { name: "100,000, slow summaries", compactAfter: 100_000, tailTokenBudget: TAIL, contextWindow: WINDOW, ...HURRIED },
  {
    name: "window 64,000",
    compactAfter: "auto",
    tailTokenBudget: TAIL,
    contextWindow: 64_000,
    pastes: true,
    ...PATIENT,
  },
  {
    name: "window 64,000, answers of 8,192",
    compactAfter: "auto",
    tailTokenBudget: TAIL,
    contextWindow: 64_000,
    maxOutputTokens: 8_192,
    pastes: true,
    ...HURRIED,
  },
];

/** Tokens from which a conversation is long. */
const LONG_FROM = 25_000;

export function settingsFor(script: Script): readonly Setting[] {
  const size = script.entries.reduce((sum, entry) => sum + sizeOfEntry(entry), script.overhead);
  return size < LONG_FROM ? SHORT : LONG;
}

/** Tokens that a prompt may have beside the answer that is reserved. */
export function roomIn({ contextWindow, maxOutputTokens }: Setting, { model }: Script): number {
  return promptRoom({ contextWindow, maxOutput: maxOutputTokens ?? limitsOf(model).maxOutputTokens }) ?? contextWindow;
}
