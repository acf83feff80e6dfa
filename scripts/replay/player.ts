/** Plays one planned session through the service, as the stock chat client does it, and checks what came of it. */
import { WebSocketChatTransport, type ChatTransport, type LanguageModelUsage, type UIMessage } from "ai";
import type { ScriptedCall } from "../../test/loopback/openai-compatible-server.ts";
import type { UsageRecord } from "../../src/records.ts";
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
import { receivedMessages, scriptOf, shownMessages } from "./script.ts";
import { SessionApi } from "./session-api.ts";

const STEP_TIMEOUT_MS = 20_000;
/** a picture in a recording is only known to have been there */
const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** The scripted model behind the service. */
export interface Stage {
  /** the service's address */
  service: string;
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
  /** calls whose prompt was shorter than the conversation */
  compacted: number;
  /** sum of the reported input of every call */
  reported: number;
  /** reported input and prediction of every call that has both */
  predictions: { reported: number; predicted: number }[];
  /** sentences; none: what is stored is what was said */
  differences: string[];
}

export async function playSession(
  session: PlannedSession,
  tools: string[],
  sessionId: string,
  stage: Stage,
): Promise<Played> {
  const api = new SessionApi(stage.service, sessionId);
  const prompts = new PromptWatch(session);
  stage.script(sessionId, scriptOf(session));
  stage.listen(sessionId, (call) => prompts.hear(call));
  await api.configure({
    model: modelOf(sessionId),
    ...(session.system === null ? {} : { systemPrompt: session.system }),
  });
  const conversation = new Conversation(session, sessionId, api, transportTo(api, tools));
  const failure = await conversation
    .play()
    .catch((cause: unknown) => (cause instanceof Error ? cause.message : String(cause)));
  const played = await examine(session, sessionId, api, conversation.messages);
  stage.forget(sessionId);
  return {
    ...played,
    compacted: prompts.compacted,
    differences: [...(failure ? [failure] : []), ...prompts.differences, ...played.differences],
  };
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
  compacted = 0;
  /** the conversation before each step, by the step's place in the script */
  readonly #before: PlannedMessage[][] = [];

  constructor(session: PlannedSession) {
    const messages = messagesIn(session);
    messages.forEach((message, index) => {
      if (message.role !== "assistant") return;
      message.steps.forEach((_, step) => {
        const begun: PlannedMessage[] = step === 0 ? [] : [{ role: "assistant", steps: message.steps.slice(0, step) }];
        this.#before.push([...messages.slice(0, index), ...begun]);
      });
    });
  }

  hear({ step, body }: ScriptedCall): void {
    if (this.differences.length > 0) return;
    const expected = shownMessages(this.#before[step] ?? []);
    const received = receivedMessages(body);
    const shorter = received.length < expected.length;
    if (shorter) this.compacted += 1;
    const difference = differenceOfPrompts(expected, received, shorter);
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
  const { records } = await api.usage();
  const turns = records.filter((record) => record.purpose === "turn");
  const reported = turns.reduce((sum, record) => sum + (record.usage?.inputTokens ?? 0), 0);
  const spoken = session.acts.flatMap((act) => (act.kind === "say" ? [act.answer] : []));
  const differences = [
    differenceOfMessages(said, stored),
    differenceOfCopies(client, stored),
    ...spoken.map((answer) => differenceOfUsage(answer, stored[said.indexOf(answer)], modelOf(sessionId))),
    differenceOfBooks(
      spoken.flatMap(({ steps }) => steps),
      turns,
      reported,
    ),
  ];
  return {
    turns: spoken.length,
    steps: turns.length,
    stored: stored.length,
    imported: session.acts.length - spoken.length,
    compacted: 0,
    reported,
    predictions: turns.flatMap(predictionOf),
    differences: differences.filter((difference) => difference !== null),
  };
}

function differenceOfBooks(steps: PlannedStep[], records: UsageRecord[], reported: number): string | null {
  if (records.length !== steps.length) return `${records.length} calls are booked, ${steps.length} were made`;
  const recorded = steps.reduce((sum, { usage }) => sum + (usage ? inputOf(usage) : 0), 0);
  return recorded === reported ? null : `the booked input is ${reported} tokens, recorded ${recorded}`;
}

function predictionOf({ usage, predictedTokens }: UsageRecord): Played["predictions"] {
  const reported = usage?.inputTokens ?? 0;
  return predictedTokens === undefined || reported <= 0 ? [] : [{ reported, predicted: predictedTokens }];
}
