/** The variables of the deployed Worker. */
import { describe, expect, it } from "vitest";
import { configureFrom, type SessionEnvironment } from "../../src/environment.ts";
import { SessionError } from "../../src/errors.ts";
import { SessionBuilder } from "../../src/session-builder.ts";
import { HttpSession, newSessionId } from "./service.ts";

const configured = (env: SessionEnvironment) => configureFrom(env, new SessionBuilder()).build();

function refusal(env: SessionEnvironment): { code: string; message: string } {
  try {
    configured(env);
  } catch (error) {
    if (error instanceof SessionError) return { code: error.code, message: error.message };
    throw error;
  }
  throw new Error("it was not refused");
}

describe("the variables", () => {
  it("[CF1] each configures what wrangler.toml says", () => {
    const configuration = configured({
      MODEL: "openai-compatible/llama",
      OPENAI_COMPATIBLE_BASE_URL: "http://localhost:11434/v1",
      SYSTEM_PROMPT: "Be brief.",
      COMPACT_AFTER: "80%",
      TAIL_TOKEN_BUDGET: "5000",
      CONTEXT_WINDOW: "32768",
      MAX_OUTPUT_TOKENS: "1024",
    });
    expect(configuration).toMatchObject({
      model: "openai-compatible/llama",
      systemPrompt: "Be brief.",
      compactAfter: "80%",
      tailTokenBudget: 5_000,
      contextWindow: 32_768,
      maxOutputTokens: 1_024,
      clientTools: true,
    });
  });

  it("[CF1] those that are empty or absent keep the defaults", () => {
    const empty = {
      MODEL: "",
      SYSTEM_PROMPT: "",
      COMPACT_AFTER: "",
      TAIL_TOKEN_BUDGET: "",
      CONTEXT_WINDOW: "",
      MAX_OUTPUT_TOKENS: "",
    };
    expect(configured(empty)).toEqual(configured({}));
    expect(configured({})).toMatchObject({
      model: "mirror",
      compactAfter: "auto",
      tailTokenBudget: 20_000,
      contextWindow: undefined,
    });
  });

  it.each<[name: string, env: SessionEnvironment, message: RegExp]>([
    ["a model without a provider", { MODEL: "gpt-5" }, /^MODEL cannot be used: "gpt-5" names no model/],
    ["an unknown provider", { MODEL: "nobody/gpt" }, /^MODEL cannot be used: "nobody\/gpt" names the unknown provider/],
    [
      "a provider without its key",
      { MODEL: "anthropic/claude-sonnet-4-5" },
      /^MODEL cannot be used: .* need ANTHROPIC_API_KEY/,
    ],
    [
      "a base address that is none",
      { MODEL: "openai-compatible/llama", OPENAI_COMPATIBLE_BASE_URL: "localhost" },
      /^MODEL cannot be used: OPENAI_COMPATIBLE_BASE_URL is no URL/,
    ],
    ["COMPACT_AFTER as a word", { COMPACT_AFTER: "often" }, /^COMPACT_AFTER is "often"; it must be/],
    ["COMPACT_AFTER as nothing of the window", { COMPACT_AFTER: "0%" }, /^COMPACT_AFTER is "0%"; it must be/],
    ["COMPACT_AFTER as more than the window", { COMPACT_AFTER: "101%" }, /^COMPACT_AFTER is "101%"; it must be/],
    ["TAIL_TOKEN_BUDGET below zero", { TAIL_TOKEN_BUDGET: "-1" }, /^TAIL_TOKEN_BUDGET is "-1"; it must be/],
    ["CONTEXT_WINDOW in parts", { CONTEXT_WINDOW: "1.5" }, /^CONTEXT_WINDOW is "1.5"; it must be/],
    ["MAX_OUTPUT_TOKENS as a word", { MAX_OUTPUT_TOKENS: "many" }, /^MAX_OUTPUT_TOKENS is "many"; it must be/],
  ])("[CF1] %s is refused at start-up with a sentence that names the variable", (_name, env, message) => {
    const refused = refusal(env);
    expect(refused.code).toBe("misconfigured");
    expect(refused.message).toMatch(message);
  });

  it("[CF1] the deployed session is the one that its variables configure", async () => {
    const http = new HttpSession("chat", newSessionId("deployed"));
    expect((await http.summary()).model).toBe("mirror");
  });
});
