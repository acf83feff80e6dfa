/**
 * Values above the 2 MB that SQLite in a Durable Object takes, cut into pieces that fit.
 *
 * The limit counts UTF-8 bytes of the whole row. A piece holds at most 512 Ki UTF-16 code units, which are at most
 * 1.5 MB of UTF-8, so no piece has to be measured.
 */
const PIECE_LENGTH = 512 * 1024;

/** Length up to which a value stays in its own row beside the other columns, in UTF-16 code units. */
export const INLINE_LENGTH = PIECE_LENGTH;

/** Cuts between surrogate pairs never, so every piece is valid text on its own. */
export function cutIntoPieces(text: string): string[] {
  const pieces: string[] = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(start + PIECE_LENGTH, text.length);
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end -= 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}
