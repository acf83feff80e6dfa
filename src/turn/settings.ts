/** Values that people write, in code, in variables and over HTTP: one reading for all three. */
import { z } from "zod";
import { SessionError } from "../errors.ts";
import type { SessionSettings } from "../records.ts";
import type { CompactAfter, CompactionLevers, ModelChoice, OnCompaction } from "./configuration.ts";

/**
 * `80000`, `"80000"`, `"80%"`, `"auto"` or `"off"`. A share of 0 % or above 100 % is refused: it would always or never
 * fire, and `off` says the latter. Throws `misconfigured`; `name` is what the sentence calls the value.
 */
export function readCompactAfter(value: unknown, name: string): CompactAfter {
  if (value === "auto" || value === "off") return value;
  const text = String(value).trim();
  const percent = /^(\d+(?:\.\d+)?)%$/.exec(text);
  if (percent && Number(percent[1]) > 0 && Number(percent[1]) <= 100) return `${Number(percent[1])}%`;
  const tokens = Number(text);
  if (text !== "" && Number.isSafeInteger(tokens) && tokens > 0) return tokens;
  throw misconfigured(name, value, 'a number of tokens above 0, a share of the window such as "80%", "auto" or "off"');
}

/** Throws `misconfigured` for anything but a whole number above 0. */
export function readPositiveInteger(value: unknown, name: string): number {
  const number = typeof value === "string" && value.trim() === "" ? Number.NaN : Number(value);
  if (Number.isSafeInteger(number) && number > 0) return number;
  throw misconfigured(name, value, "a whole number above 0");
}

/** What `compaction` of the builder takes. */
export interface CompactionOptions extends CompactionLevers {
  /** model tokens kept verbatim; default 20,000 */
  readonly tailTokenBudget?: number;
}

const LEVERS = z.strictObject({
  tailTokenBudget: z.number().int().positive(),
  minTailMessages: z.number().int().positive(),
  protectHead: z.number().int().nonnegative(),
  model: z.custom<ModelChoice>((model) => (typeof model === "string" ? model !== "" : isModel(model)), "no model"),
  instructions: z.string(),
  prune: z.union([z.number().int().nonnegative(), z.literal(false)]),
  timeoutMs: z.number().int().positive(),
  onCompaction: z.custom<OnCompaction>((hook) => typeof hook === "function", "no function"),
});

/** What each lever must be, in words. */
const WANTED: Record<keyof CompactionOptions, string> = {
  tailTokenBudget: "a whole number above 0",
  minTailMessages: "a whole number above 0",
  protectHead: "a whole number from 0 on",
  model: "a registry id or an AI SDK model",
  instructions: "a text",
  prune: "a whole number from 0 on, or false",
  timeoutMs: "a whole number above 0",
  onCompaction: "a function",
};

/** Throws `misconfigured` for a name that is no lever, and for a value that can mean nothing. */
export function readCompactionOptions(options: CompactionOptions): {
  tailTokenBudget: number | undefined;
  compaction: CompactionLevers;
} {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const read = LEVERS.partial().safeParse(given);
  if (!read.success) {
    const issue = read.error.issues[0];
    const [lever] = issue?.path ?? [];
    const name = Object.keys(WANTED).find((known): known is keyof CompactionOptions => known === lever);
    if (name) throw misconfigured(name, given[name], WANTED[name]);
    throw new SessionError("misconfigured", `compaction cannot be used: ${issue?.message ?? "it is not valid"}.`);
  }
  const { tailTokenBudget, ...compaction } = read.data;
  return { tailTokenBudget, compaction };
}

function isModel(model: unknown): boolean {
  return typeof model === "object" && model !== null && "modelId" in model;
}

function misconfigured(name: string, value: unknown, wanted: string): SessionError {
  return new SessionError("misconfigured", `${name} is ${JSON.stringify(value)}; it must be ${wanted}.`);
}

/** In UTF-16 code units: at most 768 KB of UTF-8, beside everything else in the session's row, which holds 2 MB. */
const SYSTEM_PROMPT_LENGTH = 256 * 1024;

const PATCH = z.strictObject({
  model: z.string().min(1).max(256).nullable().optional(),
  systemPrompt: z.string().max(SYSTEM_PROMPT_LENGTH).nullable().optional(),
  compactAfter: z.union([z.number(), z.string()]).nullable().optional(),
  tailTokenBudget: z.number().int().positive().nullable().optional(),
});

/** Changes of a session's settings; `null` gives one back to the configuration. */
export type SettingsPatch = { [Name in keyof SessionSettings]: SessionSettings[Name] | null };

/** Reads settings from outside. Throws `invalid-settings` with what is wrong. */
export function readSettings(value: unknown): SettingsPatch {
  const patch = PATCH.safeParse(value);
  if (!patch.success) {
    const issue = patch.error.issues[0];
    const where = issue?.path.map(String).join(".");
    throw new SessionError(
      "invalid-settings",
      `The settings are not valid: ${where ? `${where}: ` : ""}${issue?.message}`,
    );
  }
  const { compactAfter, ...settings } = patch.data;
  if (compactAfter === undefined || compactAfter === null)
    return { ...settings, ...(compactAfter === null && { compactAfter }) };
  try {
    return { ...settings, compactAfter: readCompactAfter(compactAfter, "compactAfter") };
  } catch (error) {
    throw new SessionError("invalid-settings", error instanceof Error ? error.message : String(error));
  }
}
