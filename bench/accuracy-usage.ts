/** The recorded usage objects against the table of expected values. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { compareShapes, type RecordedShape, type UsageCheck } from "./usage-table.ts";

/** `null` when the corpus has no usage objects. */
export function checkUsage(corpus: string): UsageCheck | null {
  const path = join(corpus, "usage-shapes.json");
  return existsSync(path) ? compareShapes(JSON.parse(readFileSync(path, "utf8")) as RecordedShape[]) : null;
}
