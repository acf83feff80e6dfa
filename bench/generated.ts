/**
 * Sessions with a tokenizer as the model: the truth is known at every token.
 *
 * `Model` reads a prompt exactly as a provider would bill it: hidden overhead, framing, images at its own price,
 * reasoning that it drops, output figures that are placeholders. `Session` talks to it and keeps a `Branch` beside it
 * that sees only content and reports.
 */
import { countTokens as countCl100k } from "gpt-tokenizer/encoding/cl100k_base";
import { countTokens as countO200k } from "gpt-tokenizer/encoding/o200k_base";
import type { Part } from "../src/records.ts";
import { estimateSystem, estimateText, type Family, familyOf, type Weights } from "../src/context/estimator.ts";
import { weightsFrom } from "../src/context/weights.ts";
import { Branch, promptOf } from "./branch.ts";
import type { Conversation } from "./corpus.ts";
import { FOLDS } from "./folds.ts";

const PLAIN = { disallowedSpecial: new Set<string>() };

/** The two models, by family: the newest public vocabulary and the one before it. */
const MODELS = { "openai/gpt-4.1": countO200k, "openai/gpt-4": countCl100k } as const;
export type ModelName = keyof typeof MODELS;

/** Framing as gpt-4.1 was recorded to have it: per message, call and result; and an image of 1024 × 1024 in high detail. */
const MESSAGE_TOKENS = 7;
const CALL_TOKENS = 8;
const RESULT_TOKENS = 9;
const IMAGE_TOKENS = 765;

/** Counts by model and text: a session asks for the size of the same texts again and again. */
const COUNTED: Record<ModelName, Map<string, number>> = { "openai/gpt-4.1": new Map(), "openai/gpt-4": new Map() };

function countOf(model: ModelName, text: string): number {
  const counted = COUNTED[model];
  const known = counted.get(text);
  if (known !== undefined) return known;
  const tokens = MODELS[model](text, PLAIN);
  counted.set(text, tokens);
  return tokens;
}

/** A stretch of content as the model reads it. */
interface Piece {
  text: string;
  frame: number;
  kind: "message" | "output" | "reasoning" | "result" | "image";
  /** units position on the branch */
  from: number;
  to: number;
  /** what stands in the prompt instead, once pruned */
  placeholder?: string;
}

