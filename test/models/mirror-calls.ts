import type { LanguageModelV4, LanguageModelV4CallOptions, LanguageModelV4StreamPart } from "@ai-sdk/provider";

type Prompt = LanguageModelV4CallOptions["prompt"];
type Message = Prompt[number];

export const user = (text: string): Message => ({ role: "user", content: [{ type: "text", text }] });
export const assistant = (text: string): Message => ({ role: "assistant", content: [{ type: "text", text }] });
export const system = (content: string): Message => ({ role: "system", content });

export const called = (toolCallId: string, toolName: string, input: unknown = {}): Message => ({
  role: "assistant",
  content: [{ type: "tool-call", toolCallId, toolName, input }],
});

export const returned = (toolCallId: string, toolName: string, value: string): Message => ({
  role: "tool",
  content: [{ type: "tool-result", toolCallId, toolName, output: { type: "text", value } }],
});

export const offer = (...names: string[]): LanguageModelV4CallOptions["tools"] =>
  names.map((name) => ({ type: "function", name, inputSchema: { type: "object" } }));

type Extra = Omit<LanguageModelV4CallOptions, "prompt">;

/** Every part of a streamed answer, and what broke the stream if something did. */
export async function stream(model: LanguageModelV4, prompt: Prompt, extra: Extra = {}) {
  const parts: LanguageModelV4StreamPart[] = [];
  const { stream: chunks } = await model.doStream({ prompt, ...extra });
  try {
    for await (const part of chunks) parts.push(part);
  } catch (broken) {
    return { parts, broken };
  }
  return { parts, broken: undefined };
}

export function textOfParts(parts: LanguageModelV4StreamPart[]): string {
  return parts.map((part) => (part.type === "text-delta" ? part.delta : "")).join("");
}

export async function answer(model: LanguageModelV4, prompt: Prompt, extra: Extra = {}): Promise<string> {
  return textOfParts((await stream(model, prompt, extra)).parts);
}

export async function generate(model: LanguageModelV4, prompt: Prompt, extra: Extra = {}) {
  return model.doGenerate({ prompt, ...extra });
}

/** One letter for each kind of part, so that an order can be read at a glance. */
export function kinds(parts: LanguageModelV4StreamPart[]): string[] {
  return parts.map((part) => part.type).filter((type, index, all) => type !== all[index - 1]);
}
