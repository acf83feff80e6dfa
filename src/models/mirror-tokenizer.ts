/**
 * The tokens of `mirror`: made up, exact and the same everywhere, so that a test can state a count and a session measured
 * with `mirror` shows real arithmetic on unreal tokens.
 *
 * A run of letters is cut in pieces of six, a run of digits in pieces of three. A newline, a run of two or more spaces,
 * a punctuation mark and an ideograph are one token each, a character beyond the basic plane is two. A single space is free.
 */
const LETTERS_PER_TOKEN = 6;
const DIGITS_PER_TOKEN = 3;

type Kind = "letter" | "digit" | "space" | "newline" | "wide" | "astral" | "mark";

/**
 * Tokens of a text, in one pass. Two texts joined at a newline cost what they cost apart, plus one.
 *
 * @returns a whole number, 0 for an empty text
 */
export function countMirrorTokens(text: string): number {
  let tokens = 0;
  for (let start = 0; start < text.length;) {
    const kind = kindAt(text, start);
    let end = start + (kind === "astral" ? 2 : 1);
    if (kind === "letter" || kind === "digit" || kind === "space") {
      while (end < text.length && kindAt(text, end) === kind) end += 1;
    }
    tokens += costOf(kind, end - start);
    start = end;
  }
  return tokens;
}

function costOf(kind: Kind, length: number): number {
  switch (kind) {
    case "letter":
      return Math.ceil(length / LETTERS_PER_TOKEN);
    case "digit":
      return Math.ceil(length / DIGITS_PER_TOKEN);
    case "space":
      return length > 1 ? 1 : 0;
    case "astral":
      return 2;
    default:
      return 1;
  }
}

function kindAt(text: string, index: number): Kind {
  const code = text.charCodeAt(index);
  return code < 0x80 ? asciiKind(code) : wideKind(code);
}

function asciiKind(code: number): Kind {
  if ((code | 0x20) >= 0x61 && (code | 0x20) <= 0x7a) return "letter";
  if (code >= 0x30 && code <= 0x39) return "digit";
  if (code === 0x20 || code === 0x09) return "space";
  return code === 0x0a ? "newline" : "mark";
}

function wideKind(code: number): Kind {
  if (code < 0xc0) return "mark";
  if (code < 0x2000) return "letter";
  if (code < 0x3040) return "mark";
  if (code >= 0xd800 && code < 0xdc00) return "astral";
  return "wide";
}
