import { describe, expect, it } from "vitest";
import { SessionBuilder } from "../../src/session-builder.ts";
import { withSettings } from "../../src/turn/configuration.ts";

const limitsWith = (model: string | undefined) => {
  const configuration = new SessionBuilder().model("openai-compatible/own").contextWindow(8_192).maxOutputTokens(512);
  const { contextWindow, maxOutputTokens } = withSettings(configuration.build(), model === undefined ? {} : { model });
  return { contextWindow, maxOutputTokens };
};

describe("the limits that were configured", () => {
  it.each<[string, string | undefined]>([
    ["the configured model", undefined],
    ["the configured model chosen by name", "openai-compatible/own"],
    ["a model of which nothing is known", "openai-compatible/other"],
  ])("[CX9] hold for %s", (_name, model) => {
    expect(limitsWith(model)).toEqual({ contextWindow: 8_192, maxOutputTokens: 512 });
  });

  it("[CX9] give way to those of another model that the catalogue knows", () => {
    expect(limitsWith("anthropic/claude-sonnet-4-5")).toEqual({ contextWindow: undefined, maxOutputTokens: undefined });
  });
});
