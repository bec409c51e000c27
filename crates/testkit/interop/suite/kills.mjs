// Processes are killed again and again in one session: every request is answered, the session stays usable, and no process is left.

import { execFile } from 'node:child_process';
import { isDeepStrictEqual, promisify } from 'node:util';
import { steps } from './cast.mjs';
import { Session } from './session.mjs';

// More deaths than any session here has.
const BUDGET = 1000;
// Deaths in a row make mainstay wait longer before the next start, up to 4 s, which is long for a hundred; `mainstay restart` forgives them.
const FORGIVEN_AFTER = 3;
// rmcp's server does not end at EOF while a client listens, so each restart takes as long as this.
const GRACE = '200ms';
// A call that takes long enough to kill a process in its middle.
const SLOW_S = 2;
const LOOK_EVERY_MS = 5;
const SEEN_WITHIN_MS = 45_000;

/**
 * Kills `victim` (`server` or `keeper`) `between` times after an answer and before the next request, and `during` times while a slow call is
 * under way, in turn. What did not hold, as texts.
 */
export async function killed(at, client, server, { victim, between, during }) {
  const options = ['--name', server.id, '--restart-budget', String(BUDGET), '--grace-eof', GRACE];
  const session = new Session(client, [at.mainstay, 'run', ...options, '--', ...server.command]);
  const faults = [];
  let kills = 0;
  try {
    const play = new Play(at, session, server, victim);
    await play.open(steps(client, { ...server, steps: server.remembered }));
    const acts = inTurn(between, during);
    for (const act of acts) {
      await (act === 'between' ? play.between() : play.during());
      kills += 1;
      if (victim === 'server' && kills % FORGIVEN_AFTER === 0) await play.forgive();
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
    await this.#noticed(await this.#kill());
    await this.#usable('the call after a kill between two');
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
  }

  /** Lets a person look after the server. */
  async forgive() {
    await this.#mainstay('restart', this.#server.id);
    await this.#usable('the call after a restart');
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

  // Kills the victim and returns the link's row from before the kill.
  async #kill() {
    const row = await this.#alive();
    process.kill(this.#victim === 'keeper' ? row.keeper : row.pid, 'SIGKILL');
    return row;
  }

  // Until mainstay knows of the death: a request before that is one in the middle of which the server died.
  async #noticed(row) {
    await this.#row((now) => now.state !== row.state || now.generation !== row.generation);
  }

  #alive() {
    return this.#row((row) => row.pid !== null && row.keeper !== null);
  }

  // The session's line of `mainstay ps`, once it is as it must become: a client that looks around first has two, for a moment.
  async #row(is) {
    const last = performance.now() + SEEN_WITHIN_MS;
    for (;;) {
      const said = await this.#mainstay('ps', '--json');
      const rows = JSON.parse(said);
      if (rows.length === 1 && is(rows[0])) return rows[0];
      if (performance.now() > last) throw new Error(`mainstay ps goes on saying ${said}`);
      await new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
    }
  }

  async #mainstay(...args) {
    const { stdout } = await promisify(execFile)(this.#at.mainstay, args, { env: this.#session.env });
    return stdout;
  }
}

function good(said, what) {
  if (said.error !== undefined || said.answer?.isError) throw new Error(`${what} failed: ${JSON.stringify(said)}`);
  return said.answer;
}

// `between` and `during` by turns, then what is left of either.
function inTurn(between, during) {
  const acts = [];
  for (let n = 0; n < Math.max(between, during); n += 1) {
    if (n < between) acts.push('between');
    if (n < during) acts.push('during');
  }
  return acts;
}
