/**
 * Serves recorded provider streams to the real provider packages.
 *
 * Base addresses: `<url>/anthropic/v1`, `<url>/openai/v1` (responses and chat completions), `<url>/google/v1beta`.
 *
 * The model name chooses what is played: `[label--]recording[+recording…]`.
 * - `anthropic-text` plays `anthropic-text.chunks.txt` on every call; a final `.1` of a file's name may be left out.
 * - `first+second` plays `first` to a conversation without an answer yet, `second` after one answer, and stays there.
 *   The answers are counted in the request, so a retry gets the same stream again.
 * - `gemini-3-pro-preview--google-text`: the label is free. The packages look at a model's name to decide what they
 *   send, so a label such as a real model's name gets the requests of that model; and it keeps the requests of two
 *   tests apart in the log.
 *
 * `GET /requests?model=NAME` lists the bodies received, oldest first; `DELETE` forgets them. Without `model`: all.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
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

/** One request as a provider package sent it. */
export interface ReceivedRequest {
  path: string;
  model: string;
  body: Record<string, unknown>;
}

interface Dialect {
  matches: RegExp;
  model(request: LoopbackRequest, body: Record<string, unknown>): string;
  /** how many answers of the model the request carries */
  answers(body: Record<string, unknown>): number;
  /** what the provider sends after its last chunk */
  ending?: string;
}

const modelInBody = (_: LoopbackRequest, body: Record<string, unknown>): string => String(body["model"]);
const answersIn = (key: string, role: string) => (body: Record<string, unknown>) =>
  records(body[key]).filter((message) => message["role"] === role).length;

const DIALECTS: Dialect[] = [
  { matches: /^\/anthropic\/v1\/messages$/, model: modelInBody, answers: answersIn("messages", "assistant") },
  { matches: /^\/openai\/v1\/responses$/, model: modelInBody, answers: responsesAnswers },
  {
    matches: /^\/openai\/v1\/chat\/completions$/,
    model: modelInBody,
    answers: answersIn("messages", "assistant"),
    ending: "[DONE]",
  },
  {
    matches: /^\/google\/v1beta\/models\/.+:streamGenerateContent$/,
    model: ({ path }) => path.slice(path.lastIndexOf("/") + 1, path.lastIndexOf(":")),
    answers: answersIn("contents", "model"),
  },
];

/** The responses API sends items, not messages: an answer is a run of items that neither side of us made. */
function responsesAnswers(body: Record<string, unknown>): number {
  let answers = 0;
  let inAnswer = false;
  for (const item of records(body["input"])) {
    const ours =
      String(item["type"]).endsWith("_output") || ["user", "system", "developer"].includes(String(item["role"]));
    if (!ours && !inAnswer) answers += 1;
    inAnswer = !ours;
  }
  return answers;
}

/** Starts the server over a folder of `*.chunks.txt` files. */
export async function startRecordedProvider(folder: string): Promise<LoopbackServer> {
  const received: ReceivedRequest[] = [];
  return startLoopbackServer(async (request, response) => {
    if (request.path === "/requests") return answerLog(received, request, response);
    const dialect = DIALECTS.find(({ matches }) => matches.test(request.path));
    if (dialect === undefined || request.method !== "POST" || !isRecord(request.body)) {
      return sendJson(response, 404, {
        error: { message: `nothing is recorded for ${request.method} ${request.path}` },
      });
    }
    const model = dialect.model(request, request.body);
    received.push({ path: request.path, model, body: request.body });
    const responses = await responsesOf(folder, model);
    const chosen = responses[Math.min(dialect.answers(request.body), responses.length - 1)];
    if (chosen === undefined)
      return sendJson(response, 404, { error: { message: `no recording is named by ${model}` } });
    await play([...chosen, ...(dialect.ending === undefined ? [] : [dialect.ending])], response);
  });
}

function answerLog(received: ReceivedRequest[], request: LoopbackRequest, response: ServerResponse): void {
  const model = request.query.get("model");
  const chosen = received.filter((entry) => model === null || entry.model === model);
  if (request.method !== "DELETE") return sendJson(response, 200, chosen);
  for (const entry of chosen) received.splice(received.indexOf(entry), 1);
  sendJson(response, 200, { forgotten: chosen.length });
}

async function play(chunks: string[], response: ServerResponse): Promise<void> {
  openEventStream(response);
  for (const chunk of chunks) {
    if (!(await sendEvent(response, chunk))) return;
  }
  response.end();
}

/** The responses a model name asks for, in order; a file may hold several. */
async function responsesOf(folder: string, model: string): Promise<string[][]> {
  const recordings = model.slice(model.lastIndexOf("--") + (model.includes("--") ? 2 : 1)).split("+");
  const responses = await Promise.all(recordings.map((name) => readRecording(folder, name)));
  return responses.flat();
}

async function readRecording(folder: string, name: string): Promise<string[][]> {
  if (!/^[\w.-]+$/.test(name)) return [];
  for (const file of [name, `${name}.1`]) {
    const text = await readFile(join(folder, `${file}.chunks.txt`), "utf8").catch(() => null);
    if (text !== null) return splitResponses(text.split("\n").filter((line) => line !== ""));
  }
  return [];
}

/** Only the responses API says where one response ends and the next begins; its multi-turn recordings rely on it. */
function splitResponses(chunks: string[]): string[][] {
  const responses: string[][] = [[]];
  for (const chunk of chunks) {
    if (chunk.startsWith('{"type":"response.created"') && responses.at(-1)?.length !== 0) responses.push([]);
    responses.at(-1)?.push(chunk);
  }
  return responses;
}
