/** Plays one script through a real session: real storage, real ledger, real decisions; the model is a double. */
import { jsonSchema, tool, type ToolSet, type UIMessage } from "ai";
import { SessionBuilder } from "../../src/session-builder.ts";
import { SessionStore } from "../../src/storage/session-store.ts";
import type { SessionEvent } from "../../src/events.ts";
import { Session } from "../../src/turn/session.ts";
import { Double } from "./double.ts";
import { Pace } from "./pace.ts";
import type { PlayRecord, Setting } from "./records.ts";
import { Scales } from "./scales.ts";
import { type Act, callIdOf, markOf, placeOfCall, type Script, type ScriptedEntry } from "./script.ts";
import { useUnseenWeights } from "./unseen-weights.ts";
import { Witness } from "./witness.ts";

/** How often it is looked whether anything happens, in ms, and looks without anything after which the session waits. */
const LOOK_MS = 5;
const LOOKS = 4;

/** Looks after which a session that waits for nothing is stuck. */
const STUCK_LOOKS = 4_000;

/** Refused turns in a row after which nothing more will fit. */
const REFUSALS = 3;

export async function play(script: Script, setting: Setting, storage: DurableObjectStorage): Promise<PlayRecord> {
  useUnseenWeights(script);
  return new Play(script, setting, storage).run();
}

/** What a turn failed of. */
interface Refusal {
  code: string;
  message: string;
}

class Play {
  readonly #script: Script;
  readonly #setting: Setting;
  readonly #pace: Pace;
  readonly #double: Double;
  readonly #session: Session;
  readonly #witness: Witness;
  #ids = 0;
  #refusals = 0;
  /** whether a call came that the recording does not have */
  #spared = false;

