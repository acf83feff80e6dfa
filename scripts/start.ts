/**
 * `npm start`: `wrangler dev` for this machine only, without an account, a key or a network.
 *
 * Arguments after `--` go to `wrangler dev`: `npm start -- --port 9000 --persist-to DIR --var NAME:VALUE`.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const wrangler = fileURLToPath(import.meta.resolve("wrangler"));

// `--local`: an `[ai]` binding would otherwise ask for an account at start-up
const child = spawn(process.execPath, ["--no-warnings", wrangler, "dev", "--local", ...process.argv.slice(2)], {
  stdio: "inherit",
  env: {
    WRANGLER_SEND_METRICS: "false",
    // `request.cf` is a fixed placeholder instead of one fetched from the network
    CLOUDFLARE_CF_FETCH_ENABLED: "false",
    ...process.env,
  },
});

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => child.kill(signal));
}
child.on("exit", (code) => process.exit(code ?? 1));
