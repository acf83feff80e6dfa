/** How deeply JSON may be nested. What compares, weighs and serialises it is recursive, and so is much that reads it later. */
export const DEEPEST = 200;

/** Whether a value that is JSON is nested deeper than that. Looks no deeper. */
export function isTooDeep(value: unknown, depth = 0): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (depth >= DEEPEST) return true;
  return Object.values(value).some((item) => isTooDeep(item, depth + 1));
}
