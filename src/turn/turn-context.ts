/** The context of a running turn: read after every step, told to clients, and made to fit before every call. */
import type { ContextReport } from "../context/report.ts";
import type { ClientTool, SessionRecord } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import type { Branch } from "./branch.ts";
import type { Compactor } from "./compactor.ts";
import { modelId, type Configuration } from "./configuration.ts";
import { readMoment, reportOf, type ContextPlace, type Moment } from "./context-reading.ts";
import { anchorOf, overheadOf } from "./gauge.ts";
import { madeSmaller, makeRoom, relieveAnew } from "./room.ts";
import { toolSetOf } from "./tool-set.ts";

export interface TurnContextSurroundings {
  store: SessionStore;
  branch: Branch;
  configuration: Configuration;
  compactor: Compactor;
  log: (event: string, details: Record<string, unknown>) => void;
}

export class TurnContext {
  readonly #place: ContextPlace;
  readonly #around: TurnContextSurroundings;
  #moment: Moment | undefined;

  /** `clientTools` are those that the request brought. */
  static async open(around: TurnContextSurroundings, clientTools: readonly ClientTool[]): Promise<TurnContext> {
    const { branch, configuration, store, log } = around;
    const tools = toolSetOf(configuration.tools, clientTools);
    const model = modelId(configuration.model);
    const overhead = await overheadOf(configuration.systemPrompt, configuration.tools, tools, model);
    const kin = () => anchorOf({ anchor: store.newestAnchor() });
    return new TurnContext({ branch, configuration, tools, overhead, kin, session: store.session, log }, around);
  }

  private constructor(place: ContextPlace, around: TurnContextSurroundings) {
    this.#place = place;
    this.#around = around;
  }

  /** The newest reading; what is decided by it, and shown of it, is the same number. */
  get moment(): Moment | undefined {
    return this.#moment;
  }

  /** Whether what is shown is what was read: a compaction may have taken effect since. */
  isCurrent({ reading }: Moment): boolean {
    return reading.prompt.overlay === (this.#place.branch.overlay?.id ?? null);
  }

  /** The context right before a call, after what has to be done so that it fits. Throws `prompt-too-large`. */
  ready(isFirst: boolean, signal: AbortSignal): Promise<Moment> {
    const trigger = isFirst ? "before-turn" : "between-steps";
    return makeRoom({ read: () => this.#current(), compactor: this.#around.compactor, trigger, signal });
  }

  /** Reads how full the context is by now. `totals` are those of the session, this turn included. */
  async read(totals: SessionRecord["totals"]): Promise<ContextReport> {
    const { store, compactor } = this.#around;
    this.#moment = await readMoment({ ...this.#place, session: { ...store.session, totals } });
    return reportOf(this.#moment, compactor.noticesAt(this.#moment));
  }

  /** The provider found the prompt too long: it is made shorter at once. Answers whether it was, or `signal` ended the waiting. */
  async relieve(signal: AbortSignal): Promise<boolean> {
    const { compactor } = this.#around;
    if (compactor.running && (await madeSmaller(compactor.running, signal))) return true;
    return relieveAnew(compactor, await this.#current(), { trigger: "overflow", signal });
  }

  /** The newest reading, if it still stands. */
  async #current(): Promise<Moment> {
    if (this.#moment && this.isCurrent(this.#moment)) return this.#moment;
    return (this.#moment = await readMoment({ ...this.#place, session: this.#around.store.session }));
  }
}
