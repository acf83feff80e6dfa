/** Turns that wait, in order. Read once, and kept in memory: an idle queue costs a turn nothing. */
import type { QueuedTurn, TurnRequest } from "../records.ts";
import { cutIntoPieces } from "./pieces.ts";
import type { Statements } from "./statements.ts";

export class TurnQueue {
  readonly #sql: Statements;
  #turns: readonly QueuedTurn[] | undefined;

  constructor(sql: Statements) {
    this.#sql = sql;
  }

  get turns(): readonly QueuedTurn[] {
    this.#turns ??= this.#read();
    return this.#turns;
  }

  /** UTF-16 code units of everything that waits. */
  get size(): number {
    return this.turns.reduce((sum, queued) => sum + JSON.stringify(queued).length, 0);
  }

  add(request: TurnRequest): QueuedTurn {
    const position = (this.turns.at(-1)?.position ?? 0) + 1;
    const queued = { position, request };
    cutIntoPieces(JSON.stringify(queued)).forEach((body, n) =>
      this.#sql.run("INSERT INTO tidemark_queue (position, n, body) VALUES (?, ?, ?)", position, n, body),
    );
    this.#turns = [...this.turns, queued];
    return queued;
  }

  remove(position: number): void {
    this.#sql.run("DELETE FROM tidemark_queue WHERE position = ?", position);
    this.#turns = this.turns.filter((queued) => queued.position !== position);
  }

  /** Memory may be wrong: a transaction was rolled back. */
  forget(): void {
    this.#turns = undefined;
  }

  #read(): QueuedTurn[] {
    const bodies = new Map<number, string>();
    for (const row of this.#sql.all<{ position: number; body: string }>(
      "SELECT position, body FROM tidemark_queue ORDER BY position, n",
    )) {
      bodies.set(row.position, (bodies.get(row.position) ?? "") + row.body);
    }
    return [...bodies.values()].map((body) => JSON.parse(body) as QueuedTurn);
  }
}
