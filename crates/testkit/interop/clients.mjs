// The clients that people use, with real servers, bare and through `mainstay run`: docs/clients.md says what is tried and how to run it.

import { spawnSync } from 'node:child_process';
import { play } from './products/acts.mjs';
import { adopted } from './products/adopted.mjs';
import { PRODUCTS } from './products/cast.mjs';
import { check, write } from './products/page.mjs';
import { clearAll } from './products/stage.mjs';
import { installProducts } from './suite/install.mjs';

const INSIDE = 'MAINSTAY_CLIENTS_INSIDE';
// SIOCSIFFLAGS with IFF_UP, because not every machine has a program for it; then the words that follow.
const LOOPBACK_UP = `
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 1))
os.execv(sys.argv[1], sys.argv[1:])`;
const told = process.argv.slice(2);
const bless = told.includes('--bless');
const wanted = told.filter((word) => !word.startsWith('--'));
const adoptOnly = told.includes('--adopt');
const unknown = told.filter((word) => (word.startsWith('--') ? word !== '--bless' && word !== '--adopt' : !PRODUCTS.some(({ id }) => id === word)));
if (unknown.length > 0) throw new Error(`unknown: ${unknown}; there is --bless, --adopt (only that act), and ${PRODUCTS.map(({ id }) => id).join(', ')}`);
if (bless && (wanted.length > 0 || adoptOnly)) throw new Error('--bless writes the page of all clients, so it plays all of them');
const products = PRODUCTS.filter(({ id }) => wanted.length === 0 || wanted.includes(id));

if (process.env[INSIDE] === undefined) {
  // A network namespace with loopback only, so that clients cannot send telemetry or other data to the outside.
  const enter = ['--net', ...(process.getuid() === 0 ? [] : ['--map-root-user']), '--', 'python3', '-c', LOOPBACK_UP];
  const refused = spawnSync('unshare', [...enter, process.execPath, '--version'], { encoding: 'utf8' });
  if (refused.status !== 0) {
    say(`not played: this machine does not allow a network namespace (${refused.error?.message ?? refused.stderr.trim()})`);
    process.exit(bless ? 1 : 0);
  }
  say('installing');
  const at = await installProducts(products);
  const env = { ...process.env, MAINSTAY_UNDER_TEST: at.mainstay, [INSIDE]: 'yes' };
  const { status, error } = spawnSync('unshare', [...enter, process.execPath, ...process.argv.slice(1)], { stdio: 'inherit', env });
  if (error !== undefined) throw error;
  process.exitCode = status ?? 1;
} else {
  await playAll(await installProducts(products));
}

// One after the other: clients have deadlines for their servers, and a busy machine would be measured instead.
async function playAll(at) {
  const results = [];
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => clearAll().then(() => process.exit(1)));
  for (const product of products) {
    const from = performance.now();
    const played = adoptOnly ? adopted(at, product).then((faults) => ({ product, faults })) : play(at, product, bless);
    const result = await played.catch((error) => ({ product, faults: [error.stack] }));
    await clearAll();
    say(`  ${result.faults.length === 0 ? 'ok    ' : 'BROKEN'}  ${product.title} (${((performance.now() - from) / 1000).toFixed(1)} s)`);
    for (const fault of result.faults) say(fault);
    results.push(result);
  }
  const broken = results.filter(({ faults }) => faults.length > 0).length;
  say(`${results.length - broken} passed, ${broken} failed`);
  if (broken === 0 && !adoptOnly) (bless ? write : check)(results);
  if (broken > 0) process.exitCode = 1;
}

function say(line) {
  process.stdout.write(`${line}\n`);
}
