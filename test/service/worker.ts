/**
 * The deployed Worker with more classes of sessions beside its own. The first label of the host says which class:
 * `http://tools.test/sessions/a` is a session with tools, `http://chat.test/sessions/a` a deployed one.
 */
import type { AgentContext } from "agents";
import { tool } from "ai";
import { z } from "zod";
import { ChatSession as BaseSession } from "../../src/chat-session.ts";
import { ChatSession } from "../../src/index.ts";
import type { SessionBuilder } from "../../src/session-builder.ts";
import { createWorker, type WorkerEnvironment } from "../../src/worker.ts";
import { configurationOf } from "./configured-sessions.ts";
import { StorageCounter, type StorageCounts } from "./counted-storage.ts";
import { noteToolRun } from "./tool-runs.ts";

export { ChatSession };

const ODDITIES = {
  nothing: () => undefined,
  bigint: () => ({ count: 1n }),
  circle: () => {
    const circle: Record<string, unknown> = {};
    return Object.assign(circle, { circle });
  },
  date: () => new Date(0),
  // many rows of storage, few tokens
  long: () => "tide".padEnd(600_000),
};

/** Server tools of every temper, and one that the client runs. */
export class ToolSession extends BaseSession {
  override configure(session: SessionBuilder): SessionBuilder {
    const ran = (name: string) => noteToolRun(this.name, name);
    return session
      .allowClientTools()
      .maxSteps(4)
      .tools({
        lookUp: tool({
          description: "Looks an order up.",
          inputSchema: z.object({ order: z.number() }),
          execute: ({ order }) => (ran("lookUp"), { order, state: "shipped" }),
        }),
        break: tool({
          description: "Breaks.",
          inputSchema: z.object({}),
          execute: (): string => {
            ran("break");
            throw new Error("The shelf is empty.");
          },
        }),
        oddity: tool({
          description: "Answers with what is not JSON.",
          inputSchema: z.object({ kind: z.enum(["nothing", "bigint", "circle", "date", "long"]) }),
          execute: ({ kind }): unknown => (ran("oddity"), ODDITIES[kind]()),
        }),
        wait: tool({
          description: "Takes its time.",
          inputSchema: z.object({ ms: z.number() }),
          execute: async ({ ms }) => {
            ran("wait");
            await new Promise((resolve) => setTimeout(resolve, ms));
            return { waited: ms };
          },
        }),
        refund: tool({
          description: "Pays back, when a person approves.",
          inputSchema: z.object({ amount: z.number(), ms: z.number().optional() }),
          needsApproval: true,
          execute: async ({ amount, ms = 0 }) => {
            ran("refund");
            await new Promise((resolve) => setTimeout(resolve, ms));
            return { paid: amount };
          },
        }),
        locate: tool({ description: "Asks the client where it is.", inputSchema: z.object({}) }),
      });
  }
}

/** Limits that a test can reach, and no client tools. */
export class TightSession extends BaseSession {
  override configure(session: SessionBuilder): SessionBuilder {
    return session.limits({
      frameLength: 8_192,
      messageLength: 2_048,
      messageParts: 4,
      messagesPerRequest: 3,
      queueLength: 2,
    });
  }
}

/** A deployed session that counts what it reads and writes. */
export class CountedSession extends ToolSession {
  readonly #counter: StorageCounter;

  constructor(ctx: AgentContext, env: ConstructorParameters<typeof ToolSession>[1]) {
    const counter = new StorageCounter(ctx.storage);
    super(ctx, env);
    this.#counter = counter;
  }

  takeCounts(): StorageCounts {
    return this.#counter.take();
  }
}

/** Is what the test says it is, and counts as well. */
export class ConfiguredSession extends CountedSession {
  override configure(session: SessionBuilder): SessionBuilder {
    return configurationOf(this.name)(session);
  }
}

/** Never gets as far as taking a request. */
export class MisconfiguredSession extends BaseSession {
  override configure(session: SessionBuilder): SessionBuilder {
    return session.maxSteps(-1);
  }
}

export interface ServiceEnvironment extends WorkerEnvironment {
  ToolSession: WorkerEnvironment["ChatSession"];
  TightSession: WorkerEnvironment["ChatSession"];
  CountedSession: WorkerEnvironment["ChatSession"];
  ConfiguredSession: WorkerEnvironment["ChatSession"];
  MisconfiguredSession: WorkerEnvironment["ChatSession"];
}

const BINDINGS = {
  chat: "ChatSession",
  tools: "ToolSession",
  tight: "TightSession",
  counted: "CountedSession",
  configured: "ConfiguredSession",
  misconfigured: "MisconfiguredSession",
} as const satisfies Record<string, keyof ServiceEnvironment>;

/** A class of sessions, by the host it is reached under. */
export type Service = keyof typeof BINDINGS;

/** The binding of a class of sessions. */
export function bindingOf(service: Service): keyof ServiceEnvironment {
  return BINDINGS[service];
}

const worker = createWorker();

export default {
  fetch(request, env, ctx) {
    const service = new URL(request.url).hostname.split(".")[0] ?? "";
    // SAFETY: an unknown host is a mistake in a test, and gets an error that says so.
    const binding = BINDINGS[service as Service];
    if (!binding) return new Response(`no class of sessions is called ${service}`, { status: 500 });
    if (!worker.fetch) throw new TypeError("the Worker has no fetch handler");
    return worker.fetch(request, { ...env, ChatSession: env[binding] }, ctx);
  },
} satisfies ExportedHandler<ServiceEnvironment>;
