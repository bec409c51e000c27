// What a client is tried with: its own command that lists servers, a session, a session in which a server is killed, one in which a stranger kills by
// name, its own death, and a server that takes its time. Each bare, for comparison, and through mainstay, where everything must hold. Then its config is adopted.

import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { adopted } from './adopted.mjs';
import { Model } from './model.mjs';
import { Stage } from './stage.mjs';

const ENDED_WITHIN_MS = 90_000;
/** Our ladder takes 4 s with a server that ignores everything; a bare server that is still there after that long stays. */
export const GONE_WITHIN_MS = { bare: 5_000, kept: 15_000 };
const HEARD_OF_DEATH_MS = 500;
const PROMPT = 'count twice, please';
const SERVERS = 2;
const ECHO = { tool: 'echo', input: { message: 'still there?' } };
const TALLY = { tool: 'tally', input: {} };
const GREET = { tool: 'greet', input: {} };
/** How long a bare server takes to start that takes its time. */
export const SLOW_MS = 8_000;

/** Everything with one client: what was seen, bare and through mainstay, and what did not hold. `all`: also what only the page tells, of bare clients. */
export async function play(at, product, all) {
  const faults = [];
  const seen = {};
  for (const [act, what] of Object.entries({ list: listed, session, death, pkill, kill, slow })) {
    if (act === 'list' && product.list === undefined) continue;
    const compared = all || act === 'list' || act === 'session';
    const [bare, kept] = await Promise.all([compared ? what(at, product, 'bare', all) : undefined, what(at, product, 'kept', all)]);
    seen[act] = { bare, kept };
    faults.push(...broken(act, bare, kept).map((fault) => `${act}: ${fault}`));
  }
  faults.push(...(await adopted(at, product)));
  const called = seen.session.kept.called;
  if (called.length !== 1) faults.push(`session: the client is called ${called} in mainstay ps`);
  return { product, seen, faults, called: called.join() };
}

// What a client sees through mainstay is what it sees bare, but for what mainstay mends.
function broken(act, bare, kept) {
  const faults = [...kept.faults];
  if (kept.left.length > 0) faults.push(`left: ${kept.left.map(({ pid, command }) => `${pid} ${command}`).join('\n')}`);
  if (act === 'list' && !(bare.well === SERVERS && kept.well === SERVERS)) faults.push(`well: ${bare.well} bare, ${kept.well} through mainstay\n${kept.said}`);
  if (act === 'session' && !same(bare.results, kept.results)) faults.push(`bare ${JSON.stringify(bare.results)}\nkept ${JSON.stringify(kept.results)}\n${kept.said}`);
  if (act === 'session' && !says(kept.results, ['Echo: still there?', 'tally 1', 'tally 2'])) faults.push(`the tools' answers: ${JSON.stringify(kept.results)}\n${kept.said}`);
  // A new server counts from the beginning.
  if (act === 'death' && !says(kept.results, ['tally 1', 'tally 1'])) faults.push(`after the death: ${JSON.stringify(kept.results)}\n${kept.said}`);
  if (act === 'pkill' && !says(kept.results, ['tally 1', 'tally 1'])) faults.push(`after pkill -f: ${JSON.stringify(kept.results)}\n${kept.said}`);
  if (act === 'slow' && !(kept.first?.known && says(kept.results, ['good morning']))) {
    faults.push(`session 2 before its server was up: ${JSON.stringify({ first: kept.first, results: kept.results })}\n${kept.said}`);
  }
  if ((act === 'list' || act === 'session') && bare.code !== kept.code) faults.push(`exit code ${bare.code} bare, ${kept.code} through mainstay`);
  if (act !== 'kill' && kept.code !== 0) faults.push(`exit code ${kept.code}\n${kept.said}`);
  return faults;
}

async function listed(at, product, way, all) {
  const scene = await Scene.set(at, product, way, []);
  const { code, said } = await scene.run(product.list);
  const { left, faults } = await scene.end(way, all);
  return { code, said, well: said.match(product.lists)?.length ?? 0, left, faults };
}

function session(at, product, way, all) {
  return converse(at, product, way, all, (scene) => [ECHO, { ...TALLY, before: () => scene.look() }, TALLY]);
}

function death(at, product, way, all) {
  return converse(at, product, way, all, (scene) => [TALLY, { ...TALLY, before: () => scene.killServer() }]);
}

function pkill(at, product, way, all) {
  return converse(at, product, way, all, (scene) => [TALLY, { ...TALLY, before: () => scene.killByName() }]);
}

function kill(at, product, way, all) {
  return converse(at, product, way, all, (scene) => [TALLY, { ...TALLY, before: () => scene.stage.kill() }]);
}

