/**
 * The features of a text that decide its number of tokens, counted in one pass.
 *
 * Byte-pair tokenizers cut text in the same places: between words, digits, punctuation and white space, and inside what
 * is rare. A linear count of those places comes within a few percent of any of them without a vocabulary:
 * `bench/fit.ts` fits the weights, `docs/accounting.md` has the measurements.
 */

/** What is counted, in the order of a feature vector. Each is a number of occurrences in a text. */
export const FEATURES = [
  /** words after a space: the space is part of the token */
  "wordsSpaced",
  /** words after a punctuation mark: some tokenizers join the mark to the word */
  "wordsMarked",
  /** words after a newline, a digit or a wide character, or at the start */
  "wordsBare",
  /** capitals after a small letter inside one word, as in `camelHump` */
  "humps",
  /** letters of a word beyond its sixth: where common words end and pieces begin */
  "lettersBeyondSix",
  /** letters of a word beyond its twelfth: nothing that long is a word */
  "lettersBeyondTwelve",
  /** capitals after a capital: acronyms and constants are cut finely */
  "capitals",
  /** groups of up to three digits */
  "digitGroups",
  /** runs of punctuation after a space */
  "marksSpaced",
  /** runs of punctuation after anything else */
  "marksBare",
  /** changes from one mark to another within a run */
  "markChanges",
  /** repetitions of the same mark within a run */
  "markRepeats",
  /** runs of newlines after punctuation, which may swallow them */
  "newlinesMarked",
  /** runs of newlines after anything else */
  "newlinesBare",
  /** newlines beyond the first of a run */
  "newlineRepeats",
  /** runs of two and more spaces or tabs */
  "spaceRuns",
  /** spaces before a digit, which stand alone */
  "spacesBeforeDigits",
  /** Latin letters with an accent, which cut their word */
  "accents",
  /** letters of other alphabets: Greek, Cyrillic, Hebrew, Arabic, Indic, Thai and so on */
  "otherLetters",
  /** Han characters */
  "han",
  /** hiragana and katakana */
  "kana",
  /** hangul syllables and letters */
  "hangul",
  /** general and East Asian punctuation, box drawing, arrows, other symbols */
  "symbols",
  /** characters outside the basic plane, most of them emoji */
  "astral",
] as const;

/** Length of a feature vector. */
export const FEATURE_COUNT = FEATURES.length;

/** Place of each feature in the vector, as plain constants: the loop below runs once per character. */
const WORDS_SPACED = 0;
const WORDS_MARKED = 1;
const WORDS_BARE = 2;
const HUMPS = 3;
const BEYOND_SIX = 4;
const BEYOND_TWELVE = 5;
const CAPITALS = 6;
const DIGIT_GROUPS = 7;
const MARKS_SPACED = 8;
const MARKS_BARE = 9;
const MARK_CHANGES = 10;
const MARK_REPEATS = 11;
const NEWLINES_MARKED = 12;
const NEWLINES_BARE = 13;
const NEWLINE_REPEATS = 14;
const SPACE_RUNS = 15;
const SPACES_BEFORE_DIGITS = 16;
const ACCENTS = 17;
const OTHER_LETTERS = 18;
const HAN = 19;
const KANA = 20;
const HANGUL = 21;
const SYMBOLS = 22;
const ASTRAL = 23;

/** Kinds of characters. */
const LOWER = 0;
const UPPER = 1;
const DIGIT = 2;
const MARK = 3;
const SPACE = 4;
const NEWLINE = 5;
const WIDE = 6;

const ASCII_KINDS = asciiKinds();

function asciiKinds(): Uint8Array {
  const kinds = new Uint8Array(128).fill(MARK);
  kinds.fill(LOWER, 97, 123);
  kinds.fill(UPPER, 65, 91);
  kinds.fill(DIGIT, 48, 58);
  kinds[32] = kinds[9] = SPACE;
  kinds[10] = kinds[13] = NEWLINE;
  return kinds;
}

/** Feature that a word opens, by the kind of the character before it. A small letter before can only mean a hump. */
const WORD_AFTER = [HUMPS, WORDS_BARE, WORDS_BARE, WORDS_MARKED, WORDS_SPACED, WORDS_BARE, WORDS_BARE];

/** Feature of one UTF-16 unit beyond ASCII, by the blocks of the Unicode chart; -1 for a low surrogate, counted with its high one. */
function wideFeature(code: number): number {
  if (code < 0x2000) return code < 0xc0 ? SYMBOLS : OTHER_LETTERS;
  if (code < 0x3040) return SYMBOLS;
  if (code < 0x3100) return KANA;
  if (code < 0x3400) return code < 0x3130 || code > 0x318f ? SYMBOLS : HANGUL;
  if (code < 0xa000) return HAN;
  if (code < 0xac00) return OTHER_LETTERS;
  if (code < 0xd800) return HANGUL;
  if (code < 0xe000) return code < 0xdc00 ? ASTRAL : -1;
  return code >= 0xf900 && code < 0xfb00 ? HAN : SYMBOLS;
}

/**
 * Adds the features of `text` to `counts`, a vector of `FEATURE_COUNT` numbers. One loop over UTF-16 units that
 * allocates nothing, so that its cost is that of reading the text.
 */
export function countFeatures(text: string, counts: Float64Array): void {
  let before = NEWLINE;
  let codeBefore = 0;
  /** length of the word, number or run that the last character belongs to */
  let run = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    const kind = code < 128 ? ASCII_KINDS[code]! : code >= 0xc0 && code < 0x250 ? LOWER : WIDE;
    if (kind === LOWER) {
      // `Word`: its capital has opened the word already
      if (before === LOWER || before === UPPER) run++;
      else {
        run = 1;
        counts[WORD_AFTER[before]!]!++;
      }
      if (run > 6) counts[run > 12 ? BEYOND_TWELVE : BEYOND_SIX]!++;
      if (code > 127) counts[ACCENTS]!++;
    } else if (kind === MARK) {
      if (before !== MARK) counts[before === SPACE ? MARKS_SPACED : MARKS_BARE]!++;
      else counts[code === codeBefore ? MARK_REPEATS : MARK_CHANGES]!++;
    } else if (kind === SPACE) {
      run = before === SPACE ? run + 1 : 1;
      if (run === 2) counts[SPACE_RUNS]!++;
    } else if (kind === UPPER) {
      run = before === UPPER ? run + 1 : 1;
      counts[before === UPPER ? CAPITALS : WORD_AFTER[before]!]!++;
    } else if (kind === DIGIT) {
      run = before === DIGIT ? run + 1 : 1;
      if (run % 3 === 1) counts[DIGIT_GROUPS]!++;
      if (before === SPACE) counts[SPACES_BEFORE_DIGITS]!++;
    } else if (kind === NEWLINE) {
      counts[before === NEWLINE ? NEWLINE_REPEATS : before === MARK ? NEWLINES_MARKED : NEWLINES_BARE]!++;
    } else {
      const feature = wideFeature(code);
      if (feature >= 0) counts[feature]!++;
    }
    before = kind;
    codeBefore = code;
  }
}
