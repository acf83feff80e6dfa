/** Plays one planned session through the service, as the stock chat client does it, and checks what came of it. */
import { WebSocketChatTransport, type ChatTransport, type LanguageModelUsage, type UIMessage } from "ai";
import type { ScriptedCall } from "../../test/loopback/openai-compatible-server.ts";
import type { UsageRecord, UsageTotals } from "../../src/records.ts";
import { differenceOfCopies, differenceOfMessages, differenceOfPrompts, differenceOfUsage } from "./comparison.ts";
import { MemoryChat } from "./memory-chat.ts";
import {
  callsOf,
  inputOfCall,
  messagesIn,
  type Act,
  type PlannedMessage,
  type PlannedSession,
  type PlannedStep,
  type PlannedUser,
} from "./plan.ts";
import { inputOf } from "./recording.ts";
import { placesOf, receivedMessages, receivedSystem, scriptOf, shownMessages } from "./script.ts";
import { SessionApi } from "./session-api.ts";

const STEP_TIMEOUT_MS = 20_000;
/** a picture in a recording is only known to have been there */
const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** The scripted model behind the service. */
export interface Stage {
  /** the service's address */
  service: string;
  /** whether prompts may be shorter than the conversation */
  compacting: boolean;
  script(model: string, steps: ReturnType<typeof scriptOf>): void;
  forget(model: string): void;
  /** hears of the calls of one model until it is forgotten */
  listen(model: string, hear: (call: ScriptedCall) => void): void;
}

export interface Played {
  turns: number;
  steps: number;
  stored: number;
  imported: number;
  /** calls whose prompt was shorter than the conversation, where that is expected */
  shortened: number;
  /** sum of the reported input of every call */
  reported: number;
  /** reported input and prediction of every call that has both; the session's `first` knows no report before it */
  predictions: { reported: number; predicted: number; first: boolean }[];
  /** sentences; none: what is stored is what was said */
  differences: string[];
}

const NOTHING: Played = {
  turns: 0,
  steps: 0,
  stored: 0,
  imported: 0,
  shortened: 0,
  reported: 0,
  predictions: [],
  differences: [],
};

export async function playSession(
  session: PlannedSession,
  tools: string[],
  sessionId: string,
  stage: Stage,
): Promise<Played> {
  const api = new SessionApi(stage.service, sessionId);
  const prompts = new PromptWatch(session, stage.compacting);
  stage.script(sessionId, scriptOf(session));
  stage.listen(sessionId, (call) => prompts.hear(call));
  const conversation = new Conversation(session, sessionId, api, transportTo(api, tools));
  const failure = await sentenceOf(conversation.play());
  let played = NOTHING;
  const silence = await sentenceOf(
    examine(session, sessionId, api, conversation.messages).then((found) => void (played = found)),
  );
  stage.forget(sessionId);
  const differences = [failure, ...prompts.differences, silence, ...played.differences];
  return { ...played, shortened: prompts.shortened, differences: differences.filter((one) => one !== null) };
}

/** What a failed attempt says; null when it succeeds. */
async function sentenceOf(attempt: Promise<void>): Promise<string | null> {
  try {
    await attempt;
    return null;
  } catch (cause) {
    return cause instanceof Error ? cause.message : String(cause);
  }
}

function modelOf(sessionId: string): string {
  return `openai-compatible/${sessionId}`;
}

function transportTo(api: SessionApi, tools: string[]): ChatTransport<UIMessage> {
  const clientTools = tools.map((name) => ({ name, inputSchema: { type: "object" } }));
  return new WebSocketChatTransport({ url: api.url, body: { clientTools } });
}

/** Compares every prompt with the conversation up to it. */
class PromptWatch {
  readonly differences: string[] = [];
  shortened = 0;
  readonly #system: string | null;
  readonly #compacting: boolean;
  /** the conversation before each step, by the step's place in the script */
  readonly #before: PlannedMessage[][];

  constructor(session: PlannedSession, compacting: boolean) {
    this.#system = session.system;
    this.#compacting = compacting;
    this.#before = placesOf(session).map(({ before }) => before);
  }

