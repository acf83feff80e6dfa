/**
 * Has the engine estimate with weights that never saw what is played: those of the other half of the recordings, or the
 * shipped ones. It asks `weightsFor` and gets the same objects each time, so they are filled anew; one script at a time.
 */
import { familyOf, weightsFor } from "../../src/context/estimator.ts";
import { FITTED } from "../../src/context/fitted.ts";
import { weightsFrom } from "../../src/context/weights.ts";
import { FOLDS } from "../folds.ts";
import type { Script } from "./script.ts";

export function useUnseenWeights({ model, half }: Pick<Script, "model" | "half">): void {
  const fitted = half === undefined ? FITTED : FOLDS[half]!;
  Object.assign(weightsFor(model), weightsFrom(fitted[familyOf(model)]));
}
