/** `npm run build`: bundles the Worker as a deploy would, and refuses a bundle that is too large. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/** Bytes of the minified bundle after gzip, excluded: 1 MB, a third of what the smallest Workers plan takes. */
const MAX_COMPRESSED_BYTES = 1_000_000;

const wrangler = fileURLToPath(import.meta.resolve("wrangler"));
const { status, stdout } = spawnSync(process.execPath, ["--no-warnings", wrangler, "deploy", "--dry-run"], {
  stdio: ["ignore", "pipe", "inherit"],
  encoding: "utf8",
  env: { WRANGLER_SEND_METRICS: "false", ...process.env },
});
process.stdout.write(stdout);
if (status !== 0) process.exit(status ?? 1);

const kibibytes = /\bgzip: ([\d.]+) KiB/.exec(stdout)?.[1];
if (kibibytes === undefined) throw new Error("wrangler did not report the compressed size of the bundle");
const bytes = Math.round(Number(kibibytes) * 1024);
const size = `${(bytes / 1000).toFixed(0)} kB compressed of ${MAX_COMPRESSED_BYTES / 1000} kB`;
if (bytes >= MAX_COMPRESSED_BYTES) {
  console.error(`The bundle is too large: ${size}.`);
  process.exit(1);
}
console.log(`Bundle: ${size}.`);
