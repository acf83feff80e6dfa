/** A real Durable Object's SQLite, emptied of what the service made there. */
import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { SessionStore } from "../../src/storage/session-store.ts";
import { NOON } from "../turn/entries.ts";

interface StorageTestEnvironment {
  ChatSession: DurableObjectNamespace;
}

const TABLES = ["tidemark_session", "tidemark_entry", "tidemark_piece", "tidemark_queue", "tidemark_compaction"];

/** Runs `work` on the storage of an object of its own, without any table of a session. */
export async function inDatabase<T>(work: (storage: DurableObjectStorage) => T | Promise<T>): Promise<T> {
  // SAFETY: `wrangler.toml` binds the class by this name.
  const { ChatSession } = env as unknown as StorageTestEnvironment;
  const stub = ChatSession.get(ChatSession.newUniqueId());
  return runInDurableObject(stub, (_object, { storage }) => {
    clear(storage);
    return work(storage);
  });
}

/** Runs `work` with an empty store that is open. */
export function inStore<T>(work: (store: SessionStore, storage: DurableObjectStorage) => T): Promise<T> {
  return inDatabase((storage) => work(openStore(storage), storage));
}

export function openStore(storage: DurableObjectStorage): SessionStore {
  const store = new SessionStore(storage);
  store.open(NOON);
  return store;
}

export function clear(storage: DurableObjectStorage): void {
  for (const table of TABLES) storage.sql.exec(`DROP TABLE IF EXISTS ${table}`);
}
