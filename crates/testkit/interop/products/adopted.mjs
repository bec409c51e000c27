// `mainstay adopt` in the config of a real client: the client connects through mainstay, and `mainstay release` gives the old bytes back.

import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { hooked } from './hooked.mjs';
import { Model } from './model.mjs';
import { Stage } from './stage.mjs';

const ENDED_WITHIN_MS = 90_000;
const GONE_WITHIN_MS = 15_000;
const PROMPT = 'count twice, please';
const NAMES = ['clingy', 'everything'];
const SCRIPT = [
  { tool: 'echo', input: { message: 'still there?' } },
  { tool: 'tally', input: {} },
];

/** What did not hold. */
export async function adopted(at, product) {
  const hook = product.hooks ? await hooked(at, product) : [];
  return [...(await wholeSession(at, product)), ...(await firstSession(at, product)), ...hook].map((fault) => `adopt: ${fault}`);
}

async function wholeSession(at, product) {
  const faults = [];
  const model = await new Model(SCRIPT).start();
  const stage = new Stage(at, product, model.url, (home) => {
    const pids = join(home, 'pids');
    mkdirSync(pids);
    return [
      { name: 'everything', command: 'node', args: [at.everything, 'stdio'] },
      { name: 'clingy', command: 'node', args: [at.clingy, pids] },
    ];
  });
  try {
    await stage.prepare();
    const names = Object.keys(product.configure([], ''));
    const bytes = () => names.map((name) => readFileSync(join(stage.home, name), 'utf8'));
    const before = bytes();

    const plan = JSON.parse(await stage.mainstay('adopt', '--yes', '--json'));
    const wrapped = plan.files.flatMap(({ servers }) => servers.filter(({ action }) => action === 'wrap').map(({ name }) => name));
    if (wrapped.sort().join() !== NAMES.join()) faults.push(`adopted: ${JSON.stringify(plan.files, null, 1)}`);
    if (plan.program !== join(stage.home, '.local/bin/mainstay')) faults.push(`the program is ${plan.program}`);
    await stage.mainstay('release', '--all', '--yes');
    if (bytes().join('\0') !== before.join('\0')) faults.push(`released: ${bytes().join('\n')}`);

    await stage.mainstay('adopt', '--yes', '--json');
    const learned = JSON.parse(await stage.mainstay('learn', '--json'));
    if (learned.length !== NAMES.length || learned.some(({ ok, tools }) => !ok || !(tools > 0))) faults.push(`learned: ${JSON.stringify(learned)}`);
    if (product.inspects !== undefined) faults.push(...inspected(at, stage, join(stage.home, product.inspects)));
    const seen = new Set((await events(stage)).map(({ id }) => id));

    const { code, said } = await run(stage, product);
    const results = JSON.stringify(model.results);
    if (code !== 0 || !results.includes('Echo: still there?') || !results.includes('tally 1')) faults.push(`session: exit code ${code}, ${results}\n${said}`);
    const left = await stage.left(GONE_WITHIN_MS);
    if (left.length > 0) faults.push(`left: ${left.map(({ pid, command }) => `${pid} ${command}`).join('\n')}`);
    const through = (await events(stage)).filter(({ id, event }) => event === 'start' && !seen.has(id)).map(({ server }) => server);
    if ([...new Set(through)].sort().join() !== NAMES.join()) faults.push(`through mainstay went ${through}`);

    // The client may have written the file anew meanwhile; then the servers have their old values.
    const rewritten = bytes();
    await stage.mainstay('release', '--all', '--yes');
    const after = bytes();
    for (const [place, name] of names.entries()) {
      const same = after[place] === before[place] || same_servers(before[place], after[place]);
      if (!same) faults.push(`${name} after the session:\n${after[place]}\nbefore release:\n${rewritten[place]}`);
    }
  } finally {
    faults.push(...model.errors.map((error) => error.stack));
    await stage.clear();
    model.stop();
  }
  return faults;
}

// After `mainstay learn`, the first session has the tools of a server that is not up before the model asks for one of them.
async function firstSession(at, product) {
  const faults = [];
  let gate;
  const open = () => writeFileSync(gate, '');
  const model = await new Model([{ tool: 'greet', input: {}, before: open }]).start();
  const stage = new Stage(at, product, model.url, (home) => {
    gate = join(home, 'gate');
    return [{ name: 'gated', command: 'node', args: [at.gated, gate] }];
  });
  try {
    await stage.prepare();
    await stage.mainstay('adopt', '--yes', '--json');
    open();
    await stage.mainstay('learn', '--json');
    rmSync(gate);
    const { code, said } = await run(stage, product);
    const { first, results } = model;
    if (code !== 0 || !first?.known || !JSON.stringify(results).includes('good morning')) faults.push(`first session after learn: exit code ${code}, ${JSON.stringify({ first, results })}\n${said}`);
    const left = await stage.left(GONE_WITHIN_MS);
    if (left.length > 0) faults.push(`left: ${left.map(({ pid, command }) => `${pid} ${command}`).join('\n')}`);
  } finally {
    faults.push(...model.errors.map((error) => error.stack));
    await stage.clear();
    model.stop();
  }
  return faults;
}

async function run(stage, product) {
  const { child, ended } = stage.start(product.session(PROMPT, stage.home));
  const late = setTimeout(() => child.kill('SIGKILL'), ENDED_WITHIN_MS);
  try {
    return await ended;
  } finally {
    clearTimeout(late);
  }
}

// The Inspector has no config of its own; it reads one that it is given.
function inspected(at, stage, config) {
  const args = ['--cli', '--config', config, '--server', 'everything', '--method', 'tools/list'];
  const { status, stdout, stderr } = spawnSync(at.node, [at.inspector, ...args], { env: stage.env, cwd: stage.work, encoding: 'utf8', timeout: ENDED_WITHIN_MS });
  return status === 0 && stdout.includes('"echo"') ? [] : [`inspector: exit code ${status}\n${stdout}\n${stderr}`];
}

async function events(stage) {
  const said = await stage.mainstay('events', '--json');
  return said.trim().split('\n').filter((line) => line !== '').map((line) => JSON.parse(line));
}

function same_servers(one, other) {
  try {
    const servers = (text) => JSON.stringify(sorted(JSON.parse(text).mcpServers));
    return servers(one) === servers(other);
  } catch {
    return false;
  }
}

function sorted(value) {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}