  constructor(script: Script, setting: Setting, storage: DurableObjectStorage) {
    const scales = new Scales(script);
    this.#script = script;
    this.#setting = setting;
    this.#pace = new Pace(setting.delay);
    this.#double = new Double({
      script,
      scales,
      pace: this.#pace,
      contextWindow: setting.contextWindow,
      heard: (...call) => this.#witness.call(...call),
      spared: () => {
        this.#spared = true;
        this.#session.line.abort();
      },
    });
    const store = new SessionStore(storage);
    this.#session = new Session({
      id: script.name,
      store,
      configuration: this.#configuration(),
      languageModel: () => this.#double,
      clock: () => Date.now(),
      newId: () => `made-${(this.#ids += 1)}`,
      keepAwake: () => {},
      log: (event, details) => this.#witness.note(event, details),
    });
    this.#witness = new Witness({ script, setting, store, session: this.#session, scales, pace: this.#pace });
    // SAFETY: what is told is an event as JSON.
    this.#session.news.follow(({ json }) => this.#witness.hear(JSON.parse(json) as SessionEvent));
  }

  async run(): Promise<PlayRecord> {
    this.#session.start();
    for (const act of this.#script.acts) {
      if (this.#refusals === REFUSALS) break;
      if (act.kind === "turn") await this.#turn(act);
      else await this.#import(act.entry);
    }
    await this.#rest();
    const { calls, meanwhile } = this.#pace;
    const { summariser } = this.#double;
    // What is pasted belongs to no recording, so nothing of it is counted with the rest.
    const played = structuredClone({ calls, meanwhile, ...this.#witness.record, summariser });
    return { name: this.#script.name, ...played, paste: this.#setting.pastes ? await this.#paste() : null };
  }

  #configuration() {
    const { compactAfter, tailTokenBudget, contextWindow, maxOutputTokens } = this.#setting;
    const builder = new SessionBuilder()
      .model(this.#double)
      .tools(this.#tools())
      .maxSteps(Number.MAX_SAFE_INTEGER)
      .contextWindow(contextWindow)
      .compactAfter(compactAfter)
      .compaction({ tailTokenBudget, onCompaction: (proposal) => this.#witness.proposed(proposal) });
    if (this.#script.system) builder.system(this.#script.system);
    if (maxOutputTokens) builder.maxOutputTokens(maxOutputTokens);
    return builder.build();
  }

  /** Every tool of the recording gives back what it gave then. */
  #tools(): ToolSet {
    const execute = (_input: unknown, { toolCallId }: { toolCallId: string }) => {
      const place = placeOfCall(toolCallId);
      return place ? this.#script.entries[place.entry]?.pieces[place.piece]?.tool?.output : undefined;
    };
    const inputSchema = jsonSchema<unknown>({ type: "object" });
    return Object.fromEntries(this.#script.tools.map((name) => [name, tool({ inputSchema, execute })]));
  }

  async #turn({ asked, steps }: Extract<Act, { kind: "turn" }>): Promise<void> {
    this.#double.prepare(steps);
    const refused = await this.#submit(asked.map((entry) => this.#messageOf(entry)));
    this.#refusals = refused ? this.#refusals + 1 : 0;
    if (refused) this.#witness.refused(refused);
    else this.#witness.turnEnded();
    if (!this.#setting.restless) await this.#rest();
  }

  /** Answers with what the turn failed of, if it did. */
  async #submit(messages: UIMessage[]): Promise<Refusal | undefined> {
    let refused: Refusal | undefined;
    const sink = {
      chunk: () => (this.#witness.activity += 1),
      end: () => {},
      error: (error: Refusal) => (refused = error),
    };
    const requestId = `turn-${messages[0]?.id}`;
    await this.#session.line.submit({ requestId, trigger: "submit-message", messages }, sink);
    await this.#while(() => this.#session.line.busy);
    return refused;
  }

  /** Pastes what no window holds. Answers with what came of it, unless it was refused before any call. */
  async #paste(): Promise<string | null> {
    const text = "harbour ".repeat(2 * this.#setting.contextWindow);
    this.#double.prepare([]);
    this.#spared = false;
    const refused = await this.#submit([{ id: "pasted", role: "user", parts: [{ type: "text", text }] }]);
    await this.#rest();
    if (this.#spared) return "it was sent";
    return refused?.code === "prompt-too-large" ? null : `it was answered with ${refused?.code ?? "nothing"}`;
  }

  async #import(entry: number): Promise<void> {
    await this.#session.importMessages([this.#messageOf(entry)]);
    if (!this.#setting.restless) await this.#rest();
  }

  /** Until nothing is being written any more. */
  async #rest(): Promise<void> {
    this.#pace.hurry();
    await this.#session.line.compactor.running;
  }

  /** Waits, and sees when the session waits as well: then the summary is done. */
  async #while(holds: () => boolean): Promise<void> {
    let seen = -1;
    for (let looks = 0; holds();) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      looks = this.#witness.activity === seen ? looks + 1 : 0;
      seen = this.#witness.activity;
      if (looks > STUCK_LOOKS) throw new Error(`${this.#script.name} is stuck`);
      if (looks !== LOOKS || !this.#pace.isWriting) continue;
      this.#witness.waits();
      this.#pace.hurry();
    }
  }

  #messageOf(entry: number): UIMessage {
    const scripted = this.#script.entries[entry]!;
    return { id: `said-${entry}`, role: scripted.role, parts: partsOf(scripted, entry) };
  }
}

/** A picture in a recording is only known to have been there. */
const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

function partsOf({ pieces }: ScriptedEntry, entry: number): UIMessage["parts"] {
  return pieces.map(({ kind, text, tool }, piece): UIMessage["parts"][number] => {
    const place = { entry, piece };
    if (tool) {
      const input: unknown = JSON.parse(text);
      const state = "output-available";
      return { type: `tool-${tool.name}`, toolCallId: callIdOf(place), state, input, output: tool.output };
    }
    const providerMetadata = markOf(place);
    if (kind === "image") return { type: "file", mediaType: "image/png", url: PIXEL, providerMetadata };
    return { type: kind === "reasoning" ? "reasoning" : "text", text, providerMetadata };
  });
}
