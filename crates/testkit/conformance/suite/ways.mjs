// The ways between the suite and the other end: each starts what it needs, plays, ends it, and checks that no process and no session is left.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { all } from './processes.mjs';
import { read } from './results.mjs';

// A server that is killed after each scenario has not failed, so it is not given up.
const PATIENT = ['--restart-budget', '1000'];

// Of a suite that broke, that many characters are shown.
const SAID_LAST = 4000;

/** Ways to a server, the plain one first. */
export const TO_SERVER = ['direct', 'serve', 'killed', 'upstream'];
/** Ways to a client, the plain one first. */
export const TO_CLIENT = ['direct', 'url', 'killed'];

/** The server scenarios of a revision by one way: `{results, faults, note}`. */
export async function toServer(at, version, way) {
  return inRoom(async ({ home, mark, faults, ending }) => {
    const url = await servers[way](at, { home, mark, faults, ending });
    const count = join(home, 'kills');
    writeFileSync(count, '');
    const kills = way === 'killed' ? { MAINSTAY_KILL_MARK: mark, MAINSTAY_KILL_COUNT: count } : {};
    const said = await suite(at, home, kills, ['server', '--url', url, '--requirements', version]);
    if (!said.includes('=== SUMMARY ===')) faults.push(`the suite did not come to its end\n${said.slice(-SAID_LAST)}`);
    const killed = readFileSync(count, 'utf8').length;
    if (way === 'killed' && killed === 0) faults.push('no process was killed');
    return { results: read(join(home, 'results'), 'server-'), note: way === 'killed' ? `${killed} kills` : undefined };
  });
}

/** One client scenario by one way. */
export async function toClient(at, version, way, scenario) {
  return inRoom(async ({ home, mark, faults }) => {
    const count = join(home, 'kills');
    writeFileSync(count, '');
    const between = way === 'direct' ? {} : { MAINSTAY_BETWEEN: at.mainstay, MAINSTAY_NAME_BETWEEN: mark };
    if (way === 'killed') between.MAINSTAY_KILL_COUNT = count;
    const command = `${at.node} ${at.script('client/client.mjs')}`;
    const said = await suite(at, home, between, ['client', '--command', command, '--scenario', scenario, '--spec-version', version]);
    // The suite also counts warnings and how the client itself has ended.
    if (!said.includes('OVERALL: PASSED')) faults.push(`the suite is not content\n${said}`);
    if (way !== 'direct') {
      const unclosed = JSON.parse(await output(at.mainstay, ['sessions', '--json'], home));
      if (unclosed.length > 0) faults.push(`sessions are not closed: ${JSON.stringify(unclosed)}`);
    }
    return { results: read(join(home, 'results')), killed: readFileSync(count, 'utf8').length };
  });
}

const servers = {
  direct: (at, room) => face(at, room, () => undefined),
  serve: (at, room) => front(at, room, ['--', process.execPath, at.script('fixture/stdio.mjs'), room.mark]),
  killed: (at, room) => front(at, room, ['--', process.execPath, at.script('fixture/stdio.mjs'), room.mark]),
  upstream: async (at, room) => front(at, room, ['--upstream', await face(at, room, (open) => open > 0 && room.faults.push(`${open} sessions are open at the server`))]),
};

// The fixture's own HTTP form. The suite leaves sessions open there, `serve --upstream` none.
async function face(at, { mark, ending }, judge) {
  const child = spawn(process.execPath, [at.script('fixture/http.mjs'), mark], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const { value: url } = await lines.next();
  ending.push(async () => {
    child.stdin.end();
    const { value: open } = await lines.next();
    judge(Number(open));
    if (child.exitCode === null) await once(child, 'exit');
  });
  return url;
}

async function front(at, { home, faults, ending }, words) {
  const child = spawn(at.mainstay, ['serve', '--listen', '127.0.0.1:0', '--json', '--name', 'fixture', ...(words[0] === '--' ? PATIENT : []), ...words], {
    env: { ...process.env, HOME: home },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  ending.push(async () => {
    if (child.exitCode === null) {
      child.kill('SIGTERM');
      await once(child, 'exit');
    }
    if (child.exitCode !== 0) faults.push(`serve ended with ${child.exitCode ?? child.signalCode}`);
  });
  const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
  return JSON.parse(value).endpoints[0].url;
}

let rooms = 0;

async function inRoom(play) {
  const home = mkdtempSync(join(tmpdir(), 'mainstay-conformance-'));
  const mark = `conformance-${process.pid}-${(rooms += 1)}`;
  const faults = [];
  const ending = [];
  const began = performance.now();
  mkdirSync(join(home, 'results'));
  try {
    const played = await play({ home, mark, faults, ending });
    return { ...played, faults, seconds: (performance.now() - began) / 1000 };
  } finally {
    for (const end of ending.reverse()) await end();
    const left = all(mark);
    if (left.length > 0) faults.push(`${left.length} processes are left: ${left}`);
    rmSync(home, { recursive: true, force: true });
  }
}

function suite(at, home, env, words) {
  return output(at.node, ['--import', at.between, at.suite, ...words, '-o', join(home, 'results')], home, env);
}

// Everything that a program says; how it ends is said there, too.
async function output(program, words, home, env = {}) {
  const child = spawn(program, words, { cwd: home, env: { ...process.env, HOME: home, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
  await once(child, 'close');
  return said;
}
