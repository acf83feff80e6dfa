/**
 * What the context tests cannot do inside workerd: read the recorded usage objects, and stand in for the counting
 * endpoints of Anthropic and Gemini.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { type LoopbackRequest, sendJson, startLoopbackServer } from "../loopback/loopback-server.ts";
import { findSharedCorpus } from "./corpus.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** `http://127.0.0.1:<port>`: speaks both counting APIs and counts a token for every four characters of JSON */
    countingUrl: string;
    /** the recorded usage objects as JSON; `null` where the recordings are absent */
    usageShapes: string | null;
  }
}

interface CountRequest {
  messages?: unknown;
  contents?: unknown;
  generateContentRequest?: { contents?: unknown };
}

/** Tokens the stand-in counts: a quarter of the characters of what was asked about. */
function countOf({ body }: LoopbackRequest): number {
  const { messages, generateContentRequest } = body as CountRequest;
  return Math.round(JSON.stringify(messages ?? generateContentRequest?.contents).length / 4);
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startLoopbackServer((request, response) => {
    if (request.path === "/v1/messages/count_tokens") sendJson(response, 200, { input_tokens: countOf(request) });
    else if (request.path.endsWith(":countTokens")) sendJson(response, 200, { totalTokens: countOf(request) });
    else sendJson(response, 529, { error: { type: "overloaded_error", message: "Overloaded" } });
  });
  const corpus = findSharedCorpus(project.config.root);
  const shapes = corpus === null ? "" : join(corpus, "usage-shapes.json");
  project.provide("countingUrl", server.url);
  project.provide("usageShapes", existsSync(shapes) ? readFileSync(shapes, "utf8") : null);
  return () => server.close();
}
