/**
 * Plays recorded conversations through the running service and checks that what is stored is what was said.
 *
 *     npm run replay -- FILE [--conversations N] [--url http://localhost:8787] [--model-port 8790]
 *                       [--var NAME:VALUE]… [--compacting] [--keep] [--json]
 *
 * The recorded answers come from a scripted OpenAI-compatible server inside this script. Without `--url` the service is
 * started beside it and ended with it; `--var` then reaches `wrangler dev`. With `--url`, start the service with
 * `--var OPENAI_COMPATIBLE_BASE_URL:http://127.0.0.1:8790/v1` (or the port of `--model-port`). Every
 * prompt must be the whole conversation, unless `--compacting` says that the service may shorten it. Sessions are removed
 * afterwards unless `--keep` is given or they differ. Exit code 1 on any difference.
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { parseArgs } from "node:util";
import {
  startOpenAICompatibleServer,
  type OpenAICompatibleServer,
  type ScriptedCall,
} from "../test/loopback/openai-compatible-server.ts";
import { planOf } from "./replay/plan.ts";
import { playSession, type Stage } from "./replay/player.ts";
import { readRecordings, type Recording } from "./replay/recording.ts";
import { asJson, lineOf, mergePlayed, totalsLine, totalsOf, type ConversationReport } from "./replay/report.ts";
import { SessionApi } from "./replay/session-api.ts";
import { startWranglerService } from "./replay/wrangler-service.ts";

const USAGE =
  "usage: npm run replay -- FILE [--conversations N] [--url URL] [--model-port PORT] [--var NAME:VALUE] [--compacting] [--keep] [--json]";
const DEFAULT_MODEL_PORT = 8790;

interface Arguments {
  file: string;
  conversations: number;
  url: string | undefined;
  modelPort: number;
  vars: Record<string, string>;
  compacting: boolean;
  keep: boolean;
  json: boolean;
}

function readArguments(): Arguments {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      conversations: { type: "string" },
      url: { type: "string" },
      "model-port": { type: "string" },
      var: { type: "string", multiple: true, default: [] },
      compacting: { type: "boolean", default: false },
      keep: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
    },
  });
  const [file, ...more] = positionals;
  if (file === undefined || more.length > 0) throw new Error(USAGE);
  if (!existsSync(file)) throw new Error(`there is no file ${file}`);
  return {
    file,
    conversations: values.conversations === undefined ? Infinity : wholeNumber("--conversations", values.conversations),
    url: values.url,
    modelPort: wholeNumber(
      "--model-port",
      values["model-port"] ?? (values.url === undefined ? "0" : String(DEFAULT_MODEL_PORT)),
    ),
    vars: Object.fromEntries(values.var.map((assignment) => splitAssignment(assignment))),
    compacting: values.compacting,
    keep: values.keep,
    json: values.json,
  };
}

function wholeNumber(option: string, text: string): number {
  if (!/^\d+$/.test(text)) throw new Error(`${option} takes a whole number, not "${text}"`);
  return Number(text);
}

function splitAssignment(text: string): [string, string] {
  const colon = text.indexOf(":");
  if (colon < 1) throw new Error(`--var takes NAME:VALUE, not "${text}"`);
  return [text.slice(0, colon), text.slice(colon + 1)];
}

interface Theatre extends Stage {
  /** the end of what the service printed; empty when it was not started here */
  output(): string;
  close(): Promise<void>;
}

/** The scripted model, and the service that calls it. */
async function openTheatre(args: Arguments): Promise<Theatre> {
  const listeners = new Map<string, (call: ScriptedCall) => void>();
  const provider = await startOpenAICompatibleServer({
    port: args.modelPort,
    chunkSize: 120,
    keepRequests: false,
    onCall: (call) => listeners.get(call.model)?.(call),
  });
  const service =
    args.url === undefined
      ? await startServiceFor(provider, args.vars)
      : { url: args.url, output: () => "", stop: () => {} };
  return {
    service: service.url,
    compacting: args.compacting,
    output: service.output,
    script: provider.script,
    listen: (model, hear) => void listeners.set(model, hear),
    forget(model) {
      listeners.delete(model);
      provider.forget(model);
    },
    async close() {
      service.stop();
      await provider.close();
    },
  };
}

async function startServiceFor(provider: OpenAICompatibleServer, vars: Record<string, string>) {
  const base = { MODEL: "openai-compatible/replay", OPENAI_COMPATIBLE_BASE_URL: `${provider.url}/v1` };
  try {
    return await startWranglerService({ ...base, ...vars });
  } catch (cause) {
    await provider.close();
    throw cause;
  }
}

async function playRecording(
  recording: Recording,
  index: number,
  run: string,
  theatre: Theatre,
  keep: boolean,
): Promise<ConversationReport> {
  const plan = planOf(recording);
  const began = performance.now();
  const played = [];
  for (const [part, session] of plan.sessions.entries()) {
    const sessionId = `replay-${run}-${index}-${part}`;
    const one = await playSession(session, plan.tools, sessionId, theatre);
    if (!keep && one.differences.length === 0) await new SessionApi(theatre.service, sessionId).remove();
    played.push(one);
  }
  return mergePlayed(`${index} ${recording.src} ${recording.id}`, played, plan, (performance.now() - began) / 1000);
}

async function main(): Promise<void> {
  const args = readArguments();
  const theatre = await openTheatre(args);
  const reports: ConversationReport[] = [];
  try {
    const run = randomBytes(3).toString("hex");
    for await (const recording of readRecordings(args.file, args.conversations)) {
      const report = await playRecording(recording, reports.length, run, theatre, args.keep);
      reports.push(report);
      console.log(args.json ? JSON.stringify(asJson(report)) : lineOf(report));
    }
  } finally {
    await theatre.close();
  }
  console.log(args.json ? JSON.stringify(totalsOf(reports)) : totalsLine(reports));
  if (reports.every(({ differences }) => differences.length === 0)) return;
  console.error(theatre.output());
  process.exitCode = 1;
}

// an interrupted run must not leave the service serving: `exit` handlers end its process group
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130));

try {
  await main();
} catch (cause) {
  console.error(cause instanceof Error ? cause.message : cause);
  process.exitCode = 1;
}
