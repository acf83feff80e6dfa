/**
 * What a person is told when a model fails.
 *
 * Providers put request ids, parts of keys and whole chunks into their messages. The log has all of it; a client gets
 * what it can act on, and a provider's own words only where they are about the request it made.
 */
import { APICallError, DownloadError, RetryError, UnsupportedFunctionalityError } from "ai";

/** Characters of a provider's own words that are passed on. */
const QUOTED_LENGTH = 300;

/** Statuses whose provider messages are about the operator's account or deployment, not about the request. */
const OPERATOR_STATUS: Readonly<Record<number, string>> = {
  401: "its provider refused the key",
  402: "its provider wants to be paid",
  403: "its provider refused access",
  404: "its provider does not know it at this address",
  408: "its provider took too long",
  429: "its provider is limiting requests; try again later",
};

/** One sentence, without stacks, paths, keys or stream chunks. */
export function describeModelError(error: unknown): string {
  return `The model failed: ${reason(error)}.`;
}

/** Whether a call failed because of a file that the model cannot be shown, before anything was sent. */
export function isUnusableFile(error: unknown): boolean {
  if (RetryError.isInstance(error)) return isUnusableFile(error.lastError);
  return DownloadError.isInstance(error) || UnsupportedFunctionalityError.isInstance(error);
}

function reason(error: unknown): string {
  if (DownloadError.isInstance(error)) return "a file of the conversation could not be downloaded";
  if (UnsupportedFunctionalityError.isInstance(error)) {
    return `it cannot be shown part of the conversation (${quoted(error.functionality)})`;
  }
  if (RetryError.isInstance(error)) return reason(error.lastError);
  if (!APICallError.isInstance(error)) return error instanceof Error ? ownWords(error) : "it gave no reason";
  const { statusCode } = error;
  if (statusCode === undefined) return "its provider could not be reached";
  if (statusCode >= 500) return `its provider answered with status ${statusCode}`;
  return OPERATOR_STATUS[statusCode] ?? quoted(error.message);
}

/** What runtimes say when a connection cannot be made or breaks. */
const CONNECTION = /network|connection|fetch failed|internal error/i;

/** Errors of the AI SDK carry what they failed to read in their message; their names alone say what happened. */
function ownWords(error: Error): string {
  if (error.name.startsWith("AI_")) return `its answer could not be used (${error.name.slice("AI_".length)})`;
  return CONNECTION.test(error.message) ? "the connection to its provider was lost" : quoted(error.message);
}

function quoted(message: string): string {
  const line = message.split("\n")[0]?.trim().replace(/\.$/, "") ?? "";
  return line.length > QUOTED_LENGTH ? `${line.slice(0, QUOTED_LENGTH)}…` : line || "it gave no reason";
}
