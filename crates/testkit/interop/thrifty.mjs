// What `mainstay adopt --thrifty` saves: ten real servers that a client starts with `npx`, bare and through mainstay once they hibernate. It prints the resident
// memory of all their processes (mainstay's own included) and how long the next call of each takes. Needs the network once, to install the servers.
//
//   node crates/testkit/interop/thrifty.mjs            # about 2 minutes

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { installThrifty } from './suite/install.mjs';

const IDLE = '2s';
const ANSWERED_WITHIN_MS = 60_000;
const SLEPT_WITHIN_MS = 120_000;
const LOOK_EVERY_MS = 250;
const NEVER_USED = 'never-used-here';

/** Each with what it needs to start; none of them is called for real. */
const SERVERS = {
  everything: { bin: 'mcp-server-everything' },
  filesystem: { bin: 'mcp-server-filesystem', args: ['/tmp'] },
  memory: { bin: 'mcp-server-memory' },
  thinking: { bin: 'mcp-server-sequential-thinking' },
  notion: { bin: 'notion-mcp-server', env: { NOTION_TOKEN: NEVER_USED } },
  context7: { bin: 'context7-mcp' },
  figma: { bin: 'figma-developer-mcp', args: ['--stdio'], env: { FIGMA_API_KEY: NEVER_USED } },
  firecrawl: { bin: 'firecrawl-mcp', env: { FIRECRAWL_API_KEY: NEVER_USED } },
  tavily: { bin: 'tavily-mcp', env: { TAVILY_API_KEY: NEVER_USED } },
  exa: { bin: 'exa-mcp-server', env: { EXA_API_KEY: NEVER_USED } },
};

const at = await installThrifty();
const home = mkdtempSync(join(tmpdir(), 'mainstay-thrifty-'));
const config = join(home, '.claude.json');
const env = { HOME: home, PATH: [dirname(process.execPath), '/usr/local/bin', '/usr/bin', '/bin'].join(':'), npm_config_offline: 'true' };

async function measure() {
  mkdirSync(join(home, 'work'));
  const entries = Object.entries(SERVERS).map(([name, { bin, args = [], env = {} }]) => [name, { command: 'npx', args: ['--prefix', at.room, '--no', bin, '--', ...args], env }]);
  writeFileSync(config, JSON.stringify({ mcpServers: Object.fromEntries(entries) }, null, 2));

  const bare = await open();
  const bareMemory = memory();
  await close(bare);

  await mainstay('adopt', '--yes', `--thrifty=${IDLE}`);
  const kept = await open();
  await asleep();
  const hibernated = memory();
  const calls = [];
  for (const server of kept) {
    const from = performance.now();
    // No server has such a tool, but each must be awake to say so.
    await server.ask('tools/call', { name: 'no_such_tool_here', arguments: {} });
    calls.push([server.name, (performance.now() - from) / 1000]);
  }
  await close(kept);

  const count = entries.length;
  say(`${count} servers, started with npx     resident memory   processes`);
  say(row('bare', bareMemory));
  say(row(`adopted --thrifty, idle`, hibernated));
  const times = calls.map(([, s]) => s).sort((a, b) => a - b);
  say(`next call: ${times[0].toFixed(1)} to ${times.at(-1).toFixed(1)} s, median ${times[Math.floor(times.length / 2)].toFixed(1)} s`);
}

function row(what, { kib, processes }) {
  return `  ${what.padEnd(32)}${`${Math.round(kib / 1024)} MiB`.padStart(14)}${String(processes).padStart(12)}`;
}

/** Starts every server of the config, as a client does, and asks for its tools. One after the other, so that none is too slow. */
async function open() {
  const servers = [];
  for (const [name, entry] of Object.entries(JSON.parse(readFileSync(config, 'utf8')).mcpServers)) {
    const server = new Server(name, entry);
    servers.push(server);
    const opening = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'thrifty', version: '1' } };
    await server.ask('initialize', opening);
    server.tell('notifications/initialized');
    const { result } = await server.ask('tools/list', {});
    if (!(result?.tools.length > 0)) throw new Error(`${name} has no tools`);
  }
  return servers;
}

async function close(servers) {
  await Promise.all(servers.map((server) => server.close()));
  const last = performance.now() + 15_000;
  while (processes().length > 0 && performance.now() < last) await pause();
  // What a bare server left is no part of the next measurement.
  for (const pid of processes()) end(pid);
}

/** Waits until all servers hibernate. */
async function asleep() {
  const last = performance.now() + SLEPT_WITHIN_MS;
  for (;;) {
    const rows = JSON.parse(await mainstay('ps', '--json'));
    if (rows.every(({ processes }) => processes === 0)) return;
    if (performance.now() > last) throw new Error(`still awake: ${rows.filter(({ processes }) => processes > 0).map(({ server }) => server)}`);
    await pause();
  }
}

class Server {
  #child;
  #answers = new Map();
  #next = 1;

  constructor(name, { command, args, env: own }) {
    this.name = name;
    this.#child = spawn(command, args, { cwd: join(home, 'work'), env: { ...env, ...own }, stdio: ['pipe', 'pipe', 'ignore'] });
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      const message = parsed(line);
      if (message?.method === undefined) this.#answers.get(message?.id)?.(message);
    });
  }

  ask(method, params) {
    const id = this.#next++;
    const answer = new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${this.name}: no answer to ${method}`)), ANSWERED_WITHIN_MS);
      this.#answers.set(id, (message) => (clearTimeout(late), resolve(message)));
    });
    this.#send({ id, method, params });
    return answer;
  }

  tell(method) {
    this.#send({ method });
  }

  async close() {
    const gone = once(this.#child, 'exit');
    this.#child.stdin.end();
    const late = setTimeout(() => this.#child.kill('SIGKILL'), 15_000);
    await gone;
    clearTimeout(late);
  }

  #send(message) {
    this.#child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  }
}

async function mainstay(...args) {
  const child = spawn(at.mainstay, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text) => (said += text));
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`mainstay ${args[0]} ended with ${code}\n${said}`);
  return said;
}

/** Resident memory of every process with this HOME. */
function memory() {
  const all = processes();
  const kib = all.map((pid) => Number(text(`/proc/${pid}/status`).match(/VmRSS:\s+(\d+)/)?.[1] ?? 0)).reduce((a, b) => a + b, 0);
  return { kib, processes: all.length };
}

function processes() {
  const mine = (pid) => text(`/proc/${pid}/environ`).split('\0').includes(`HOME=${home}`) && text(`/proc/${pid}/cmdline`) !== '';
  return readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && mine(pid)).map(Number);
}

function clear() {
  for (let all = processes(); all.length > 0; all = processes()) for (const pid of all) end(pid);
  rmSync(home, { recursive: true, force: true, maxRetries: 5 });
}

function end(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // ended meanwhile
  }
}

function text(file) {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return ''; // ended meanwhile, or of another user
  }
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return undefined; // a server that prints other things to stdout
  }
}

function pause() {
  return new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
}

function say(line) {
  process.stdout.write(`${line}\n`);
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => (clear(), process.exit(1)));
try {
  await measure();
} finally {
  clear();
}
