// Leases for a Node host, by the command line: no dependency, nothing to install but the mainstay binary.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);
export const MAINSTAY = process.env.MAINSTAY_BIN ?? "mainstay";

// Opens a lease that ends with this process, however this process ends.
export async function openLease(name) {
  return lease("open", name, "--owner", String(process.pid));
}

// Ends every server of the lease with everything that it started; resolves when nothing is left.
// `left` is the number of processes that could not be ended, `servers` says what was ended, server by server.
export async function closeLease(name) {
  return lease("close", name);
}

async function lease(...words) {
  const { stdout } = await run(MAINSTAY, ["lease", ...words, "--json"]);
  return JSON.parse(stdout);
}