// A server that takes its time. Through mainstay, in the second session, it is not up before the model has been asked.
async function slow(at, product, way, all) {
  let gate;
  const scene = await Scene.set(at, product, way, [GREET], (home) => {
    gate = join(home, 'gate');
    return [['gated', ['node', at.gated, gate]]];
  });
  const open = () => writeFileSync(gate, '');
  const run = () => scene.run(product.session(PROMPT, scene.stage.home));
  if (way === 'kept') {
    open();
    await run();
    await scene.stage.left(GONE_WITHIN_MS.kept);
    rmSync(gate);
    scene.model.begin([{ ...GREET, before: open }]);
  }
  const from = performance.now();
  const late = way === 'bare' ? setTimeout(open, SLOW_MS) : undefined;
  const { code, said } = await run();
  clearTimeout(late);
  const { first, results } = scene.model;
  const { left, faults } = await scene.end(way, all);
  return { code, said, results, first: first && { known: first.known, s: Math.round((first.at - from) / 100) / 10 }, left, faults };
}

async function converse(at, product, way, all, script) {
  const scene = await Scene.set(at, product, way, script);
  const { code, said } = await scene.run(product.session(PROMPT, scene.stage.home));
  const { left, faults } = await scene.end(way, all);
  return { code, said, results: scene.model.results, called: scene.called, left, faults };
}

// One client with its two servers and its model.
class Scene {
  called = [];

  static async set(at, product, way, script, servers) {
    const scene = new Scene();
    scene.product = product;
    scene.model = await new Model(typeof script === 'function' ? script(scene) : script).start();
    const wrapped = way === 'kept' ? ['mainstay', 'run', '--'] : [];
    const server = (name, words) => {
      const [command, ...args] = [...wrapped, ...words];
      return { name, command, args };
    };
    scene.stage = new Stage(at, product, scene.model.url, (home) => {
      if (servers !== undefined) return servers(home).map(([name, words]) => server(name, words));
      scene.pids = join(home, 'pids');
      mkdirSync(scene.pids);
      return [server('everything', ['node', at.everything, 'stdio']), server('clingy', ['node', at.clingy, scene.pids])];
    });
    await scene.stage.prepare();
    return scene;
  }

  async run(args) {
    const { child, ended } = this.stage.start(args);
    const late = setTimeout(() => child.kill('SIGKILL'), ENDED_WITHIN_MS);
    try {
      return await ended;
    } finally {
      clearTimeout(late);
    }
  }

  // As what the client is known while it has its servers.
  async look() {
    const rows = JSON.parse(await this.stage.mainstay('ps', '--json'));
    this.called = [...new Set(rows.map((row) => row.client?.comm))];
  }

  async killServer() {
    for (const pid of readdirSync(this.pids)) process.kill(Number(pid), 'SIGKILL');
    // A client that is told that its server died should have the time to do something about it.
    await new Promise((next) => setTimeout(next, HEARD_OF_DEATH_MS));
  }

  // As a user does in another terminal. Whatever has the server's words in its command line is hit: the server, and what the client started for it.
  async killByName() {
    const { status } = spawnSync('pkill', ['-f', this.pids]);
    if (status !== 0) throw new Error(`pkill ended with ${status}`);
    await new Promise((next) => setTimeout(next, HEARD_OF_DEATH_MS));
  }

  // Who is left, and whether mainstay has told the whole life of each server.
  async end(way, all) {
    const left = await this.stage.left(way === 'kept' || all ? GONE_WITHIN_MS[way] : 0);
    const faults = [];
    if (way === 'kept') {
      const events = lines(await this.stage.mainstay('events', '--json'));
      const links = [...new Set(events.map(({ id }) => id))];
      const many = this.product.startsAgain && links.length > SERVERS;
      if (links.length !== SERVERS && !many) faults.push(`${links.length} links in mainstay events`);
      for (const id of links) {
        const own = events.filter((event) => event.id === id);
        const last = own.findLast(({ event }) => event === 'teardown');
        if (own.find(({ event }) => event === 'start')?.client === null) faults.push(`${own[0].server}: no client in its start`);
        if (last?.left.length !== 0) faults.push(`${own[0].server}: no teardown with 0 left: ${JSON.stringify(last)}`);
      }
    }
    faults.push(...this.model.errors.map((error) => error.stack));
    for (const { tool, offered } of this.model.missed) faults.push(`no tool ${tool} among ${offered}`);
    await this.stage.clear();
    this.model.stop();
    return { left, faults };
  }
}

const lines = (text) => text.trim().split('\n').filter((line) => line !== '').map((line) => JSON.parse(line));
const says = (results, words) => results.length === words.length && words.every((word, place) => JSON.stringify(results[place]).includes(word));

// Some clients tell how long a call took.
function same(one, other) {
  const timeless = (results) => JSON.stringify(results).replace(/Wall time: [\d.]+ seconds/g, '');
  return timeless(one) === timeless(other);
}
