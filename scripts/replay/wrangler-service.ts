/** Starts the service under `wrangler dev` in a fresh folder, and ends everything that came with it. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PROJECT = join(import.meta.dirname, "../..");
const START_TIMEOUT_MS = 90_000;

export interface WranglerService {
  url: string;
  /** the end of what it printed */
  output(): string;
  stop(): void;
}

export async function startWranglerService(vars: Record<string, string>): Promise<WranglerService> {
  const folder = await mkdtemp(join(tmpdir(), "tidemark-replay-"));
  const port = await freePort();
  const child = spawn(
    process.execPath,
    [join(PROJECT, "node_modules/wrangler/bin/wrangler.js"), ...argumentsFor(port, folder, vars)],
    {
      cwd: PROJECT,
      // its own process group: wrangler starts workerd twice, and killing wrangler alone leaves them serving
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, WRANGLER_SEND_METRICS: "false", CI: "1" },
    },
  );
  const output = collect(child);
  const end = (): void => {
    killGroup(child);
    rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  };
  // also when the script is interrupted
  process.once("exit", end);
  const stop = (): void => {
    process.off("exit", end);
    end();
  };
  const url = `http://localhost:${port}`;
  try {
    await untilHealthy(url, child);
  } catch (cause) {
    stop();
    throw new Error(`the service did not start:\n${output()}`, { cause });
  }
  return { url, output, stop };
}

function argumentsFor(port: number, folder: string, vars: Record<string, string>): string[] {
  const assignments = Object.entries(vars).flatMap(([name, value]) => ["--var", `${name}:${value}`]);
  return [
    ...["dev", "--local", "--port", String(port), "--inspector-port", "0", "--persist-to", folder],
    ...["--show-interactive-dev-session", "false", ...assignments],
  ];
}

function collect(child: ChildProcess): () => string {
  let text = "";
  const add = (piece: Buffer): void => {
    text = (text + piece.toString("utf8")).slice(-4_000);
  };
  child.stdout?.on("data", add);
  child.stderr?.on("data", add);
  return () => text;
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // the group is gone already
  }
}

async function untilHealthy(url: string, child: ChildProcess): Promise<void> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline && child.exitCode === null) {
    const answer = await fetch(`${url}/health`, { signal: AbortSignal.timeout(5000) }).catch(() => null);
    await answer?.body?.cancel();
    if (answer?.ok) return;
    await new Promise((done) => setTimeout(done, 250));
  }
  throw new Error(
    child.exitCode === null ? `no answer from ${url}/health` : `wrangler ended with code ${child.exitCode}`,
  );
}

async function freePort(): Promise<number> {
  const probe = createServer();
  probe.listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}
