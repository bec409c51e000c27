// `mainstay reap` about some processes, and what it must say.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const LOOK_EVERY_MS = 250;
const SEEN_WITHIN_MS = 60_000;

/** What `mainstay reap` says about the servers with these pids. `behind`: the words that start it elsewhere. */
export async function reap({ mainstay, behind = [] }, home, pids, ...options) {
  const [program, ...args] = [...behind, mainstay, 'reap', '--json', '--min-age', '0s', ...options, ...pids.map(String)];
  const { stdout } = await promisify(execFile)(program, args, { env: { ...process.env, HOME: home } });
  return JSON.parse(stdout);
}

/** Faults, unless there is one server with all these processes and this verdict. */
export function judged({ servers }, pids, verdict) {
  const [server] = servers;
  if (servers.length !== 1) return [`${servers.length} servers instead of one that is ${verdict}: ${JSON.stringify(servers)}`];
  const missed = pids.filter((pid) => !server.processes.includes(pid));
  if (server.verdict !== verdict || missed.length > 0) return [`not ${verdict}, or without ${missed}: ${JSON.stringify(server)}`];
  return [];
}

/** Faults, unless all that `--yes` was to end has ended. */
export function ended({ done }, count) {
  const well = done.length === count && done.every((one) => one.left.length === 0 && one.spared === undefined);
  return well ? [] : [`ended: ${JSON.stringify(done)}`];
}

/** Waits until something is there; it is looked for again and again, because real programs say nothing when they are ready. */
export async function wait(what, look) {
  const last = performance.now() + SEEN_WITHIN_MS;
  for (;;) {
    const seen = await look();
    if (seen !== undefined) return seen;
    if (performance.now() > last) throw new Error(`not within ${SEEN_WITHIN_MS / 1000} s: ${what}`);
    await new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
  }
}
