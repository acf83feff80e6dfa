/** Local runtimes, each a process of its own: what is played on one does not slow the others down. */
import { createTestHarness } from "wrangler";

type Stage = ReturnType<typeof createTestHarness>;

export class Stages {
  readonly #stages: readonly Stage[];
  readonly #free: Stage[];
  readonly #waiting: ((stage: Stage) => void)[] = [];

  private constructor(stages: readonly Stage[]) {
    this.#stages = stages;
    this.#free = [...stages];
  }

  static async open(count: number): Promise<Stages> {
    // Else each asks a server where in the world it is, and complains without a network.
    process.env["CLOUDFLARE_CF_FETCH_ENABLED"] = "false";
    const configPath = new URL("./wrangler.toml", import.meta.url);
    const stages = Array.from({ length: count }, () => createTestHarness({ workers: [{ configPath }] }));
    await Promise.all(stages.map((stage) => stage.listen()));
    return new Stages(stages);
  }

  /** Has something played as soon as a stage is free. One thing at a time is played on each. */
  async perform(path: string, body: unknown): Promise<unknown> {
    const stage = this.#free.pop() ?? (await new Promise<Stage>((resolve) => this.#waiting.push(resolve)));
    try {
      const response = await stage.fetch(`http://bench${path}`, { method: "POST", body: JSON.stringify(body) });
      if (!response.ok) throw new Error(`${path} failed: ${await response.text()}`);
      return await response.json();
    } finally {
      const next = this.#waiting.shift();
      if (next) next(stage);
      else this.#free.push(stage);
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#stages.map((stage) => stage.close()));
  }
}
