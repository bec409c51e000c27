// The public conformance suite of MCP against `mainstay serve` in front of a stdio server, both eras, calm and with the server killed between
// scenarios. What passes and what does not must be exactly what baseline.json says. `--bless` writes it anew.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { HERE, install } from './suite/install.mjs';
import { all } from './suite/processes.mjs';

const VERSIONS = ['2025-11-25', '2026-07-28'];
const BASELINE = join(HERE, 'baseline.json');
// A server that is killed after each scenario has not failed, so it is not given up.
const PATIENT = ['--restart-budget', '1000'];

const bless = process.argv.includes('--bless');
say('installing');
const at = await install();
const found = {};
const faults = [];
for (const kills of [false, true]) {
  // Each has a front of its own, so both eras can be played at the same time.
  await Promise.all(VERSIONS.map((version) => play(version, kills)));
}
if (bless) {
  writeFileSync(BASELINE, `${JSON.stringify(found, null, 2)}\n`);
} else {
  compare(JSON.parse(readFileSync(BASELINE, 'utf8')), found);
}
for (const fault of faults) say(`BROKEN  ${fault}`);
process.exitCode = faults.length === 0 ? 0 : 1;

async function play(version, kills) {
  const home = mkdtempSync(join(tmpdir(), 'mainstay-conformance-'));
  const mark = `mark-${process.pid}-${version}-${kills}`;
  const title = `${version}${kills ? ', server killed between scenarios' : ''}`;
  const server = [process.execPath, at.fixture, mark];
  const front = spawn(at.mainstay, ['serve', '--listen', '127.0.0.1:0', '--json', '--name', 'fixture', ...PATIENT, '--', ...server], {
    env: { ...process.env, HOME: home },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const { value } = await createInterface({ input: front.stdout })[Symbol.asyncIterator]().next();
    const { url } = JSON.parse(value).endpoints[0];
    const began = performance.now();
    const count = join(home, 'kills');
    writeFileSync(count, '');
    const said = await suite(url, version, home, kills ? { MAINSTAY_KILL_MARK: mark, MAINSTAY_KILL_COUNT: count } : {});
    const results = [...said.matchAll(/^[✓✗] ([\w-]+): \d+ passed, (\d+) failed/gm)].map(([, name, failed]) => ({ name, failed: Number(failed) }));
    const passed = results.filter(({ failed }) => failed === 0).map(({ name }) => name).sort();
    const failed = results.filter((one) => one.failed > 0).map(({ name }) => name).sort();
    if (results.length === 0) faults.push(`${title}: no result at all\n${said}`);
    const seen = { passed, failed };
    if (found[version] === undefined) found[version] = seen;
    else if (JSON.stringify(found[version]) !== JSON.stringify(seen)) faults.push(`${title}: not the same as without kills: ${difference(found[version], seen)}`);
    const killed = readFileSync(count, 'utf8').length;
    if (kills && killed === 0) faults.push(`${title}: nobody was killed`);
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    say(`  ${title}: ${passed.length} scenarios passed, ${failed.length} failed${kills ? `, ${killed} kills` : ''} (${seconds} s)`);
  } finally {
    if (front.exitCode === null) {
      front.kill('SIGTERM');
      await once(front, 'exit');
    }
    if (front.exitCode !== 0) faults.push(`${title}: serve ended with ${front.exitCode ?? front.signalCode}`);
    const left = all(mark);
    if (left.length > 0) faults.push(`${title}: ${left.length} processes are left: ${left}`);
    rmSync(home, { recursive: true, force: true });
  }
}

async function suite(url, version, home, env) {
  const words = ['--import', at.between, at.suite, 'server', '--url', url, '--requirements', version, '-o', join(home, 'results')];
  const child = spawn(at.node, words, { cwd: home, env: { ...process.env, HOME: home, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
  await once(child, 'close');
  return said;
}

function compare(wanted, seen) {
  for (const version of VERSIONS) {
    const differs = difference(wanted[version], seen[version]);
    if (differs !== '') faults.push(`${version}: not what baseline.json says: ${differs}`);
  }
}

function difference(one, other) {
  const lines = [];
  for (const kind of ['passed', 'failed']) {
    lines.push(...one[kind].filter((name) => !other[kind].includes(name)).map((name) => `${name} has not ${kind}`));
    lines.push(...other[kind].filter((name) => !one[kind].includes(name)).map((name) => `${name} has ${kind}`));
  }
  return lines.join(', ');
}

function say(line) {
  process.stdout.write(`${line}\n`);
}
