import { describe, expect, it } from "vitest";
import { DEEPEST, isTooDeep } from "../../src/turn/json-depth.ts";

function nested(levels: number, wrap: (inner: unknown) => unknown): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = wrap(value);
  return value;
}

const SHAPES: [string, (inner: unknown) => unknown][] = [
  ["lists", (inner) => [inner]],
  ["objects", (inner) => ({ inner })],
  ["lists behind other values", (inner) => [0, "x", null, inner]],
];

describe("the depth of JSON", () => {
  it.each(SHAPES)("[TN30] %s may be nested 200 levels deep and not one deeper", (_name, wrap) => {
    expect([199, 200, 201, 2_600].map((levels) => isTooDeep(nested(levels, wrap)))).toEqual([false, false, true, true]);
    expect(DEEPEST).toBe(200);
  });

  it("[TN30] what is nested beyond any stack is told without falling over", () => {
    expect(isTooDeep(nested(200_000, (inner) => [inner]))).toBe(true);
  });

  it.each([[1], ["x"], [null], [undefined], [[]], [{}]])("[TN30] %j is not deep", (value) => {
    expect(isTooDeep(value)).toBe(false);
  });
});
