/** The Worker of the bench: one Durable Object for each thing that is played, with the storage a session has. */
import { DurableObject } from "cloudflare:workers";
import { type LongHistory, summarise } from "./long-history.ts";
import { play } from "./play.ts";
import type { Setting } from "./records.ts";
import { countRows, type RowsRequest } from "./rows.ts";
import type { Script } from "./script.ts";

interface Env {
  Stage: DurableObjectNamespace<Stage>;
}

export class Stage extends DurableObject<Env> {
  override async fetch(request: Request): Promise<Response> {
    try {
      return Response.json(await this.#answer(new URL(request.url).pathname, await request.json()));
    } catch (error) {
      return new Response(error instanceof Error ? (error.stack ?? error.message) : String(error), { status: 500 });
    } finally {
      await this.ctx.storage.deleteAll();
    }
  }

  /** SAFETY: the bodies are those that the bench itself makes for each path. */
  #answer(path: string, body: unknown): Promise<unknown> {
    const { storage } = this.ctx;
    switch (path) {
      case "/play": {
        const { script, setting } = body as { script: Script; setting: Setting };
        return play(script, setting, storage);
      }
      case "/long-history":
        return summarise(body as LongHistory, storage);
      case "/rows":
        return countRows(body as RowsRequest, storage);
      default:
        throw new Error(`nothing is played at ${path}`);
    }
  }
}

export default {
  fetch: (request: Request, env: Env) => env.Stage.get(env.Stage.newUniqueId()).fetch(request),
};
