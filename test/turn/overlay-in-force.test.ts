import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Overlay, Seq } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import type { RunAdmission } from "../../src/turn/admission.ts";
import { closeTurn } from "../../src/turn/closing.ts";
import { History } from "../../src/turn/history.ts";
import { branchAt, branchOn, overlayInForce } from "../../src/turn/overlay-in-force.ts";
import { openTurn } from "../../src/turn/turn-opening.ts";
import { clear, inDatabase, inStore, openStore } from "../storage/database.ts";
import { chainTo, plant, type Tree, trees } from "../storage/trees.ts";
import { appliedEntry, NOON, openTurn as openTurnRecord, overlay } from "./entries.ts";

/** 1 → 2 → 3 → 4 → 5 → 6, and 7 and 8 → 9 beside 3 and 5: 7 follows 2, 8 follows 4. */
const PARENTS: Tree = [null, 1, 2, 3, 4, 5, 2, 4, 8];

/** Entries with these parents under these overlays, in order of their ids; the branch that ends at `leaf` is active. */
function grow(store: SessionStore, parents: Tree, shown: readonly Overlay[], leaf: Seq): void {
  plant(store, parents);
  for (const each of shown) store.compactions.insert(appliedEntry(each));
  const active = shown.length > 0 ? { compactions: shown.length } : {};
  store.saveSession({ leaf, messages: parents.length, ...active });
  store.saveSession({ overlay: overlayInForce(store, leaf)?.id ?? null });
}

const inTree = <T>(shown: readonly Overlay[], work: (store: SessionStore) => T, leaf: Seq = 6): Promise<T> =>
  inStore((store) => {
    grow(store, PARENTS, shown, leaf);
    return work(store);
  });

const covering = (id: number, until: Seq, more: Partial<Overlay> = {}): Overlay =>
  overlay({ id, until, summary: `up to ${until}`, ...more });

const leavingOut = (id: number, until: Seq, ...shortened: Seq[]): Overlay =>
  overlay({
    id,
    pruning: { until, tokens: 1, shortened: shortened.map((seq) => ({ seq, toolCallId: "c", length: 2_000 })) },
  });

/** The id of the overlay in force at each leaf. */
const inForce = (shown: readonly Overlay[], ...leaves: Seq[]): Promise<(number | undefined)[]> =>
  inTree(shown, (store) => leaves.map((leaf) => overlayInForce(store, leaf)?.id));

