/** What no linter sees: where SQL may stand, and that the documents name commands that exist. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

const root = join(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(join(root, file), "utf8");

it("SQL stands in src/storage only", () => {
  const sources = globSync("src/**/*.ts", { cwd: root }).filter((file) => !file.startsWith("src/storage/"));
  expect(sources.filter((file) => /\bsql\s*\.\s*exec\s*\(|\.sql\s*(<[^>]*>)?\s*`/.test(read(file)))).toEqual([]);
});

it("every npm script that a document names exists", () => {
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  const documents = globSync(["*.md", "docs/**/*.md"], { cwd: root });
  const unknown = documents.flatMap((file) =>
    [...read(file).matchAll(/\bnpm (?:run )?(start|test|(?<=run )[\w:-]+)/g)]
      .map((match) => match[1] ?? "")
      .filter((name) => !(name in scripts))
      .map((name) => `${file}: npm run ${name}`),
  );
  expect(unknown).toEqual([]);
});
