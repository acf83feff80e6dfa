import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Entry, Overlay, Seq } from "../../src/records.ts";
import type { SessionStore } from "../../src/storage/session-store.ts";
import { Branch, type EntrySource } from "../../src/turn/branch.ts";
import { inDatabase, inStore } from "../storage/database.ts";
import { chainTo, storeWith, trees } from "../storage/trees.ts";
import { asked, overlay, step, text } from "./entries.ts";

const HISTORY = [
  asked(1, "q1", { unitsBefore: 0, unitsSaid: 3 }),
  step(2, [text("a")], { messageId: "a1", unitsBefore: 3, unitsSaid: 4, unitsReturned: 5 }),
  step(4, [text("b")], { messageId: "a1", step: 1, parent: 2, unitsBefore: 12, unitsSaid: 1 }),
  asked(6, "q2", { parent: 4, unitsBefore: 13, unitsSaid: 2 }),
];

const seqs = (entries: Iterable<Entry>) => [...entries].map(({ seq }) => seq);

/** A store, and the rows that each stretch of it asked for. */
interface Watched extends EntrySource {
  asked: number[];
  /** the oldest entry that was read */
  oldest: () => Seq;
}

function watched(store: SessionStore): Watched {
  const stretches: number[] = [];
  let oldest = Number.POSITIVE_INFINITY;
  return {
    asked: stretches,
    oldest: () => oldest,
    entry: (seq) => store.entry(seq),
    walk: (from) => store.walk(from),
    stretch(from, limit, above) {
      stretches.push(limit);
      const read = store.stretch(from, limit, above);
      oldest = Math.min(oldest, ...seqs(read.entries));
      return read;
    },
  };
}

/** Runs `work` with what `read` opens on stored entries; the leaf is the last of them. */
function onBranch<T>(
  work: (branch: Branch, source: Watched) => T,
  { entries = HISTORY, shown = null }: { entries?: readonly Entry[]; shown?: Overlay | null } = {},
): Promise<T> {
  return inStore((store) => {
    for (const entry of entries) store.restore(entry);
    const source = watched(store);
    return work(new Branch(source, entries.at(-1)?.seq ?? null, shown), source);
  });
}

/** So many messages, one after the other. */
const row = (count: number): Entry[] =>
  Array.from({ length: count }, (_, index) => asked(index + 1, "x", { unitsBefore: index, unitsSaid: 1 }));

/** The same with the message `a1` erased. */
const ERASED = HISTORY.map((entry) => (entry.messageId === "a1" ? { ...entry, state: "deleted" as const } : entry));

