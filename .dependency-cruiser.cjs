/**
 * The rooms of `src/` and who may import whom: wire → turn → { context, compaction, models, storage }.
 * Type-only imports count. The parser is the TypeScript 6 API (`typescript`); the native compiler has none.
 */
const vocabulary = "^src/(records|events|errors)\\.ts$";
const leaves = ["context", "compaction", "models", "storage"];

/** A room may import itself, the vocabulary and `others`; nothing else of `src/`. */
function room(name, others = []) {
  return {
    name: `room-${name}`,
    comment: `src/${name}/ imports only the vocabulary${others.map((other) => ` and ${other}`).join("")}.`,
    severity: "error",
    from: { path: `^src/${name}/` },
    to: { path: "^src/", pathNot: [vocabulary, ...[name, ...others].map((allowed) => `^src/${allowed}/`)] },
  };
}

module.exports = {
  forbidden: [
    ...leaves.map((name) => room(name)),
    room("turn", leaves),
    room("wire", ["turn", ...leaves]),
    room("playground"),
    {
      name: "vocabulary",
      comment: "The shared words depend on no room.",
      severity: "error",
      from: { path: vocabulary },
      to: { path: "^src/", pathNot: vocabulary },
    },
    {
      name: "platform-at-the-edge",
      comment: "Only the edge knows the platform: `agents` and `cloudflare:*`.",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/(index\\.ts$|worker\\.ts$|chat-session\\.ts$|wire/agents)" },
      to: { path: "^cloudflare:|(^|/)node_modules/agents/" },
    },
    {
      name: "no-circular",
      comment: "A cycle is two modules that are one, or a missing third.",
      severity: "error",
      from: {},
      to: { circular: true },
    },
    {
      name: "only-src",
      comment: "What is deployed does not import tests, scripts or benches.",
      severity: "error",
      from: { path: "^src/" },
      to: { path: "^(test|scripts|bench)/" },
    },
    {
      name: "no-dev-dependency",
      comment: "What is deployed runs on `dependencies` alone; types may come from a devDependency.",
      severity: "error",
      from: { path: "^src/" },
      to: { dependencyTypes: ["npm-dev", "npm-no-pkg"], dependencyTypesNot: ["type-only"] },
    },
    {
      name: "resolvable",
      severity: "error",
      from: {},
      to: { couldNotResolve: true, pathNot: "^cloudflare:" },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["workerd", "import", "types", "default"],
      extensions: [".ts", ".tsx", ".js", ".mjs", ".json"],
    },
  },
};
