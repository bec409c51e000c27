// Who is there: every process of a session carries the session's tag in its environment.

import { readFileSync, readdirSync } from 'node:fs';

const VARIABLE = 'MAINSTAY_INTEROP';
const GONE_WITHIN_MS = 15_000;
const LOOK_EVERY_MS = 20;

/** The environment that marks a session. */
export const mark = (tag) => ({ [VARIABLE]: tag });

/** Pids of those who carry the tag. */
export function members(tag) {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(`${VARIABLE}=${tag}`);
    } catch {
      return false; // ended meanwhile, or somebody else's
    }
  });
}

/** Who is left when everybody has had the time to go: pids with command lines, or nobody. */
export async function left(tag) {
  const last = performance.now() + GONE_WITHIN_MS;
  let still = members(tag);
  while (still.length > 0 && performance.now() < last) {
    await new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
    still = members(tag);
  }
  return still.map((pid) => `${pid} ${commandLine(pid)}`);
}

function commandLine(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ');
  } catch {
    return '(ended meanwhile)';
  }
}
