/** Statements on one object's SQLite, each with the shape of its answer. */

/** What storage needs of `DurableObjectStorage`. */
export interface SqlBackend {
  sql: Pick<SqlStorage, "exec" | "databaseSize">;
  transactionSync<T>(work: () => T): T;
}

type Row = Record<string, SqlStorageValue>;

export class Statements {
  readonly #sql: SqlBackend["sql"];

  constructor({ sql }: SqlBackend) {
    this.#sql = sql;
  }

  run(statement: string, ...values: SqlStorageValue[]): void {
    this.#sql.exec(statement, ...values);
  }

  all<R extends Row>(statement: string, ...values: SqlStorageValue[]): R[] {
    return this.#sql.exec<R>(statement, ...values).toArray();
  }

  /** Throws unless there is exactly one row. */
  one<R extends Row>(statement: string, ...values: SqlStorageValue[]): R {
    return this.#sql.exec<R>(statement, ...values).one();
  }

  first<R extends Row>(statement: string, ...values: SqlStorageValue[]): R | undefined {
    return this.all<R>(statement, ...values)[0];
  }
}
