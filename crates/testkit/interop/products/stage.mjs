// A HOME for one play of a client, and who is in it: every process that has this HOME in its environment, the one variable that every client passes on.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const LOOK_EVERY_MS = 50;
const SAID_KEPT = 20_000;

const open = new Set();

/** Ends all processes of a stage whose run was interrupted. */
export async function clearAll() {
  for (const stage of open) await stage.clear();
}

export class Stage {
  #at;
  #product;
  #url;

  /** A client of cast.mjs whose model is at this URL and whose config names the servers that `servers` says when it knows the HOME. */
  constructor(at, product, url, servers) {
    this.#at = at;
    this.#product = product;
    this.#url = url;
    this.home = mkdtempSync(join(tmpdir(), `mainstay-${product.id}-`));
    open.add(this);
    this.work = join(this.home, 'work');
    mkdirSync(this.work);
    for (const [name, text] of Object.entries(product.configure(servers(this.home), url))) {
      const file = join(this.home, name);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text);
    }
  }

  get env() {
    return {
      HOME: this.home,
      PATH: [dirname(this.#at.mainstay), dirname(this.#at.node), '/usr/local/bin', '/usr/bin', '/bin'].join(':'),
      TERM: 'xterm',
      LANG: 'C.UTF-8',
      SHELL: '/bin/sh',
      USER: 'tester',
      DO_NOT_TRACK: '1',
      DISABLE_TELEMETRY: '1',
      ...this.#product.env(this.#url),
    };
  }

  /** What must be done once before a session. */
  async prepare() {
    for (const args of this.#product.prepare?.(this.#url) ?? []) {
      const { code, said } = await this.start(args).ended;
      if (code !== 0) throw new Error(`${args[0]} ended with ${code}\n${said}`);
    }
  }

  /** The client with these arguments: its process, and a promise of how it ended and what it said. */
  start(args) {
    const child = spawn(this.#at.program(this.#product), args, { cwd: this.work, env: this.env, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said = (said + text).slice(-SAID_KEPT)));
    // Not `close`: a server that is left holds the client's stderr.
    const ended = once(child, 'exit').then(([code, signal]) => ({ code, signal, said: plain(said) }));
    return { child, ended };
  }

  /** `mainstay` in this HOME; what it prints, one JSON value a line. */
  async mainstay(...args) {
    const child = spawn(this.#at.mainstay, args, { env: this.env, stdio: ['ignore', 'pipe', 'ignore'] });
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text) => (said += text));
    await once(child, 'close');
    return said;
  }

  /** Kills the client: the launcher, the program itself and its daemons. */
  async kill() {
    for (let own = this.#processes().filter(this.#own); own.length > 0; own = this.#processes().filter(this.#own)) {
      for (const { pid } of own) end(pid);
      // One of them may have started another meanwhile.
      await new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
    }
  }

  /** Pid and command line of all processes here except the client's own. */
  others() {
    return this.#processes().filter((one) => !this.#own(one));
  }

  /** Those who are still there after this time. */
  async left(ms) {
    const last = performance.now() + ms;
    while (this.others().length > 0 && performance.now() < last) await new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
    return this.others();
  }

  /** Ends all processes here and removes the HOME. */
  async clear() {
    for (let here = this.#processes(); here.length > 0; here = this.#processes()) {
      for (const { pid } of here) end(pid);
      await new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
    }
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
    open.delete(this);
  }

  #own = ({ command }) => command.includes(this.#at.room(this.#product));

  #processes() {
    return readdirSync('/proc')
      .filter((pid) => /^\d+$/.test(pid))
      .flatMap((pid) => {
        try {
          if (!readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(`HOME=${this.home}`)) return [];
          const command = readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ');
          return command === '' ? [] : [{ pid: Number(pid), command }]; // without words: dead already
        } catch {
          return []; // ended meanwhile, or of another user
        }
      });
  }
}

function end(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // ended meanwhile
  }
}

// Without colours and the like.
function plain(text) {
  return text.replace(/\u001b\[[0-9;?]*[a-zA-Z]/g, '');
}
