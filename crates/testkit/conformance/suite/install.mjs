// Puts the pinned suite under `target/conformance`, anew only when its lock file has changed, and builds mainstay.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const HERE = dirname(dirname(fileURLToPath(import.meta.url)));
const REPOSITORY = resolve(HERE, '../../..');
/** The page that a run keeps. */
export const PAGE = join(REPOSITORY, 'docs/conformance.md');
const ROOM = join(resolve(process.env.CARGO_TARGET_DIR ?? join(REPOSITORY, 'target')), 'conformance');
// The suite needs it. If the installed Node is older, this one is fetched from npm.
const NODE_OF_SUITE = 22;
const SCRIPTS = ['fixture', 'client', 'suite'];
const LOCKS = ['package.json', 'package-lock.json', '.npmrc'];

/** Paths of everything that is played with. */
export async function install() {
  const [room, mainstay] = await Promise.all([packages(), process.env.MAINSTAY_UNDER_TEST ?? built()]);
  const modules = join(room, 'node_modules');
  // A script finds its packages from where it lies.
  for (const scripts of SCRIPTS) {
    rmSync(join(room, scripts), { recursive: true, force: true });
    cpSync(join(HERE, scripts), join(room, scripts), { recursive: true });
  }
  const own = Number(process.versions.node.split('.')[0]) >= NODE_OF_SUITE;
  return {
    room,
    mainstay: resolve(mainstay),
    node: own ? process.execPath : join(modules, `node-linux-${process.arch}/bin/node`),
    suite: join(modules, '.bin/conformance'),
    script: (name) => join(room, name),
    between: join(HERE, 'suite/between.mjs'),
  };
}

async function packages() {
  const hash = createHash('sha256').update(process.version);
  for (const lock of LOCKS) hash.update(readFileSync(join(HERE, lock)));
  const wanted = hash.digest('hex');
  const stamp = join(ROOM, '.made-from');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return ROOM;
  rmSync(ROOM, { recursive: true, force: true });
  mkdirSync(ROOM, { recursive: true });
  for (const lock of LOCKS) cpSync(join(HERE, lock), join(ROOM, lock));
  await run(ROOM, 'npm', 'ci', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error');
  writeFileSync(stamp, wanted);
  return ROOM;
}

// Cargo itself knows whether there is something to do.
async function built() {
  const lines = await run(REPOSITORY, 'cargo', 'build', '--quiet', '--locked', '--release', '-p', 'mainstay', '--message-format=json-render-diagnostics');
  const made = lines.trim().split('\n').map((line) => JSON.parse(line)).find((message) => message.executable);
  return made.executable;
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
