import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { configureFrom, type SessionEnvironment } from "../../src/environment.ts";
import { SessionError } from "../../src/errors.ts";
import { createMirror } from "../../src/models/mirror.ts";
import { SessionBuilder } from "../../src/session-builder.ts";
import {
  DEFAULT_LIMITS,
  DEFAULT_MAX_STEPS,
  DEFAULT_TAIL_TOKEN_BUDGET,
  modelId,
  withSettings,
  type Configuration,
} from "../../src/turn/configuration.ts";
import { readCompactAfter, readPositiveInteger } from "../../src/turn/settings.ts";

const DEFAULTS: Configuration = {
  model: "mirror",
  systemPrompt: undefined,
  tools: {},
  clientTools: false,
  compactAfter: "auto",
  compactMode: "compact",
  tokenCounter: undefined,
  context: { reportUnknownAs: "estimate", afterCompaction: "anchored", counts: "context" },
  tailTokenBudget: 20_000,
  compaction: {},
  contextWindow: undefined,
  maxOutputTokens: undefined,
  maxSteps: 32,
  limits: {
    frameLength: 16_777_216,
    messageLength: 4_194_304,
    messageParts: 1_000,
    messagesPerRequest: 100,
    queueLength: 100,
    queueSize: 16_777_216,
  },
};

/** The sentence that a wrong value is refused with. */
function complaint(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof SessionError && error.code === "misconfigured") return error.message;
    throw error;
  }
  return "accepted";
}

describe("defaults", () => {
  it("[CF3] the limits are 16 Mi characters a frame, 4 Mi a message, 1,000 parts, 100 messages and 100 turns", () => {
    expect(DEFAULT_LIMITS).toEqual(DEFAULTS.limits);
    expect([DEFAULT_TAIL_TOKEN_BUDGET, DEFAULT_MAX_STEPS]).toEqual([20_000, 32]);
  });

  it("[CF2] a builder that was told nothing gives the documented defaults", () => {
    expect(new SessionBuilder().build()).toEqual(DEFAULTS);
  });
});

describe("the builder", () => {
  it("[CF2] sets what it is told, and a later call wins", () => {
    const model = createMirror();
    const onCompaction = () => ({ cancel: "no" });
    const built = new SessionBuilder()
      .model("mirror")
      .model(model)
      .system("A")
      .system("B")
      .compactAfter(5)
      .compactAfter("80%")
      .compaction({ tailTokenBudget: 1, minTailMessages: 3, prune: false })
      .compaction({ tailTokenBudget: 2, prune: 0, protectHead: 1 })
      .compaction({ timeoutMs: undefined, instructions: "Keep names.", model, onCompaction })
      .compaction({})
      .contextWindow(10)
      .contextWindow(11)
      .maxOutputTokens(12)
      .maxSteps(3)
      .limits({ queueLength: 1, messageParts: 2 })
      .limits({ queueLength: 7 })
      .allowClientTools()
      .build();
    expect(built).toEqual({
      ...DEFAULTS,
      model,
      systemPrompt: "B",
      compactAfter: "80%",
      tailTokenBudget: 2,
      compaction: { minTailMessages: 3, prune: 0, protectHead: 1, instructions: "Keep names.", model, onCompaction },
      contextWindow: 11,
      maxOutputTokens: 12,
      maxSteps: 3,
      clientTools: true,
      limits: { ...DEFAULTS.limits, queueLength: 7, messageParts: 2 },
    });
  });

  it("[CF2] keeps nothing for the next builder", () => {
    new SessionBuilder().limits({ queueLength: 1 }).tools({}).maxSteps(1).build();
    expect(new SessionBuilder().build()).toEqual(DEFAULTS);
  });

  it.each([
    [false, "off"],
    ["off", "off"],
    ["auto", "auto"],
    [100_000, 100_000],
    ["12.5%", "12.5%"],
  ] as const)("[CF2] compactAfter(%s) is %s", (threshold, expected) => {
    expect(new SessionBuilder().compactAfter(threshold).build().compactAfter).toBe(expected);
  });

  it.each<[string, (builder: SessionBuilder) => unknown]>([
    ["compactAfter", (builder) => builder.compactAfter(0)],
    ["compactAfter", (builder) => builder.compactAfter("101%")],
    ["tailTokenBudget", (builder) => builder.compaction({ tailTokenBudget: -1 })],
    ["minTailMessages", (builder) => builder.compaction({ minTailMessages: 0 })],
    ["protectHead", (builder) => builder.compaction({ protectHead: -1 })],
    ["model", (builder) => builder.compaction({ model: "" })],
    ["prune", (builder) => builder.compaction({ prune: 1.5 })],
    ["timeoutMs", (builder) => builder.compaction({ timeoutMs: 0 })],
    ["contextWindow", (builder) => builder.contextWindow(1.5)],
    ["maxOutputTokens", (builder) => builder.maxOutputTokens(Number.NaN)],
    ["maxSteps", (builder) => builder.maxSteps(0)],
  ])("[CF2] a wrong %s is refused with a sentence that names it", (name, configure) => {
    expect(complaint(() => configure(new SessionBuilder()))).toMatch(new RegExp(`^${name} is .*; it must be .*\\.$`));
  });
});

describe("the levers of compaction", () => {
  it("[CF2] an unknown one is refused by its name", () => {
    // SAFETY: a caller without types may write anything.
    const misspelt = { tailTokens: 5 } as object;
    expect(complaint(() => new SessionBuilder().compaction(misspelt))).toMatch(/^compaction .*tailTokens/);
  });
});

