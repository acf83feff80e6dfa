/** Starts the provider servers of `test/loopback/` on free ports and tells tests their addresses. */
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { startOpenAICompatibleServer } from "../loopback/openai-compatible-server.ts";
import { startRecordedProvider } from "../loopback/recorded-provider.ts";
import { findSharedCorpus } from "./corpus.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** `http://127.0.0.1:<port>` of the scripted server; its models are under `/v1` */
    openAICompatibleUrl: string;
    /** the same of the server that plays recorded provider streams; `null` where the recordings are absent */
    recordedProviderUrl: string | null;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const corpus = findSharedCorpus(project.config.root);
  const scripted = await startOpenAICompatibleServer();
  const recorded = corpus === null ? null : await startRecordedProvider(join(corpus, "provider-streams"));
  project.provide("openAICompatibleUrl", scripted.url);
  project.provide("recordedProviderUrl", recorded?.url ?? null);
  return async () => {
    await Promise.all([scripted.close(), recorded?.close()]);
  };
}
