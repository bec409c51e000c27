// Real servers whose client gets SIGKILL: `mainstay reap` finds each of them, over pipes and over sockets, and ends it with every process it started. And
// real clients without parent or terminal (suite/bereft.mjs).
//
//   node crates/testkit/interop/orphans.mjs [WORD…]     only what has these words in its name
//
// Most servers notice the end of their input sooner or later. Each is stopped (SIGSTOP) before its client is killed, so that what is tried does not
// depend on which of them is faster.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { BEREFT } from './suite/bereft.mjs';
import { left, mark, members } from './suite/census.mjs';
import { installOrphans } from './suite/install.mjs';
import { ended, judged, reap } from './suite/reaping.mjs';

// A client is a few lines, because what counts is how it connects: Node by sockets, Python by pipes.
const OPENING = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"orphans","version":"1"}}}';
const CLIENTS = {
  sockets: (at) => [
    at.node,
    '-e',
    `const [program, ...args] = process.argv.slice(1);
     const server = require('node:child_process').spawn(program, args, { stdio: ['pipe', 'pipe', 'ignore'] });
     server.stdin.write(${JSON.stringify(OPENING)} + '\\n');
     server.stdout.once('data', () => console.log('open'));
     setInterval(() => {}, 1000);`,
  ],
  pipes: (at) => [
    at.python2,
    '-c',
    `import subprocess, sys, time
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
server.stdin.write(${JSON.stringify(`${OPENING}\n`)}.encode())
server.stdin.flush()
server.stdout.readline()
print("open", flush=True)
time.sleep(600)`,
  ],
};

const SERVERS = {
  everything: (at) => [at.node, at.everything, 'stdio'],
  filesystem: (at) => [at.node, at.filesystem, tmpdir()],
  time: (at) => [at.time, '--local-timezone', 'UTC'],
  fastmcp: (at) => [at.python2, at.fastmcp],
  'playwright behind npx': () => ['npx', '--offline', '--no', '@playwright/mcp'],
};

const words = process.argv.slice(2);
const at = await installOrphans();
const plays = Object.entries(CLIENTS).flatMap(([carrier, client]) =>
  Object.entries(SERVERS).map(([server, command]) => [`${server} over ${carrier}`, (...play) => orphaned([...client(at), ...command(at)], ...play)]),
);
plays.push(...Object.entries(BEREFT).map(([name, play]) => [name, (...told) => play(at, ...told)]));
let failed = 0;
for (const [name, play] of plays) {
  if (!words.every((word) => name.includes(word))) continue;
  const faults = await alone(play).catch((error) => [error.stack]);
  process.stdout.write(`${faults.length === 0 ? 'ok    ' : 'BROKEN'}  ${name}\n${faults.map((fault) => `${fault}\n`).join('')}`);
  failed += Math.min(faults.length, 1);
}
process.stdout.write(failed === 0 ? 'all orphans were found and ended\n' : `${failed} failed\n`);
process.exitCode = failed === 0 ? 0 : 1;

// One play in a HOME of its own. None of its processes may be left.
async function alone(play) {
  const tag = randomUUID();
  const home = join(tmpdir(), `mainstay-orphans-${tag}`);
  mkdirSync(home);
  try {
    const faults = await play(tag, home, mark(tag));
    const still = await left(tag);
    if (still.length > 0) faults.push(`left:\n${still.join('\n')}`);
    return faults;
  } finally {
    for (const pid of members(tag)) end(Number(pid)); // we end all that we started
    rmSync(home, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function orphaned([program, ...args], tag, home, marked) {
  const client = spawn(program, args, { env: { ...process.env, ...marked }, cwd: at.npm, stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(createInterface({ input: client.stdout }), 'line');
  if (line !== 'open') throw new Error(`the client said ${line}`);
  const pids = members(tag).map(Number).filter((pid) => pid !== client.pid);
  const faults = judged(await reap(at, home, pids), pids, 'in_use');
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  client.kill('SIGKILL');
  await once(client, 'exit');
  faults.push(...judged(await reap(at, home, pids), pids, 'orphan'));
  faults.push(...ended(await reap(at, home, pids, '--yes'), 1));
  return faults;
}

function end(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // ended meanwhile
  }
}
