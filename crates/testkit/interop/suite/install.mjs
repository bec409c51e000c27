// Puts the pinned SDKs, clients and servers under `target/interop`, each part anew only when its lock file has changed.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(dirname(fileURLToPath(import.meta.url)));
const REPOSITORY = resolve(HERE, '../../..');
const TARGET = resolve(process.env.CARGO_TARGET_DIR ?? join(REPOSITORY, 'target'));
const ROOM = join(TARGET, 'interop');
// Inspector needs it. If the installed Node is older, this one is fetched from npm.
const NODE_OF_INSPECTOR = 22;
const EVERYTHING = '@modelcontextprotocol/server-everything/dist/index.js';

/** Paths of everything that is played with. All parts are installed at the same time: most of it is waiting. */
export async function install() {
  mkdirSync(ROOM, { recursive: true });
  const parts = await Promise.allSettled([
    packages(),
    environment('python1'),
    environment('python2'),
    programs('rmcp', ['--manifest-path', join(HERE, 'rmcp/Cargo.toml'), '--target-dir', join(ROOM, 'rmcp')]),
    underTest(),
  ]);
  const [npm, python1, python2, rmcp, mainstay] = values(parts);
  const modules = join(npm, 'node_modules');
  return {
    mainstay,
    node: process.execPath,
    nodeOfInspector: newer(modules),
    inspector: join(modules, '.bin/mcp-inspector'),
    everything: join(modules, EVERYTHING),
    script: (name) => join(npm, name),
    python1: join(python1, 'bin/python'),
    time: join(python1, 'bin/mcp-server-time'),
    python2: join(python2, 'bin/python'),
    rmcpClient: rmcp.client,
    rmcpServer: rmcp.server,
  };
}

/** Paths of what clients.mjs plays with: these of products/cast.mjs, and their servers. */
export async function installProducts(products) {
  const [npm, mainstay, ...rooms] = values(await Promise.allSettled([packages(), underTest(), ...products.map(product)]));
  const modules = join(npm, 'node_modules');
  const node = newer(modules);
  for (const [place, { scripts = [] }] of products.entries()) {
    for (const script of scripts) await run(dirname(join(rooms[place], 'node_modules', script)), node, join(rooms[place], 'node_modules', script));
  }
  const room = (product) => rooms[products.indexOf(product)];
  return {
    mainstay,
    node,
    inspector: join(modules, '.bin/mcp-inspector'),
    everything: join(modules, EVERYTHING),
    clingy: join(npm, 'servers/clingy.mjs'),
    gated: join(npm, 'servers/gated.mjs'),
    room,
    program: (product) => join(room(product), product.python ? 'bin' : 'node_modules/.bin', product.program),
  };
}

/** Paths of what thrifty.mjs measures. */
export async function installThrifty() {
  const [mainstay, room] = values(await Promise.allSettled([underTest(), locked('thrifty', 'thrifty', 'ci')]));
  return { mainstay, room };
}

/** Paths of what orphans.mjs plays with. */
export async function installOrphans() {
  const parts = [packages(), environment('python1'), environment('python2'), product({ id: 'codex' }), product({ id: 'gemini' }), underTest()];
  const [npm, python1, python2, codex, gemini, mainstay] = values(await Promise.allSettled(parts));
  const module = (path) => join(npm, 'node_modules', path);
  return {
    mainstay,
    node: process.execPath,
    newNode: newer(join(npm, 'node_modules')),
    npm,
    codex: join(codex, 'node_modules/.bin/codex'),
    gemini: join(gemini, 'node_modules/.bin/gemini'),
    terminal: join(npm, 'clients/on_a_terminal.py'),
    everything: module(EVERYTHING),
    filesystem: module('@modelcontextprotocol/server-filesystem/dist/index.js'),
    time: join(python1, 'bin/mcp-server-time'),
    python2: join(python2, 'bin/python'),
    fastmcp: join(npm, 'servers/python.py'),
    clingy: join(npm, 'servers/clingy.mjs'),
  };
}

/** The version of a product that its lock file names. */
export function versionOf({ id, package: name, python }) {
  if (python) return pinned(join('products', id, 'requirements.txt'), name);
  return JSON.parse(readFileSync(join(HERE, 'products', id, 'package.json'), 'utf8')).dependencies[name];
}

