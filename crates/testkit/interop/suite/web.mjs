// The HTTP form of a server, behind `run --url`: a client must see what it sees of the stdio form, and no session may stay open.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, connect } from 'node:net';
import { transcript } from './equal.mjs';
import { difference } from './diff.mjs';

const UP_WITHIN_MS = 45_000;

/** Plays the server's steps with the client twice, over stdio and over HTTP; what did not hold, as texts. */
export async function overHttp(at, client, server) {
  const web = await start(server);
  try {
    const faults = [];
    const bare = await transcript(client, server, server.command);
    const kept = await transcript(client, server, [at.mainstay, 'run', '--name', server.id, '--url', web.url]);
    const differs = difference(bare.entries, kept.entries);
    if (differs !== undefined) faults.push(`over stdio (-) and through run --url (+) differ\n${differs}\nstderr: ${kept.stderr}`);
    if (kept.left.length > 0) faults.push(`left after close():\n${kept.left.join('\n')}`);
    if (web.opened() === 0 && client.era !== 'auto') faults.push(`no session was seen\n${web.log()}`);
    if (web.open() !== 0) faults.push(`of ${web.opened()} sessions ${web.open()} are open\n${web.log()}`);
    return faults;
  } finally {
    web.stop();
  }
}

/** Starts the server's HTTP form; what it says of its sessions. */
export async function start(server) {
  const port = await free();
  const { command, env } = server.web.start(port);
  const [program, ...args] = command;
  let log = '';
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (log += text));
  for (const until = performance.now() + UP_WITHIN_MS; !(await listens(port)); ) {
    if (performance.now() > until || child.exitCode !== null) throw new Error(`the HTTP server did not come up\n${log}`);
  }
  const times = (what) => log.split(what).length - 1;
  const opened = () => times(server.web.opened);
  const open = () => opened() - times(server.web.closed);
  return { url: `http://127.0.0.1:${port}/mcp`, log: () => log, opened, open, stop: () => child.kill('SIGKILL') };
}

async function free() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

// An attempt takes long enough, so a loop of attempts does not load the machine.
function listens(port) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(true));
    socket.on('error', () => setTimeout(resolve, 50, false)).on('connect', () => socket.destroy());
  });
}
