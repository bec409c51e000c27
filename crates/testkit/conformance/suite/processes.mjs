// Processes by a word of their command line.

import { appendFileSync, existsSync, readFileSync, readdirSync } from 'node:fs';

const LOOK_AGAIN_MS = 2;

/** Servers that were started with this very word as their last one. */
export function bearing(word) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => words(pid).at(-1) === word && words(pid)[1] !== 'run' && words(pid)[1] !== 'serve')
    .map(Number);
}

/** The bridges of `mainstay run --url` to this URL. */
export function bridges(url) {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => words(pid)[1] === 'bridge' && words(pid)[2]?.startsWith(url))
    .map(Number);
}

/**
 * Kills these, writes a dot for each into the file `score`, and comes back when they are gone: what is said to one that is dying may have been heard, and would be
 * answered so.
 */
export function kill(pids, score) {
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
      appendFileSync(score, '.');
    } catch {
      // it was on its way out
    }
  }
  while (pids.some((pid) => existsSync(`/proc/${pid}`))) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_AGAIN_MS);
}

/** All processes with this word in their command line. */
export function all(word) {
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name) && words(name).includes(word));
}

function words(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
  } catch {
    return []; // it went away while we looked
  }
}
