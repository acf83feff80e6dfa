/** Which overlay a branch is shown under. It belongs to every branch that has all it speaks of, and to no other. */
import type { Overlay, Seq } from "../records.ts";
import { reachOf } from "../storage/compaction-table.ts";
import type { SessionStore } from "../storage/session-store.ts";
import { Branch } from "./branch.ts";

/** The branch that ends at a leaf, under its overlay. */
export function branchAt(store: SessionStore, leaf: Seq | null): Branch {
  return leaf === store.session.leaf ? branchOn(store, leaf) : new Branch(store, leaf, overlayInForce(store, leaf));
}

/** The active branch as far as a leaf: where the session row says the branch ends, or later steps of an open turn. */
export function branchOn(store: SessionStore, leaf: Seq | null): Branch {
  const overlay = overlayNamed(store, store.session.overlay);
  const isBehind = overlay !== null && reachOf(overlay) > (leaf ?? 0);
  return new Branch(store, leaf, isBehind ? overlayInForce(store, leaf) : overlay);
}

/** The overlay that reaches furthest along the branch of a leaf, of equal ones the newest; `null` for none. */
export function overlayInForce(store: SessionStore, leaf: Seq | null): Overlay | null {
  if (store.session.compactions === 0 || leaf === null) return null;
  const candidates = store.compactions.overlays();
  for (const { seq } of store.walkHeads(leaf)) {
    while (candidates[0] && candidates[0].reach > seq) candidates.shift();
    const [furthest] = candidates;
    if (!furthest) return null;
    if (furthest.reach === seq) return overlayNamed(store, furthest.id);
  }
  return null;
}

function overlayNamed(store: SessionStore, id: number | null): Overlay | null {
  return id === null ? null : (store.compactions.get(id)?.overlay ?? null);
}
