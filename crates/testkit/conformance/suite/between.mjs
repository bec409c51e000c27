// Loaded into the suite's own process: kills every server of the fixture at the moment when one scenario is over and the next has not begun, and in the legacy
// era, where each session has a server of its own, also when a session has just been opened.

import { bearing, kill } from './processes.mjs';

const { MAINSTAY_KILL_MARK: mark, MAINSTAY_KILL_COUNT: count } = process.env;
const { log } = console;
const { fetch } = globalThis;

if (mark !== undefined) {
  console.log = (...words) => {
    if (String(words[0]).includes('=== Running scenario')) kill(bearing(mark), count);
    log(...words);
  };
  globalThis.fetch = async (url, init) => {
    const response = await fetch(url, init);
    if (String(init?.body).includes('"notifications/initialized"')) kill(bearing(mark), count);
    return response;
  };
}
