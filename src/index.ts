/** The deployable Worker: routes, and the session class configured from variables. */
import { env } from "cloudflare:workers";
import { ChatSession as BaseChatSession } from "./chat-session.ts";
import { configureFrom, type SessionEnvironment } from "./environment.ts";
import { SessionBuilder } from "./session-builder.ts";
import { createWorker } from "./worker.ts";

// A wrong variable fails here, so a deployment with one is refused and the version before it keeps serving.
try {
  configureFrom(env as SessionEnvironment, new SessionBuilder());
} catch (error) {
  // The runtime buries the sentence in its own report.
  console.error(error instanceof Error ? error.message : error);
  throw error;
}

export class ChatSession extends BaseChatSession<SessionEnvironment> {
  override configure(session: SessionBuilder): SessionBuilder {
    return configureFrom(this.env, session);
  }
}

export default createWorker();
