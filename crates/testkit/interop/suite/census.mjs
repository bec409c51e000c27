// Lists the processes of a session: each carries the session's tag in its environment, in a variable of its own or at the end of HOME, which every client
// passes on.

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
      const variables = readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
      return variables.some((one) => one === `${VARIABLE}=${tag}` || (one.startsWith('HOME=') && one.endsWith(tag)));
    } catch {
      return false; // ended meanwhile, or of another user
    }
  });
}

/** The processes that are left after all have had time to exit: pids with command lines, or an empty list. */
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
