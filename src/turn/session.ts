/**
 * One session, whole: what every wire talks to.
 *
 * It knows no socket, no request and no platform; time, ids, storage and models are handed in.
 */
import type { LanguageModel, UIMessage } from "ai";
import { SessionError } from "../errors.ts";
import type { ContextReport } from "../context/report.ts";
import type { SessionSettings, UsageTotals } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { archiveLines, readArchive, restoreArchive } from "./archive.ts";
import type { Branch } from "./branch.ts";
import { modelId, withSettings, type Configuration } from "./configuration.ts";
import { History } from "./history.ts";
import { readContext } from "./context-reading.ts";
import { anchorOf, newestAnchorOf, overheadOf, readGauge, restingOverhead, type Reading } from "./gauge.ts";
import { importMessages, withoutOpenServerCalls } from "./imported-messages.ts";
import { validated } from "./incoming.ts";
import type { SettingsPatch } from "./settings.ts";
import { TurnLine } from "./turn-line.ts";

export interface SessionParts {
  /** the id under which clients reach it */
  id: string;
  store: SessionStore;
  configuration: Configuration;
  /** resolves a registry id; throws `model-unavailable` */
  languageModel: (id: string) => Exclude<LanguageModel, string>;
  /** ms since the epoch */
  clock: () => number;
  newId: () => string;
  /** keeps the object awake until the work has settled */
  keepAwake: (work: Promise<unknown>) => void;
  log: (event: string, details: Record<string, unknown>) => void;
}

/** What `GET /sessions/:id` answers. */
export interface SessionSummary {
  id: string;
  /** messages on all branches */
  messages: number;
  /** ms since the epoch */
  createdAt: number;
  /** ms since the epoch */
  lastActivity: number;
  /** registry id */
  model: string;
  /** known context tokens, by reports and the estimate; a token counter is asked for the context report alone */
  tokens: number;
  /** what this session changed of the configuration */
  settings: SessionSettings;
  /** the open turn, if there is one */
  turn: { messageId: string; startedAt: number } | null;
  /** turns that wait */
  queued: number;
  usage: UsageTotals;
  /** bytes of the session's database */
  storedBytes: number;
}

export class Session {
  readonly line: TurnLine;
  readonly history: History;
  readonly #parts: SessionParts;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.history = new History(parts.store);
    this.line = new TurnLine({ ...parts, configuration: () => this.configuration });
  }

  /** Brings the tables up to date and recovers what was open. Call once, before anything else. */
  start(): void {
    this.#parts.store.open(this.#parts.clock());
    this.line.start();
  }

  /** The configuration as this session's settings change it. */
  get configuration(): Configuration {
    return withSettings(this.#parts.configuration, this.#parts.store.session.settings);
  }

  async summary(): Promise<SessionSummary> {
    const { known } = await this.#read(this.line.tailFor(modelId(this.configuration.model)));
    const { store, id } = this.#parts;
    const { session } = store;
    return {
      id,
      messages: session.messages,
      createdAt: session.createdAt,
      lastActivity: session.activeAt,
      model: modelId(this.configuration.model),
      tokens: known.tokens,
      settings: session.settings,
      turn: session.turn && { messageId: session.turn.messageId, startedAt: session.turn.startedAt },
      queued: store.queue().length,
      usage: session.totals,
      storedBytes: store.databaseBytes,
    };
  }

  /** Applies to the next turn. Throws `invalid-settings` for a model that cannot be used. */
  changeSettings(patch: SettingsPatch): void {
    if (typeof patch.model === "string") this.#checkModel(patch.model);
    const { store } = this.#parts;
    const merged = Object.entries({ ...store.session.settings, ...patch }).filter(([, value]) => value !== null);
    store.saveSession({ settings: Object.fromEntries(merged) });
  }

  /** Stores messages of any role without calling a model. Known ids are skipped. */
  async importMessages(
    messages: readonly unknown[],
  ): Promise<{ inserted: number; skipped: number; context: ContextReport }> {
    const { systemPrompt, tools, model, limits } = this.configuration;
    const checked = distinct(await validated(messages, limits)).map((message) =>
      withoutOpenServerCalls(message, tools),
    );
    const overhead = await overheadOf(systemPrompt, tools, tools, modelId(model));
    this.line.refuseWhileBusy();
    const { store, clock } = this.#parts;
    const { branch } = this.line;
    const imported = importMessages(checked, { store, branch, model: modelId(model), overhead, now: clock() });
    return { ...imported, context: await this.context() };
  }

  /** How full the context is, and why. A configured token counter is asked once. */
  async context(): Promise<ContextReport> {
    const { store, log } = this.#parts;
    const { configuration } = this;
    // A counter is shown the whole prompt; everything else is known from the end of the branch.
    const branch = configuration.tokenCounter ? this.line.branch : this.line.tailFor(modelId(configuration.model));
    const reading = await this.#read(branch);
    return readContext({
      reading,
      branch,
      configuration,
      tools: configuration.tools,
      totals: store.session.totals,
      log,
    });
  }

  async #read(branch: Branch): Promise<Reading> {
    const { store } = this.#parts;
    const { systemPrompt, tools, context, model: choice } = this.configuration;
    const model = modelId(choice);
    const own = await overheadOf(systemPrompt, tools, tools, model);
    const kin = () => anchorOf({ anchor: store.newestAnchor() });
    const overhead = restingOverhead(own, (newestAnchorOf(branch) ?? kin())?.prompt);
    return readGauge(branch, overhead, model, kin, context);
  }

  /** Everything the session has, as JSON Lines. */
  exportLines(): Generator<string> {
    return archiveLines(this.#parts.store);
  }

  /** Brings an exported session back, into an empty one. */
  async importArchive(text: string): Promise<{ inserted: number; skipped: number; context: ContextReport }> {
    const archive = readArchive(text);
    const content = archive.entries.filter((entry) => entry.parts.length > 0);
    if (content.length > 0) {
      const messages = content.map(({ messageId, role, parts, metadata }) => ({
        id: messageId,
        role,
        parts,
        metadata,
      }));
      await validated(messages, this.configuration.limits);
    }
    this.line.refuseWhileBusy();
    const { inserted } = restoreArchive(this.#parts.store, archive, this.#parts.clock());
    this.line.forgetBranch();
    return { inserted, skipped: 0, context: await this.context() };
  }

  eraseMessage(messageId: string): number {
    this.line.refuseWhileBusy();
    const erased = this.history.erase(messageId);
    this.line.forgetBranch();
    return erased;
  }

  switchTo(target: Parameters<History["switchTo"]>[0]): number {
    this.line.refuseWhileBusy();
    return this.history.switchTo(target);
  }

  #checkModel(id: string): void {
    try {
      this.#parts.languageModel(id);
    } catch (error) {
      if (!(error instanceof SessionError)) throw error;
      throw new SessionError("invalid-settings", `model cannot be used: ${error.message}`);
    }
  }
}

/** Throws `duplicate-id` when one request names a message twice. */
function distinct(messages: UIMessage[]): UIMessage[] {
  const seen = new Set<string>();
  for (const { id } of messages) {
    if (seen.has(id))
      throw new SessionError("duplicate-id", `The message id "${id}" stands twice in the request; ids must be unique.`);
    seen.add(id);
  }
  return messages;
}