describe("the branch in memory", () => {
  it("[ST4] holds what it was read from, oldest first, and ends at the leaf", async () => {
    const read = (branch: Branch) => [seqs(branch.entries), branch.leaf?.seq, branch.units];
    expect(await onBranch(read)).toEqual([[1, 2, 4, 6], 6, 15]);
    expect(await onBranch(read, { entries: [] })).toEqual([[], undefined, 0]);
  });

  it("[ST4] counts what tools returned to the leaf", async () => {
    expect(await onBranch((branch) => branch.units, { entries: HISTORY.slice(0, 2) })).toBe(12);
  });

  it.each<[string, (branch: Branch) => unknown]>([
    ["before anything was read", () => undefined],
    ["after the leaf was read", (branch) => branch.leaf],
    ["after all was read", (branch) => branch.entries],
  ])("[ST4] grows at its end and takes a changed entry in the place of the old one, %s", async (_when, read) => {
    const seen = await inStore((store) => {
      for (const entry of HISTORY) store.restore(entry);
      const branch = new Branch(store, 6);
      read(branch);
      branch.push(step(7, []));
      const changed = { ...HISTORY[1]!, state: "aborted" as const };
      store.update(changed);
      branch.replace(changed);
      branch.replace(asked(99, "elsewhere"));
      return branch.entries.map(({ seq, state }) => [seq, state]);
    });
    expect(seen).toEqual([
      [1, "done"],
      [2, "aborted"],
      [4, "done"],
      [6, "done"],
      [7, "done"],
    ]);
  });

  it.each<[number | null, boolean, number[]]>([
    [4, true, [1, 2, 4]],
    [6, true, [1, 2, 4, 6]],
    [null, false, [1, 2, 4, 6]],
    [3, false, [1, 2, 4, 6]],
  ])("[TN7] cut after %s: it was in memory: %s", async (seq, expected, left) => {
    const seen = await onBranch((branch) => [branch.entries.length, branch.cutAfter(seq), seqs(branch.entries)]);
    expect(seen).toEqual([4, expected, left]);
  });

  it("[TN7] finds all steps of a message, and no deleted or unknown one", async () => {
    const found = await onBranch((branch) => ["a1", "m6", "none"].map((id) => seqs(branch.message(id))));
    expect(found).toEqual([[2, 4], [6], []]);
    expect(await onBranch((branch) => branch.message("a1"), { entries: ERASED })).toEqual([]);
  });

  it("[TN7] finds the newest message of a role, passing over deleted ones", async () => {
    const newest = (branch: Branch) =>
      (["assistant", "user", "system"] as const).map((role) => seqs(branch.newest(role)));
    expect(await onBranch(newest)).toEqual([[2, 4], [6], []]);
    const deleted = HISTORY.map((entry) => (entry.seq === 6 ? { ...entry, state: "deleted" as const } : entry));
    expect(await onBranch(newest, { entries: deleted })).toEqual([[2, 4], [1], []]);
  });

  it("[TN4] finds the answer to an entry, and none where there is none", async () => {
    const answers = (branch: Branch) => [1, 6, 2, 4, 99].map((seq) => branch.answerTo(seq)?.seq);
    expect(await onBranch(answers)).toEqual([2, undefined, 4, undefined, undefined]);
    expect(await onBranch((branch) => branch.answerTo(1), { entries: ERASED })).toBeUndefined();
  });

  it("[TN4] finds the steps of the message it ends with, and of no other", async () => {
    const answers = (branch: Branch) => ["a1", "m6"].map((id) => seqs(branch.answer(id)));
    expect(await onBranch(answers, { entries: HISTORY.slice(0, 3) })).toEqual([[2, 4], []]);
    expect(await onBranch(answers)).toEqual([[], [6]]);
  });

  it("[HT7] says which of its entries were erased", async () => {
    expect(await onBranch((branch) => seqs(branch.erased), { entries: ERASED })).toEqual([2, 4]);
    expect(await onBranch((branch) => seqs(branch.erased))).toEqual([]);
  });
});

describe("reading as it is asked", () => {
  it.each<[string, (branch: Branch) => unknown, number[]]>([
    ["being opened", () => undefined, []],
    ["the leaf", (branch) => [branch.leaf, branch.units, branch.leaf], [4]],
    ["the newest three", (branch) => [...take(branch.backwards(), 3), ...take(branch.backwards(), 3)], [4]],
    ["the newest five", (branch) => take(branch.backwards(), 5), [4, 8]],
    ["the newest sixty", (branch) => take(branch.backwards(), 60), [4, 8, 8, 8, 8, 8, 8, 8]],
    ["everything", (branch) => [branch.entries, branch.entries, [...branch.history()]], [256, 256]],
    ["everything after the leaf", (branch) => [branch.leaf, branch.entries], [4, 256, 256]],
    ["whether a near entry is on it", (branch) => branch.has(298), [4]],
  ])("[CX10] %s takes few stretches, and none twice", async (_what, work, expected) => {
    const seen = await onBranch((branch, source) => [work(branch), source.asked].slice(1), { entries: row(300) });
    expect(seen).toEqual([expected]);
  });

  it("[CX10] what is in memory is what was read", async () => {
    const seen = await onBranch(
      (branch) => {
        const before = [branch.loaded.length, branch.isComplete];
        take(branch.backwards(), 5);
        const between = [branch.loaded.length, branch.isComplete];
        return [before, between, branch.entries.length, branch.isComplete];
      },
      { entries: row(40) },
    );
    expect(seen).toEqual([[0, false], [12, false], 40, true]);
  });

  it("[ST4] gives the chain of any leaf in any tree, whatever was read before", async () => {
    await inDatabase((storage) => {
      fc.assert(
        fc.property(trees, fc.nat(), fc.nat({ max: 40 }), (parents, pick, before) => {
          const store = storeWith(storage, parents);
          const leaf = parents.length - (pick % Math.min(9, parents.length));
          const chain = chainTo(leaf, parents);
          const branch = new Branch(store, leaf);
          expect(seqs(take(branch.backwards(), before))).toEqual(chain.toReversed().slice(0, before));
          expect([branch.leaf?.seq, seqs(branch.history())]).toEqual([leaf, chain.toReversed()]);
          expect(parents.map((_, index) => branch.has(index + 1))).toEqual(
            parents.map((_, index) => chain.includes(index + 1)),
          );
          expect([seqs(branch.entries), branch.isComplete]).toEqual([chain, true]);
        }),
        { numRuns: 40 },
      );
    });
  });
});

