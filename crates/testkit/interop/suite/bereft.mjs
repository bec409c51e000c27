// Real clients that have lost what started them: Codex's daemon, whose parent is process 1, and Gemini CLI, whose terminal is closed. The daemon and its
// server are spared until the daemon is killed. The stale client is ended with `--stale`, and only with it.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { PRODUCTS } from '../products/cast.mjs';
import { members } from './census.mjs';
import { ended, judged, reap, wait } from './reaping.mjs';

/** The names of the plays, with what plays them: each gets a tag for the environment of all processes, and a HOME. */
export const BEREFT = { "Codex's daemon": daemon, 'Gemini CLI without its terminal': stale };

// No client reaches the network: it would tell its makers about this.
const ALONE = process.getuid() === 0 ? ['unshare', '--net', '--'] : [];
const NOWHERE = 'http://127.0.0.1:9';

function configured(at, home, id, server) {
  const product = PRODUCTS.find((one) => one.id === id);
  for (const [name, text] of Object.entries(product.configure([{ name: 'only', command: 'node', args: server }], NOWHERE))) {
    const file = join(home, name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  const path = [dirname(at.newNode), '/usr/local/bin', '/usr/bin', '/bin'].join(':');
  return { HOME: home, PATH: path, TERM: 'xterm', LANG: 'C.UTF-8', ...product.env(NOWHERE) };
}

// None if it has ended.
function words(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').split('\0');
  } catch {
    return [];
  }
}
const state = (pid) => stat(pid)[0];
const parent = (pid) => Number(stat(pid)[1]);

// The fields after the name, which may contain anything.
function stat(pid) {
  return readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/.*\) /s, '').split(' ');
}

// The process of this play that runs this script.
function running(tag, script) {
  return members(tag).map(Number).find((pid) => words(pid).includes(script));
}

// A killed process has no command line any more while its last threads still hold its descriptors. It has ended when only its first thread is left, as a zombie.
function alive(pid) {
  try {
    return state(pid) !== 'Z' || readdirSync(`/proc/${pid}/task`).length > 1;
  } catch {
    return false;
  }
}

// Its server ignores the end of its input. A server that is stopped would not do here: the kernel wakes it with SIGHUP when its session loses the daemon.
async function daemon(at, tag, home, mark) {
  const faults = [];
  const env = { ...configured(at, home, 'codex', [at.clingy, home]), ...mark };
  const socket = join(home, 'socket');
  // A shell that goes at once, so that the daemon is inherited by process 1, as in real life.
  const start = spawn('sh', ['-c', 'setsid "$@" </dev/null >/dev/null 2>&1 &', 'sh', ...ALONE, at.codex, 'app-server', '--listen', `unix://${socket}`], { env, cwd: home, stdio: 'ignore' });
  await once(start, 'exit');
  await wait("Codex's daemon listens", () => (existsSync(socket) ? true : undefined));
  const client = await AppServer.open(socket);
  await client.ask('initialize', { clientInfo: { name: 'bereft', title: 'bereft', version: '1' } });
  client.tell('initialized');
  await client.ask('thread/start', { cwd: home });
  await client.told('mcpServer/startupStatus/updated', ({ status }) => status === 'ready');
  const pid = running(tag, at.clingy);
  const codex = parent(pid);
  if (!words(codex).includes('app-server') || words(parent(codex)).includes('sh')) faults.push(`the parent of the server is ${words(codex)}, below ${words(parent(codex))}`);
  // Its own client may go: the daemon keeps the thread.
  client.close();
  const spared = await reap(at, home, [pid], '--yes', '--stale');
  faults.push(...judged(spared, [pid], 'in_use'), ...ended(spared, 0));
  if (spared.servers[0]?.client?.pid !== codex) faults.push(`not its client: ${JSON.stringify(spared.servers)}`);
  faults.push(...ended(await reap(at, home, [codex], '--yes', '--stale'), 0));
  process.kill(codex, 'SIGKILL');
  await wait('the daemon is gone', () => (alive(codex) ? undefined : true));
  faults.push(...judged(await reap(at, home, [pid]), [pid], 'orphan'));
  faults.push(...ended(await reap(at, home, [pid], '--yes'), 1));
  return faults;
}

