/**
 * What a session shows and acts on where its sources disagree: the seeds' ways, each selectable, and the default.
 * `docs/accounting.md` says which seed wants what.
 */
import { type Prompt, sameVersion } from "./anchor.ts";
import { type KnownTokens, knownTokens, type Ledger } from "./known.ts";

export interface ContextPolicy {
  /**
   * What a session shows that nothing was reported of: the estimate, labelled, or 0 tokens, which also fires nothing.
   * Default `estimate`.
   */
  reportUnknownAs: "estimate" | "zero";
  /**
   * What stands between a compaction and the next report: the size from the ledger, or nothing, so that
   * `reportUnknownAs` decides. Default `anchored`.
   */
  afterCompaction: "anchored" | "unknown";
  /**
   * Whether what followed the last request counts, or that request's input alone, as a status bar of requests shows it.
   * Default `context`.
   */
  counts: "context" | "lastRequest";
}

export const DEFAULT_POLICY: ContextPolicy = Object.freeze({
  reportUnknownAs: "estimate",
  afterCompaction: "anchored",
  counts: "context",
});

/** The one number under a policy. It goes to the decision, the cut, the report and the record alike. */
export function knownByPolicy(ledger: Ledger, prompt: Prompt, policy: ContextPolicy = DEFAULT_POLICY): KnownTokens {
  const { anchor } = ledger;
  const compacted = anchor !== null && anchor.prompt.overlay !== prompt.overlay;
  if (anchor && !(compacted && policy.afterCompaction === "unknown")) {
    const known = knownTokens(ledger, prompt);
    return policy.counts === "context" ? known : lastRequest(known, anchor.input, sameVersion(anchor.prompt, prompt));
  }
  const known = knownTokens({ ...ledger, anchor: null, kin: anchor ?? ledger.kin }, prompt);
  return policy.reportUnknownAs === "estimate" ? known : { ...known, tokens: 0, fresh: 0 };
}

function lastRequest(known: KnownTokens, input: number, current: boolean): KnownTokens {
  return { ...known, tokens: input, fresh: 0, basis: current ? "reported" : "anchored" };
}
