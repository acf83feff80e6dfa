/**
 * What an image or a file weighs: a flat number of tokens by media type, never the length of its base64 and never 0.
 *
 * No provider bills media by bytes, and all of them change their formulas; a measured call replaces these guesses.
 */

/**
 * Tokens of one attachment, by the first matching prefix of its media type.
 * - image: Anthropic (w × h) / 750 is at most about 1,600; OpenAI high detail of 1024 × 1024 is 765; Gemini 258 a tile
 * - audio: Gemini 32 tokens a second, about 45 s
 * - video: Gemini 263 tokens a second, about 30 s
 * - application/pdf: Anthropic 1,500 to 3,000 tokens a page, about three pages
 */
const FLAT_TOKENS: readonly (readonly [prefix: string, tokens: number])[] = [
  ["image", 1_200],
  ["audio", 1_500],
  ["video", 8_000],
  ["application/pdf", 6_000],
];

/** Tokens of a file of any other kind. */
const OTHER_FILE_TOKENS = 2_000;

/** Text files up to this many characters of data URL are read and weighed as the text they are sent as. */
const READ_LIMIT = 8_000_000;

/** Tokens of one file. A text file in a data URL is weighed by `weigh`, because it is sent as text. */
export function estimateFile(mediaType: string, url: string, weigh: (text: string) => number): number {
  const type = mediaType.toLowerCase();
  if (type.startsWith("text") || type === "application/json") {
    const text = textOf(url);
    if (text !== undefined) return weigh(text);
  }
  return FLAT_TOKENS.find(([prefix]) => type.startsWith(prefix))?.[1] ?? OTHER_FILE_TOKENS;
}

/** The text in a data URL; `undefined` for any other URL, one that is too long, or one that cannot be decoded. */
function textOf(url: string): string | undefined {
  const comma = url.indexOf(",");
  if (!url.startsWith("data:") || comma < 0 || url.length > READ_LIMIT) return undefined;
  const body = url.slice(comma + 1);
  try {
    if (!url.slice(0, comma).endsWith(";base64")) return decodeURIComponent(body);
    return new TextDecoder().decode(Uint8Array.from(atob(body), (char) => char.charCodeAt(0)));
  } catch {
    return undefined;
  }
}

/**
 * Media type of a value inside a tool's output that is media and not text: raw bytes, a data URL, or an object with
 * `data` beside its type, as MCP (`mimeType`) and the AI SDK (`mediaType`) write them; `undefined` for all else.
 */
export function mediaTypeOf(value: unknown): string | undefined {
  if (typeof value === "string") return /^data:([\w.+-]+\/[\w.+-]+)[;,]/.exec(value.slice(0, 100))?.[1];
  if (typeof value !== "object" || value === null) return undefined;
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return "application/octet-stream";
  const { data, mediaType, mimeType } = value as Record<string, unknown>;
  const type = mediaType ?? mimeType;
  return typeof data === "string" && typeof type === "string" && !type.startsWith("text") ? type : undefined;
}
