import agents from "agents/vite";
import { cloudflareTest } from "@cloudflare/vitest-pool-workers";
import { defineConfig } from "vitest/config";

/** Tests that read this project's files or start processes. Everything else runs inside workerd. */
const onNode = ["test/node/**/*.test.ts", "test/spec-coverage.test.ts"];

/** Tests of the whole service, which need classes of sessions beside the deployed one. They bring their own Worker. */
const onService = ["test/service/**/*.test.ts"];

export default defineConfig({
  test: {
    // what tests inside workerd cannot do themselves (servers, files) is started here once, for both projects
    globalSetup: ["test/setup/corpus.ts", "test/setup/loopback.ts", "test/setup/context.ts"],
    projects: [
      {
        // warnings here are about source maps that packages do not ship
        logLevel: "error",
        // `agents()` comes first: it compiles the decorator of `@callable()`
        plugins: [agents(), cloudflareTest({ remoteBindings: false, wrangler: { configPath: "./wrangler.toml" } })],
        test: {
          name: "workers",
          include: ["test/**/*.test.ts"],
          exclude: [...onNode, ...onService],
          // one workerd for all files: loading the Worker anew takes two seconds a file; files use session ids of their own
          isolate: false,
        },
      },
      {
        logLevel: "error",
        plugins: [
          agents(),
          cloudflareTest({ remoteBindings: false, wrangler: { configPath: "./test/service/wrangler.toml" } }),
        ],
        test: { name: "service", include: onService, isolate: false, testTimeout: 20_000 },
      },
      { test: { name: "node", include: onNode } },
    ],
  },
});
