/** Trees of entries: mostly a line, with forks near its end and now and then a new root. */
import fc from "fast-check";
import type { Seq } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import { newEntry } from "../turn/entries.ts";
import { clear, openStore } from "./database.ts";

/** For each entry in order, the parent it is stored with. */
export type Tree = readonly (Seq | null)[];

/** How far back an entry's parent is from the one before it; `null` for none. */
const back = fc.oneof(
  { weight: 30, arbitrary: fc.constant(0) },
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 6 }) },
  { weight: 1, arbitrary: fc.constant(null) },
);

export const trees: fc.Arbitrary<Tree> = fc
  .array(back, { minLength: 1, maxLength: 70, size: "max" })
  .map((picks) => picks.map((pick, index) => (pick === null || index <= pick ? null : index - pick)));

/** A store that has nothing but the tree. */
export function storeWith(storage: DurableObjectStorage, tree: Tree): SessionStore {
  clear(storage);
  const store = openStore(storage);
  plant(store, tree);
  return store;
}

export function plant(store: SessionStore, tree: Tree): void {
  tree.forEach((parent, index) => store.insert(newEntry({ parent, messageId: `m${index + 1}` })));
}

/** The branch that ends at a leaf, root first. */
export function chainTo(leaf: Seq, tree: Tree): Seq[] {
  const chain: Seq[] = [];
  for (let seq: Seq | null = leaf; seq !== null; seq = tree[seq - 1] ?? null) chain.unshift(seq);
  return chain;
}
