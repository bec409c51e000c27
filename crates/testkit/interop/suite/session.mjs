// One client with one server: steps in, answers out (clients/play.mjs says how), and no process left at the end.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { left, mark, members } from './census.mjs';

// Longer than any answer takes, however busy the machine is: who has not answered by then never will.
const ANSWER_WITHIN_MS = 45_000;
const STDERR_KEPT = 4_000;

export class Session {
  #client;
  #lines;
  #stderr = '';
  #tag = randomUUID();

  /** A HOME of its own, so that `mainstay ps` in it shows this session's server only. */
  home = mkdtempSync(join(tmpdir(), 'mainstay-interop-'));

  /** Starts `client` (of cast.mjs), which starts `server`, a command line, or connects to it, a URL. */
  constructor(client, server) {
    const [program, ...rest] = client.command;
    const where = typeof server === 'string' ? { url: server } : { command: server[0], args: server.slice(1) };
    const told = { ...where, env: {}, era: client.era, ...client.told };
    this.#client = spawn(program, [...rest, JSON.stringify(told)], { env: this.env, stdio: ['pipe', 'pipe', 'pipe'] });
    this.#client.stderr.setEncoding('utf8').on('data', (text) => (this.#stderr = (this.#stderr + text).slice(-STDERR_KEPT)));
    this.#client.stdin.on('error', () => {}); // a client that died is noticed by its missing answer
    this.#lines = createInterface({ input: this.#client.stdout })[Symbol.asyncIterator]();
  }

  get env() {
    return { ...process.env, ...mark(this.#tag), HOME: this.home };
  }

  /** How many processes the session has now. */
  get members() {
    return members(this.#tag).length;
  }

  /** What the client said to `connect`. */
  connected() {
    return this.#answer(() => {});
  }

  /** One request. `heard` is called for each progress notification. */
  ask(step, heard = () => {}) {
    this.#client.stdin.write(`${JSON.stringify(step)}\n`);
    return this.#answer(heard);
  }

  /** Lets the client close its session; who is left afterwards. */
  async close() {
    this.#client.stdin.end();
    return this.#gone();
  }

  /** Kills the client; who is left afterwards. */
  async kill() {
    this.#client.kill('SIGKILL');
    return this.#gone();
  }

  /** What client and server wrote to stderr, its end. */
  get stderr() {
    return this.#stderr;
  }

  async #answer(heard) {
    const progress = [];
    for (;;) {
      const line = await within(ANSWER_WITHIN_MS, this.#lines.next());
      if (line === undefined) throw new Error(`no answer within ${ANSWER_WITHIN_MS / 1000} s`);
      if (line.done) throw new Error('the client ended instead of answering');
      const said = JSON.parse(line.value);
      if (said.progress === undefined) return progress.length > 0 ? { progress, ...said } : said;
      progress.push(said.progress);
      heard(said.progress);
    }
  }

  async #gone() {
    if (this.#client.exitCode === null && this.#client.signalCode === null) await within(ANSWER_WITHIN_MS, once(this.#client, 'exit'));
    const still = await left(this.#tag);
    for (const pid of members(this.#tag)) process.kill(pid, 'SIGKILL'); // reported above; we end all that we started
    rmSync(this.home, { recursive: true, force: true });
    return still;
  }
}

// `undefined` if it takes longer.
async function within(ms, promise) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms)));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
