/**
 * An OpenAI-compatible chat completions server that says what it was told to say.
 *
 * A *script* is registered under a model name: the assistant steps of one conversation, in order. A call gets the step
 * that follows what its own request shows, so the server keeps no position and a retried call gets the same answer:
 * one step after the newest tool call it recognises, or after as many steps as there are assistant messages. Tool call
 * ids are therefore unique within a script; they still tell the position when the history before them was compacted.
 * Where a prompt may leave out whole steps (calls without a result), `after` on the step behind them corrects the count.
 *
 * Base address: `<url>/v1`. Beside `POST /v1/chat/completions`, for tests that reach it over HTTP only:
 * - `PUT /scripts/MODEL` `{steps}`, `DELETE /scripts/MODEL`
 * - `PUT /faults/MODEL` a fault, or a list of them; each hits the next `times` calls, in order
 * - `GET /calls/MODEL` → `{calls, requests}`, bodies oldest first; `DELETE` forgets them
 */
import type { ServerResponse } from "node:http";
import {
  isRecord,
  openEventStream,
  records,
  sendEvent,
  sendJson,
  startLoopbackServer,
  type LoopbackRequest,
  type LoopbackServer,
} from "./loopback-server.ts";

export type ScriptedPart =
  | { type: "reasoning" | "text"; text: string }
  | { type: "tool-call"; id: string; name: string; arguments: string };

export interface ScriptedStep {
  parts: ScriptedPart[];
  /** the provider's usage object as it goes over the wire; absent or null: none is sent */
  usage?: Record<string, unknown> | null;
  /** by default `tool_calls` with calls, else `stop` */
  finishReason?: string;
  /** text of the user message this step answers */
  after?: string;
}

/** `null` holds the place of a step that is in the conversation but was not said by this server. */
export type Script = (ScriptedStep | null)[];

/**
 * What goes wrong with a call.
 * - `status`: refused before streaming, with `status`, `message` and `headers`
 * - `cut`: the connection breaks after `chunks` chunks
 * - `stall`: nothing more comes after `chunks` chunks, the connection stays open
 * - `garble`: a payload that is not JSON after `chunks` chunks, then nothing
 * - `error`: an error payload with `message` after `chunks` chunks, as gateways send it
 * - `slow`: `delayMs` before every chunk
 * - `usage`: `usage` is sent in place of the script's; null: none
 */
export interface Fault {
  kind: "status" | "cut" | "stall" | "garble" | "error" | "slow" | "usage";
  /** calls it hits, by default one */
  times?: number;
  status?: number;
  message?: string;
  headers?: Record<string, string>;
  /** by default 0 */
  chunks?: number;
  delayMs?: number;
  usage?: Record<string, unknown> | null;
}

export interface CallLog {
  calls: number;
  requests: Record<string, unknown>[];
}

/** One call that is answered from its script. */
export interface ScriptedCall {
  model: string;
  step: number;
  body: Record<string, unknown>;
}

export interface OpenAICompatibleOptions {
  /** any free port by default */
  port?: number;
  /** UTF-16 units of text in a chunk, by default 24 */
  chunkSize?: number;
  /** keep request bodies for `calls`, by default true */
  keepRequests?: boolean;
  /** called before a scripted answer is streamed */
  onCall?: (call: ScriptedCall) => void;
}

export interface OpenAICompatibleServer extends LoopbackServer {
  script(model: string, steps: Script): void;
  forget(model: string): void;
  fault(model: string, ...faults: Fault[]): void;
  calls(model: string): CallLog;
}

interface State {
  options: OpenAICompatibleOptions;
  scripts: Map<string, Script>;
  faults: Map<string, Fault[]>;
  logs: Map<string, CallLog>;
}

export async function startOpenAICompatibleServer(
  options: OpenAICompatibleOptions = {},
): Promise<OpenAICompatibleServer> {
  const state: State = { options, scripts: new Map(), faults: new Map(), logs: new Map() };
  const server = await startLoopbackServer((request, response) => route(state, request, response), options.port);
  return {
    ...server,
    script: (model, steps) => void state.scripts.set(model, steps),
    forget: (model) => forget(state, model),
    fault: (model, ...faults) => addFaults(state, model, faults),
    calls: (model) => logOf(state, model),
  };
}

