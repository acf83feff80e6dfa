/** How a session is configured: what `configure(session)` receives. */
import type { ToolSet } from "ai";
import type { TokenCounter } from "./context/counters.ts";
import { SessionError } from "./errors.ts";
import { DEFAULT_POLICY, type ContextPolicy } from "./context/policy.ts";
import {
  DEFAULT_LIMITS,
  DEFAULT_MAX_STEPS,
  DEFAULT_TAIL_TOKEN_BUDGET,
  type CompactAfter,
  type Configuration,
  type Limits,
  type ModelChoice,
} from "./turn/configuration.ts";
import {
  readCompactAfter,
  readCompactionOptions,
  readPositiveInteger,
  type CompactionOptions,
} from "./turn/settings.ts";

export interface CompactAfterOptions {
  tokenCounter?: TokenCounter;
  mode?: Configuration["compactMode"];
}

/**
 * Each method sets one thing and returns the builder; a later call wins. Wrong values throw a `SessionError` with the
 * code `misconfigured` that names them, before the session takes its first request.
 */
export class SessionBuilder {
  #configuration: Configuration = {
    model: "mirror",
    systemPrompt: undefined,
    tools: {},
    clientTools: false,
    compactAfter: "auto",
    compactMode: "compact",
    tokenCounter: undefined,
    context: DEFAULT_POLICY,
    tailTokenBudget: DEFAULT_TAIL_TOKEN_BUDGET,
    compaction: {},
    contextWindow: undefined,
    maxOutputTokens: undefined,
    maxSteps: DEFAULT_MAX_STEPS,
    limits: DEFAULT_LIMITS,
  };

  /** A registry id such as `anthropic/claude-sonnet-4-5`, or an AI SDK model. Default: `mirror`, the local model. */
  model(model: ModelChoice): this {
    return this.#set({ model });
  }

  /** The system prompt. Default: none. */
  system(systemPrompt: string): this {
    return this.#set({ systemPrompt });
  }

  /** Tools by name. One with `execute` runs here; one without is carried out by the client. Default: none. */
  tools(tools: ToolSet): this {
    return this.#set({ tools });
  }

  /** Lets requests bring tools that run in the client, as `clientTools` in their body. Default: refused. */
  allowClientTools(): this {
    return this.#set({ clientTools: true });
  }

  /**
   * When the context is compacted: above so many tokens, above a share of the window (`"80%"`), above the window less
   * the reserved output (`"auto"`, the default), or never (`"off"` or `false`).
   *
   * `tokenCounter` is asked for the size of the whole prompt, once per decision; where it throws or answers with no
   * size, reported usage serves. Default: none. `mode: "suggest"` leaves the compaction to the client: the report asks for
   * it. Default: `"compact"`.
   */
  compactAfter(threshold: CompactAfter | false, { tokenCounter, mode = "compact" }: CompactAfterOptions = {}): this {
    const compactAfter = readCompactAfter(threshold === false ? "off" : threshold, "compactAfter");
    if (mode !== "compact" && mode !== "suggest") {
      throw new SessionError("misconfigured", `mode is ${JSON.stringify(mode)}; it must be "compact" or "suggest".`);
    }
    return this.#set({ compactAfter, tokenCounter, compactMode: mode });
  }

  /**
   * How compaction goes about it. A later call changes only what it names.
   *
   * - `tailTokenBudget`: model tokens kept verbatim; default 20,000, reduced with a warning where the threshold leaves less
   * - `minTailMessages`: messages kept at least, whole or in part, even above that budget; default 2, as far as the threshold
   *   allows
   * - `protectHead`: messages at the start that no summary replaces; default 0
   * - `model`: who writes the summary; default the session's model
   * - `instructions`: what every summary should heed, beside the default prompt
   * - `prune`: newest model tokens whose tool outputs are never left out, by default those of the tail; `false` leaves none out
   * - `timeoutMs`: ms after which a call for a summary is given up; default 120,000
   * - `onCompaction`: asked before a summary is written; may cancel, or give its own
   */
  compaction(levers: CompactionOptions): this {
    const { tailTokenBudget, compaction } = readCompactionOptions(levers);
    return this.#set({
      ...(tailTokenBudget !== undefined && { tailTokenBudget }),
      compaction: { ...this.#configuration.compaction, ...compaction },
    });
  }

  /**
   * What is shown and acted on where there is more than one way: a session without any report, the time between a
   * compaction and the next report, and whether what followed the last request counts.
   */
  context(policy: Partial<ContextPolicy>): this {
    return this.#set({ context: { ...this.#configuration.context, ...policy } });
  }

  /** Tokens the model can read. Needed only for models that the catalogue does not know. */
  contextWindow(tokens: number): this {
    return this.#set({ contextWindow: readPositiveInteger(tokens, "contextWindow") });
  }

  /** Tokens the model may answer with; sent with each call. Default: the provider's. */
  maxOutputTokens(tokens: number): this {
    return this.#set({ maxOutputTokens: readPositiveInteger(tokens, "maxOutputTokens") });
  }

  /** Model calls one turn may make. Default: 32. */
  maxSteps(steps: number): this {
    return this.#set({ maxSteps: readPositiveInteger(steps, "maxSteps") });
  }

  /** Sizes beyond which requests are refused; what is left out keeps its default. */
  limits(limits: Partial<Limits>): this {
    const given = Object.entries(limits).filter(([, value]) => value !== undefined);
    const read = given.map(([name, value]) => [name, readPositiveInteger(value, `limits.${name}`)]);
    return this.#set({ limits: { ...this.#configuration.limits, ...Object.fromEntries(read) } });
  }

  build(): Configuration {
    return this.#configuration;
  }

  #set(change: Partial<Configuration>): this {
    this.#configuration = { ...this.#configuration, ...change };
    return this;
  }
}
