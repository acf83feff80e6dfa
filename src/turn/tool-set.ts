/** The tools of one turn: those of the configuration, and those a client brought for itself. */
import { jsonSchema, tool, type ToolSet } from "ai";
import type { ClientTool } from "../records.ts";

/** A server tool keeps its name against a client tool of the same name: what runs on the server is not a client's choice. */
export function toolSetOf(server: ToolSet, client: readonly ClientTool[]): ToolSet {
  const brought = client.map(({ name, description, inputSchema }) => [
    name,
    tool({ description, inputSchema: jsonSchema(inputSchema) }),
  ]);
  return { ...Object.fromEntries(brought), ...server };
}

/** Whether calls of this name are carried out by the server. */
export function runsOnServer(server: ToolSet, name: string): boolean {
  return server[name]?.execute !== undefined;
}
