/** How large things are, in estimator units: the turn's view of the context room. */
import { estimateParts, weightsFor } from "../context/estimator.ts";
import type { Part, Role } from "../records.ts";

/** Units of one entry, as it stores them. */
export interface EntrySize {
  unitsSaid: number;
  unitsReturned: number;
}

/** `model` is the registry id whose family's weights are used. */
export function sizeOf(role: Role, parts: readonly Part[], model: string): EntrySize {
  const { said, returned } = estimateParts(role, parts, weightsFor(model));
  return { unitsSaid: said, unitsReturned: returned };
}