describe("a session's own settings", () => {
  it("[CF2] change the configuration they name and nothing else", () => {
    const settings = { model: "openai/gpt", systemPrompt: "S", compactAfter: "off" as const, tailTokenBudget: 5 };
    expect(withSettings(DEFAULTS, settings)).toEqual({ ...DEFAULTS, ...settings });
    expect(withSettings(DEFAULTS, {})).toEqual(DEFAULTS);
  });

  it("[CF2] an empty system prompt is one, and takes the configured one away", () => {
    expect(withSettings({ ...DEFAULTS, systemPrompt: "A" }, { systemPrompt: "" }).systemPrompt).toBe("");
  });

  it("[US1] a model is booked under its registry id, a model object under its provider's name and its own", () => {
    const model = createMirror();
    expect([modelId("openai/gpt"), modelId(model)]).toEqual(["openai/gpt", `${model.provider}/${model.modelId}`]);
  });
});

describe("values that people write", () => {
  it.each([
    [80_000, 80_000],
    ["80000", 80_000],
    [" 80000 ", 80_000],
    ["80%", "80%"],
    ["100%", "100%"],
    ["0.5%", "0.5%"],
    ["auto", "auto"],
    ["off", "off"],
  ])("[CF1] %j is a threshold", (value, expected) => {
    expect(readCompactAfter(value, "X")).toBe(expected);
  });

  it.each([
    0,
    -1,
    1.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    "",
    " ",
    "0%",
    "101%",
    "-5%",
    "80 %",
    "often",
    "Auto",
    "1e999",
    null,
    undefined,
    {},
    [],
  ])("[CF1] %j is no threshold", (value) => {
    expect(complaint(() => readCompactAfter(value, "X"))).toMatch(/^X is .*80%/);
  });

  it.each([0, -1, 1.5, Number.NaN, "", "  ", "ten", "1.5", "1e999", undefined, {}, "9007199254740993"])(
    "[CF1] %j is no whole number above 0",
    (value) => {
      expect(complaint(() => readPositiveInteger(value, "X"))).toMatch(
        /^X is .*; it must be a whole number above 0\.$/,
      );
    },
  );

  it("[CF1] every whole number above 0 is read from its digits and as it is", () => {
    fc.assert(
      fc.property(
        fc.maxSafeInteger().filter((value) => value > 0),
        (value) => {
          expect([
            readPositiveInteger(value, "X"),
            readPositiveInteger(String(value), "X"),
            readCompactAfter(value, "X"),
          ]).toEqual([value, value, value]);
        },
      ),
    );
  });

  it("[CF1] what was read is read the same again", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1_000 }), (tenths) => {
        const share = readCompactAfter(`${tenths / 10}%`, "X");
        expect(readCompactAfter(share, "X")).toBe(share);
      }),
    );
  });
});

describe("the Worker's variables", () => {
  const configured = (env: SessionEnvironment): Configuration => configureFrom(env, new SessionBuilder()).build();
  const UNSET: Configuration = { ...DEFAULTS, clientTools: true };

  it("[CF1] that are absent or empty leave the defaults, and client tools are allowed", () => {
    const empty = {
      MODEL: "",
      SYSTEM_PROMPT: "",
      COMPACT_AFTER: "",
      TAIL_TOKEN_BUDGET: "",
      CONTEXT_WINDOW: "",
      MAX_OUTPUT_TOKENS: "",
    };
    expect([configured({}), configured(empty)]).toEqual([UNSET, UNSET]);
  });

  it.each<[SessionEnvironment, Partial<Configuration>]>([
    [{ MODEL: "anthropic/claude-sonnet-4-5", ANTHROPIC_API_KEY: "k" }, { model: "anthropic/claude-sonnet-4-5" }],
    [{ SYSTEM_PROMPT: "Be brief." }, { systemPrompt: "Be brief." }],
    [{ COMPACT_AFTER: "100000" }, { compactAfter: 100_000 }],
    [{ COMPACT_AFTER: "80%" }, { compactAfter: "80%" }],
    [{ COMPACT_AFTER: "off" }, { compactAfter: "off" }],
    [{ TAIL_TOKEN_BUDGET: "5000" }, { tailTokenBudget: 5_000 }],
    [{ CONTEXT_WINDOW: "32768" }, { contextWindow: 32_768 }],
    [{ MAX_OUTPUT_TOKENS: "4096" }, { maxOutputTokens: 4_096 }],
  ])("[CF1] %o configures %o", (env, expected) => {
    expect(configured(env)).toEqual({ ...UNSET, ...expected });
  });

  it.each<[keyof SessionEnvironment, string]>([
    ["MODEL", "claude"],
    ["MODEL", "nobody/model"],
    ["MODEL", "openai/gpt"],
    ["COMPACT_AFTER", "sometimes"],
    ["COMPACT_AFTER", "120%"],
    ["TAIL_TOKEN_BUDGET", "-1"],
    ["CONTEXT_WINDOW", "large"],
    ["MAX_OUTPUT_TOKENS", "0"],
  ])("[CF1] a wrong %s is refused with a sentence that names it: %s", (name, value) => {
    expect(complaint(() => configured({ [name]: value }))).toMatch(new RegExp(`^${name} `));
  });
});
