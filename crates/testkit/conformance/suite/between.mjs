// Loaded into the suite's own process: kills every server of the fixture at the moment when one scenario is over and the next has not begun.

import { appendFileSync } from 'node:fs';
import { bearing } from './processes.mjs';

const { MAINSTAY_KILL_MARK: mark, MAINSTAY_KILL_COUNT: count } = process.env;
const log = console.log;

console.log = (...words) => {
  if (mark !== undefined && String(words[0]).includes('=== Running scenario')) {
    for (const pid of bearing(mark)) {
      process.kill(pid, 'SIGKILL');
      appendFileSync(count, '.');
    }
  }
  log(...words);
};
