// Puts the bridges that mainstay is compared with under `target/bridges`, at the versions that the files beside this one pin. What is there already,
// and was made from the same files, stays. One that cannot be installed here is told, and the others are installed all the same.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const TARGET = resolve(process.env.CARGO_TARGET_DIR ?? join(HERE, '../../target'));
const ROOM = join(TARGET, 'bridges');
const NPM = ['package.json', 'package-lock.json', '.npmrc'];

const parts = {
  npm: [NPM, (room) => {
    for (const file of NPM) cpSync(join(HERE, file), join(room, file));
    run(room, 'npm', 'ci', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error');
  }],
  python: [['python.txt'], (room) => {
    run(room, 'python3', '-m', 'venv', '.');
    run(room, 'bin/pip', 'install', '--quiet', '--disable-pip-version-check', '--require-hashes', '-r', join(HERE, 'python.txt'));
  }],
  // With the versions of its own lock file; its optional parts have nothing to do with bridging. Cargo reads settings from where it is started up: not
  // in this repository, whose flags are for mainstay.
  crates: [['crates.txt'], (room) => {
    const [pinned] = readFileSync(join(HERE, 'crates.txt'), 'utf8').trim().split('\n');
    run(tmpdir(), 'cargo', 'install', '--quiet', '--locked', '--no-default-features', '--root', room, '--target-dir', join(room, 'build'), pinned);
    rmSync(join(room, 'build'), { recursive: true, force: true });
  }],
};

for (const [name, [files, make]] of Object.entries(parts)) {
  const room = join(ROOM, name);
  const stamp = join(room, '.made-from');
  const hash = createHash('sha256');
  for (const file of files) hash.update(readFileSync(join(HERE, file)));
  const wanted = hash.digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) {
    say(`${name} is there`);
    continue;
  }
  rmSync(room, { recursive: true, force: true });
  mkdirSync(room, { recursive: true });
  try {
    make(room);
    writeFileSync(stamp, wanted);
    say(`${name} is installed`);
  } catch (error) {
    say(`${name} cannot be installed: ${error.message}`);
    process.exitCode = 1;
  }
}

function run(cwd, program, ...args) {
  const { status, error } = spawnSync(program, args, { cwd, stdio: ['ignore', 'inherit', 'inherit'] });
  if (error !== undefined) throw new Error(`${program} is needed, and could not be started: ${error.message}`);
  if (status !== 0) throw new Error(`${[program, ...args].join(' ')} ended with ${status}`);
}

function say(line) {
  process.stdout.write(`${line}\n`);
}
