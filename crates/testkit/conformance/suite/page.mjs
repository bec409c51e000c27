// docs/conformance.md: what was played, as tables. Written by `--bless`, else compared.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PAGE } from './install.mjs';
import { VERSIONS } from './requirements.mjs';
import { passes } from './results.mjs';
import { TO_CLIENT, TO_SERVER } from './ways.mjs';

const TITLES = {
  server: { direct: 'direct', serve: '`serve -- …`', killed: 'server killed', upstream: '`serve --upstream`' },
  client: { direct: 'direct', url: '`run --url`', killed: 'bridge killed' },
};

/** Writes the page. */
export function write(...seen) {
  writeFileSync(PAGE, page(...seen));
  process.stdout.write('docs/conformance.md is written\n');
}

/** Why the page is not right any more. */
export function faults(...seen) {
  return readFileSync(PAGE, 'utf8') === page(...seen) ? [] : ['docs/conformance.md does not say what was played: run again with --bless, and read the diff'];
}

function page(at, sets, played, found) {
  return `<!-- Generated: \`node crates/testkit/conformance/run.mjs --bless\`. -->

# The public conformance suite

\`@modelcontextprotocol/conformance\` ${version(at, 'conformance')}, the protocol's own suite, plays both roles against mainstay on every run of CI, in both eras. Each number is
*scenarios passed / scenarios required* by that revision, then the checks in all scenarios that were played: passed, of those with a verdict.

## As a server

The server is a fixture of ours with everything that the suite asks for: over stdio by hand, over HTTP by the transports of the TypeScript SDK ${version(at, 'server')}.

${table('server', TO_SERVER, sets, played, found)}

- **direct**: the suite and the HTTP fixture, without mainstay. Everything else is compared with it, check by check.
- **\`serve -- …\`**: \`mainstay serve\` in front of the stdio fixture.
- **server killed**: the same, and every server process gets SIGKILL between two scenarios, in the legacy era also when its session has just been opened. Not one
  check may differ from the calm run.
- **\`serve --upstream\`**: \`mainstay serve\` in front of the HTTP fixture. At the end the fixture has no open session.

## As a client

The client is a program of ours on the TypeScript SDK ${version(at, 'client')}; the suite is its server and judges what arrives there.

${table('client', TO_CLIENT, sets, played, found)}

- **direct**: by the SDK's own HTTP transport.
- **\`run --url\`**: over stdio, with \`mainstay run --url\` as its server. At the end no session is open, and no process is left.
- **bridge killed**: the same, and the process of mainstay that speaks HTTP gets SIGKILL when the client has opened its session and when it has the tool list, in the
  modern era when it has the tool list and the first answer to a call. Not one check may differ from the calm run.

Not played, for they are not ours to do:

${notApplicable(found.notApplicable)}

## What fails

${failed(found)}

## Where a way differs from the direct one

${different(found)}

## Run it

\`\`\`sh
node crates/testkit/conformance/run.mjs
\`\`\`

It needs Rust, Node 20 and the npm registry. The suite is installed under \`target/conformance\`, and again only when its lock file has changed.
\`MAINSTAY_UNDER_TEST=/path/to/mainstay\` takes an installed binary. All that is above is in \`baseline.json\`, and strict: the run breaks if something fails or
differs that is not there, if something there no longer fails or differs, if an entry has no reason, and if this page says anything else.

| what | where, in \`crates/testkit/conformance\` |
|---|---|
| versions | \`package.json\`, \`package-lock.json\` |
| the ways, and what must be left after each | \`suite/ways.mjs\` |
| the server | \`fixture/\` (\`stdio.mjs\`, \`http.mjs\`) |
| the client | \`client/client.mjs\` |
| what is expected, with reasons | \`baseline.json\` |
`;
}

function table(leg, ways, sets, played, found) {
  const row = (revision) => {
    const ours = sets[revision][leg].required.filter((name) => found.notApplicable[revision][name] === undefined);
    return `| ${[revision, ...ways.map((way) => cell(ours, played[leg][revision][way]))].join(' | ')} |`;
  };
  return [`| revision | ${ways.map((way) => TITLES[leg][way]).join(' | ')} |`, `|---|${ways.map(() => '---|').join('')}`, ...VERSIONS.map(row)].join('\n');
}

function cell(required, results) {
  const verdicts = Object.values(results).flatMap((scenario) => Object.values(scenario)).filter((status) => status !== 'SKIPPED');
  const good = verdicts.filter((status) => status === 'SUCCESS');
  const passed = required.filter((name) => results[name] !== undefined && passes(results[name]));
  return `**${passed.length}/${required.length}** · ${good.length} of ${verdicts.length} checks`;
}

function notApplicable(lists) {
  const reasons = new Map();
  for (const [revision, list] of Object.entries(lists)) {
    for (const [name, why] of Object.entries(list)) {
      const names = reasons.get(why) ?? reasons.set(why, new Map()).get(why);
      names.set(name, [...(names.get(name) ?? []), revision]);
    }
  }
  const scenario = ([name, revisions]) => `\`${name}\`${revisions.length === VERSIONS.length ? '' : ` (${revisions})`}`;
  return [...reasons].map(([why, names]) => `- ${why}: ${[...names].map(scenario).join(', ')}.`).join('\n');
}

function failed(found) {
  const lines = grouped(entries(found, 'failed'), ({ leg, revision, ways, why }) => [leg, revision, ways, why]).map((group) => {
    const [{ leg, revision, ways, why }] = group;
    const where = ways.length === Object.keys(TITLES[leg]).length ? 'every' : ways.map((way) => TITLES[leg][way]).join(', ');
    return `| ${revision} | ${group.map(({ scenario }) => `\`${scenario}\``).join(', ')} | ${where} | ${why} |`;
  });
  return rows(['revision', 'scenarios', 'way', 'why'], lines);
}

function different(found) {
  const same = ({ leg, revision, way, scenario, direct, through, why }) => [leg, revision, way, scenario, direct, through, why];
  const lines = grouped(entries(found, 'different'), same).map((group) => {
    const [{ leg, revision, way, scenario, direct, through, why }] = group;
    return `| ${revision} | ${TITLES[leg][way]} | \`${scenario}\`: ${group.map(({ check }) => check.split(' ')[1]).join(', ')} | ${direct} → ${through} | ${why} |`;
  });
  return rows(['revision', 'way', 'checks', 'direct → there', 'why'], lines);
}

function grouped(list, key) {
  const groups = new Map();
  for (const one of list) groups.set(`${key(one)}`, [...(groups.get(`${key(one)}`) ?? []), one]);
  return [...groups.values()];
}

const entries = (found, kind) =>
  Object.keys(TITLES).flatMap((leg) => VERSIONS.flatMap((revision) => found[leg][revision][kind].map((entry) => ({ leg, revision, ...entry }))));

function rows(titles, lines) {
  return lines.length === 0 ? 'Nothing.' : [`| ${titles.join(' | ')} |`, `|${titles.map(() => '---|').join('')}`, ...lines].join('\n');
}

function version(at, name) {
  return JSON.parse(readFileSync(join(at.room, `node_modules/@modelcontextprotocol/${name}/package.json`), 'utf8')).version;
}
