// Real servers under real clients, bare and through `mainstay run`: the answers are the same, close() takes no longer,
// and nobody is left, neither after close() nor after the client's SIGKILL.
//
//   node crates/testkit/interop/run.mjs [PATH-OF-MAINSTAY]
//
// Needs Node 20, Python 3.10 and their package registries; installs into a temporary directory and removes it.
// Not part of `cargo test`, which needs no network.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const CLOSE_MAY_TAKE_LONGER_MS = 100;
const GONE_WITHIN_MS = 10_000;
// A close() is timed by its best run: other work on the machine can only make one slower.
const RUNS = 3;

const mainstay = resolve(process.argv[2] ?? process.env.MAINSTAY_UNDER_TEST ?? built());
const room = mkdtempSync(join(tmpdir(), 'mainstay-interop-'));
const env = { ...process.env, HOME: room };
let broken = 0;
try {
  install();
  for (const pair of pairs()) await check(pair);
} finally {
  rmSync(room, { recursive: true, force: true });
}
process.stdout.write(broken === 0 ? 'all held\n' : `${broken} did not hold\n`);
process.exitCode = broken === 0 ? 0 : 1;

function pairs() {
  const bin = join(room, 'venv', 'bin');
  const everything = join(room, 'node_modules/@modelcontextprotocol/server-everything/dist/index.js');
  return [
    {
      name: 'TypeScript client, server-everything',
      client: [process.execPath, join(room, 'client.mjs')],
      server: [process.execPath, everything, 'stdio'],
      tool: 'echo',
      input: { message: 'hello' },
    },
    {
      name: 'Python client, mcp-server-time',
      client: [join(bin, 'python'), join(room, 'client.py')],
      server: [join(bin, 'mcp-server-time')],
      tool: 'convert_time',
      input: { source_timezone: 'UTC', time: '12:00', target_timezone: 'Asia/Tokyo' },
    },
  ];
}

async function check(pair) {
  process.stdout.write(`${pair.name}\n`);
  const through = { ...pair, server: [mainstay, 'run', '--', ...pair.server] };
  const bare = [];
  const kept = [];
  for (let run = 0; run < RUNS; run += 1) {
    bare.push(await closed(pair));
    kept.push(await closed(through));
  }
  const same = kept.every((one) => isDeepStrictEqual(one.answers, bare[0].answers));
  held('the answers are the same', same, () => JSON.stringify([bare[0].answers, kept.map((one) => one.answers)]));
  const [before, after] = [bare, kept].map((runs) => Math.min(...runs.map((one) => one.closeMs)));
  held(`close() takes ${after.toFixed(0)} ms, bare ${before.toFixed(0)} ms`, after <= before + CLOSE_MAY_TAKE_LONGER_MS);
  const left = kept.flatMap((one) => one.left);
  held('nobody is left after close()', left.length === 0, () => left.join('\n'));

  const killed = session(through, true);
  await killed.answers();
  const lived = members(killed.tag).length;
  killed.client.kill('SIGKILL');
  const orphans = await gone(killed.tag);
  held(`nobody of ${lived} is left after SIGKILL of the client`, lived >= 3 && orphans.length === 0, () => orphans.join('\n'));
}

async function closed(pair) {
  const one = session(pair, false);
  const { closeMs, ...answers } = await one.answers();
  if (one.client.exitCode === null) await once(one.client, 'exit');
  return { answers, closeMs, left: await gone(one.tag) };
}

// Starts a client, told what to do as JSON in its only argument; it writes one line of JSON: what initialize, tools/list and
// tools/call answered and, unless it is to stay connected, how long its close() took.
function session({ client: [program, script], server: [command, ...args], tool, input }, stay) {
  const tag = `MAINSTAY_INTEROP=${randomUUID()}`;
  const [key, value] = tag.split('=');
  const told = JSON.stringify({ command, args, env: { [key]: value }, tool, input, stay });
  const client = spawn(program, [script, told], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const answers = async () => {
    for await (const line of createInterface({ input: client.stdout })) return JSON.parse(line);
    throw new Error(`${script} ended without an answer`);
  };
  return { client, tag, answers };
}

// Who carries the tag in its environment: the server, what it started, and shim, guard and keeper.
function members(tag) {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(tag);
    } catch {
      return false; // ended meanwhile, or somebody else's
    }
  });
}

async function gone(tag) {
  const last = performance.now() + GONE_WITHIN_MS;
  let left = members(tag);
  while (left.length > 0 && performance.now() < last) {
    await new Promise((next) => setTimeout(next, 10));
    left = members(tag);
  }
  return left.map((pid) => {
    try {
      return `${pid} ${readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')}`;
    } catch {
      return pid;
    }
  });
}

function held(what, is, why = () => '') {
  process.stdout.write(`  ${is ? 'ok    ' : 'BROKEN'}  ${what}\n`);
  if (is) return;
  broken += 1;
  process.stdout.write(`${why()}\n`);
}

function install() {
  cpSync(HERE, room, { recursive: true });
  const run = (program, ...args) => execFileSync(program, args, { cwd: room, stdio: ['ignore', 'ignore', 'inherit'] });
  run('npm', 'ci', '--no-audit', '--no-fund', '--ignore-scripts');
  run('python3', '-m', 'venv', 'venv');
  run('venv/bin/pip', 'install', '--quiet', '--disable-pip-version-check', '-r', 'requirements.txt');
}

function built() {
  const args = ['build', '--release', '--locked', '-p', 'mainstay', '--message-format=json-render-diagnostics'];
  const lines = execFileSync('cargo', args, { cwd: HERE, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 26 });
  const messages = lines.trim().split('\n').map((line) => JSON.parse(line));
  return messages.findLast((message) => message.executable?.endsWith('/mainstay')).executable;
}
