/** What a session was configured with, after `configure(session)` ran. Limits live here because turns enforce them. */
import type { LanguageModel, ToolSet, UIMessage } from "ai";
import type { TokenCounter } from "../context/counters.ts";
import type { ContextPolicy } from "../context/policy.ts";
import { limitsOf } from "../models/catalogue.ts";
import type { CompactionTrigger, SessionSettings } from "../records.ts";

/** A registry id such as `anthropic/claude-sonnet-4-5`, or a model object. */
export type ModelChoice = string | Exclude<LanguageModel, string>;

/** When compaction fires: tokens, a share of the window, the window less the reserved output, or never. */
export type CompactAfter = NonNullable<SessionSettings["compactAfter"]>;

export interface Configuration {
  readonly model: ModelChoice;
  readonly systemPrompt: string | undefined;
  readonly tools: ToolSet;
  /** whether requests may bring tools that run in the client */
  readonly clientTools: boolean;
  readonly compactAfter: CompactAfter;
  /** whether a full context is compacted, or clients are asked to (`ContextReport.suggestion`) */
  readonly compactMode: "compact" | "suggest";
  /** asked for the size of the whole prompt, once per decision, before reports and estimates are */
  readonly tokenCounter: TokenCounter | undefined;
  /** what is shown and acted on where there is more than one way */
  readonly context: ContextPolicy;
  /** model tokens kept verbatim by a compaction */
  readonly tailTokenBudget: number;
  /** how a compaction goes about the rest */
  readonly compaction: CompactionLevers;
  /** tokens; `undefined` asks the catalogue */
  readonly contextWindow: number | undefined;
  /** tokens; `undefined` asks the catalogue and leaves the provider's default */
  readonly maxOutputTokens: number | undefined;
  /** model calls in one turn */
  readonly maxSteps: number;
  readonly limits: Limits;
}

/** How a compaction is done. What is left out has the default it says. */
export interface CompactionLevers {
  /** messages kept at least, whole or in part, even above the tail budget; by default 2, as far as the threshold allows */
  readonly minTailMessages?: number;
  /** messages at the start that no summary replaces; default 0 */
  readonly protectHead?: number;
  /** who writes the summary; default: the session's model */
  readonly model?: ModelChoice;
  /** what the summary should heed, beside the default prompt */
  readonly instructions?: string;
  /** newest model tokens whose tool outputs are never left out, by default those of the tail; `false`: none ever are */
  readonly prune?: number | false;
  /** ms after which a call for a summary is given up; default 120,000 */
  readonly timeoutMs?: number;
  /** asked before a summary is written: may cancel, or write it */
  readonly onCompaction?: OnCompaction;
}

/** A compaction that is about to be done. */
export interface CompactionProposal {
  trigger: CompactionTrigger;
  /** the one number it was decided by; all in model tokens */
  contextTokens: number;
  threshold: number | null;
  keptTokens: number;
  leavingTokens: number;
  /** the summary that the new one continues */
  previousSummary: string | null;
  /** what the summary should heed, from the configuration and from whoever asked */
  instructions: readonly string[];
  /** what the new summary has to stand for beside the previous one, oldest first; read when it is asked for */
  messages: () => UIMessage[];
  /** aborts when the compaction is not wanted any more */
  signal: AbortSignal;
}

/** Nothing: go on. `cancel`: do not, for the reason that is recorded. `summary`: take this one. */
export type CompactionVerdict = void | { cancel: string } | { summary: string };

export type OnCompaction = (proposal: CompactionProposal) => CompactionVerdict | Promise<CompactionVerdict>;

/** Sizes beyond which a request is refused. A test pins the defaults. */
export interface Limits {
  /** UTF-16 code units of one frame or request body, checked before it is parsed. Stock transports post whole transcripts */
  frameLength: number;
  /** UTF-16 code units of one message as JSON. Stored in pieces below SQLite's 2 MB */
  messageLength: number;
  /** parts of one message */
  messageParts: number;
  /** new messages in one request */
  messagesPerRequest: number;
  /** turns that may wait */
  queueLength: number;
  /** UTF-16 code units of all that waits, as JSON. It is kept in memory, which an object has 128 MB of */
  queueSize: number;
}

export const DEFAULT_LIMITS: Limits = {
  frameLength: 16 * 1024 * 1024,
  messageLength: 4 * 1024 * 1024,
  messageParts: 1_000,
  messagesPerRequest: 100,
  queueLength: 100,
  queueSize: 16 * 1024 * 1024,
};

export const DEFAULT_TAIL_TOKEN_BUDGET = 20_000;
export const DEFAULT_MIN_TAIL_MESSAGES = 2;
export const DEFAULT_SUMMARY_TIMEOUT_MS = 120_000;
export const DEFAULT_MAX_STEPS = 32;

/** The configuration as this session's own settings change it. */
export function withSettings(configuration: Configuration, settings: SessionSettings): Configuration {
  return {
    ...configuration,
    ...limitsUnder(configuration, settings),
    model: settings.model ?? configuration.model,
    systemPrompt: settings.systemPrompt ?? configuration.systemPrompt,
    compactAfter: settings.compactAfter ?? configuration.compactAfter,
    tailTokenBudget: settings.tailTokenBudget ?? configuration.tailTokenBudget,
  };
}

/** Limits were configured for the configured model; another one has its own, where the catalogue knows them. */
function limitsUnder(
  { model, contextWindow, maxOutputTokens }: Configuration,
  settings: SessionSettings,
): Pick<Configuration, "contextWindow" | "maxOutputTokens"> {
  if (settings.model === undefined || settings.model === model) return { contextWindow, maxOutputTokens };
  const known = limitsOf(settings.model);
  return {
    contextWindow: known.contextWindow === undefined ? contextWindow : undefined,
    maxOutputTokens: known.maxOutputTokens === undefined ? maxOutputTokens : undefined,
  };
}

/** The name under which calls to a model are booked. */
export function modelId(choice: ModelChoice): string {
  return typeof choice === "string" ? choice : `${choice.provider}/${choice.modelId}`;
}
