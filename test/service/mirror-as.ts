/** `mirror` under another name: a model of another provider, family or tokenizer whose true prompt sizes are known. */
import type { LanguageModelV4, LanguageModelV4CallOptions, LanguageModelV4Usage } from "@ai-sdk/provider";
import { createMirror } from "../../src/models/mirror.ts";
import { reportUsage } from "../../src/models/mirror-usage.ts";

type Report = (usage: LanguageModelV4Usage) => LanguageModelV4Usage;

/** Keeps the calls that it got, and reports what `report` makes of mirror's usage. */
export class MirrorAs implements LanguageModelV4 {
  readonly specificationVersion = "v4";
  readonly supportedUrls = {};
  readonly provider: string;
  readonly modelId: string;
  readonly calls: LanguageModelV4CallOptions[] = [];
  readonly #mirror = createMirror();
  readonly #report: Report;

  constructor(provider: string, modelId: string, report: Report = (usage) => usage) {
    this.provider = provider;
    this.modelId = modelId;
    this.#report = report;
  }

  doGenerate(call: LanguageModelV4CallOptions) {
    this.calls.push(call);
    return this.#mirror.doGenerate(call);
  }

  async doStream(call: LanguageModelV4CallOptions) {
    this.calls.push(call);
    const { stream } = await this.#mirror.doStream(call);
    const report = this.#report;
    const relabelled = new TransformStream({
      transform(part, controller) {
        controller.enqueue(part.type === "finish" ? { ...part, usage: report(part.usage) } : part);
      },
    });
    return { stream: stream.pipeThrough(relabelled) };
  }
}

/** Mirror's figures as a tokenizer reports them whose tokens are smaller or larger: `times` for each of mirror's. */
export function times(scale: number): Report {
  return ({ inputTokens, outputTokens }) => {
    const scaled = (tokens: number | undefined) => Math.round((tokens ?? 0) * scale);
    return reportUsage({
      input: scaled(inputTokens.total),
      cached: scaled(inputTokens.cacheRead),
      reasoning: scaled(outputTokens.reasoning),
      text: scaled(outputTokens.text),
    });
  };
}
