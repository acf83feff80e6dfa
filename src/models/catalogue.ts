/**
 * What is known of a model before it is called: how much it can read and how much it can write.
 *
 * The numbers live in `limits.ts`, a table written by `node scripts/models-refresh.ts` from two maintained catalogues.
 * Run that script and commit the table to learn newer models. The service itself never asks anybody: a model the table lacks
 * has no known limits, and the `CONTEXT_WINDOW` and `MAX_OUTPUT_TOKENS` variables fill in or correct what is said here.
 *
 * Where a vendor doubles its price beyond some input size the table may name that size as the window (272,000 for several
 * OpenAI models that can read more). It errs towards what is smaller and cheaper; `CONTEXT_WINDOW` raises it.
 */
import { LIMITS } from "./limits.ts";

/** Both in the model's own tokens; absent means unknown, never 0. */
export interface ModelLimits {
  /** most tokens of one call, prompt and answer together unless the vendor counts them apart */
  contextWindow?: number;
  /** most tokens of one answer, reasoning included */
  maxOutputTokens?: number;
}

/**
 * A window of 32,000 is small enough that a newcomer sees a compaction within minutes, and holds a usual tail of 20,000 with
 * room to spare; 4,096 is what small models answer with.
 */
const MIRROR: Readonly<ModelLimits> = { contextWindow: 32_000, maxOutputTokens: 4_096 };

/** A date or a channel at the end of a model name: `-20250929`, `@20250929`, `-2024-08-06`, `-preview-06-05`, `-latest`. */
const SUFFIX = /(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-preview-\d{2}-\d{2}|-latest)$/;

/**
 * Limits of a model by its registry id, such as `anthropic/claude-sonnet-4-5` or `mirror`.
 *
 * A dated or `-latest` name that is not in the table has the limits of the undated name, and an undated one those of its
 * newest date. Nothing else is guessed: an unknown name, any `openai-compatible/…` name included, gives `{}`.
 */
export function limitsOf(modelId: string): ModelLimits {
  if (modelId === "mirror") return { ...MIRROR };
  const prefix = modelId.slice(0, Math.max(0, modelId.indexOf("/")));
  // Workers AI names have a path, `@cf/meta/…`; the table has the last part only
  const name = modelId.slice(modelId.lastIndexOf("/") + 1);
  const pair = Object.hasOwn(LIMITS, prefix) ? find(LIMITS[prefix] ?? {}, name) : undefined;
  return pair ? { contextWindow: pair[0] || undefined, maxOutputTokens: pair[1] || undefined } : {};
}

type Provider = (typeof LIMITS)[string];

function find(known: Provider, name: string): Provider[string] | undefined {
  const plain = name.replace(SUFFIX, "");
  const dated = Object.keys(known).filter((id) => id.replace(SUFFIX, "") === plain);
  // dates sort as text, so the last one is the newest
  const id = [name, plain, dated.sort().at(-1)].find(
    (candidate) => candidate !== undefined && Object.hasOwn(known, candidate),
  );
  return id === undefined ? undefined : known[id];
}
