/** Tells tests where the recordings are: `inject("sharedCorpus")`, an absolute path, or `null` where they are absent. */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    sharedCorpus: string | null;
  }
}

/** The recordings are not part of the project; they lie beside its checkout. */
export function findSharedCorpus(root: string): string | null {
  const folder = resolve(root, "../shared/corpus");
  return existsSync(folder) ? folder : null;
}

export default function setup(project: TestProject): void {
  project.provide("sharedCorpus", findSharedCorpus(project.config.root));
}
