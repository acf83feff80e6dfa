/** What the test made of a session. Kept outside the object, so that it outlives every restart of it. */
import type { SessionBuilder } from "../../src/session-builder.ts";

type Configure = (session: SessionBuilder) => SessionBuilder;

/** by session id */
const configurations = new Map<string, Configure>();

/** Says what a session of the class `configured` is, before it is first reached or after it was evicted. */
export function configureSession(session: string, configure: Configure): void {
  configurations.set(session, configure);
}

export function configurationOf(session: string): Configure {
  return configurations.get(session) ?? ((builder) => builder);
}
