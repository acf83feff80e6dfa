/**
 * Weights of the linear estimate, one set for each family of tokenizers.
 *
 * The numbers are in `fitted.ts`, written by `bench/fit.ts`. A model of a family that was never fitted starts with the
 * nearest one; the ratio that the ledger learns from its reports does the rest.
 */
import { FEATURES } from "./features.ts";
import { FITTED } from "./fitted.ts";

/** `claude`: Anthropic's; `o200k`: OpenAI since GPT-4o; `cl100k`: GPT-4 and 3.5, and the vocabularies grown from it. */
export type Family = keyof typeof FITTED;

/** Tokens of what stands around content and not in it. */
export interface Frame {
  /** around a user or system message, the head of the answer to it included */
  message: number;
  /** around the output of a step */
  step: number;
  /** around a tool call */
  call: number;
  /** around each parameter of a tool call that is written out parameter by parameter; 0 where it is JSON */
  parameter: number;
  /** once around all results that come back to a step */
  results: number;
  /** around each result */
  result: number;
}

export interface Weights {
  /** tokens per occurrence of each feature, in the order of `FEATURES` */
  text: Float64Array;
  frame: Frame;
  /** whether the model writes a call's input parameter by parameter, its text not escaped, rather than as JSON */
  writesParameters: boolean;
}

/** Fitted numbers as they are stored, by name. */
export interface FittedWeights {
  text: Record<(typeof FEATURES)[number], number>;
  frame: Frame;
}

/** Models whose family their name tells, first match. All others begin as `o200k`, the newest public vocabulary. */
const FAMILY_PATTERNS: readonly (readonly [pattern: RegExp, family: Family])[] = [
  [/claude|anthropic/, "claude"],
  [/gpt-4o|gpt-4\.|gpt-[5-9]|gpt-oss|chatgpt|\bo[1-9]\b/, "o200k"],
  [/gpt-4|gpt-3|llama-?3|llama-?4|qwen|qwq|phi-4/, "cl100k"],
];

const WEIGHTS = Object.fromEntries(
  Object.entries(FITTED).map(([family, fitted]) => [family, weightsFrom(fitted)]),
) as Record<Family, Weights>;

export function weightsFrom(fitted: FittedWeights): Weights {
  const text = Float64Array.from(FEATURES, (feature) => fitted.text[feature]);
  return { text, frame: fitted.frame, writesParameters: fitted.frame.parameter > 0 };
}

/** The family of a model by its registry id (`provider/model`) or its bare name. */
export function familyOf(model: string): Family {
  const name = model.toLowerCase();
  return FAMILY_PATTERNS.find(([pattern]) => pattern.test(name))?.[1] ?? "o200k";
}

export function weightsFor(model: string): Weights {
  return WEIGHTS[familyOf(model)];
}