describe("the overlay in force", () => {
  it("[CM14] is none without a compaction, and none on an empty branch", async () => {
    expect(await inForce([], 1, 6)).toEqual([undefined, undefined]);
    expect(await inTree([covering(1, 1)], (store) => overlayInForce(store, null))).toBeNull();
  });

  it("[CM14] is on every branch that has what it covers, and on no other", async () => {
    expect(await inForce([covering(1, 3)], 3, 4, 5, 6, 8, 9)).toEqual([1, 1, 1, 1, 1, 1]);
    expect(await inForce([covering(1, 3)], 1, 2, 7)).toEqual([undefined, undefined, undefined]);
  });

  it("[CM14] is the one that reaches furthest along each branch", async () => {
    const chain = [covering(1, 2), covering(2, 4), covering(3, 5)];
    expect(await inForce(chain, 6, 5, 4, 3, 2, 1)).toEqual([3, 3, 2, 1, 1, undefined]);
    expect(await inForce(chain, 7, 9)).toEqual([1, 2]);
  });

  it("[CM14] is the newest of two that reach equally far", async () => {
    expect(await inForce([covering(1, 4), covering(2, 4)], 6, 9, 7)).toEqual([2, 2, undefined]);
  });

  it("[CM14] of a branch beside another is not the other's, though that reaches further", async () => {
    expect(await inForce([covering(1, 2), covering(2, 8), covering(3, 6)], 9, 6, 7, 5)).toEqual([2, 3, 1, 1]);
  });

  it("[CM14] is not one that was taken back, but the one before it", async () => {
    const seen = await inTree([covering(1, 2), covering(2, 4), covering(3, 5)], (store) => {
      const after = (id: number) => {
        store.compactions.setUndone(id);
        return [6, 9, 7].map((leaf) => overlayInForce(store, leaf)?.id);
      };
      return [after(3), after(1), after(2)];
    });
    expect(seen).toEqual([
      [2, 2, 1],
      [2, 2, undefined],
      [undefined, undefined, undefined],
    ]);
  });

  it("[CM14] that only leaves outputs out reaches as far as the last of them", async () => {
    expect(await inForce([leavingOut(1, 4)], 6, 9, 4, 3, 7)).toEqual([1, 1, 1, undefined, undefined]);
    expect(await inForce([leavingOut(1, 0, 2, 5)], 6, 5, 4, 9)).toEqual([1, 1, undefined, undefined]);
  });

  it("[CM14] that covers and leaves out needs both", async () => {
    const both = covering(2, 2, { pruning: { until: 5, shortened: [], tokens: 1 } });
    expect(await inForce([covering(1, 2), both], 6, 5, 4, 9, 7)).toEqual([2, 2, 1, 1, 1]);
  });

  it("[CM14] comes with its summary", async () => {
    expect(await inTree([covering(1, 3)], (store) => overlayInForce(store, 6))).toEqual(covering(1, 3));
  });

  it("[CM14] is on any tree the one of greatest reach among those whose reach is on the branch", async () => {
    const picks = fc.array(fc.record({ reach: fc.nat(), undone: fc.boolean() }), { maxLength: 8 });
    await inDatabase((storage) => {
      fc.assert(
        fc.property(trees, picks, (parents, compactions) => {
          clear(storage);
          const store = openStore(storage);
          const shown = compactions.map(({ reach }, index) => covering(index + 1, (reach % parents.length) + 1));
          grow(store, parents, shown, parents.length);
          compactions.forEach(({ undone }, index) => undone && store.compactions.setUndone(index + 1));
          for (let leaf = 1; leaf <= parents.length; leaf += 1) {
            const chain = new Set(chainTo(leaf, parents));
            const possible = shown.filter(({ id, until }) => chain.has(until!) && !compactions[id - 1]!.undone);
            const expected = possible.toSorted((a, b) => b.until! - a.until! || b.id - a.id)[0];
            expect(overlayInForce(store, leaf)?.id).toBe(expected?.id);
          }
        }),
        { numRuns: 30 },
      );
    });
  });
});

describe("a branch as it is opened", () => {
  it("[CM14] at the active leaf has the overlay that the session names", async () => {
    const seen = await inTree([covering(1, 2), covering(2, 4)], (store) => {
      const active = branchAt(store, 6);
      return [active.overlay?.id, active.entries.map(({ seq }) => seq)];
    });
    expect(seen).toEqual([2, [5, 6]]);
  });

  it("[CM14] at another leaf has its own", async () => {
    const seen = await inTree([covering(1, 2), covering(2, 5)], (store) =>
      [9, 7, 4, 1].map((leaf) => {
        const branch = branchAt(store, leaf);
        return [branch.overlay?.id, branch.entries.map(({ seq }) => seq)];
      }),
    );
    expect(seen).toEqual([
      [1, [3, 4, 8, 9]],
      [1, [7]],
      [1, [3, 4]],
      [undefined, [1]],
    ]);
  });

  it("[CM14] at later steps of an open turn has the session's, which may cover some of them", async () => {
    const seen = await inTree(
      [covering(1, 2), covering(2, 4)],
      (store) => {
        store.saveSession({ leaf: 3, overlay: 2 });
        return [6, 4, 3].map((leaf) => branchOn(store, leaf).overlay?.id);
      },
      3,
    );
    expect(seen).toEqual([2, 2, 1]);
  });

  it("[CM14] that ends before outputs which were left out behind it has not that overlay", async () => {
    const seen = await inTree([leavingOut(1, 5)], (store) =>
      [6, 5, 4].map((leaf) => branchOn(store, leaf).overlay?.id),
    );
    expect(seen).toEqual([1, 1, undefined]);
  });
});

