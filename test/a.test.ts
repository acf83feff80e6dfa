import { exports } from "cloudflare:workers";
import { SELF } from "cloudflare:test";
import { expect, it } from "vitest";
it("answers", async () => { expect(await (await SELF.fetch("http://x/")).json()).toEqual({ ok: "a" }); });
