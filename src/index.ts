import { Agent, getAgentByName } from "agents";
import { env as e } from "cloudflare:workers";
console.error("starting", (e as {MODEL:string}).MODEL);
if ((e as {MODEL:string}).MODEL === "bad") throw new Error("MODEL is bad: use another");
export class ChatSession extends Agent<Env> {
  static override options = { sendIdentityOnConnect: false };
  override onRequest() { return Response.json({ ok: this.name }); }
}
interface Env { ChatSession: DurableObjectNamespace<ChatSession>; MODEL: string }
export default { async fetch(request: Request, env: Env) { return (await getAgentByName(env.ChatSession, "a")).fetch(request); } };
