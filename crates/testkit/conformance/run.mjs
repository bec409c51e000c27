// The public conformance suite of MCP, both eras: its server scenarios directly, through `mainstay serve` (calm, and with the server killed between scenarios)
// and through `serve --upstream`; its client scenarios directly and through `mainstay run --url` (calm, and with the bridge killed). What passes, what does not and where a way differs must be
// exactly what baseline.json says, and docs/conformance.md must say it, too. `--bless` writes both.

import * as baseline from './suite/baseline.mjs';
import { install } from './suite/install.mjs';
import * as page from './suite/page.mjs';
import { VERSIONS, requirements } from './suite/requirements.mjs';
import { differences } from './suite/results.mjs';
import { TO_CLIENT, TO_SERVER, toClient, toServer } from './suite/ways.mjs';

// Plays that go on at the same time, each for itself.
const AT_ONCE = 4;
// It measures how exactly a client waits, so nothing else may go on.
const ALONE = ['sse-retry'];

// What a play with kills must not differ from.
const CALM = { server: 'serve', client: 'url' };

const bless = process.argv.includes('--bless');
say('installing');
const at = await install();
const wanted = baseline.load();
const sets = Object.fromEntries(VERSIONS.map((version) => [version, requirements(at, version)]));
const played = { server: blank(TO_SERVER), client: blank(TO_CLIENT) };
const faults = [];
let bridges = 0;

const clients = VERSIONS.flatMap((version) => scenarios(version).flatMap((scenario) => TO_CLIENT.map((way) => ({ version, scenario, way }))));
for (const one of clients.filter(({ scenario }) => ALONE.includes(scenario))) await client(one);
await together(clients.filter(({ scenario }) => !ALONE.includes(scenario)), client);
for (const version of VERSIONS) for (const way of TO_CLIENT) say(`  client scenarios, ${version}, ${way}: ${Object.keys(played.client[version][way]).length} played`);
say(`  ${bridges} bridges killed`);
if (bridges === 0) faults.push('client: no bridge was killed');
// The long ones first.
await together([...TO_SERVER].sort((way) => (way === 'killed' ? -1 : 0)).flatMap((way) => VERSIONS.map((version) => ({ version, way }))), server);
for (const [leg, calm] of Object.entries(CALM)) {
  for (const version of VERSIONS) {
    const ways = played[leg][version];
    for (const { scenario, check, direct, through } of differences(ways[calm], ways.killed)) {
      faults.push(`${leg}, ${version}: ${scenario}, ${check}: ${direct} by ${calm}, and ${through} with kills`);
    }
  }
}

const found = baseline.seen(played, wanted);
if (bless) baseline.write(found);
faults.push(...baseline.faults(bless ? found : wanted, found));
if (bless) page.write(at, sets, played, found);
else if (faults.length === 0) faults.push(...page.faults(at, sets, played, found));
for (const fault of faults) say(`BROKEN  ${fault}`);
process.exitCode = faults.length === 0 ? 0 : 1;

async function server({ version, way }) {
  const { results, note, seconds, faults: own } = await toServer(at, version, way);
  played.server[version][way] = results;
  for (const fault of own) faults.push(`server, ${version}, ${way}: ${fault}`);
  const names = Object.keys(results);
  if (names.length === 0) faults.push(`server, ${version}, ${way}: no result at all`);
  say(`  server scenarios, ${version}, ${way}: ${names.length} played${note === undefined ? '' : `, ${note}`} (${seconds.toFixed(1)} s)`);
}

async function client({ version, scenario, way }) {
  const { results, killed, faults: own } = await toClient(at, version, way, scenario);
  bridges += killed;
  Object.assign(played.client[version][way], results);
  for (const fault of own) faults.push(`client, ${version}, ${way}, ${scenario}: ${fault}`);
}

// The client scenarios of a revision but for those that are not for us. A name there that the suite does not know is a fault.
function scenarios(version) {
  const { required, along } = sets[version].client;
  const all = [...required, ...along];
  const without = Object.keys(wanted.notApplicable[version]);
  faults.push(...without.filter((name) => !all.includes(name)).map((name) => `client, ${version}: baseline.json has ${name}, and the suite has not`));
  return all.filter((name) => !without.includes(name));
}

async function together(list, play) {
  const rest = [...list];
  const worker = async () => {
    for (let one = rest.shift(); one !== undefined; one = rest.shift()) await play(one);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

function blank(ways) {
  return Object.fromEntries(VERSIONS.map((version) => [version, Object.fromEntries(ways.map((way) => [way, {}]))]));
}

function say(line) {
  process.stdout.write(`${line}\n`);
}