describe("the overlay that the session names", () => {
  const admission = (parent: Seq | null, texts: string[] = ["new"]): RunAdmission => ({
    kind: "run",
    parent,
    store: texts.map((said, index) => ({
      message: { id: `${said}${index}`, role: "user", parts: [{ type: "text", text: said }] },
      version: 0,
    })),
    update: [],
  });
  const around = (store: SessionStore) => ({ store, clock: () => NOON, newId: () => "id", model: "mirror" });
  const request = { requestId: "r", trigger: "submit" as const, messages: [] };
  const chain = [covering(1, 2), covering(2, 4, { pruning: { until: 5, shortened: [], tokens: 1 } })];

  it.each<[string, Seq | null, number | null, Seq[]]>([
    ["the leaf", 6, 2, [5, 6, 10]],
    ["where the overlay ends", 5, 2, [5, 10]],
    ["before what it leaves out", 4, 1, [3, 4, 10]],
    ["before what it covers", 3, 1, [3, 10]],
    ["the last entry that the first one covers", 2, 1, [10]],
    ["what every overlay covers", 1, null, [1, 10]],
    ["nothing", null, null, [10]],
  ])("[CM14] when a turn follows %s is that branch's", async (_where, parent, id, entries) => {
    const opened = (isInMemory: boolean) =>
      inTree(chain, (store) => {
        const memory = branchAt(store, 6);
        expect(memory.entries.length).toBe(2);
        const { branch } = openTurn(around(store), isInMemory ? memory : undefined, request, admission(parent));
        return [store.session.overlay, branch.overlay?.id ?? null, branch.entries.map(({ seq }) => seq)];
      });
    expect(await opened(true)).toEqual([id, id, entries]);
    expect(await opened(false)).toEqual([id, id, entries]);
  });

  it("[CM14] when a turn says nothing and gives an answer of another branch back is that branch's", async () => {
    const seen = await inTree(chain, (store) => {
      const admitted = { ...admission(3, []), parent: 3 };
      const { turn } = openTurn(around(store), undefined, { ...request, trigger: "regenerate" }, admitted);
      const during = store.session.overlay;
      closeTurn(store, turn, [], NOON);
      return [during, store.session.leaf, store.session.overlay];
    });
    expect(seen).toEqual([1, 6, 2]);
  });

  it("[CM14] when a turn ends stays what it is by then", async () => {
    const seen = await inTree(chain, (store) => {
      const turn = openTurnRecord({ parent: 6, leafIfSilent: 6 });
      store.saveSession({ turn });
      store.compactions.insert(appliedEntry(covering(3, 6)));
      store.saveSession({ overlay: 3, compactions: 3 });
      closeTurn(store, turn, [], NOON);
      return [store.session.leaf, store.session.overlay];
    });
    expect(seen).toEqual([6, 3]);
  });

  it("[CM14] when another branch is switched to is that branch's", async () => {
    const seen = await inTree(chain, (store) =>
      [9, 7, 6].map((leaf) => {
        new History(store).switchTo({ leaf });
        return store.session.overlay;
      }),
    );
    expect(seen).toEqual([1, 1, 2]);
  });

  it.each<[string, string, number | null, (string | null)[]]>([
    ["behind every overlay", "m6", 2, ["up to 2", "up to 4"]],
    ["that the newest covers", "m3", 1, ["up to 2", null]],
    ["that all of them cover", "m2", null, [null, null]],
  ])("[CM32] when a message is erased %s is one that does not cover it", async (_where, id, left, summaries) => {
    const seen = await inTree([covering(1, 2), covering(2, 4)], (store) => {
      new History(store).erase(id);
      return [store.session.overlay, store.compactions.all().map(({ summary }) => summary)];
    });
    expect(seen).toEqual([left, summaries]);
  });
});
