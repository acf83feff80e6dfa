import { APICallError, JSONParseError, RetryError, StreamProviderError, TypeValidationError } from "ai";
import { describe, expect, it } from "vitest";
import { createMirror } from "../../src/models/mirror.ts";
import { isContextOverflow } from "../../src/turn/context-overflow.ts";

/** A refusal as the provider packages throw it: the message read from the body, and the body. */
function refused(statusCode: number | undefined, message: string, body: unknown = { error: { message } }) {
  const responseBody = typeof body === "string" ? body : JSON.stringify(body);
  return new APICallError({
    message,
    url: "https://provider.test/v1",
    requestBodyValues: {},
    statusCode,
    responseBody,
  });
}

const OVERFLOWS: [provider: string, status: number, message: string][] = [
  ["Anthropic", 400, "prompt is too long: 213462 tokens > 200000 maximum"],
  [
    "Anthropic, with the answer",
    400,
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
  ],
  ["Anthropic, by bytes", 413, "Request exceeds the maximum size"],
  [
    "OpenAI chat",
    400,
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please reduce the length of the messages.",
  ],
  [
    "OpenAI chat, with the answer",
    400,
    "This model's maximum context length is 4097 tokens, however you requested 4162 tokens (1090 in your prompt; 3072 for the completion). Please reduce your prompt; or completion length.",
  ],
  [
    "OpenAI responses",
    400,
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
  ],
  ["OpenAI, other words", 400, "Your input exceeds this model's context window."],
  [
    "OpenAI, the configured limit",
    400,
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens. Please reduce the length of the messages.",
  ],
  [
    "OpenAI, too many messages",
    400,
    "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2049 instead.",
  ],
  ["Gemini", 400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."],
  ["Gemini, without figures", 400, "The input token count exceeds the maximum number of tokens allowed 1048576."],
  ["Gemini, by bytes", 400, "Request payload size exceeds the limit: 20971520 bytes."],
  [
    "Vertex",
    400,
    "Unable to submit request because the input token count is 135538 but model only supports up to 32768. Reduce the input token count and try again.",
  ],
  ["Bedrock", 400, "Input is too long for requested model."],
  ["Bedrock, by bytes", 400, "The model returned the following errors: too many total text bytes: 16940000 > 16000000"],
  [
    "Bedrock's Nova",
    400,
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
  ],
  [
    "Mistral",
    400,
    "Prompt contains 65536 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
  ],
  ["xAI", 400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."],
  ["xAI, by bytes", 400, "Sent message larger than max (50000056 vs. 20971520)"],
  ["Groq", 400, "Please reduce the length of the messages or completion."],
  ["Groq, by bytes", 413, "Request Entity Too Large"],
  [
    "OpenRouter",
    400,
    'This endpoint\'s maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input). Please reduce the length of either one, or use the "middle-out" transform to compress your prompt automatically.',
  ],
  ["OpenRouter's Poolside", 400, "Input length 131393 exceeds the maximum allowed input length of 131040 tokens."],
  ["Together", 400, "The input (516368 tokens) is longer than the model's context length (262144 tokens)."],
  ["Together, with the answer", 403, "Input token count + max_tokens parameter must be less than the context length"],
  [
    "text-generation-inference",
    422,
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8192 `inputs` tokens and 1024 `max_new_tokens`",
  ],
  [
    "text-generation-inference, alone",
    422,
    "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
  ],
  ["llama.cpp", 400, "the request exceeds the available context size, try increasing it"],
  ["llama.cpp, with figures", 400, "request (16482 tokens) exceeds the available context size (8192 tokens)"],
  ["llama.cpp, while it answers", 500, "Context size has been exceeded."],
  ["vLLM", 400, "The decoder prompt (length 21535) is longer than the maximum model length of 16384."],
  ["vLLM, by figures", 400, "The prompt (total length 25938) is too long to fit into the model (context length 4096)."],
  [
    "vLLM, by its longest prompt",
    400,
    "You passed 16385 input tokens and requested 1 output tokens. However, the model's context length is only 16384 tokens, resulting in a maximum input length of 16383 tokens. Please reduce the length of the input prompt.",
  ],
  [
    "vLLM, where the prompt leaves the answer no room",
    400,
    "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 16384 tokens and your request has 13000 input tokens (4096 > 16384 - 13000).",
  ],
  ["vLLM, where it reckons what is left", 400, "max_tokens must be at least 1, got -3056."],
  [
    "SGLang",
    400,
    "Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of 132528 tokens: 66992 tokens from the input messages and 65536 tokens for the completion.",
  ],
  [
    "SGLang, by its longest prompt",
    400,
    "Input length (265330 tokens) exceeds the maximum allowed length (262144 tokens).",
  ],
  [
    "LM Studio",
    400,
    "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 10978 >= n_ctx: 8192).",
  ],
  [
    "LM Studio, as it is loaded",
    400,
    "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
  ],
  [
    "LM Studio, while it answers",
    400,
    "Reached context length of 4096 tokens with model (arch: llama) that does not currently support mid-generation context overflow.",
  ],
  ["Ollama", 400, "the input length exceeds the context length"],
  ["Ollama, not cutting", 400, "the prompt is longer than the context length currently available to the model"],
  ["Ollama's cloud", 400, "prompt too long; exceeded max context length by 100918 tokens"],
  ["Cohere", 400, "too many tokens: size limit exceeded by 168512 tokens. The limit for this model is 132000 tokens."],
  [
    "Cohere, older",
    400,
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5412. Try using a shorter prompt, or enabling prompt truncation.",
  ],
  [
    "DeepSeek",
    400,
    "This model's maximum context length is 131072 tokens. However, you requested 139162 tokens (130970 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
  ],
  ["Kimi, by length", 400, "Input token length too long"],
  ["ds4, older", 400, "Prompt tokens (9000) exceeds context size (8192)"],
  ["MiniMax", 400, "invalid params, context window exceeds limit (2013)"],
  ["Kimi", 400, "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)"],
  [
    "Workers AI",
    413,
    "5021: The estimated number of input and maximum output tokens (40000) exceeded this model context window limit (32000).",
  ],
  [
    "Workers AI, by vLLM",
    400,
    "AiError: This model's maximum context length is 131072 tokens. However, you requested 16000 output tokens and your prompt contains at least 115073 input tokens, for a total of at least 131073 tokens. Please reduce the length of the input prompt or reduce max_tokens.",
  ],
  ["GitHub Copilot", 400, "prompt token count of 93854 exceeds the limit of 90000"],
  ["GitHub Models", 413, "Request body too large for gpt-4o model. Max size: 8000 tokens."],
  [
    "Cerebras",
    400,
    "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000",
  ],
  ["Z.ai", 400, "Prompt exceeds max length"],
  ["Qwen", 400, "Range of input length should be [1, 258048]"],
  ["Fireworks", 400, "The prompt is too long: 1000008, model maximum context length: 131071"],
  ["ds4", 400, "Prompt has 5,958,968 tokens, but the configured context size is 256,000 tokens"],
];

const OTHER_REFUSALS: [what: string, status: number, message: string][] = [
  [
    "a request above OpenAI's rate",
    429,
    "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 40000. The input or output tokens must be reduced in order to run successfully. Visit https://platform.openai.com/account/rate-limits to learn more.",
  ],
  [
    "the same, passed on with another status",
    400,
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000. The input or output tokens must be reduced in order to run successfully.",
  ],
  [
    "a request above Groq's rate",
    413,
    "Request too large for model `llama-3.3-70b` in organization `org_x` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 9500, please reduce your message size and try again.",
  ],
  ["Bedrock's throttling", 429, "Too many tokens, please wait before trying again."],
  ["Bedrock's throttling in a stream", 400, "ThrottlingException: Too many tokens, please wait before trying again."],
  ["Bedrock's day", 400, "Too many tokens per day, please wait before trying again."],
  [
    "Anthropic's rate",
    429,
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute. Please reduce the prompt length or the maximum tokens requested, or try again later.",
  ],
  ["Anthropic's tier", 429, "Extra usage is required for long context requests."],
  ["an overloaded provider", 529, "Overloaded"],
  ["Gemini's quota", 429, "You exceeded your current quota, please check your plan and billing details."],
  ["a quota with another status", 400, "Quota exceeded for metric: generate_content_free_tier_input_token_count"],
  ["an organisation's day", 400, "request reached organization TPD rate limit, current: 1506556, limit: 1500000"],
  ["a limit per minute", 400, "This request exceeds the limit of 30000 tokens per minute"],
  ["a wait", 400, "The maximum context length was reached too often. Try again in 20s."],
  ["money", 402, "Prompt tokens limit exceeded: 24961 > 23461. To increase, visit the settings and add credits"],
  [
    "money for the answer",
    400,
    "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens",
  ],
  ["any status 429", 429, "prompt is too long: 9 tokens > 8 maximum"],
  [
    "OpenAI's longest answer",
    400,
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
  ],
  [
    "Workers AI's longest answer",
    400,
    "max_completion_tokens is too large: 1298829. This model supports at most 1048576",
  ],
  [
    "Anthropic's longest answer",
    400,
    "max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens",
  ],
  ["Bedrock's longest answer", 400, "The maximum tokens you requested exceeds the model limit of 4096."],
  [
    "Cohere's longest answer",
    400,
    "too many tokens: max tokens must be less than or equal to 4096, the maximum output length for this model - received 1000000.",
  ],
  ["Qwen's longest answer", 400, "Range of max_tokens should be [1, 8192]"],
  [
    "vLLM, where the answer alone is above the window",
    400,
    "'max_tokens' or 'max_completion_tokens' is too large: 30000. This model's maximum context length is 16384 tokens and your request has 3000 input tokens (30000 > 16384 - 3000).",
  ],
  ["an answer above the window", 400, "max_tokens is too large: 9000. The maximum context length is 8192 tokens."],
  [
    "an id that is too long",
    400,
    "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 64 instead.",
  ],
  ["too many tools", 400, "Invalid 'tools': array too long. Expected an array with maximum length 128."],
  ["a refused key", 401, "Incorrect API key provided"],
  ["a fault of the server", 500, "model runner crashed unexpectedly"],
  ["a status without words", 400, "Bad Request"],
  ["a deadline", 504, "context deadline exceeded"],
];

describe("a prompt that is too long is recognised", () => {
  it.each(OVERFLOWS)("[CM9] in the words of %s", (_provider, status, message) => {
    expect(isContextOverflow(refused(status, message))).toBe(true);
    expect(isContextOverflow(new Error(message))).toBe(true);
    expect(isContextOverflow(message)).toBe(true);
  });

  it("[CM9] in the words of mirror", async () => {
    const model = createMirror({ contextWindow: 10 });
    const prompt = [{ role: "user" as const, content: [{ type: "text" as const, text: "word ".repeat(50) }] }];
    const error: unknown = await model.doStream({ prompt }).then(
      () => undefined,
      (cause: unknown) => cause,
    );
    expect(isContextOverflow(error)).toBe(true);
  });

  it.each<[string, unknown]>([
    [
      "a code beside other words",
      refused(400, "Bad request", { error: { message: "", code: "context_length_exceeded" } }),
    ],
    ["GitHub Copilot's code", refused(400, "", { error: { code: "model_max_prompt_tokens_exceeded" } })],
    ["GitHub Models' code", refused(400, "", { error: { code: "tokens_limit_reached" } })],
    ["a type in the body", refused(400, "Bad Request", { error: { type: "exceed_context_size_error", n_ctx: 8192 } })],
    ["an error_type in the body", refused(400, "Failed", { error_type: "context_length_exceeded" })],
    [
      "parsed data",
      new APICallError({ message: "", url: "", requestBodyValues: {}, data: { code: "context_window_exceeded" } }),
    ],
    ["status 413 and no body", refused(413, "", "")],
    ["status 413 and a page", refused(413, "Payload Too Large", "<html><h1>413 Request Entity Too Large</h1></html>")],
    ["status 413 in a gateway's words", new Error("413 status code (no body)")],
    ["a problem document", refused(413, "Failed", { title: "Content Too Large", status: 413 })],
    ["a validation error's list", refused(422, "Failed", { detail: [{ msg: "prompt is too long", input: {} }] })],
    [
      "the error that a gateway passes on as text",
      refused(400, "Provider returned error", {
        error: {
          message: "Provider returned error",
          code: 400,
          metadata: { raw: '{"error":{"message":"prompt is too long"}}' },
        },
      }),
    ],
    ["a body that only begins like JSON", refused(400, "Failed", "[error] prompt is too long: 9 > 8")],
  ])("[CM9] in %s", (_where, error) => {
    expect(isContextOverflow(error)).toBe(true);
  });

  const event = {
    type: "error",
    sequence_number: 2,
    error: { type: "invalid_request_error", code: "context_length_exceeded" },
  };

  it.each<[string, unknown]>([
    ["an error event", event],
    [
      "a failed response",
      { type: "response.failed", response: { error: { code: "context_length_exceeded", message: "…" } } },
    ],
    ["an event the SDK has read", new StreamProviderError({ message: "…", data: event })],
    ["an event of an unknown shape", new TypeValidationError({ value: event, cause: new Error("no match") })],
    ["an event as text", JSON.stringify(event)],
  ])("[CM9] in the middle of a stream: %s", (_what, error) => {
    expect(isContextOverflow(error)).toBe(true);
  });

  it("[CM9] behind what wraps it", () => {
    const cause = refused(400, "prompt is too long: 9 tokens > 8 maximum");
    expect(isContextOverflow(new Error("the call failed", { cause }))).toBe(true);
    expect(isContextOverflow(new AggregateError([new Error("one"), cause], "all failed"))).toBe(true);
  });

  it("[CM9] where it is what the last of several tries ended with, and only there", () => {
    const overflow = refused(400, "prompt is too long: 9 tokens > 8 maximum");
    const limited = refused(429, "Rate limit reached");
    const tried = (...errors: unknown[]) => new RetryError({ message: "Failed", reason: "errorNotRetryable", errors });
    expect(isContextOverflow(tried(limited, overflow))).toBe(true);
    expect(isContextOverflow(tried(overflow, limited))).toBe(false);
  });
});

describe("nothing else is taken for a prompt that is too long", () => {
  it.each(OTHER_REFUSALS)("[CM9] not %s", (_what, status, message) => {
    expect(isContextOverflow(refused(status, message))).toBe(false);
  });

  it.each<[string, unknown]>([
    [
      "a code",
      refused(400, "prompt is too long", { error: { message: "prompt is too long", code: "rate_limit_exceeded" } }),
    ],
    ["a status in the body", refused(500, "context_length_exceeded", { error: { code: 429 } })],
    ["the name of the error", Object.assign(new Error("prompt is too long"), { name: "ThrottlingException" })],
    ["what it wraps", new Error("prompt is too long", { cause: refused(429, "") })],
    [
      "a stream's event",
      { type: "error", error: { code: "rate_limit_exceeded", message: "Request too large for gpt-4o" } },
    ],
  ])("[CM9] not a rate limit that only %s tells", (_where, error) => {
    expect(isContextOverflow(error)).toBe(false);
  });

  it("[CM9] not what was said in the conversation", () => {
    const said = "Why is my prompt is too long?";
    const requestBodyValues = { messages: [{ role: "user", content: said }] };
    const responseBody = JSON.stringify({ detail: [{ msg: "Field required", input: requestBodyValues }] });
    const error = new APICallError({ message: "Failed", url: "", requestBodyValues, statusCode: 422, responseBody });
    expect(isContextOverflow(error)).toBe(false);
    const chunk = { choices: [{ delta: { content: said } }] };
    expect(isContextOverflow(new TypeValidationError({ value: chunk, cause: new Error("no match") }))).toBe(false);
    expect(isContextOverflow(new JSONParseError({ text: said, cause: new Error("end") }))).toBe(false);
  });

  it("[CM9] not what says nothing, and an error that wraps itself ends", () => {
    const circle = new Error("failed");
    circle.cause = circle;
    const nothing = [undefined, null, 0, true, "", {}, [], new Error(""), circle];
    expect(nothing.filter(isContextOverflow)).toEqual([]);
  });
});
