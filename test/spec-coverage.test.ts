/** Holds `docs/spec.md` and the tests together: every rule has a test, every cited rule exists. */
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, it } from "vitest";

const root = join(import.meta.dirname, "..");

/** A rule is a list item that opens with its id in bold: `- **AC3** …`. */
const RULE = /^- \*\*([A-Z]{2}\d+)\*\*/gm;

/** A title cites rules at its very start: `"[AC3] …"`, `"[AC3][AC4] …"`. */
const CITATION = /["'`]((?:\[[A-Z]{2}\d+\]\s*)+)/g;

function rules(): string[] {
  const spec = readFileSync(join(root, "docs/spec.md"), "utf8");
  return [...spec.matchAll(RULE)].map((match) => match[1] ?? "");
}

/** Rule id to the test files whose titles cite it; contract suites and tables beside the tests count. */
function citations(): Map<string, string[]> {
  const cited = new Map<string, string[]>();
  for (const file of readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts") || file === basename(import.meta.filename)) continue;
    const source = readFileSync(join(root, "test", file), "utf8");
    for (const [, group = ""] of source.matchAll(CITATION)) {
      for (const [id] of group.matchAll(/[A-Z]{2}\d+/g)) cited.set(id, [...(cited.get(id) ?? []), file]);
    }
  }
  return cited;
}

it("docs/spec.md states rules, and no rule twice", () => {
  const ids = rules();
  expect(ids.length).toBeGreaterThan(0);
  expect(ids.filter((id, index) => ids.indexOf(id) !== index)).toEqual([]);
});

it("every rule of docs/spec.md is cited by a test title", () => {
  const cited = citations();
  expect(rules().filter((id) => !cited.has(id))).toEqual([]);
});

it("every rule a test title cites is in docs/spec.md", () => {
  const known = new Set(rules());
  expect([...citations()].filter(([id]) => !known.has(id))).toEqual([]);
});
