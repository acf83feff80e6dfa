/**
 * Models by one string, `provider/model`, and the one place that knows which variable opens which provider.
 *
 * The part before the first `/` chooses the provider; the rest is the provider's own name for the model and may contain
 * slashes. `mirror` alone is the local model of `mirror.ts`: it needs nothing and calls nobody.
 */
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogle } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import type { LanguageModelV4, ProviderV4 } from "@ai-sdk/provider";
import { createProviderRegistry, defaultSettingsMiddleware, wrapProvider } from "ai";
import { createWorkersAI } from "workers-ai-provider";
import { SessionError } from "../errors.ts";
import { limitsOf } from "./catalogue.ts";
import { createMirror } from "./mirror.ts";

/** Variables and bindings the providers read. An empty string counts as not set. */
export interface ModelEnvironment {
  ANTHROPIC_API_KEY?: string;
  /** default: Anthropic's own API */
  ANTHROPIC_BASE_URL?: string;
  OPENAI_API_KEY?: string;
  /** default: OpenAI's own API */
  OPENAI_BASE_URL?: string;
  GOOGLE_GENERATIVE_AI_API_KEY?: string;
  /** default: Google's own API */
  GOOGLE_BASE_URL?: string;
  /** with its version path, such as `http://localhost:11434/v1` */
  OPENAI_COMPATIBLE_BASE_URL?: string;
  /** left out where the server asks for none */
  OPENAI_COMPATIBLE_API_KEY?: string;
  /** the `[ai]` binding */
  AI?: Ai;
}

export interface Models {
  /**
   * The model of a registry id. Providers are made at the first call and kept; nothing is sent.
   *
   * @throws SessionError `model-unavailable` with the sentence `checkModelId` gives
   */
  languageModel(id: string): LanguageModelV4;
}

interface Provider {
  /** without it the provider cannot be used */
  needs: keyof ModelEnvironment;
  baseUrl?: keyof ModelEnvironment;
  open(env: ModelEnvironment): ProviderV4;
  /** what every call is sent with unless it says otherwise */
  settings?: Parameters<typeof defaultSettingsMiddleware>[0]["settings"];
}

const PROVIDERS: Readonly<Record<string, Provider>> = {
  anthropic: {
    needs: "ANTHROPIC_API_KEY",
    baseUrl: "ANTHROPIC_BASE_URL",
    open: (env) => createAnthropic({ apiKey: env.ANTHROPIC_API_KEY, baseURL: env.ANTHROPIC_BASE_URL || undefined }),
  },
  openai: {
    needs: "OPENAI_API_KEY",
    baseUrl: "OPENAI_BASE_URL",
    open: (env) => createOpenAI({ apiKey: env.OPENAI_API_KEY, baseURL: env.OPENAI_BASE_URL || undefined }),
    // A session keeps its own history. Stored at the provider, reasoning would come back as a reference that expires.
    settings: { providerOptions: { openai: { store: false } } },
  },
  google: {
    needs: "GOOGLE_GENERATIVE_AI_API_KEY",
    baseUrl: "GOOGLE_BASE_URL",
    open: (env) =>
      createGoogle({ apiKey: env.GOOGLE_GENERATIVE_AI_API_KEY, baseURL: env.GOOGLE_BASE_URL || undefined }),
  },
  "workers-ai": { needs: "AI", open: openWorkersAI },
  "openai-compatible": {
    needs: "OPENAI_COMPATIBLE_BASE_URL",
    baseUrl: "OPENAI_COMPATIBLE_BASE_URL",
    open: (env) =>
      createOpenAICompatible({
        name: "openai-compatible",
        baseURL: env.OPENAI_COMPATIBLE_BASE_URL ?? "",
        apiKey: env.OPENAI_COMPATIBLE_API_KEY || undefined,
        // such servers stream no usage unless asked, and a session without usage can only estimate
        includeUsage: true,
      }),
  },
};

const EXAMPLE = "set MODEL to one such as anthropic/claude-sonnet-4-5, or to mirror, which needs no key";

/** Every model the environment opens, by registry id. `mirror` keeps its prompt cache as long as what this returns. */
export function createModels(env: ModelEnvironment): Models {
  let mirror: LanguageModelV4 | undefined;
  let registry: { languageModel(id: `${string}/${string}`): LanguageModelV4 } | undefined;
  return {
    languageModel(id) {
      const fault = checkModelId(id, env);
      if (fault !== undefined) throw new SessionError("model-unavailable", fault);
      if (id === "mirror") return (mirror ??= createMirror(limitsOf(id)));
      registry ??= createProviderRegistry(configured(env), { separator: "/" });
      return registry.languageModel(id as `${string}/${string}`);
    },
  };
}

/**
 * What is wrong with a registry id in this environment: one sentence that says what to set, or `undefined`.
 * Cheap enough for start-up: it makes no provider and calls nothing, so it cannot know whether the key or the name is good.
 */
export function checkModelId(id: string, env: ModelEnvironment): string | undefined {
  if (id === "mirror") return undefined;
  const slash = id.indexOf("/");
  if (slash < 1 || slash === id.length - 1) return `"${id}" names no model as provider/model: ${EXAMPLE}.`;
  const prefix = id.slice(0, slash);
  const provider = Object.hasOwn(PROVIDERS, prefix) ? PROVIDERS[prefix] : undefined;
  if (provider) return checkProvider(prefix, provider, env);
  return `"${id}" names the unknown provider "${prefix}"; known are ${[...Object.keys(PROVIDERS), "mirror"].join(", ")}.`;
}

function checkProvider(prefix: string, { needs, baseUrl }: Provider, env: ModelEnvironment): string | undefined {
  if (!env[needs]) {
    const what = needs === "AI" ? "the AI binding ([ai] in wrangler.toml)" : needs;
    return `Models of "${prefix}/" need ${what}, which is not set.`;
  }
  const url = baseUrl && env[baseUrl];
  if (url && !URL.canParse(String(url))) return `${baseUrl} is no URL; it looks like https://host/v1.`;
  return undefined;
}

function configured(env: ModelEnvironment): Record<string, ProviderV4> {
  const usable = Object.entries(PROVIDERS).filter(
    ([prefix, provider]) => checkProvider(prefix, provider, env) === undefined,
  );
  return Object.fromEntries(usable.map(([prefix, provider]) => [prefix, opened(provider, env)]));
}

function opened(provider: Provider, env: ModelEnvironment): ProviderV4 {
  const { settings } = provider;
  if (!settings) return provider.open(env);
  return wrapProvider({
    provider: provider.open(env),
    languageModelMiddleware: defaultSettingsMiddleware({ settings }),
  });
}

/** The package's provider is a function with method names of its own, which the registry does not know. */
function openWorkersAI(env: ModelEnvironment): ProviderV4 {
  // SAFETY: `configured` opens it only where the binding is set
  const workersAI = createWorkersAI({ binding: env.AI as Ai });
  return {
    specificationVersion: "v4",
    languageModel: (name) => workersAI(name),
    // SAFETY: the package lists the names it knows; which exist is for the binding to say
    embeddingModel: (name) => workersAI.embedding(name as Parameters<typeof workersAI.embedding>[0]),
    imageModel: (name) => workersAI.image(name as Parameters<typeof workersAI.image>[0]),
  };
}
