/** The HTTP side of a session, as the replay needs it. */
import type { UIMessage } from "ai";
import type { SessionSettings, UsageRecord, UsageTotals } from "../../src/records.ts";

const REQUEST_TIMEOUT_MS = 30_000;
const PAGE = 200;

interface Page {
  cursor: string | number | null;
}

export class SessionApi {
  readonly url: string;

  constructor(service: string, sessionId: string) {
    this.url = `${service.replace(/\/$/, "")}/sessions/${sessionId}`;
  }

  async configure(settings: SessionSettings): Promise<void> {
    await this.request("PATCH", "", settings);
  }

  async import(messages: UIMessage[]): Promise<void> {
    await this.request("POST", "/messages", { messages });
  }

  async remove(): Promise<void> {
    await this.request("DELETE", "");
  }

  /** All messages of the active branch, oldest first. */
  async messages(): Promise<UIMessage[]> {
    const pages = await this.pages<{ messages: UIMessage[] } & Page>("/messages");
    return pages.toReversed().flatMap((page) => page.messages);
  }

  async usage(): Promise<{ records: UsageRecord[]; totals: UsageTotals }> {
    const pages = await this.pages<{ records: UsageRecord[]; totals: UsageTotals } & Page>("/usage");
    const totals = pages[0]?.totals;
    if (totals === undefined) throw new Error("GET /usage gives no totals");
    return { records: pages.flatMap((page) => page.records), totals };
  }

  /** Every page of a list, from the newest to the oldest. */
  private async pages<P extends Page>(path: string): Promise<P[]> {
    const pages: P[] = [];
    let cursor: string | number | null = null;
    do {
      const before: string = cursor === null ? "" : `&before=${encodeURIComponent(cursor)}`;
      const page = (await this.request("GET", `${path}?limit=${PAGE}${before}`)) as P;
      pages.push(page);
      cursor = page.cursor;
    } while (cursor !== null);
    return pages;
  }

  private async request(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await fetch(this.url + path, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path || "/"} answers ${response.status}: ${text.slice(0, 300)}`);
    return text === "" ? null : (JSON.parse(text) as unknown);
  }
}