async function stale(at, tag, home, mark) {
  const faults = [];
  const env = { ...configured(at, home, 'gemini', [at.everything, 'stdio']), ...mark };
  const terminal = spawn(at.python2, [at.terminal, 'Type your message', ...ALONE, at.gemini], { env, cwd: home, stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: terminal.stdout })[Symbol.asyncIterator]();
  await lines.next();
  const pid = await wait('Gemini CLI has its server', () => running(tag, at.everything));
  const client = parent(pid);
  // Sockets are seen only in their own network.
  const there = { ...at, behind: ALONE.length > 0 ? ['nsenter', `--net=/proc/${client}/ns/net`, '--'] : [] };
  const living = await reap(there, home, [pid], '--yes', '--stale');
  faults.push(...judged(living, [pid], 'in_use'), ...ended(living, 0));
  terminal.stdin.end('hang up\n');
  await lines.next();
  const found = await wait('it does nothing any more', async () => {
    const seen = await reap(there, home, [pid]);
    return seen.servers[0]?.verdict === 'stale_client' ? seen : undefined;
  });
  if (found.servers[0].client?.pid !== client) faults.push(`not its client: ${JSON.stringify(found.servers)}`);
  faults.push(...ended(await reap(there, home, [pid], '--yes'), 0));
  if (!alive(pid) || !alive(client)) faults.push('it was ended without --stale');
  faults.push(...ended(await reap(there, home, [pid], '--yes', '--stale'), 1));
  if (alive(pid) || alive(client)) faults.push('it was not ended with --stale');
  return faults;
}

// A client of Codex's daemon: messages in WebSocket frames, over its Unix socket.
class AppServer {
  #socket;
  #bytes = Buffer.alloc(0);
  #heard = [];
  #next = 1;

  static async open(path) {
    const headers = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': randomBytes(16).toString('base64') };
    const [, socket, head] = await once(request({ socketPath: path, headers }).end(), 'upgrade');
    const client = new AppServer();
    client.#socket = socket;
    socket.on('data', (bytes) => client.#take(bytes));
    client.#take(head);
    return client;
  }

  async ask(method, params) {
    const id = this.#next++;
    this.#send({ id, method, params });
    const answer = await this.#hear(`an answer to ${method}`, (message) => message.id === id);
    if (answer.error !== undefined) throw new Error(`${method}: ${JSON.stringify(answer.error)}`);
  }

  tell(method) {
    this.#send({ method });
  }

  told(method, holds) {
    return this.#hear(method, (message) => message.method === method && holds(message.params));
  }

  close() {
    this.#socket.destroy();
  }

  #send(message) {
    const text = Buffer.from(JSON.stringify(message));
    const length = text.length < 126 ? [text.length] : [126, text.length >> 8, text.length & 255];
    // The mask is zero, which changes no byte.
    this.#socket.write(Buffer.concat([Buffer.from([0x81, 0x80 | length[0], ...length.slice(1)]), Buffer.alloc(4), text]));
  }

  #hear(what, holds) {
    return wait(what, () => this.#heard.find(holds));
  }

  #take(bytes) {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    for (;;) {
      if (this.#bytes.length < 2) return;
      const short = this.#bytes[1] & 127;
      const start = { 126: 4, 127: 10 }[short] ?? 2;
      if (this.#bytes.length < start) return;
      const length = short === 126 ? this.#bytes.readUInt16BE(2) : short === 127 ? Number(this.#bytes.readBigUInt64BE(2)) : short;
      if (this.#bytes.length < start + length) return;
      if ((this.#bytes[0] & 15) === 1) this.#heard.push(JSON.parse(this.#bytes.subarray(start, start + length)));
      this.#bytes = this.#bytes.subarray(start + length);
    }
  }
}
