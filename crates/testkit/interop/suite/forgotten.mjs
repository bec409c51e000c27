// Sessions whose clients never end them: many are opened over HTTP, each client is killed, and the server must have none of them open at the end.

import { spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { left, mark, members } from './census.mjs';
import { Front } from './front.mjs';
import { start } from './web.mjs';

const GONE_WITHIN_MS = 60_000;
const LOOK_EVERY_MS = 50;
// Sessions that may wait for their end when the next client comes.
const LINGERING = 300;
const STDERR_KEPT = 4_000;
/** The idle limit of a session whose client is gone. It is longer than a client takes from a session's first answer to its next request. */
export const TTL = '15s';

/** The ways to forget: what stands between client and server. */
export const FORGOTTEN = [
  { way: 'nothing', server: 'everything', clients: 1, sessions: 50 },
  { way: 'run --url', server: 'everything', clients: 20, sessions: 50 },
  { way: 'serve --upstream', server: 'everything', clients: 20, sessions: 50 },
  { way: 'serve', server: 'rmcp', clients: 20, sessions: 50 },
];

/** Opens the sessions, kills the clients and counts; what did not hold, as texts. */
export async function forgotten(at, server, often) {
  return often.way === 'serve' ? behindServe(at, server, often) : overHttp(at, server, often);
}

// The server's own log says what it has open.
async function overHttp(at, server, { way, clients, sessions }) {
  const faults = [];
  const web = await start(server);
  const home = mkdtempSync(join(tmpdir(), 'mainstay-interop-'));
  const env = { ...process.env, ...mark(randomUUID()), HOME: home };
  const front = way === 'serve --upstream' ? await Front.start(at, server, ['--session-ttl', TTL, '--upstream', web.url]) : undefined;
  const reach = way === 'run --url' ? { command: [at.mainstay, 'run', '--name', server.id, '--url', web.url] } : { url: front?.url ?? web.url };
  try {
    for (let client = 0; client < clients; client += 1) {
      const before = web.opened();
      const fault = await killed(at, server, env, { ...reach, sessions }, () =>
        web.opened() - before === sessions ? undefined : `the server saw ${web.opened() - before} sessions opened, not ${sessions}`,
      );
      if (fault !== undefined) faults.push(fault);
    }
    if (way === 'nothing') {
      await pause(2_000);
      if (web.open() !== sessions) faults.push(`bare, ${web.open()} of ${sessions} forgotten sessions stayed open: then this test proves nothing`);
      return faults;
    }
    await settled(() => web.open() === 0);
    if (web.open() !== 0) faults.push(`${web.open()} of ${web.opened()} sessions stayed open`);
    faults.push(...(await gone(env)));
    const unclosed = spawnSync(at.mainstay, ['sessions', '--json'], { env, encoding: 'utf8' }).stdout.trim();
    if (unclosed !== '[]') faults.push(`mainstay lists unclosed sessions: ${unclosed}`);
    return faults;
  } finally {
    const still = await front?.stop();
    if (still?.length > 0) faults.push(`left after serve has stopped:\n${still.join('\n')}`);
    web.stop();
    rmSync(home, { recursive: true, force: true });
  }
}

// Each session is a server of its own: the processes say what is open.
async function behindServe(at, server, { clients, sessions }) {
  const faults = [];
  const front = await Front.start(at, server, ['--session-ttl', TTL, '--', ...server.command]);
  try {
    const idle = front.members;
    for (let client = 0; client < clients; client += 1) {
      // Not too many at a time, because other tests on this machine scan every process.
      await settled(async () => (await front.metric('mainstay_links')) <= LINGERING);
      const before = await front.metric('mainstay_sessions_opened_total');
      const fault = await killed(at, server, process.env, { url: front.url, sessions }, async () => {
        const opened = (await front.metric('mainstay_sessions_opened_total')) - before;
        return opened === sessions ? undefined : `${opened} sessions were opened, not ${sessions}`;
      });
      if (fault !== undefined) faults.push(fault);
    }
    await settled(() => front.members === idle);
    if (front.members !== idle) faults.push(`${front.members - idle} processes of forgotten sessions are left`);
    const ended = await front.metric('mainstay_sessions_closed_total{cause="idle"}');
    if (ended !== clients * sessions) faults.push(`${ended} sessions were ended because they were idle, not ${clients * sessions}`);
  } finally {
    const still = await front.stop();
    if (still.length > 0) faults.push(`left after serve has stopped:\n${still.join('\n')}`);
  }
  return faults;
}

// One client: its sessions are open, something is looked at, and it gets SIGKILL.
async function killed(at, server, env, told, look) {
  const argument = JSON.stringify({ ...told, call: server.echo });
  const client = spawn(at.node, [at.script('clients/forgetful.mjs'), argument], { env, stdio: ['pipe', 'pipe', 'pipe'] });
  let stderr = '';
  client.stderr.setEncoding('utf8').on('data', (text) => (stderr = (stderr + text).slice(0, STDERR_KEPT)));
  const { value } = await createInterface({ input: client.stdout })[Symbol.asyncIterator]().next();
  const fault = Number(value) === told.sessions ? await look() : `${value} of ${told.sessions} calls were answered\n${stderr}`;
  client.kill('SIGKILL');
  if (client.signalCode === null && client.exitCode === null) await once(client, 'exit');
  return fault;
}

async function gone(env) {
  const [tag] = Object.entries(mark('')).map(([name]) => env[name]);
  const still = await left(tag);
  for (const pid of members(tag)) process.kill(pid, 'SIGKILL'); // reported; we end all that we started
  return still.length > 0 ? [`left after the clients were killed:\n${still.join('\n')}`] : [];
}

async function settled(holds) {
  for (const until = performance.now() + GONE_WITHIN_MS; !(await holds()) && performance.now() < until; ) await pause(LOOK_EVERY_MS);
}

const pause = (ms) => new Promise((next) => setTimeout(next, ms));