describe("a branch under an overlay", () => {
  const covering = (until: Seq, more: Partial<Overlay> = {}) => overlay({ id: 9, until, summary: "S", ...more });

  it("[CM14] has what follows the overlay, and its history has everything", async () => {
    const seen = await onBranch(
      (branch) => [seqs(branch.entries), seqs(branch.history()), branch.leaf?.seq, branch.units, branch.overlay?.id],
      { shown: covering(2) },
    );
    expect(seen).toEqual([[4, 6], [6, 4, 2, 1], 6, 15, 9]);
  });

  it("[CM14] that covers all of it has no entries, and still its leaf and its units", async () => {
    const seen = await onBranch(
      (branch, source) => [branch.isComplete, seqs(branch.entries), branch.leaf?.seq, branch.units, source.asked],
      { shown: covering(6) },
    );
    expect(seen).toEqual([true, [], 6, 15, []]);
  });

  it("[CM14] goes on behind the overlay", async () => {
    const seen = await onBranch(
      (branch) => {
        branch.push(asked(7, "q3", { parent: 6, unitsBefore: branch.units, unitsSaid: 4 }));
        return [seqs(branch.entries), branch.leaf?.seq, branch.units, seqs(branch.history())];
      },
      { shown: covering(6) },
    );
    expect(seen).toEqual([[7], 7, 19, [7, 6, 4, 2, 1]]);
  });

  it("[CM14] finds messages, answers and entries that it covers, in part or whole", async () => {
    const seen = await onBranch(
      (branch) => ({
        message: ["a1", "m1"].map((id) => seqs(branch.message(id))),
        newest: seqs(branch.newest("assistant")),
        answerTo: [1, 2].map((seq) => branch.answerTo(seq)?.seq),
        has: [1, 2, 3, 4, 5, 6, 7].filter((seq) => branch.has(seq)),
      }),
      { shown: covering(2) },
    );
    expect(seen).toEqual({ message: [[2, 4], [1]], newest: [2, 4], answerTo: [2, 4], has: [1, 2, 4, 6] });
  });

  it("[CM14] finds the steps of the answer it ends with across the cut", async () => {
    const seen = await onBranch((branch) => seqs(branch.answer("a1")), {
      entries: HISTORY.slice(0, 3),
      shown: covering(2),
    });
    expect(seen).toEqual([2, 4]);
  });

  it("[CM14] reads the head and the pinned message, and nothing else of what is covered", async () => {
    const entries = row(30);
    const shown = covering(20, { head: [1, 2], pinned: 19 });
    const seen = await onBranch(
      (branch, source) => {
        const { head, pinned } = branch.kept;
        return [seqs(head), seqs(pinned), seqs(branch.entries), source.oldest()];
      },
      { entries, shown },
    );
    expect(seen).toEqual([[1, 2], [19], Array.from({ length: 10 }, (_, index) => index + 21), 21]);
  });

  it("[HT7] counts what was erased of the head and of the pinned message", async () => {
    const entries = row(6).map((entry) => (entry.seq % 2 ? { ...entry, state: "deleted" as const } : entry));
    const seen = await onBranch((branch) => seqs(branch.erased), {
      entries,
      shown: covering(4, { head: [1, 2], pinned: 3 }),
    });
    expect(seen).toEqual([1, 3, 5]);
  });

  it("[CM14] where outputs are left out and nothing is covered has the whole branch", async () => {
    const shown = overlay({ pruning: { until: 2, shortened: [], tokens: 5 } });
    const seen = await onBranch((branch) => [seqs(branch.entries), branch.isComplete, branch.kept], { shown });
    expect(seen).toEqual([[1, 2, 4, 6], true, { head: [], pinned: [] }]);
  });

  it("[CM14] is on any tree the chain behind the cut, whatever was read before it was put in force", async () => {
    await inDatabase((storage) => {
      fc.assert(
        fc.property(trees, fc.nat(), fc.nat(), fc.nat({ max: 40 }), (parents, pick, cut, before) => {
          const store = storeWith(storage, parents);
          const leaf = parents.length - (pick % Math.min(9, parents.length));
          const chain = chainTo(leaf, parents);
          const until = chain[cut % chain.length]!;
          const whole = new Branch(store, leaf);
          take(whole.backwards(), before);
          const source = watched(store);
          const shown = new Branch(source, leaf);
          take(shown.backwards(), before);
          shown.show(covering(until));
          for (const branch of [new Branch(store, leaf, covering(until)), whole.under(covering(until)), shown]) {
            expect(seqs(branch.backwards())).toEqual(chain.filter((seq) => seq > until).toReversed());
            expect(seqs(branch.entries)).toEqual(chain.filter((seq) => seq > until));
            expect([branch.leaf?.seq, branch.isComplete]).toEqual([leaf, true]);
            expect(seqs(branch.history())).toEqual(chain.toReversed());
          }
          expect([seqs(whole.entries), whole.overlay]).toEqual([chain, null]);
        }),
        { numRuns: 40 },
      );
    });
  });

  it("[CM14] put in force before as much was read has what lies between as well", async () => {
    const seen = await onBranch(
      (branch, source) => {
        const { leaf } = branch;
        branch.show(covering(10));
        return [leaf?.seq, branch.loaded.length, branch.entries.length, branch.entries[0]?.seq, source.asked];
      },
      { entries: row(30) },
    );
    expect(seen).toEqual([30, 4, 20, 11, [4, 256]]);
  });

  it("[CM14] another one that reaches further takes the place of the first", async () => {
    const seen = await onBranch(
      (branch) => {
        const first = seqs(branch.kept.pinned);
        const next = branch.under(covering(4, { id: 10, pinned: 2 }));
        const after = [seqs(next.kept.pinned), seqs(next.entries), next.overlay?.id];
        branch.show(covering(4, { id: 10, pinned: 2 }));
        return [first, after, [seqs(branch.kept.pinned), seqs(branch.entries), branch.overlay?.id]];
      },
      { shown: covering(2, { pinned: 1 }) },
    );
    expect(seen).toEqual([[1], [[2], [6], 10], [[2], [6], 10]]);
  });
});

