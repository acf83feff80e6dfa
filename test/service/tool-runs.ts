/** What the tools of a session did. Kept outside the object, so that it outlives every crash of it. */

/** tool names in order of running, by session id */
const runs = new Map<string, string[]>();

export function noteToolRun(session: string, tool: string): void {
  runs.set(session, [...toolRuns(session), tool]);
}

/** Names of the tools that ran in a session, in order, across restarts. */
export function toolRuns(session: string): string[] {
  return runs.get(session) ?? [];
}
