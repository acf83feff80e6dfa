import { APICallError, DownloadError, JSONParseError, RetryError, UnsupportedFunctionalityError } from "ai";
import { describe, expect, it } from "vitest";
import { describeModelError, isUnusableFile } from "../../src/turn/model-error.ts";

function refused(statusCode: number | undefined, message: string): APICallError {
  return new APICallError({ message, url: "https://provider.test/v1", requestBodyValues: {}, statusCode });
}

describe("what a client is told of a model that failed", () => {
  it.each([
    [401, "Incorrect API key provided: sk-live-1234", "its provider refused the key"],
    [403, "project p-1 may not", "its provider refused access"],
    [404, "model: nonsense", "its provider does not know it at this address"],
    [429, "Rate limit for org-7", "its provider is limiting requests; try again later"],
    [503, "upstream 10.0.0.1", "its provider answered with status 503"],
    [undefined, "connect ECONNREFUSED 127.0.0.1:1", "its provider could not be reached"],
  ])("[WP9][TN18] of status %s is about the model, and nothing of the account", (status, message, told) => {
    expect(describeModelError(refused(status, message))).toBe(`The model failed: ${told}.`);
  });

  it("[TN18] quotes a provider that refuses the request itself, on one line and not at length", () => {
    expect(describeModelError(refused(400, "prompt is too long: 9 tokens > 8 maximum\nat x"))).toBe(
      "The model failed: prompt is too long: 9 tokens > 8 maximum.",
    );
    expect(describeModelError(refused(400, "x".repeat(400)))).toBe(`The model failed: ${"x".repeat(300)}….`);
  });

  it("[TN18] tells what the last of several tries ended with", () => {
    const errors = [refused(429, "slow down"), refused(500, "oops")];
    const error = new RetryError({ message: "Failed after 2 attempts", reason: "maxRetriesExceeded", errors });
    expect(describeModelError(error)).toBe("The model failed: its provider answered with status 500.");
  });

  it("[WP9] passes on no chunk that could not be read, and no word of the runtime's about a connection", () => {
    const unreadable = new JSONParseError({ text: '{"secret":', cause: new Error("end") });
    expect(describeModelError(unreadable)).toBe("The model failed: its answer could not be used (JSONParseError).");
    expect(describeModelError(new TypeError("Network connection lost."))).toBe(
      "The model failed: the connection to its provider was lost.",
    );
    expect(describeModelError("?")).toBe("The model failed: it gave no reason.");
  });

  const unsupported = new UnsupportedFunctionalityError({ functionality: "file part media type audio/midi" });
  const download = new DownloadError({ url: "http://10.0.0.7/secret.png", statusCode: 404, statusText: "Not Found" });

  it("[TN28] says which file cannot be shown as far as that is known, and no address", () => {
    expect(describeModelError(unsupported)).toBe(
      "The model failed: it cannot be shown part of the conversation (file part media type audio/midi).",
    );
    expect(describeModelError(download)).toBe("The model failed: a file of the conversation could not be downloaded.");
  });

  it("[TN28] tells a file that cannot be shown from other failures, also behind several tries", () => {
    const retried = new RetryError({
      message: "Failed",
      reason: "errorNotRetryable",
      errors: [refused(500, ""), download],
    });
    expect([unsupported, download, retried].map(isUnusableFile)).toEqual([true, true, true]);
    expect([refused(400, "file"), new Error("file"), undefined].map(isUnusableFile)).toEqual([false, false, false]);
  });
});
