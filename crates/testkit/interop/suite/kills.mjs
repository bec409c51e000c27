// Somebody is killed, again and again, in one session: every request is answered, the session stays usable, and nobody is left.

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { isDeepStrictEqual, promisify } from 'node:util';
import { steps } from './cast.mjs';
import { Session } from './session.mjs';

// More deaths than any session here has.
const BUDGET = 1000;
// A call in whose middle there is time enough to kill somebody.
const SLOW_S = 2;
const LOOK_EVERY_MS = 5;
const ALIVE_WITHIN_MS = 45_000;

/**
 * Kills `victim` (`server` or `keeper`) `between` times after an answer and before the next request, and `during` times while a slow call is
 * under way, in turn. What did not hold, as texts.
 */
export async function killed(at, client, server, { victim, between, during }) {
  const options = ['--name', server.id, '--restart-budget', String(BUDGET)];
  const session = new Session(client, [at.mainstay, 'run', ...options, '--', ...server.command]);
  const faults = [];
  let kills = 0;
  try {
    const play = new Play(at, session, server, victim);
    await play.open(steps(client, { ...server, steps: server.remembered }));
    for (let n = 0; n < Math.max(between, during); n += 1) {
      if (n < between) kills += await play.between();
      if (n < during) kills += await play.during();
    }
    await play.end(kills);
  } catch (error) {
    faults.push(`after ${kills} kills: ${error.message}\nstderr: ${session.stderr}`);
  }
  const left = await session.close();
  if (left.length > 0) faults.push(`left after close():\n${left.join('\n')}`);
  return faults;
}

class Play {
  #at;
  #session;
  #server;
  #victim;
  #tools;
  #echo;

  constructor(at, session, server, victim) {
    this.#at = at;
    this.#session = session;
    this.#server = server;
    this.#victim = victim;
  }

  /** Connects, gives mainstay something to remember, and learns what a good answer looks like. */
  async open(remembered) {
    good(await this.#session.connected(), 'connecting');
    for (const step of remembered) await this.#session.ask(step);
    this.#tools = good(await this.#session.ask({ method: 'tools/list' }), 'tools/list');
    this.#echo = good(await this.#session.ask(this.#server.echo), 'a call');
  }

  /** A kill, then a call that must work. */
  async between() {
    await dead(await this.#kill());
    await this.#usable('the call after a kill between two');
    return 1;
  }

  /** A kill in the middle of a call, which must be answered; then a call that must work. */
  async during() {
    let killing;
    const said = await this.#session.ask(this.#server.slow(SLOW_S), () => (killing ??= this.#kill()));
    if (killing === undefined) throw new Error(`a slow call told no progress: ${JSON.stringify(said)}`);
    await killing;
    const text = said.error?.message ?? said.answer.content[0].text;
    // Either it was done again, or the model can read what became of it.
    const lost = said.error !== undefined || said.answer.isError === true;
    if (lost && !text.includes(`'${this.#server.id}'`)) throw new Error(`an answer that does not say what happened: ${text}`);
    await this.#usable('the call after a kill during one');
    return 1;
  }

  /** The session at its end is what it was at its beginning. */
  async end(kills) {
    const tools = good(await this.#session.ask({ method: 'tools/list' }), 'tools/list');
    if (!isDeepStrictEqual(tools, this.#tools)) throw new Error(`other tools than at the beginning: ${JSON.stringify(tools)}`);
    const { generation } = await this.#alive();
    if (generation <= kills) throw new Error(`generation ${generation} after ${kills} kills`);
  }

  async #usable(what) {
    const echo = good(await this.#session.ask(this.#server.echo), what);
    if (!isDeepStrictEqual(echo, this.#echo)) throw new Error(`${what} was answered with ${JSON.stringify(echo)}`);
  }

  async #kill() {
    const { pid, keeper } = await this.#alive();
    const victim = this.#victim === 'keeper' ? keeper : pid;
    process.kill(victim, 'SIGKILL');
    return victim;
  }

  // The session's line of `mainstay ps`, once it has a server: a client that looks around first has started two, for a moment.
  async #alive() {
    const last = performance.now() + ALIVE_WITHIN_MS;
    for (;;) {
      const { stdout } = await promisify(execFile)(this.#at.mainstay, ['ps', '--json'], { env: this.#session.env });
      const rows = JSON.parse(stdout);
      if (rows.length === 1 && rows[0].pid !== null && rows[0].keeper !== null) return rows[0];
      if (performance.now() > last) throw new Error(`mainstay ps shows no server: ${stdout}`);
      await pause();
    }
  }
}

function good(said, what) {
  if (said.error !== undefined || said.answer?.isError) throw new Error(`${what} failed: ${JSON.stringify(said)}`);
  return said.answer;
}

// A killed process holds its pipes until it is done for.
async function dead(pid) {
  while (state(pid) !== undefined) await pause();
}

function state(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const letter = stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3);
    return 'ZX'.includes(letter) ? undefined : letter;
  } catch {
    return undefined;
  }
}

const pause = () => new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