/** The versions that the lock files name, for the page. */
export function versions() {
  const npm = JSON.parse(readFileSync(join(HERE, 'package.json'), 'utf8')).dependencies;
  const python = (file, name) => pinned(`${file}.txt`, name);
  const rmcp = readFileSync(join(HERE, 'rmcp/Cargo.lock'), 'utf8').match(/name = "rmcp"\nversion = "(.+)"/)[1];
  return {
    typescript1: npm['@modelcontextprotocol/sdk'],
    typescript2: npm['@modelcontextprotocol/client'],
    inspector: npm['@modelcontextprotocol/inspector'],
    everything: npm['@modelcontextprotocol/server-everything'],
    python1: python('python1', 'mcp'),
    time: python('python1', 'mcp-server-time'),
    python2: python('python2', 'mcp'),
    fastmcp: python('python2', 'fastmcp'),
    rmcp,
  };
}

// The version of a Python package in a file of requirements.
function pinned(file, name) {
  return readFileSync(join(HERE, file), 'utf8').match(new RegExp(`^${name}==(\\S+)`, 'm'))[1];
}

/** Where the repository's pages are. */
export const PAGE = join(REPOSITORY, 'docs/interop.md');
export const PAGE_OF_CLIENTS = join(REPOSITORY, 'docs/clients.md');

async function packages() {
  const npm = await locked('npm', '.', 'ci');
  for (const scripts of ['clients', 'servers']) {
    // Beside node_modules, because Node looks for packages where a script is.
    cpSync(join(HERE, scripts), join(npm, scripts), { recursive: true });
  }
  return npm;
}

function product({ id, python }) {
  if (python) return environment(`product-${id}`, join('products', id, 'requirements.txt'));
  // Not `ci`, which wants programs for every platform in the lock file, also those that a registry does not have.
  return locked(`product-${id}`, join('products', id), 'install');
}

// What the lock file in a directory of ours names.
function locked(name, directory, way) {
  const locks = ['package.json', 'package-lock.json', '.npmrc'].map((lock) => join(directory, lock));
  return part(name, [...locks, `node ${process.version}`], async (room) => {
    for (const lock of locks) cpSync(join(HERE, lock), join(room, basename(lock)));
    await run(room, 'npm', way, '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error');
  });
}

async function underTest() {
  return resolve(process.env.MAINSTAY_UNDER_TEST ?? (await programs('mainstay', ['--release', '-p', 'mainstay'])).mainstay);
}

function newer(modules) {
  const own = Number(process.versions.node.split('.')[0]) >= NODE_OF_INSPECTOR;
  return own ? process.execPath : join(modules, `node-linux-${process.arch}/bin/node`);
}

function values(parts) {
  const failed = parts.find((one) => one.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  return parts.map((one) => one.value);
}

function environment(name, requirements = `${name}.txt`) {
  return part(name, [requirements], async (room) => {
    await run(room, 'python3', '-m', 'venv', '.');
    await run(room, 'bin/pip', 'install', '--quiet', '--disable-pip-version-check', '--require-hashes', '-r', join(HERE, requirements));
  });
}

// A directory of `ROOM` that is as `make` left it when `sources` (files here, or words) were what they are now.
async function part(name, sources, make) {
  const room = join(ROOM, name);
  const stamp = join(room, '.made-from');
  const hash = createHash('sha256');
  for (const source of sources) hash.update(existsSync(join(HERE, source)) ? readFileSync(join(HERE, source)) : source);
  const wanted = hash.digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return room;
  rmSync(room, { recursive: true, force: true });
  mkdirSync(room, { recursive: true });
  await timed(name, () => make(room));
  writeFileSync(stamp, wanted);
  return room;
}

// Cargo itself knows whether there is something to do.
async function programs(name, args) {
  const lines = await timed(name, () => run(HERE, 'cargo', 'build', '--quiet', '--locked', '--message-format=json-render-diagnostics', ...args));
  const built = lines.trim().split('\n').map((line) => JSON.parse(line)).filter((message) => message.executable);
  return Object.fromEntries(built.map((message) => [message.target.name, message.executable]));
}

async function timed(name, act) {
  const began = performance.now();
  const made = await act();
  process.stdout.write(`  ${name} is there after ${((performance.now() - began) / 1000).toFixed(0)} s\n`);
  return made;
}

function run(cwd, program, ...args) {
  return new Promise((done, failed) => {
    const child = spawn(program, args, { cwd, stdio: ['ignore', 'pipe', 'inherit'] });
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text) => (said += text));
    child.on('error', (error) => failed(new Error(`${program} is needed, and could not be started: ${error.message}`)));
    child.on('close', (code) => (code === 0 ? done(said) : failed(new Error(`${[program, ...args].join(' ')} ended with ${code}\n${said}`))));
  });
}
