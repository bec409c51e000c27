// What differs between two transcripts, for people.

import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';

const LONG_TEXT = 400;
const LINES_SHOWN = 30;

/** A long text as its length and hash: as good for comparing, better for reading. */
export function brief(value) {
  if (typeof value === 'string' && value.length > LONG_TEXT) {
    return `${value.length} characters, sha256 ${createHash('sha256').update(value).digest('hex')}`;
  }
  if (Array.isArray(value)) return value.map(brief);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, brief(one)]));
}

/** Nothing if they are equal. Each entry is `{step, said}`; the first that differs is shown, `-` bare and `+` through mainstay. */
export function difference(bare, kept) {
  const at = bare.findIndex((entry, n) => !isDeepStrictEqual(entry, kept[n]));
  if (at === -1 && bare.length === kept.length) return undefined;
  const entry = bare[at] ?? kept[bare.length];
  const [was, is] = [bare[at], kept[at]].map((one) => (JSON.stringify(one?.said, null, 1) ?? '').split('\n'));
  let head = 0;
  while (head < was.length && was[head] === is[head]) head += 1;
  let tail = 0;
  while (tail < Math.min(was.length, is.length) - head && was.at(-1 - tail) === is.at(-1 - tail)) tail += 1;
  const shown = (sign, lines) => lines.slice(head, lines.length - tail).slice(0, LINES_SHOWN).map((line) => `${sign} ${line}`);
  return [`  step ${at + 1}: ${JSON.stringify(entry.step)}`, ...shown('-', was), ...shown('+', is)].join('\n');
}
