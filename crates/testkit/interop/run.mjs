// Real servers under real clients, bare, through `mainstay run` and through `mainstay serve`: docs/interop.md says what is tried and how to run it.

import { availableParallelism } from 'node:os';
import { KILLS, WEB, clients, meets, meetsServed, servers } from './suite/cast.mjs';
import { abandoned, equal, served } from './suite/equal.mjs';
import { FORGOTTEN, forgotten } from './suite/forgotten.mjs';
import { install } from './suite/install.mjs';
import { killed } from './suite/kills.mjs';
import { check, write } from './suite/page.mjs';
import { overHttp } from './suite/web.mjs';

const told = process.argv.slice(2);
const bless = told.includes('--bless');
const only = told.filter((word) => !word.startsWith('--'));
const unknown = told.filter((word) => word.startsWith('--') && word !== '--bless');
if (unknown.length > 0) throw new Error(`unknown: ${unknown}; there is --bless, and words that a pair's name must contain`);

say('installing');
const at = await install();
const began = performance.now();
const results = await play(acts());
const broken = results.filter((result) => result.faults.length > 0);
say(`${results.length - broken.length} passed, ${broken.length} failed`);
say(`after ${seconds(began)} s, without installing`);
if (only.length === 0 && broken.length === 0) (bless ? write : check)(at, results);
process.exitCode = broken.length === 0 ? 0 : 1;

// Everything there is to try, what takes longest first.
function acts() {
  const all = { clients: clients(at), servers: servers(at) };
  const named = (list, id) => list.find((one) => one.id === id);
  const kills = KILLS.map(({ client, server, ...often }) => ({
    kind: 'kills',
    client: named(all.clients, client),
    server: named(all.servers, server),
    often,
    act: (one) => killed(at, one.client, one.server, often),
  }));
  // A client that is started for each request takes long.
  const inOrder = [...all.clients].sort((one, other) => Number('only' in other) - Number('only' in one));
  const pairs = inOrder.flatMap((client) => all.servers.filter((server) => meets(client, server)).map((server) => ({ client, server })));
  const equals = pairs.map((pair) => ({ kind: 'equal', ...pair, act: () => equal(at, pair.client, pair.server) }));
  const deserted = pairs
    .filter(({ client, server }) => !('only' in client) && server.id === 'everything')
    .map((pair) => ({ kind: 'client killed', ...pair, act: () => abandoned(at, pair.client, pair.server) }));
  const fronts = inOrder.flatMap((client) => all.servers.filter((server) => meetsServed(client, server)).map((server) => ({ client, server })));
  const overFront = fronts.map((pair) => ({ kind: 'served', ...pair, act: () => served(at, pair.client, pair.server) }));
  const web = Object.entries(WEB).flatMap(([server, ids]) =>
    ids.map((client) => ({ client: named(all.clients, client), server: named(all.servers, server) })),
  );
  const overWeb = web.map((pair) => ({ kind: 'over http', ...pair, act: () => overHttp(at, pair.client, pair.server) }));
  const forgets = FORGOTTEN.map(({ server, ...often }) => ({
    kind: 'forgotten',
    client: { id: 'forgetful' },
    server: named(all.servers, server),
    often,
    act: (one) => forgotten(at, one.server, often),
  }));
  return [...forgets, ...kills, ...equals, ...overFront, ...overWeb, ...deserted].filter((act) => only.every((word) => name(act).includes(word)));
}

// More at a time than there are processors: each is a client and a server that mostly wait for each other.
async function play(waiting) {
  const results = [];
  const player = async () => {
    for (let act = waiting.shift(); act !== undefined; act = waiting.shift()) {
      const from = performance.now();
      const faults = await act.act(act).catch((error) => [error.stack]);
      say(`  ${faults.length === 0 ? 'ok    ' : 'BROKEN'}  ${name(act)} (${seconds(from)} s)`);
      for (const fault of faults) say(fault);
      results.push({ ...act, faults });
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() + 2 }, player));
  return results;
}

function name({ kind, client, server, often }) {
  const words = {
    kills: () => `${often.victim} killed ${often.between} times between calls, ${often.during} during one`,
    forgotten: () => `${often.clients * often.sessions} sessions forgotten, ${often.way} between`,
  };
  const what = words[kind]?.() ?? kind;
  return `${client.id} × ${server.id}: ${what}`;
}

function seconds(from) {
  return ((performance.now() - from) / 1000).toFixed(1);
}

function say(line) {
  process.stdout.write(`${line}\n`);
}
