/**
 * One session, whole: what every wire talks to.
 *
 * It knows no socket, no request and no platform; time, ids, storage and models are handed in.
 */
import type { LanguageModel, UIMessage } from "ai";
import { SessionError } from "../errors.ts";
import type { ContextReport } from "../context/report.ts";
import type { SessionEvent } from "../events.ts";
import type { Compaction, SessionSettings, UsageTotals } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { archiveLines, readArchive, restoreArchive } from "./archive.ts";
import { listed } from "./compaction-record.ts";
import { modelId, withSettings, type Configuration } from "./configuration.ts";
import { History } from "./history.ts";
import { readMoment, reportOf, type Moment } from "./context-reading.ts";
import { anchorOf, newestAnchorOf, overheadOf, restingOverhead } from "./gauge.ts";
import { importMessages, withoutOpenServerCalls } from "./imported-messages.ts";
import { validated } from "./incoming.ts";
import { SessionNews } from "./news.ts";
import { overlayInForce } from "./overlay-in-force.ts";
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
  /** known context tokens */
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
  readonly news: SessionNews;
  readonly #parts: SessionParts;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.history = new History(parts.store);
    this.news = new SessionNews(parts.newId());
    this.line = new TurnLine({
      ...parts,
      configuration: () => this.configuration,
      publish: (event) => this.#publish(event),
    });
  }

  /** What listeners are told. A compaction that took effect changed the context as well. */
  #publish(event: SessionEvent): void {
    this.news.publish(event);
    const changed =
      event.type === "compaction" && "compaction" in event.data && event.data.compaction.tokensAfter !== null;
    if (changed) this.#announceContext();
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
    const { known } = await this.#moment();
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
    if (patch.compactAfter === "off") this.line.compactor.abort();
    this.#announceContext();
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
    return { ...imported, context: await this.#consideredContext() };
  }

  /** How full the context is, and why. A configured token counter is asked once. */
  async context(): Promise<ContextReport> {
    const moment = await this.#moment();
    return reportOf(moment, this.line.compactor.noticesAt(moment));
  }

  /**
   * Compacts now, whatever the threshold, and answers what came of it. `instructions` are heeded by the summary. While one is
   * being written, a request without instructions gets that one's outcome, and one with them waits for its turn.
   */
  async compact(instructions?: string): Promise<Compaction> {
    const { compactor } = this.line;
    for (;;) {
      const { running } = compactor;
      if (running && instructions === undefined) return running;
      if (running) await running;
      const moment = await this.#moment();
      const turnRuns = this.line.busy;
      const begun = compactor.consider(moment, { trigger: "manual", turnRuns, ...(instructions && { instructions }) });
      if (begun.kind === "settled") return begun.compaction;
      if (begun.kind === "running") return begun.done;
      // Else another one has begun, or taken effect, while the context was read.
      if (compactor.isDiscarded) throw new SessionError("session-deleted", "The session was deleted.");
    }
  }

  /** Takes the compaction in force back. Throws `unknown-compaction`, `not-in-force` or `turn-open`. */
  undoCompaction(id: number): Compaction {
    this.line.refuseWhileBusy();
    const { store } = this.#parts;
    const entry = store.compactions.get(id);
    if (!entry) throw new SessionError("unknown-compaction", `The session has no compaction ${id}.`);
    if (store.session.overlay !== id) {
      const inForce = store.session.overlay ? `only ${store.session.overlay} is` : "none is";
      throw new SessionError(
        "not-in-force",
        `Compaction ${id} is not in force, so it cannot be taken back; ${inForce}.`,
      );
    }
    this.line.compactor.abort();
    store.transaction(() => {
      store.compactions.setUndone(id);
      store.saveSession({ overlay: overlayInForce(store, store.session.leaf)?.id ?? null });
    });
    this.line.compactor.forget();
    this.line.forgetBranch();
    const compaction = listed({ ...entry, undone: true });
    this.#publish({ type: "compaction", data: { phase: "undone", compaction } });
    return compaction;
  }

  /** The report after an import, which may have brought more than the threshold allows. */
  async #consideredContext(): Promise<ContextReport> {
    const moment = await this.#moment();
    const { compactor, busy } = this.line;
    compactor.consider(moment, { trigger: "import", turnRuns: busy });
    const data = reportOf(moment, compactor.noticesAt(moment));
    this.#publish({ type: "context", data });
    return data;
  }

  async #moment(): Promise<Moment> {
    const { store, log } = this.#parts;
    const { configuration } = this;
    const { systemPrompt, tools } = configuration;
    const model = modelId(configuration.model);
    const kin = () => anchorOf({ anchor: store.newestAnchor() });
    const own = await overheadOf(systemPrompt, tools, tools, model);
    const { branch } = this.line;
    const overhead = restingOverhead(own, (newestAnchorOf(branch, store.session.measured !== null) ?? kin())?.prompt);
    return readMoment({ branch, configuration, tools, overhead, kin, session: store.session, log });
  }

  /** Tells those who listen how full the context is, after it changed without a turn. */
  #announceContext(): void {
    this.context()
      .then((data) => this.news.publish({ type: "context", data }))
      .catch((error: unknown) => this.#parts.log("context not told", { error }));
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
    this.line.compactor.forget();
    this.line.forgetBranch();
    return { inserted, skipped: 0, context: await this.#consideredContext() };
  }

  /** What was summarised of the message goes as well: what the summary covered is shown again until the next one. */
  eraseMessage(messageId: string): number {
    this.line.refuseWhileBusy();
    this.line.compactor.abort();
    const erased = this.history.erase(messageId);
    this.line.compactor.forget();
    this.line.forgetBranch();
    this.news.forget();
    this.#announceContext();
    return erased;
  }

  switchTo(target: Parameters<History["switchTo"]>[0]): number {
    this.line.refuseWhileBusy();
    const leaf = this.history.switchTo(target);
    this.#announceContext();
    return leaf;
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