  hear({ step, body }: ScriptedCall): void {
    // one difference shifts everything behind it, so only the first is worth telling
    if (this.differences.length > 0) return;
    const expected = shownMessages(this.#before[step] ?? []);
    const received = receivedMessages(body);
    const shortened = this.#compacting && received.length < expected.length;
    if (shortened) this.shortened += 1;
    const difference =
      receivedSystem(body) === this.#system
        ? differenceOfPrompts(expected, received, shortened)
        : "the system prompt is another";
    if (difference !== null) this.differences.push(`step ${step}: ${difference}`);
  }
}

class Conversation {
  readonly #session: PlannedSession;
  readonly #api: SessionApi;
  readonly #transport: ChatTransport<UIMessage>;
  readonly #chat: MemoryChat;
  readonly #sessionId: string;
  readonly #outputs = new Map<string, string>();
  /** steps the recorded answer to the latest user message has */
  #stepsDue = 0;

  constructor(session: PlannedSession, sessionId: string, api: SessionApi, transport: ChatTransport<UIMessage>) {
    this.#session = session;
    this.#sessionId = sessionId;
    this.#api = api;
    this.#transport = transport;
    this.#chat = new MemoryChat({
      id: sessionId,
      transport,
      desk: {
        outputOf: (id) => this.#outputs.get(id),
        goesOn: (message) => message.parts.filter(({ type }) => type === "step-start").length < this.#stepsDue,
      },
    });
  }

  get messages(): UIMessage[] {
    return this.#chat.messages;
  }

  async play(): Promise<void> {
    const { system } = this.#session;
    const model = modelOf(this.#sessionId);
    await this.#api.configure({ model, ...(system === null ? {} : { systemPrompt: system }) });
    try {
      for (const [index, act] of this.#session.acts.entries()) await this.#perform(act, index);
    } finally {
      this.#transport.close?.();
    }
  }

  async #perform(act: Act, index: number): Promise<void> {
    if (act.kind === "import") {
      const message = importOf(act.message, `${this.#sessionId}-import-${index}`);
      await this.#api.import([message]);
      this.#chat.messages = [...this.#chat.messages, message];
      return;
    }
    for (const call of act.answer.steps.flatMap(callsOf)) {
      if (call.output !== undefined) this.#outputs.set(call.id, call.output);
    }
    this.#stepsDue = act.answer.steps.length;
    const waiting = act.messages
      .slice(0, -1)
      .map((message, place) => ({ ...messageOf(message), id: `${this.#sessionId}-user-${index}-${place}` }));
    this.#chat.messages = [...this.#chat.messages, ...waiting];
    await this.#ask(act.messages.at(-1) as PlannedUser, index);
  }

  async #ask(message: PlannedUser, index: number): Promise<void> {
    const timeout = AbortSignal.timeout(STEP_TIMEOUT_MS + (this.#stepsDue * STEP_TIMEOUT_MS) / 10);
    const late = new Promise<"late">((done) => timeout.addEventListener("abort", () => done("late"), { once: true }));
    if ((await Promise.race([this.#chat.sendMessage(messageOf(message)), late])) === "late") {
      void this.#chat.stop();
      throw new Error(`act ${index}: the turn did not end in time`);
    }
    const { error } = this.#chat;
    if (error !== undefined) throw new Error(`act ${index}: ${error.message}`);
  }
}

function messageOf(message: PlannedUser): Omit<UIMessage, "id"> {
  const texts = message.texts.map((text) => ({ type: "text" as const, text }));
  const images = Array.from({ length: message.images }, () => ({
    type: "file" as const,
    mediaType: "image/png",
    url: PIXEL,
  }));
  return { role: message.role, parts: [...texts, ...images] };
}

function importOf(message: PlannedMessage, id: string): UIMessage {
  if (message.role !== "assistant") return { ...messageOf(message), id };
  const usages = message.steps.map(importedUsage);
  const metadata = usages.every((usage) => usage !== null) ? { usage: usages.at(-1), steps: usages } : undefined;
  return { id, role: "assistant", parts: message.steps.flatMap(importedStep), ...(metadata ? { metadata } : {}) };
}

function importedStep(step: PlannedStep): UIMessage["parts"] {
  return [
    { type: "step-start" },
    ...step.parts.map((part): UIMessage["parts"][number] => {
      if (part.type !== "tool-call") return { type: part.type, text: part.text };
      const { id, name, output } = part.call;
      const call = { type: `tool-${name}` as const, toolCallId: id, input: inputOfCall(part.call) };
      return output === undefined
        ? { ...call, state: "input-available" }
        : { ...call, state: "output-available", output };
    }),
  ];
}

function importedUsage({ usage }: PlannedStep): LanguageModelUsage | null {
  if (usage === null) return null;
  return {
    inputTokens: inputOf(usage),
    inputTokenDetails: { noCacheTokens: usage.in, cacheReadTokens: usage.cr, cacheWriteTokens: usage.cw },
    outputTokens: usage.out,
    outputTokenDetails: { textTokens: undefined, reasoningTokens: undefined },
    totalTokens: inputOf(usage) + usage.out,
  };
}

/** Reads the session back over HTTP and compares. */
async function examine(
  session: PlannedSession,
  sessionId: string,
  api: SessionApi,
  client: UIMessage[],
): Promise<Played> {
  const said = messagesIn(session);
  const stored = await api.messages();
  const usage = await api.usage();
  const turns = usage.records.filter(({ purpose }) => purpose === "turn").toSorted((one, other) => one.seq - other.seq);
  const spoken = session.acts.flatMap((act) => (act.kind === "say" ? [act.answer] : []));
  const differences = [
    differenceOfMessages(said, stored),
    differenceOfCopies(client, stored),
    ...spoken.map((answer) => differenceOfUsage(answer, stored[said.indexOf(answer)], modelOf(sessionId))),
    differenceOfBooks(bookedSteps(session), turns),
    differenceOfTotals(usage.records, usage.totals),
  ];
  return {
    turns: spoken.length,
    steps: turns.length,
    stored: stored.length,
    imported: session.acts.length - spoken.length,
    shortened: 0,
    reported: inputSum(turns),
    predictions: turns.flatMap(predictionOf),
    differences: differences.filter((difference) => difference !== null),
  };
}

/** Every call made here, and every imported step that says what it cost. */
function bookedSteps(session: PlannedSession): PlannedStep[] {
  return session.acts.flatMap((act): PlannedStep[] => {
    if (act.kind === "say") return act.answer.steps;
    return act.message.role === "assistant" ? act.message.steps.filter(({ usage }) => usage !== null) : [];
  });
}

function differenceOfBooks(steps: PlannedStep[], records: UsageRecord[]): string | null {
  if (records.length !== steps.length) return `${records.length} calls are booked, ${steps.length} were made`;
  const recorded = steps.reduce((sum, { usage }) => sum + (usage ? inputOf(usage) : 0), 0);
  const booked = inputSum(records);
  return recorded === booked ? null : `the booked input is ${booked} tokens, recorded ${recorded}`;
}

function differenceOfTotals(records: UsageRecord[], totals: UsageTotals): string | null {
  if (totals.calls !== records.length) return `the totals count ${totals.calls} calls, ${records.length} are listed`;
  const listed = inputSum(records);
  return totals.inputTokens === listed
    ? null
    : `the totals have ${totals.inputTokens} input tokens, the list ${listed}`;
}

function inputSum(records: UsageRecord[]): number {
  return records.reduce((sum, { usage }) => sum + (usage?.inputTokens ?? 0), 0);
}

function predictionOf({ usage, predictedTokens }: UsageRecord, index: number): Played["predictions"] {
  const reported = usage?.inputTokens ?? 0;
  if (predictedTokens === undefined || reported <= 0) return [];
  return [{ reported, predicted: predictedTokens, first: index === 0 }];
}
