/** Measured figures, beside what they have to reach, and a row for each way in which a recording was played. */

export interface Figure {
  what: string;
  value: number;
  unit: "%" | "" | "rows" | "tokens";
  /** largest value that will do; absent for what is only shown */
  target?: number;
  /** what a missed target is made of, as sentences, the worst first */
  cases: readonly string[];
}

/** By column. */
export type Row = Readonly<Record<string, number>>;

/** Cases that are told of each target that was missed. */
const CASES = 12;

export class Figures {
  readonly #all: Figure[] = [];
  readonly #ways = new Map<string, Row>();

  add(what: string, value: number, unit: Figure["unit"], target?: number, cases: readonly string[] = []): void {
    this.#all.push({ what, value, unit, cases, ...(target !== undefined && { target }) });
  }

  addWay(name: string, row: Row): void {
    this.#ways.set(name, row);
  }

  json(): string {
    const ways = [...this.#ways].flatMap(([name, row]) =>
      Object.entries(row).map(([column, value]) => [`${name}: ${column}`, finite(value)] as const),
    );
    const figures = [...ways, ...this.#all.map(({ what, value }) => [what, finite(value)] as const)];
    return JSON.stringify(
      { figures: Object.fromEntries(figures), missed: this.#missed.map(({ what }) => what) },
      null,
      2,
    );
  }

  table(): string {
    const missed = this.#missed;
    const cases = missed.flatMap((figure) => [`  ${figure.what}`, ...casesOf(figure)]);
    const verdict = missed.length === 0 ? "every target was reached" : `not reached: ${missed.length}`;
    const figures = this.#all.map((figure) => lineOf(figure, missed.includes(figure)));
    return [...this.#wayLines(), "", ...figures, "", verdict, ...cases].join("\n");
  }

  get #missed(): Figure[] {
    return this.#all.filter(({ value, target }) => target !== undefined && !(value <= target));
  }

  #wayLines(): string[] {
    const columns = [...new Set([...this.#ways.values()].flatMap((row) => Object.keys(row)))];
    const head = [" ".repeat(NAME_WIDTH), ...columns.map(headOf)].join("");
    const rows = [...this.#ways].map(([name, row]) => {
      const cells = columns.map((column) => shown(row[column] ?? Number.NaN).padStart(widthOf(column)));
      return [name.padEnd(NAME_WIDTH), ...cells].join("");
    });
    return [head, ...rows];
  }
}

const NAME_WIDTH = 62;
const NARROWEST = 7;

function widthOf(column: string): number {
  return Math.max(NARROWEST, column.length + 2);
}

function headOf(column: string): string {
  return column.padStart(widthOf(column));
}

function casesOf({ cases }: Figure): string[] {
  const more = cases.length > CASES ? [`      and ${cases.length - CASES} more`] : [];
  return [...cases.slice(0, CASES).map((one) => `      ${one}`), ...more];
}

function lineOf({ what, value, unit, target }: Figure, isMissed: boolean): string {
  const goal = target === undefined ? "" : `≤ ${target} ${unit}`.trim();
  return `${what.padEnd(100)}${shown(value).padStart(10)} ${unit.padEnd(7)}${goal.padEnd(14)}${isMissed ? "missed" : ""}`;
}

function shown(value: number): string {
  if (!Number.isFinite(value)) return "-";
  return value.toFixed(Number.isInteger(value) ? 0 : 2);
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