/** A source of chance that is the same in every run. */
export class Chance {
  #state: number;
  constructor(seed: number) {
    this.#state = seed * 2_654_435_761 + 1;
  }
  /** from 0 to 1 */
  next(): number {
    this.#state = (Math.imul(this.#state ^ (this.#state >>> 15), 2_246_822_507) + 0x9e3779b9) | 0;
    return ((this.#state ^ (this.#state >>> 13)) >>> 0) / 4_294_967_296;
  }
  between(low: number, high: number): number {
    return Math.floor(low + this.next() * (high - low));
  }
  pick<T>(values: readonly T[]): T {
    return values[Math.floor(this.next() * values.length)]!;
  }
}

/** Texts to talk in, by kind, all from conversations and pages that the weights in use never saw. */
export interface Material {
  prose: string;
  code: string;
  json: string;
  ja: string;
  ko: string;
  zh: string;
}

/** The fold whose texts are used, with the weights that were fitted on the other one. */
const FOLD = 0;

export function materialFrom(conversations: Conversation[], pages: Record<string, string>): Material {
  const own = conversations.filter(({ fold }) => fold === FOLD);
  const results = (pattern: RegExp) =>
    own
      .filter(({ src }) => pattern.test(src))
      .flatMap(({ items }) => items.flatMap((item) => (item.k === "msg" ? item.parts : [])))
      .filter(({ t }) => t === "result")
      .map(({ s }) => s)
      .join("\n")
      .slice(0, 1_000_000);
  const page = (language: string) => everyOther(pages[language] ?? "");
  return {
    prose: page("en"),
    code: results(/pi|entire/),
    json: results(/tau2/),
    ja: page("ja"),
    ko: page("ko"),
    zh: page("zh"),
  };
}

/** Pages are split between the folds by stretches of 20,000 characters, as `fit.ts` does. */
function everyOther(text: string): string {
  let kept = "";
  for (let at = 0; at < text.length; at += 40_000) kept += text.slice(at + FOLD * 20_000, at + FOLD * 20_000 + 20_000);
  return kept;
}

const weights = Object.fromEntries(
  Object.entries(FOLDS[FOLD]!).map(([family, fitted]) => [family, weightsFrom(fitted)]),
) as Record<Family, Weights>;

export function unseenWeightsOf(model: string): Weights {
  return weights[familyOf(model)];
}

export interface Habits {
  /** tokens of system prompt and tools that the session is not told of */
  hidden: number;
  /** the model reasons before it answers */
  reasons: boolean;
  /** reasoning of earlier turns leaves the prompt */
  dropsReasoning: boolean;
  /** share of calls whose output figure is a placeholder */
  placeholders: number;
}

export class Session {
  readonly branch: Branch;
  readonly chance: Chance;
  readonly #material: Material;
  readonly habits: Habits;
  pieces: Piece[] = [];
  model: ModelName = "openai/gpt-4.1";
  system: string;
  summary: { text: string; position: number } | null = null;

  constructor(seed: number, material: Material, habits: Partial<Habits> = {}) {
    this.chance = new Chance(seed);
    this.#material = material;
    this.habits = { hidden: 0, reasons: false, dropsReasoning: false, placeholders: 0, ...habits };
    this.system = this.text("prose", 3_000);
    this.branch = new Branch(
      promptOf(this.model, { systemUnits: this.systemUnits(), overheadKey: "first" }),
      unseenWeightsOf,
    );
  }

  systemUnits(): number {
    return estimateSystem(this.system, unseenWeightsOf(this.model));
  }

  text(kind: keyof Material, characters: number): string {
    const source = this.#material[kind];
    const at = this.chance.between(0, Math.max(1, source.length - characters));
    return source.slice(at, at + characters);
  }

  /** True tokens of the prompt as it would be sent with what is in force now. */
  truth(): number {
    const system = countOf(this.model, this.system) + MESSAGE_TOKENS + this.habits.hidden;
    const summary = this.summary ? countOf(this.model, this.summary.text) + MESSAGE_TOKENS : 0;
    return system + summary + this.#size(this.pieces.filter(({ from }) => from >= (this.summary?.position ?? 0)));
  }

  /** True tokens from a position to the end. */
  truthFrom(position: number): number {
    return this.#size(this.pieces.filter(({ from }) => from >= position));
  }

  #size(pieces: Piece[]): number {
    const sizeOf = ({ kind, text, placeholder }: Piece) =>
      kind === "image" ? IMAGE_TOKENS : this.countOf(placeholder ?? text);
    return pieces.reduce((sum, piece) => sum + piece.frame + sizeOf(piece), 0);
  }

  ask(text: string, image = false): void {
    const from = this.branch.end;
    const parts: Part[] = [{ type: "text", text }];
    if (image) parts.push({ type: "file", mediaType: "image/png", url: "https://example.com/a.png" });
    this.branch.say("user", parts);
    if (this.habits.dropsReasoning) this.pieces = this.pieces.filter(({ kind }) => kind !== "reasoning");
    this.pieces.push({ text, frame: MESSAGE_TOKENS, kind: "message", from, to: this.branch.end });
    if (image) this.pieces.push({ text: "", frame: 0, kind: "image", from, to: this.branch.end });
  }

  /** One call: it reports what it read, says `text` and calls a tool when `result` is given. */
  step(text: string, result?: string, reasoning = "", prompt = this.branch.prompt, input = this.truth()): void {
    const from = this.branch.end;
    const argument = this.text("prose", 60);
    const call: Part = {
      type: "dynamic-tool",
      toolCallId: "1",
      toolName: "look_up",
      state: "input-available",
      input: { query: argument },
    };
    const parts: Part[] = [{ type: "text", text }, ...(result === undefined ? [] : [call])];
    if (reasoning) parts.unshift({ type: "reasoning", text: reasoning });
    const said = text + (result === undefined ? "" : `look_up${JSON.stringify({ query: argument })}`);
    const thought = reasoning ? this.countOf(reasoning) : 0;
    const output = this.countOf(said) + (result === undefined ? 1 : CALL_TOKENS) + thought;
    const told = this.chance.next() < this.habits.placeholders ? this.chance.between(1, 4) : output;
    const usage = { contextInput: input, contextOutput: told, ...(reasoning ? { reasoning: thought } : {}) };
    this.branch.step(parts, usage, prompt);
    if (reasoning) this.pieces.push({ text: reasoning, frame: 0, kind: "reasoning", from, to: from });
    this.pieces.push({
      text: said,
      frame: result === undefined ? 1 : CALL_TOKENS,
      kind: "output",
      from,
      to: this.branch.end,
    });
    if (result === undefined) return;
    const start = this.branch.end;
    this.branch.results([{ ...call, state: "output-available", output: result } as Part]);
    this.pieces.push({ text: result, frame: RESULT_TOKENS, kind: "result", from: start, to: this.branch.end });
  }

  /** Turns of mixed content until the context has `tokens`. */
  grow(tokens: number): void {
    while (this.truth() < tokens) this.turn();
  }

  turn(): void {
    const { chance } = this;
    this.ask(this.text(chance.pick(["prose", "prose", "ja", "ko", "zh"]), chance.between(40, 600)));
    for (let steps = chance.between(1, 5); steps > 0; steps--) this.lookUp();
    this.step(this.text("prose", chance.between(100, 900)), undefined, this.reasoning());
  }

  lookUp(): void {
    const { chance } = this;
    this.step(
      this.text("prose", chance.between(40, 200)),
      this.text(chance.pick(["code", "json", "code"]), this.resultLength()),
      this.reasoning(),
    );
  }

  /** Characters of a tool result, spread as in pi and entire: mostly short, 1,800 in the mean, 9,000 at most. */
  resultLength(): number {
    return Math.round(60 * Math.exp(this.chance.next() * Math.log(150)));
  }

  reasoning(): string {
    return this.habits.reasons ? this.text("prose", this.chance.between(300, 1_500)) : "";
  }

  /** Signed relative error of what is known now against what the next call will read. */
  error(): number {
    const actual = this.truth();
    return (this.branch.known().tokens - actual) / actual;
  }

  summaryUnits(text: string): number {
    return estimateText(text, unseenWeightsOf(this.model));
  }

  countOf(text: string): number {
    return countOf(this.model, text);
  }
}
