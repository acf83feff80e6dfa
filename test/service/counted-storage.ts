/** Counts what a Durable Object reads and writes: hand its context through here before the base class sees it. */

export interface StorageCounts {
  /** rows, as the cursors of `sql.exec` report them */
  rowsRead: number;
  rowsWritten: number;
  /** statements that read or wrote anything, shortened, with their rows: what a failing bound shows */
  statements: string[];
  /** calls of the key-value interface that write; their rows have no cursor */
  keyValueWrites: number;
  /** calls of `setAlarm` and `deleteAlarm` */
  alarmWrites: number;
}

interface Executed {
  query: string;
  cursor: Pick<SqlStorageCursor<Record<string, SqlStorageValue>>, "rowsRead" | "rowsWritten">;
}

export class StorageCounter {
  #executed: Executed[] = [];
  #keyValueWrites = 0;
  #alarmWrites = 0;

  constructor(storage: DurableObjectStorage) {
    const { sql } = storage;
    const exec = sql.exec.bind(sql);
    sql.exec = <T extends Record<string, SqlStorageValue>>(query: string, ...bindings: SqlStorageValue[]) => {
      const cursor = exec<T>(query, ...bindings);
      this.#executed.push({ query, cursor });
      return cursor;
    };
    for (const name of ["put", "delete", "deleteAll"] as const) {
      this.#count(storage, name, () => (this.#keyValueWrites += 1));
    }
    for (const name of ["put", "delete"] as const) this.#count(storage.kv, name, () => (this.#keyValueWrites += 1));
    for (const name of ["setAlarm", "deleteAlarm"] as const) {
      this.#count(storage, name, () => (this.#alarmWrites += 1));
    }
  }

  /** What was counted since the last time. */
  take(): StorageCounts {
    const executed = this.#executed.map(({ query, cursor: { rowsRead, rowsWritten } }) => ({
      query: query.trim().replaceAll(/\s+/g, " ").slice(0, 60),
      rowsRead,
      rowsWritten,
    }));
    const counts = {
      rowsRead: executed.reduce((sum, { rowsRead }) => sum + rowsRead, 0),
      rowsWritten: executed.reduce((sum, { rowsWritten }) => sum + rowsWritten, 0),
      statements: executed
        .filter(({ rowsRead, rowsWritten }) => rowsRead + rowsWritten > 0)
        .map(({ query, rowsRead, rowsWritten }) => `${rowsRead} read, ${rowsWritten} written: ${query}`),
      keyValueWrites: this.#keyValueWrites,
      alarmWrites: this.#alarmWrites,
    };
    this.#executed = [];
    this.#keyValueWrites = 0;
    this.#alarmWrites = 0;
    return counts;
  }

  #count<Name extends string>(target: Record<Name, unknown>, name: Name, noted: () => void): void {
    const original = target[name];
    if (typeof original !== "function") throw new TypeError(`storage has no ${name}`);
    target[name] = (...args: unknown[]): unknown => {
      noted();
      return Reflect.apply(original, target, args);
    };
  }
}