async function route(state: State, request: LoopbackRequest, response: ServerResponse): Promise<void> {
  const { method, path, body } = request;
  if (method === "POST" && path === "/v1/chat/completions" && isRecord(body)) return complete(state, body, response);
  const [, room, model] = /^\/(scripts|faults|calls)\/(.+)$/.exec(path) ?? [];
  if (room === undefined || model === undefined) return refuse(response, 404, `nothing answers ${method} ${path}`);
  sendJson(response, 200, control(state, `${method} ${room}`, model, body));
}

function control(state: State, command: string, model: string, body: unknown): unknown {
  if (command === "PUT scripts") state.scripts.set(model, (isRecord(body) ? body["steps"] : []) as Script);
  if (command === "DELETE scripts") forget(state, model);
  if (command === "PUT faults") addFaults(state, model, (Array.isArray(body) ? body : [body]) as Fault[]);
  if (command === "DELETE calls") state.logs.delete(model);
  return command === "GET calls" ? logOf(state, model) : {};
}

function forget(state: State, model: string): void {
  state.scripts.delete(model);
  state.faults.delete(model);
  state.logs.delete(model);
}

function addFaults(state: State, model: string, faults: Fault[]): void {
  state.faults.set(model, [...(state.faults.get(model) ?? []), ...faults]);
}

function logOf(state: State, model: string): CallLog {
  return state.logs.get(model) ?? { calls: 0, requests: [] };
}

async function complete(state: State, body: Record<string, unknown>, response: ServerResponse): Promise<void> {
  const model = String(body["model"]);
  record(state, model, body);
  const fault = takeFault(state, model);
  if (fault?.kind === "status")
    return refuse(response, fault.status ?? 500, fault.message ?? "scripted failure", fault.headers);
  const script = state.scripts.get(model);
  if (script === undefined) return refuse(response, 404, `no script is registered for ${model}`);
  const index = nextStep(script, records(body["messages"]));
  const step = script[index];
  if (!step) return refuse(response, 400, `the script of ${model} says nothing at step ${index}`);
  state.options.onCall?.({ model, step: index, body });
  const usage = fault?.kind === "usage" ? fault.usage : step.usage;
  const chunks = chunksOf(model, step, wantsUsage(body) ? usage : null, state.options.chunkSize ?? 24);
  await stream(chunks, fault, response);
}

function record(state: State, model: string, body: Record<string, unknown>): void {
  const log = logOf(state, model);
  log.calls += 1;
  if (state.options.keepRequests ?? true) log.requests.push(body);
  state.logs.set(model, log);
}

function takeFault(state: State, model: string): Fault | undefined {
  const [fault, ...later] = state.faults.get(model) ?? [];
  if (fault === undefined) return undefined;
  const left = (fault.times ?? 1) - 1;
  state.faults.set(model, left > 0 ? [{ ...fault, times: left }, ...later] : later);
  return fault;
}

/** Where the conversation in a request stands: the index of the step to say now. */
function nextStep(script: Script, messages: Record<string, unknown>[]): number {
  const counted = countedStep(script, messages);
  const last = messages.at(-1);
  if (last?.["role"] !== "user") return counted;
  const text = contentText(last["content"]);
  const pinned = script.findIndex((step, index) => index >= counted && follows(step?.after, text));
  return pinned < 0 ? counted : pinned;
}

/** Whether a user message ends with what a step follows: behind a summary it is a part of one message with it. */
function follows(after: string | undefined, text: string): boolean {
  return after !== undefined && (text === after || text.endsWith(`\n${after}`));
}

function contentText(content: unknown): string {
  return typeof content === "string"
    ? content
    : records(content)
        .map((part) => String(part["text"] ?? ""))
        .join("\n");
}

