import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { cutIntoPieces, INLINE_LENGTH } from "../../src/storage/pieces.ts";
import { newEntry } from "../turn/entries.ts";
import { inStore } from "./database.ts";

/** Bytes that SQLite in a Durable Object takes in one row. */
const ROW_BYTES = 2_000_000;

const MESSAGE_LENGTH = 4 * 1024 * 1024;

describe("cutting", () => {
  it("[ST3] pieces join to the text, fit a row each, and none ends inside a surrogate pair", () => {
    fc.assert(
      fc.property(
        fc.constantFrom("a", "ü", "水", "🌊"),
        fc.integer({ min: -3, max: 3 }),
        fc.nat(3),
        (filler, by, parts) => {
          const length = Math.max(0, INLINE_LENGTH * parts + by);
          const text = `${filler.repeat(Math.ceil(length / filler.length))}`.slice(0, length).toWellFormed();
          const pieces = cutIntoPieces(text);
          expect(pieces.join("") === text).toBe(true);
          expect(pieces.filter((piece) => !piece.isWellFormed())).toEqual([]);
          expect(pieces.filter((piece) => new TextEncoder().encode(piece).length > ROW_BYTES)).toEqual([]);
        },
      ),
      { numRuns: 40 },
    );
  });

  it("[ST3] a pair that stands across a boundary goes into the next piece whole", () => {
    const text = `${"a".repeat(INLINE_LENGTH - 1)}🌊b`;
    expect(cutIntoPieces(text).map((piece) => piece.length)).toEqual([INLINE_LENGTH - 1, 3]);
  });

  it("[ST3] an empty text has no pieces and one that just fits has one", () => {
    expect(cutIntoPieces("")).toEqual([]);
    expect(cutIntoPieces("a".repeat(INLINE_LENGTH))).toHaveLength(1);
  });
});

describe.each([
  ["ASCII", "a"],
  ["CJK", "水"],
  ["emoji", "🌊"],
  ["emoji moved by one", "🌊", "a"],
  ["escapes", '"\\\n'],
  ["lone surrogates", "\ud83c"],
])("a message of 4 MiB in %s", (_name, filler, before = "") => {
  // What is escaped in JSON takes up to six times its length; the limit on messages counts JSON.
  const unit = JSON.stringify(filler).length - 2;
  const parts = [{ type: "text" as const, text: before + filler.repeat(Math.floor(MESSAGE_LENGTH / unit)) }];

  it("[ST3] reads back unchanged as an entry, also after it grew from a short one and shrank again", async () => {
    const seen = await inStore((store, storage) => {
      const stored = store.insert(newEntry({ parts: [{ type: "text", text: "short" }] }));
      store.update({ ...stored, parts });
      const grown = JSON.stringify(store.entry(1)?.parts) === JSON.stringify(parts);
      store.update({ ...stored, parts });
      const again = JSON.stringify([...store.walk(1)][0]?.parts) === JSON.stringify(parts);
      store.update({ ...stored, state: "deleted", parts: [] });
      const left = storage.sql.exec("SELECT COUNT(*) AS n FROM tidemark_piece").one();
      return { grown, again, left, erased: store.entry(1)?.parts };
    });
    expect(seen).toEqual({ grown: true, again: true, left: { n: 0 }, erased: [] });
  });

  it("[ST3] reads back unchanged from the queue", async () => {
    const request = {
      requestId: "r",
      trigger: "submit" as const,
      messages: [{ id: "m", role: "user" as const, parts }],
    };
    const seen = await inStore((store) => {
      store.enqueue(request);
      return JSON.stringify(store.queue()) === JSON.stringify([{ position: 1, request }]);
    });
    expect(seen).toBe(true);
  });
});

it("[ST3] metadata of 4 MiB reads back unchanged, and is gone when it is taken away", async () => {
  const metadata = { note: "水".repeat(MESSAGE_LENGTH) };
  const seen = await inStore((store, storage) => {
    const stored = store.insert(newEntry({ metadata }));
    const same = JSON.stringify(store.entry(1)?.metadata) === JSON.stringify(metadata);
    const { parts } = store.entry(1) ?? {};
    store.update({ ...stored, metadata: undefined });
    const left = storage.sql.exec("SELECT COUNT(*) AS n FROM tidemark_piece").one();
    return { same, parts, left, after: store.entry(1)?.metadata };
  });
  expect(seen).toEqual({ same: true, parts: newEntry().parts, left: { n: 0 }, after: undefined });
});

describe("the queue", () => {
  it("[ST1] is read in order of arrival, and one that is taken out leaves the others", async () => {
    const request = (requestId: string) => ({ requestId, trigger: "submit" as const, messages: [] });
    const seen = await inStore((store) => {
      const positions = ["a", "b", "c"].map((id) => store.enqueue(request(id)).position);
      store.dequeue(2);
      const later = store.enqueue(request("d")).position;
      return { positions, later, waiting: store.queue().map(({ request: { requestId } }) => requestId) };
    });
    expect(seen).toEqual({ positions: [1, 2, 3], later: 4, waiting: ["a", "c", "d"] });
  });
});
