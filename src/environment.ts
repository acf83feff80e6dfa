/** The deployable Worker's variables, read once at start-up. Each is documented in `wrangler.toml`. */
import { SessionError } from "./errors.ts";
import { checkModelId, type ModelEnvironment } from "./models/registry.ts";
import type { SessionBuilder } from "./session-builder.ts";
import { readCompactAfter, readPositiveInteger } from "./turn/settings.ts";

export interface SessionEnvironment extends ModelEnvironment {
  /** registry id; default `mirror` */
  MODEL?: string;
  SYSTEM_PROMPT?: string;
  /** tokens, `80%`, `auto` or `off`; default `auto` */
  COMPACT_AFTER?: string;
  /** model tokens; default 20,000 */
  TAIL_TOKEN_BUDGET?: string;
  /** registry id of the model that writes summaries; default: the session's */
  COMPACTION_MODEL?: string;
  /** what every summary should heed */
  COMPACTION_INSTRUCTIONS?: string;
  /** tokens, for models that the catalogue does not know */
  CONTEXT_WINDOW?: string;
  /** tokens, for models that the catalogue does not know; sent with each call */
  MAX_OUTPUT_TOKENS?: string;
}

/** Applies the variables. Throws `misconfigured` with a sentence that names the variable that is wrong. */
export function configureFrom(env: SessionEnvironment, session: SessionBuilder): SessionBuilder {
  const model = readModel(env, "MODEL") ?? "mirror";
  if (env.OPENAI_COMPATIBLE_BASE_URL && !URL.canParse(env.OPENAI_COMPATIBLE_BASE_URL)) {
    throw new SessionError("misconfigured", "OPENAI_COMPATIBLE_BASE_URL is no URL; it looks like https://host/v1.");
  }
  session.model(model).allowClientTools();
  if (env.SYSTEM_PROMPT) session.system(env.SYSTEM_PROMPT);
  if (env.COMPACT_AFTER) session.compactAfter(readCompactAfter(env.COMPACT_AFTER, "COMPACT_AFTER"));
  if (env.TAIL_TOKEN_BUDGET) {
    session.compaction({ tailTokenBudget: readPositiveInteger(env.TAIL_TOKEN_BUDGET, "TAIL_TOKEN_BUDGET") });
  }
  const summaryModel = readModel(env, "COMPACTION_MODEL");
  if (summaryModel) session.compaction({ model: summaryModel });
  if (env.COMPACTION_INSTRUCTIONS) session.compaction({ instructions: env.COMPACTION_INSTRUCTIONS });
  if (env.CONTEXT_WINDOW) session.contextWindow(readPositiveInteger(env.CONTEXT_WINDOW, "CONTEXT_WINDOW"));
  if (env.MAX_OUTPUT_TOKENS) session.maxOutputTokens(readPositiveInteger(env.MAX_OUTPUT_TOKENS, "MAX_OUTPUT_TOKENS"));
  return session;
}

function readModel(env: SessionEnvironment, name: "MODEL" | "COMPACTION_MODEL"): string | undefined {
  const model = env[name];
  if (!model) return undefined;
  const fault = checkModelId(model, env);
  if (fault !== undefined) throw new SessionError("misconfigured", `${name} cannot be used: ${fault}`);
  return model;
}
