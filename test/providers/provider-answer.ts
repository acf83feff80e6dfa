/** One answer of a provider, as a session gets and keeps it: streamed, stored as JSON, read back. */
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogle } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import {
  convertToModelMessages,
  jsonSchema,
  readUIMessageStream,
  streamText,
  tool,
  toUIMessageStream,
  type LanguageModelUsage,
  type ToolSet,
  type UIMessage,
} from "ai";
import { inject } from "vitest";

/** `null` where the recordings are absent; the tests that need them are skipped then. */
export const recordedUrl = inject("recordedProviderUrl");

if (recordedUrl === null) console.warn("Provider fidelity is not tested: ../shared/corpus/provider-streams is absent.");

const key = { apiKey: "none" };
export const anthropic = createAnthropic({ ...key, baseURL: `${recordedUrl}/anthropic/v1` });
export const openai = createOpenAI({ ...key, baseURL: `${recordedUrl}/openai/v1` });
export const google = createGoogle({ ...key, baseURL: `${recordedUrl}/google/v1beta` });

type Model = Exclude<Parameters<typeof streamText>[0]["model"], string>;
type ProviderOptions = Parameters<typeof streamText>[0]["providerOptions"];

export interface ProviderAnswer {
  /** `undefined` when the call failed before there was a step */
  usage: LanguageModelUsage | undefined;
  finishReason: string | undefined;
  /** the assistant message as a client assembles it */
  message: UIMessage | undefined;
  /** messages of the stream's errors, in order */
  errors: string[];
}

export interface Conversation {
  messages?: UIMessage[];
  toolNames?: string[];
  providerOptions?: ProviderOptions;
}

/** Calls the model once. Without messages, one short user message is sent. */
export async function providerAnswer(model: Model, conversation: Conversation = {}): Promise<ProviderAnswer> {
  const errors: string[] = [];
  const tools = toolsNamed(conversation.toolNames ?? []);
  const result = streamText({
    model,
    tools,
    messages: await convertToModelMessages(conversation.messages ?? [userMessage("Hello.")], { tools }),
    providerOptions: conversation.providerOptions,
    maxRetries: 0,
    onError: ({ error }) => void errors.push(error instanceof Error ? error.message : messageOf(error)),
  });
  let message: UIMessage | undefined;
  for await (const state of readUIMessageStream({ stream: toUIMessageStream({ stream: result.stream }) }))
    message = state;
  const step = await result.finalStep.then(
    (last) => last,
    () => undefined,
  );
  return { usage: step?.usage, finishReason: step?.finishReason, message: stored(message), errors };
}

function toolsNamed(names: string[]): ToolSet {
  return Object.fromEntries(names.map((name) => [name, tool({ inputSchema: jsonSchema({ type: "object" }) })]));
}

function messageOf(error: unknown): string {
  return typeof error === "object" && error !== null && "message" in error
    ? String(error.message)
    : JSON.stringify(error);
}

function stored<Value>(value: Value): Value {
  return value === undefined ? value : (JSON.parse(JSON.stringify(value)) as Value);
}

export function userMessage(text: string): UIMessage {
  return { id: `user-${text.length}`, role: "user", parts: [{ type: "text", text }] };
}

/** The message with an output for every open tool call, as a client returns it. */
export function withOutputs(message: UIMessage, output: unknown): UIMessage {
  const parts = message.parts.map((part) => {
    if (!("toolCallId" in part) || part.state !== "input-available") return part;
    return { ...part, state: "output-available" as const, output };
  });
  return { ...message, parts };
}

/** The bodies a model's calls had, oldest first; the model's name keeps the tests apart. */
export async function receivedBodies(modelId: string): Promise<Record<string, unknown>[]> {
  const response = await fetch(`${recordedUrl}/requests?model=${encodeURIComponent(modelId)}`);
  const requests = (await response.json()) as { body: Record<string, unknown> }[];
  return requests.map(({ body }) => body);
}
