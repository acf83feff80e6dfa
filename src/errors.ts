/**
 * Every way a request can be refused, in one place.
 *
 * A `SessionError` is an outcome a caller can act on. Its message is written for the person who reads it and never
 * carries a stack, a path or a statement. Anything else that is thrown is a defect: it is logged and leaves as `internal`.
 */

/** code → HTTP status. Exhaustive: a new code does not compile until it has a status. */
const STATUS = {
  "bad-request": 400,
  "invalid-session-id": 400,
  "invalid-frame": 400,
  "invalid-message": 400,
  "invalid-settings": 400,
  "duplicate-id": 409,
  "unknown-message": 404,
  "unknown-tool-call": 409,
  "unknown-branch": 404,
  "unknown-compaction": 404,
  "not-in-force": 409,
  "not-found": 404,
  "method-not-allowed": 405,
  "turn-open": 409,
  "queue-full": 429,
  "too-many-requests": 429,
  "not-empty": 409,
  "frame-too-large": 413,
  "body-too-large": 413,
  "message-too-large": 413,
  "prompt-too-large": 413,
  "model-unavailable": 502,
  "model-failed": 502,
  "step-limit": 502,
  "session-deleted": 410,
  "session-ended": 503,
  misconfigured: 503,
  internal: 500,
} as const;

export type ErrorCode = keyof typeof STATUS;

export class SessionError extends Error {
  override readonly name = "SessionError";

  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Whether a word from storage is still a code of this version. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(STATUS, code);
}

/** What leaves the service for any thrown value. Defects keep their details to the log. */
export interface PublicError {
  code: ErrorCode;
  message: string;
  status: (typeof STATUS)[ErrorCode];
}

export function publicError(thrown: unknown): PublicError {
  if (thrown instanceof SessionError) {
    return { code: thrown.code, message: thrown.message, status: STATUS[thrown.code] };
  }
  return { code: "internal", message: "The session failed to handle this request; it has been logged.", status: 500 };
}
