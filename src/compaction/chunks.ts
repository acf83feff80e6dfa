/**
 * A transcript of any length, cut into chunks that each fit the summariser.
 *
 * A block is weighed once and a chunk once, so the cost is that of reading the text a few times; one chunk and one block
 * are held at a time. Scales are trusted in one thing only, that a text never weighs less than a piece of it. That a sum
 * of weights foretells the weight of the whole is a guess, and every chunk is checked.
 */

/** What a chunk may weigh, and on which scale. */
interface Allowance {
  /** tokens */
  limit: number;
  /** tokens of a text */
  weigh: (text: string) => number;
}

/** Text that fits a chunk by itself. */
interface Piece {
  text: string;
  /** what it weighs, or slightly more */
  tokens: number;
}

/**
 * Chunks of at most `limit` tokens, in order. Joined by newlines they are the blocks joined by newlines, but for the
 * speaker that is named again (`[user, continued]`) where a block above the limit had to be split. Empty blocks are
 * left out.
 *
 * @param weigh tokens of a text; never fewer than those of any piece of it
 * @throws RangeError when the limit cannot hold a single character
 */
export function* chunksOf(
  blocks: Iterable<string>,
  limit: number,
  weigh: (text: string) => number,
): Generator<string, void> {
  if (!(limit > 0)) throw new RangeError(`a chunk of ${limit} tokens can hold nothing`);
  const allowance = { limit, weigh };
  const newline = weigh("\n");
  const waiting: Piece[] = [];
  let tokens = 0;
  for (const piece of allPieces(blocks, allowance)) {
    while (waiting.length > 0 && tokens + piece.tokens > limit) {
      yield takeChunk(waiting, allowance);
      tokens = waiting.reduce((sum, left) => sum + left.tokens + newline, 0);
    }
    waiting.push(piece);
    tokens += piece.tokens + newline;
  }
  while (waiting.length > 0) yield takeChunk(waiting, allowance);
}

/** Takes as many pieces from the front as fit together. One always does. */
function takeChunk(waiting: Piece[], { limit, weigh }: Allowance): string {
  let count = waiting.length;
  let chunk = joined(waiting);
  while (count > 1) {
    const tokens = weigh(chunk);
    if (tokens <= limit) break;
    count = fewer(count, limit / tokens);
    chunk = joined(waiting.slice(0, count));
  }
  waiting.splice(0, count);
  return chunk;
}

function joined(pieces: readonly Piece[]): string {
  return pieces.map(({ text }) => text).join("\n");
}

function* allPieces(blocks: Iterable<string>, allowance: Allowance): Generator<Piece, void> {
  for (const block of blocks) {
    if (block === "") continue;
    const tokens = allowance.weigh(block);
    if (tokens <= allowance.limit) yield { text: block, tokens };
    else yield* piecesOf(block, tokens, allowance);
  }
}

/** A place in a block that is being split, and the speaker that what follows it begins with. */
interface Rest {
  block: string;
  /** UTF-16 code units before it */
  from: number;
  speaker: string;
}

/** A piece of a block that had to be split. */
interface Cut extends Piece {
  /** where the next piece begins, in UTF-16 code units of the block */
  end: number;
  /** UTF-16 code units that the next piece may have, going by what this one weighs */
  next: number;
}

/** How long a piece can be is first guessed from the whole block, then from the piece before it. */
function* piecesOf(block: string, tokens: number, allowance: Allowance): Generator<Piece, void> {
  const { limit } = allowance;
  const speaker = speakerContinued(block);
  let length = (block.length * limit) / tokens;
  for (let from = 0; from < block.length;) {
    const rest = { block, from, speaker: from === 0 ? "" : speaker };
    // what is too little room for the speaker may be enough for the text
    const cut = cutOff(rest, length, allowance) ?? cutOff({ ...rest, speaker: "" }, length, allowance);
    if (!cut) throw new RangeError(`a chunk of ${limit} tokens cannot hold a single character`);
    yield cut;
    from = cut.end;
    length = cut.next;
  }
}

/** A piece of at most `length` code units that fits; `undefined` when not even one character does. */
function cutOff({ block, from, speaker }: Rest, length: number, { limit, weigh }: Allowance): Cut | undefined {
  for (let size = Math.max(1, Math.min(Math.floor(length), block.length - from)); ;) {
    const furthest = endOfCharacter(block, from, from + size);
    const tokens = weigh(speaker + block.slice(from, furthest));
    if (tokens <= limit) {
      const end = endAtBreak(block, from, furthest);
      const next = Math.min(2 * size, (size * limit) / tokens);
      return { text: speaker + block.slice(from, end), tokens, end, next };
    }
    if (size === 1) return undefined;
    size = fewer(size, limit / tokens);
  }
}

/** Aimed a little low, so that a second try is rarely followed by a third. */
const AIM = 0.98;

/** How many to try when `count` were too many: at least one, and fewer than before. */
function fewer(count: number, ratio: number): number {
  return Math.max(1, Math.min(count - 1, Math.floor(count * ratio * AIM)));
}

/** `end`, or a code unit beside it where a character would be cut in two; always behind `from`. */
function endOfCharacter(text: string, from: number, end: number): number {
  if (!splitsPair(text, end)) return end;
  return end - 1 > from ? end - 1 : end + 1;
}

/** Behind the last line break before `end`, else behind the last space, unless that would halve the piece. */
function endAtBreak(text: string, from: number, end: number): number {
  if (end === text.length) return end;
  const half = from + Math.ceil((end - from) / 2);
  const ending = text.slice(half, end);
  const line = ending.lastIndexOf("\n");
  const at = line >= 0 ? line : ending.lastIndexOf(" ");
  return at >= 0 ? half + at + 1 : end;
}

/** `[user] …` goes on as `[user, continued] `; a block without a speaker goes on without one. */
function speakerContinued(block: string): string {
  const speaker = /^\[([^\]\n]{1,200})\] /.exec(block)?.[1];
  return speaker === undefined ? "" : `[${speaker}, continued] `;
}

/** Whether a cut before the code unit `at` would part the two halves of a character. */
export function splitsPair(text: string, at: number): boolean {
  return isHigh(text.charCodeAt(at - 1)) && isLow(text.charCodeAt(at));
}

function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}
