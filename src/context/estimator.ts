/**
 * The estimate: what content weighs that no model call has measured yet.
 *
 * One *unit* is what one token of the model's family weighs by a linear count of features (`features.ts`) with weights
 * fitted on measured segments (`weights.ts`, `bench/fit.ts`). Units are rounded to whole numbers and never below zero.
 */
import type { Entry, Part, Role } from "../records.ts";
import { countFeatures, FEATURE_COUNT } from "./features.ts";
import { estimateFile, mediaTypeOf } from "./media.ts";
import { type Weights, weightsFor } from "./weights.ts";

export { familyOf, type Family, type Weights, weightsFor } from "./weights.ts";

/** What an entry weighs, as `Entry` stores it. Both in units. */
export interface EntryUnits {
  /** the whole message, or what a step put out */
  said: number;
  /** the tool results that came back to a step; 0 for other roles */
  returned: number;
}

/** A tool as a model is told of it. */
export interface ToolDescription {
  name: string;
  description?: string;
  /** JSON Schema */
  inputSchema: unknown;
}

type ToolPart = Extract<Part, { toolCallId: string }>;

// One vector for all calls: they are synchronous and leave nothing behind in it.
const scratch = new Float64Array(FEATURE_COUNT);

/** Units of a text, with its fraction. */
function weigh(text: string, weights: Weights): number {
  scratch.fill(0);
  countFeatures(text, scratch);
  let units = 0;
  for (let i = 0; i < FEATURE_COUNT; i++) units += scratch[i]! * weights.text[i]!;
  return units;
}

/** Units of a text alone, without any framing. */
export function estimateText(text: string, weights: Weights): number {
  return Math.round(weigh(text, weights));
}

/** Units of a system prompt, with its framing; 0 when there is none. */
export function estimateSystem(text: string | undefined, weights: Weights): number {
  return text ? Math.round(weigh(text, weights) + weights.frame.message) : 0;
}

/** Units of the tools a model is offered: name, description and schema of each, as JSON. */
export function estimateTools(tools: Iterable<ToolDescription>, weights: Weights): number {
  let units = 0;
  for (const { name, description, inputSchema } of tools) {
    units += weigh(JSON.stringify({ name, description, inputSchema }), weights) + weights.frame.call;
  }
  return Math.round(units);
}

/** Units of the parts of one entry, framing included. An empty entry weighs nothing. */
export function estimateParts(role: Role, parts: readonly Part[], weights: Weights): EntryUnits {
  let said = 0;
  let returned = 0;
  for (const part of parts) {
    said += saidBy(part, weights);
    returned += returnedTo(part, weights);
  }
  if (said > 0) said += role === "assistant" ? weights.frame.step : weights.frame.message;
  if (returned > 0) returned += weights.frame.results;
  return { said: Math.round(said), returned: Math.round(returned) };
}

/** Units of an entry for a given model: what its row stores when it is written. */
export function estimateEntry(entry: Pick<Entry, "role" | "parts">, model: string): EntryUnits {
  return estimateParts(entry.role, entry.parts, weightsFor(model));
}

/** Units of the reasoning in a step, which a provider may drop later. Part of what was said. */
export function estimateReasoning(parts: readonly Part[], weights: Weights): number {
  let units = 0;
  for (const part of parts) if (part.type === "reasoning") units += weigh(part.text, weights);
  return Math.round(units);
}

/**
 * Tokens of a second family for one of a first, in given texts: what a change of models is expected to do to a prompt
 * (`Prompt.rescale`). Reads every text twice, once per change of model.
 */
export function compareFamilies(texts: Iterable<string>, from: Weights, to: Weights): number {
  let before = 0;
  let after = 0;
  for (const text of texts) {
    before += weigh(text, from);
    after += weigh(text, to);
  }
  return before > 0 ? after / before : 1;
}

/**
 * Units of what one part adds to what was said. All that the AI SDK sends counts (`convertToModelMessages`), and only
 * that: sources, data parts and step boundaries stay with the client.
 */
function saidBy(part: Part, weights: Weights): number {
  switch (part.type) {
    case "text":
    case "reasoning":
      return weigh(part.text, weights);
    case "file":
    case "reasoning-file":
      return estimateFile(part.mediaType, part.url, (text) => weigh(text, weights));
    case "steering-message":
      return part.parts.reduce((units, inner) => units + saidBy(inner, weights), weights.frame.message);
    default:
      return isToolPart(part) && part.state !== "input-streaming" ? callUnits(part, weights) : 0;
  }
}

function callUnits(part: ToolPart, weights: Weights): number {
  const input = part.input ?? ("rawInput" in part ? part.rawInput : undefined);
  return weigh(toolNameOf(part), weights) + weighInput(input, weights) + weights.frame.call;
}

/** Units of a tool's input, as the family writes it. */
function weighInput(input: unknown, weights: Weights): number {
  if (!weights.writesParameters || typeof input !== "object" || input === null) return weighValue(input, weights);
  return Object.entries(input).reduce(
    (units, [name, value]) => units + weigh(name, weights) + weighValue(value, weights) + weights.frame.parameter,
    0,
  );
}

/** Units of the result that came back to a tool call; 0 while it is open. */
function returnedTo(part: Part, weights: Weights): number {
  if (!isToolPart(part)) return 0;
  const result = resultOf(part);
  return result === undefined ? 0 : weighValue(result.value, weights) + weights.frame.result;
}

/** What the model reads of a finished tool call: output, error or refusal. */
function resultOf(part: ToolPart): { value: unknown } | undefined {
  switch (part.state) {
    case "output-available":
      return { value: part.output };
    case "output-error":
      return { value: part.errorText };
    case "output-denied":
      return { value: part.approval?.reason ?? DENIED };
    case "approval-responded":
      return part.approval.approved ? undefined : { value: part.approval.reason ?? DENIED };
    default:
      return undefined;
  }
}

/** What the AI SDK sends for a refused call that gives no reason (`convert-to-model-messages.ts`). */
const DENIED = "Tool call execution denied.";

/** Units of a tool's input or output: text as it is, anything else as JSON, with media at their flat cost. */
function weighValue(value: unknown, weights: Weights): number {
  if (typeof value === "string") return weigh(value, weights);
  if (value === undefined) return 0;
  let media = 0;
  const json = JSON.stringify(value, (_key, inner: unknown) => {
    const mediaType = mediaTypeOf(inner);
    if (mediaType === undefined) return inner;
    media += estimateFile(mediaType, "", () => 0);
    return mediaType;
  });
  return media + (json === undefined ? 0 : weigh(json, weights));
}

function isToolPart(part: Part): part is ToolPart {
  return part.type === "dynamic-tool" || part.type.startsWith("tool-");
}

function toolNameOf(part: ToolPart): string {
  return part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
}