describe("cutting a branch under an overlay", () => {
  const shown = overlay({ until: 3, summary: "S", pinned: 2, pruning: { until: 5, shortened: [], tokens: 1 } });
  const entries = row(8);

  it.each<[string, Seq, boolean, number[]]>([
    ["behind the overlay, in memory", 6, true, [4, 5, 6]],
    ["at the leaf", 8, true, [4, 5, 6, 7, 8]],
    ["at the pinned message", 2, false, [4, 5, 6, 7, 8]],
    ["at the last entry that is covered", 3, false, [4, 5, 6, 7, 8]],
    ["among the outputs that were left out", 4, false, [4, 5, 6, 7, 8]],
    ["at the last of them", 5, true, [4, 5]],
  ])("[CM14] %s: %s: %s", async (_where, seq, expected, left) => {
    const seen = await onBranch((branch) => [branch.entries.length, branch.cutAfter(seq), seqs(branch.entries)], {
      entries,
      shown,
    });
    expect(seen).toEqual([5, expected, left]);
  });

  it("[CM14] at a leaf that is covered keeps it as it is", async () => {
    const seen = await onBranch((branch) => [branch.cutAfter(8), branch.leaf?.seq, seqs(branch.entries)], {
      entries,
      shown: overlay({ until: 8, summary: "S" }),
    });
    expect(seen).toEqual([true, 8, []]);
  });

  it("[CM14] after an output that is shown shortened, and before it", async () => {
    const cutAt = (seq: Seq) =>
      onBranch((branch) => [branch.entries.length, branch.cutAfter(seq)], {
        entries,
        shown: overlay({
          pruning: { until: 0, shortened: [{ seq: 6, toolCallId: "c", length: 2_000 }], tokens: 1 },
        }),
      });
    expect([await cutAt(6), await cutAt(5)]).toEqual([
      [8, true],
      [8, false],
    ]);
  });
});

function take(entries: Iterable<Entry>, count: number): Entry[] {
  const taken: Entry[] = [];
  if (count === 0) return taken;
  for (const entry of entries) if (taken.push(entry) === count) break;
  return taken;
}
