/**
 * The recordings as scripts. A recorded compaction begins a conversation of its own, from its summary: what the recorded
 * client kept beside it is overhead there, since nobody recorded it and the first call read it.
 */
import {
  inputOfCall,
  type PlannedAssistant,
  type PlannedMessage,
  type PlannedPart,
  type PlannedSession,
  type PlannedStep,
  planOf,
} from "../../scripts/replay/plan.ts";
import { type Conversation, inputOf, nameOf, type RecordedUsage } from "../corpus.ts";
import { HALVES } from "../folds.ts";
import { weightsFor } from "../../src/context/estimator.ts";
import { type RecordedEntry, type Report, sizeEntries } from "./recorded-sizes.ts";
import type { Act, Script, ScriptedPiece } from "./script.ts";

export function scriptsOf(conversation: Conversation): Script[] {
  const { sessions, tools } = planOf(conversation);
  const models = modelsOf(conversation);
  return sessions.map((session, index) => {
    const model = registryId(mostFrequent(models, conversation.model));
    const scribe = new Scribe(models, conversation.model);
    for (const act of session.acts) scribe.write(act);
    const { recorded, acts } = scribe;
    const sizes = sizeEntries(recorded, model);
    return {
      name: `${nameOf(conversation)}${sessions.length > 1 ? `/${index + 1}` : ""}`,
      model,
      half: HALVES[nameOf(conversation)],
      system: session.system,
      tools,
      ...sizes,
      frame: weightsFor(model).frame.message,
      entries: recorded.map(({ entry }) => entry),
      acts,
    };
  });
}

/** The model of each reported call, where it is another than the conversation's. */
type Models = ReadonlyMap<RecordedUsage, string>;

function modelsOf({ items }: Conversation): Models {
  return new Map(
    items.flatMap((item) => (item.k === "msg" && item.usage && item.model ? [[item.usage, item.model]] : [])),
  );
}

function mostFrequent(models: Models, otherwise: string): string {
  const counts = new Map<string, number>();
  for (const model of models.values()) counts.set(model, (counts.get(model) ?? 0) + 1);
  return [...counts].toSorted(([, one], [, other]) => other - one)[0]?.[0] ?? otherwise;
}

function registryId(model: string): string {
  if (model.includes("claude")) return `anthropic/${model}`;
  return `${model.includes("gemini") ? "google" : "openai"}/${model}`;
}

/** Writes what is said as entries, one after the other. */
class Scribe {
  readonly recorded: RecordedEntry[] = [];
  readonly acts: Act[] = [];
  readonly #models: Models;
  readonly #model: string;

  constructor(models: Models, model: string) {
    this.#models = models;
    this.#model = model;
  }

  write(act: PlannedSession["acts"][number]): void {
    if (act.kind === "import") {
      for (const entry of this.#entriesOf(act.message)) this.acts.push({ kind: "import", entry });
      return;
    }
    const asked = act.messages.flatMap((message) => this.#entriesOf(message));
    const steps = this.#entriesOf(act.answer);
    if (asked.length > 0 && steps.length > 0) this.acts.push({ kind: "turn", asked, steps });
    else this.acts.push(...[...asked, ...steps].map((entry): Act => ({ kind: "import", entry })));
  }

  #entriesOf(message: PlannedMessage): number[] {
    if (message.role === "assistant") return this.#stepsOf(message);
    const texts = message.texts.filter((text) => text.trim() !== "").map((text) => said("text", text));
    const images = Array.from({ length: message.images }, () => said("image", ""));
    const pieces = [...texts, ...images];
    if (pieces.length === 0) return [];
    return [this.#add({ entry: { role: message.role, pieces, output: null, exact: false } })];
  }

  /** A step that said nothing but calls without results is not said: no later prompt has it. */
  #stepsOf({ steps }: PlannedAssistant): number[] {
    return steps.flatMap((step) => {
      const pieces = step.parts.flatMap(pieceOf);
      if (pieces.every(({ kind }) => kind === "reasoning")) return [];
      const report = this.#reportOf(step);
      return [
        this.#add({ entry: { role: "assistant", pieces, output: report?.output ?? null, exact: false }, report }),
      ];
    });
  }

  #reportOf({ usage }: PlannedStep): Report | undefined {
    if (inputOf(usage) === 0) return undefined;
    return { input: inputOf(usage), output: usage!.out, model: this.#models.get(usage!) ?? this.#model };
  }

  #add(recorded: RecordedEntry): number {
    return this.recorded.push(recorded) - 1;
  }
}

function pieceOf(part: PlannedPart): ScriptedPiece[] {
  if (part.type !== "tool-call") return part.text.trim() === "" ? [] : [said(part.type, part.text)];
  const { call } = part;
  if (call.output === undefined) return [];
  const input = inputOfCall(call);
  const text = JSON.stringify(typeof input === "object" && input !== null ? input : { input });
  return [{ kind: "call", text, tokens: 0, tool: { name: call.name, output: call.output, outputTokens: 0 } }];
}

function said(kind: ScriptedPiece["kind"], text: string): ScriptedPiece {
  return { kind, text, tokens: 0 };
}
