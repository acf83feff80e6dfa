/** The tools of one turn: those of the configuration, and those a client brought for itself. */
import { jsonSchema, tool, type Tool, type ToolSet } from "ai";
import { PLACEHOLDER } from "../compaction/prune.ts";
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

/** The tools as a prompt is built with them: what stands for an output that was left out is no output to be translated. */
export function withPlaceholders(tools: ToolSet): ToolSet {
  const wrapped = Object.entries(tools).flatMap(([name, tool]) => {
    // SAFETY: a tool is given what it put out itself, so the types of its output do not matter here.
    const translate = tool.toModelOutput as Translation | undefined;
    if (!translate) return [];
    const toModelOutput: Translation = (result) =>
      isPlaceholder(result.output) ? { type: "text", value: result.output } : translate(result);
    return [[name, { ...tool, toModelOutput }] as const];
  });
  // SAFETY: each tool is itself but for one function of the same type.
  return { ...tools, ...Object.fromEntries(wrapped) } as ToolSet;
}

type ToolOutput = Awaited<ReturnType<NonNullable<Tool<object, object>["toModelOutput"]>>>;
type Translation = (result: {
  toolCallId: string;
  input: unknown;
  output: unknown;
}) => ToolOutput | PromiseLike<ToolOutput>;

function isPlaceholder(output: unknown): output is string {
  return typeof output === "string" && output.startsWith(PLACEHOLDER);
}
