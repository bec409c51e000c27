// docs/interop.md: what was tried, as a table. Written by `--bless`, else compared.

import { readFileSync, writeFileSync } from 'node:fs';
import { WEB, clients, servers } from './cast.mjs';
import { FORGOTTEN, TTL } from './forgotten.mjs';
import { PAGE, versions } from './install.mjs';

const version = versions();
const { sessions } = FORGOTTEN[0];

/** Writes the page. */
export function write(at, results) {
  writeFileSync(PAGE, page(at, results));
  process.stdout.write('docs/interop.md is written\n');
}

/** Fails the run if the page says something else than what was tried. */
export function check(at, results) {
  if (readFileSync(PAGE, 'utf8') === page(at, results)) return;
  process.stdout.write('docs/interop.md does not say what was tried: run again with --bless, and read the diff\n');
  process.exitCode = 1;
}

function page(at, results) {
  const [rows, columns] = [clients(at), servers(at)];
  const row = (client) => `| ${[client.title, ...columns.map((server) => cell(results, client, server))].join(' | ')} |`;
  return `<!-- Generated: \`node crates/testkit/interop/run.mjs --bless\`. -->

# Real clients, real servers

Clients (rows) and servers (columns) as they are published, at the versions that the lock files name, each pair bare and through \`mainstay run\`, on
every run of CI.

- **=**: the same transcript both times: connecting, lists, calls with results, errors, progress and a megabyte-sized answer, resources, prompts,
  completion, log level, subscriptions, sampling asked for by the server, whatever the two have in common. No process is left after \`close()\`.
- **http**: the same transcript again over HTTP, through \`mainstay serve\` in front of the same server. No process is left when it has stopped.
- **N×**: in one session the server got SIGKILL N times, half of them between two calls and half in the middle of one. Every request was answered: the
  call in the middle of which it happened with its result or with what happened, the next one with its result. The tools at the end were
  those at the beginning, and no process was left. **(N× keeper)**: the same with mainstay's own keeper.

| client | ${columns.map((server) => server.title).join(' | ')} |
|---|${columns.map(() => '---|').join('')}
${rows.map(row).join('\n')}

\`auto\`: the client looks for the modern era first (2026-07-28) and speaks it with FastMCP and rmcp. Each client but Inspector was also killed (SIGKILL)
in the middle of a session with server-everything: no process was left.

## Servers that speak HTTP

Through \`mainstay run --url\` these clients see of the server's HTTP form what they see of its bare stdio form, and every session that was opened is
closed: the servers themselves say so.

| server | clients |
|---|---|
${over(rows, columns)}

## Sessions that no client ends

Clients on TypeScript SDK ${version.typescript1} opened ${sessions} sessions at a time, made a call in each, and got SIGKILL: no DELETE came from any of them. \`--session-ttl\`
was ${TTL}.

| between client and server | server | sessions opened | open at the end | processes left |
|---|---|---|---|---|
${lost(results)}

## Run it

\`\`\`sh
node crates/testkit/interop/run.mjs
\`\`\`

It needs Rust, Node 20, Python 3.11 and the package registries of the three. Everything is installed under \`target/interop\`, and again only when a
lock file has changed. Words choose: \`run.mjs ts1\` plays what has \`ts1\` in its name, \`run.mjs equal fastmcp\` what has both.
\`MAINSTAY_UNDER_TEST=/path/to/mainstay\` takes an installed binary.

| what | where, in \`crates/testkit/interop\` |
|---|---|
| versions | \`package.json\` and \`package-lock.json\`, \`python1.txt\`, \`python2.txt\` (with hashes), \`rmcp/Cargo.lock\` |
| which client plays with which server, and what is asked | \`suite/cast.mjs\` |
| a client | \`clients/\`, \`rmcp/src/bin/client.rs\`; what goes in and out: \`clients/play.mjs\` |
| a server of our own on an SDK | \`servers/\`, \`rmcp/src/bin/server.rs\` |
`;
}

function over(rows, columns) {
  const named = (list, id) => list.find((one) => one.id === id).title;
  return Object.entries(WEB)
    .map(([server, ids]) => `| ${named(columns, server)} | ${ids.map((id) => named(rows, id)).join('; ')} |`)
    .join('\n');
}

// In the order of `FORGOTTEN`; what was tried held, or there is no page.
function lost(results) {
  return FORGOTTEN.map((tried) => {
    const { server, often } = results.find((result) => result.kind === 'forgotten' && result.often.way === tried.way);
    const opened = often.clients * often.sessions;
    const [between, open] = often.way === 'nothing' ? ['nothing', opened] : [`\`mainstay ${often.way}\``, 0];
    const form = often.way === 'serve' ? 'stdio, a process for each session' : 'HTTP';
    return `| ${between} | ${server.title}, ${form} | ${opened} | ${open} | 0 |`;
  }).join('\n');
}

function cell(results, client, server) {
  const here = results.filter((result) => result.client.id === client.id && result.server.id === server.id);
  const kills = (victim) => here.find((result) => result.kind === 'kills' && result.often.victim === victim)?.often;
  const times = ({ between, during }) => `${between + during}×`;
  const said = [];
  if (here.some((result) => result.kind === 'equal')) said.push('=');
  if (here.some((result) => result.kind === 'served')) said.push('http');
  if (kills('server')) said.push(times(kills('server')));
  if (kills('keeper')) said.push(`(${times(kills('keeper'))} keeper)`);
  return said.join(' ');
}
