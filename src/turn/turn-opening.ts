/**
 * The beginning of a turn in storage: what the user said and the open turn, with every id it will use, in one
 * transaction and before anything else happens.
 */
import { SessionError } from "../errors.ts";
import type { Entry, OpenTurn, Seq, TurnRequest } from "../records.ts";
import type { SessionStore } from "../storage/session-store.ts";
import type { MessageToStore, RunAdmission } from "./admission.ts";
import type { Branch } from "./branch.ts";
import { sizeOf } from "./gauge.ts";
import { branchAt } from "./overlay-in-force.ts";

export interface OpeningSurroundings {
  store: SessionStore;
  /** ms since the epoch */
  clock: () => number;
  newId: () => string;
  /** registry id whose family's weights size the entries */
  model: string;
}

/**
 * `branch` is the active branch if memory holds it; it is cut back to where the turn follows and returned, or read anew.
 * `position` is the request's place in the queue, if it waited.
 */
export function openTurn(
  around: OpeningSurroundings,
  branch: Branch | undefined,
  request: TurnRequest,
  admission: RunAdmission,
  position?: number,
): { turn: OpenTurn; branch: Branch } {
  const { store, clock } = around;
  return store.transaction(() => {
    const before = store.session;
    if (position !== undefined) store.dequeue(position);
    updateEntries(store, branch, admission.update, around.model);
    const onto = branch?.cutAfter(admission.parent) ? branch : branchAt(store, admission.parent);
    const parent = insertMessages(around, onto, admission.store);
    const turn = newTurn(around, request, admission, parent, before.leaf);
    const overlay = onto.overlay?.id ?? null;
    store.saveSession({
      turn,
      leaf: parent,
      overlay,
      activeAt: clock(),
      messages: before.messages + admission.store.length,
    });
    return { turn, branch: onto };
  });
}

/** Stores changed entries, sized anew, and puts them in their places on the branch. */
export function updateEntries(
  store: SessionStore,
  branch: Branch | undefined,
  entries: readonly Entry[],
  model: string,
): void {
  for (const entry of entries) {
    const changed = { ...entry, ...sizeOf(entry.role, entry.parts, model) };
    store.update(changed);
    branch?.replace(changed);
  }
}

function newTurn(
  { clock, newId }: OpeningSurroundings,
  request: TurnRequest,
  admission: RunAdmission,
  parent: Seq,
  leaf: Seq | null,
): OpenTurn {
  return {
    id: newId(),
    requestId: request.requestId,
    trigger: request.trigger,
    messageId: admission.continues ?? newId(),
    parent,
    leafIfSilent: admission.store.length || admission.continues ? parent : leaf,
    ...(request.clientTools && { clientTools: request.clientTools }),
    startedAt: clock(),
    interruptions: 0,
  };
}

/** Stores what the user said at the end of the branch, and answers with the entry that the turn follows. */
function insertMessages(
  { store, clock, model }: OpeningSurroundings,
  branch: Branch,
  messages: readonly MessageToStore[],
): Seq {
  for (const { message, version } of messages) {
    branch.push(
      store.insert({
        parent: branch.leaf?.seq ?? null,
        messageId: message.id,
        version,
        step: 0,
        role: message.role,
        state: "done",
        parts: message.parts,
        ...(message.metadata !== undefined && { metadata: message.metadata }),
        unitsBefore: branch.units,
        ...sizeOf(message.role, message.parts, model),
        createdAt: clock(),
      }),
    );
  }
  const last = branch.leaf;
  if (!last) throw new SessionError("bad-request", "There is nothing to answer.");
  return last.seq;
}