function countedStep(script: Script, messages: Record<string, unknown>[]): number {
  const stepOfCall = new Map<unknown, number>();
  script.forEach((step, index) => {
    for (const part of step?.parts ?? []) if (part.type === "tool-call") stepOfCall.set(part.id, index);
  });
  let newer = 0;
  for (const message of messages.toReversed()) {
    const ids = [message["tool_call_id"], ...records(message["tool_calls"]).map((call) => call["id"])];
    const known = ids.map((id) => stepOfCall.get(id)).find((index) => index !== undefined);
    if (known !== undefined) return known + 1 + newer;
    if (message["role"] === "assistant") newer += 1;
  }
  return newer;
}

function wantsUsage(body: Record<string, unknown>): boolean {
  const options = body["stream_options"];
  return isRecord(options) && options["include_usage"] === true;
}

function chunksOf(model: string, step: ScriptedStep, usage: ScriptedStep["usage"], chunkSize: number): string[] {
  const chunk = (fields: Record<string, unknown>): string =>
    JSON.stringify({ id: "chatcmpl-scripted", object: "chat.completion.chunk", created: 0, model, ...fields });
  const choice = (delta: Record<string, unknown>, finish: string | null = null): string =>
    chunk({ choices: [{ index: 0, delta, finish_reason: finish }] });
  const calls = step.parts.filter((part) => part.type === "tool-call");
  const finish = step.finishReason ?? (calls.length > 0 ? "tool_calls" : "stop");
  return [
    choice({ role: "assistant", content: "" }),
    ...step.parts
      .flatMap((part) => deltasOf(part, part.type === "tool-call" ? calls.indexOf(part) : 0, chunkSize))
      .map((delta) => choice(delta)),
    choice({}, finish),
    ...(usage ? [chunk({ choices: [], usage })] : []),
    "[DONE]",
  ];
}

function deltasOf(part: ScriptedPart, callIndex: number, chunkSize: number): Record<string, unknown>[] {
  if (part.type !== "tool-call") {
    const field = part.type === "text" ? "content" : "reasoning_content";
    return pieces(part.text, chunkSize).map((text) => ({ [field]: text }));
  }
  const call = (fields: Record<string, unknown>): Record<string, unknown> => ({
    tool_calls: [{ index: callIndex, ...fields }],
  });
  return [
    call({ id: part.id, type: "function", function: { name: part.name, arguments: "" } }),
    ...pieces(part.arguments, chunkSize).map((text) => call({ function: { arguments: text } })),
  ];
}

/** Cuts a text into pieces without parting a surrogate pair, as no real provider does either. */
function pieces(text: string, size: number): string[] {
  const cut: string[] = [];
  let start = 0;
  while (start < text.length) {
    let end = Math.min(start + size, text.length);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end += 1;
    cut.push(text.slice(start, end));
    start = end;
  }
  return cut;
}

async function stream(chunks: string[], fault: Fault | undefined, response: ServerResponse): Promise<void> {
  openEventStream(response);
  const breaksAt =
    fault !== undefined && fault.kind !== "slow" && fault.kind !== "usage" ? (fault.chunks ?? 0) : Infinity;
  for (const [index, chunk] of chunks.entries()) {
    if (index === breaksAt) break;
    if (fault?.kind === "slow") await new Promise((done) => setTimeout(done, fault.delayMs ?? 10));
    if (!(await sendEvent(response, chunk))) return;
  }
  await finish(fault, response);
}

async function finish(fault: Fault | undefined, response: ServerResponse): Promise<void> {
  if (fault?.kind === "stall") return;
  if (fault?.kind === "cut") return void response.destroy();
  if (fault?.kind === "garble") await sendEvent(response, '{"choices":[{"delta":');
  if (fault?.kind === "error")
    await sendEvent(response, JSON.stringify({ error: { message: fault.message ?? "scripted failure" } }));
  response.end();
}

function refuse(response: ServerResponse, status: number, message: string, headers: Record<string, string> = {}): void {
  sendJson(response, status, { error: { message, type: "scripted", code: null } }, headers);
}
