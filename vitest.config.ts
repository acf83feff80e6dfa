import agents from "agents/vite";
import { cloudflareTest } from "@cloudflare/vitest-pool-workers";
import { defineConfig } from "vitest/config";

/** Tests that read this project's files or start processes. Everything else runs inside workerd. */
const onNode = ["test/node/**/*.test.ts", "test/spec-coverage.test.ts"];

export default defineConfig({
  test: {
    // what tests inside workerd cannot do themselves (servers, files) is started here once, for both projects
    globalSetup: ["test/setup/corpus.ts", "test/setup/loopback.ts"],
    projects: [
      {
        // warnings here are about source maps that packages do not ship
        logLevel: "error",
        // `agents()` comes first: it compiles the decorator of `@callable()`
        plugins: [agents(), cloudflareTest({ remoteBindings: false, wrangler: { configPath: "./wrangler.toml" } })],
        test: {
          name: "workers",
          include: ["test/**/*.test.ts"],
          exclude: onNode,
          // one workerd for all files: loading the Worker anew takes two seconds a file; files use session ids of their own
          isolate: false,
        },
      },
      { test: { name: "node", include: onNode } },
    ],
  },
});
