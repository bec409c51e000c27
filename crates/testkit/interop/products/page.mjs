// docs/clients.md: what was seen of each client. Written by `--bless`; else it must name the versions that were played.

import { readFileSync, writeFileSync } from 'node:fs';
import { PAGE_OF_CLIENTS, versionOf, versions } from '../suite/install.mjs';
import { GONE_WITHIN_MS, SLOW_MS } from './acts.mjs';
import { NOTES } from './notes.mjs';

/** Writes the page. */
export function write(results) {
  writeFileSync(PAGE_OF_CLIENTS, page(results));
  process.stdout.write('docs/clients.md is written\n');
}

/** What bare clients do is theirs and changes; which clients were played, and the notes, must be as the page has them. */
export function check(results) {
  const text = readFileSync(PAGE_OF_CLIENTS, 'utf8');
  const missing = results.map(({ product }) => named(product)).filter((client) => !text.includes(`| ${client} |`));
  if (!text.endsWith(NOTES)) missing.push('the notes of products/notes.mjs');
  if (missing.length === 0) return;
  process.stdout.write(`docs/clients.md does not have ${missing.join(', ')}; write it with: node crates/testkit/interop/clients.mjs --bless\n`);
  process.exitCode = 1;
}

const named = (product) => `${product.title} ${versionOf(product)}`;

function page(results) {
  const played = new Date().toISOString().slice(0, 10);
  return `<!-- Generated: \`node crates/testkit/interop/clients.mjs --bless\`. -->

# The clients that people use

${results.length} clients as npm and PyPI have them, played on ${played} on Linux, x86-64: complete sessions, with no account and no network. The model is a stand-in on
loopback that asks for tool calls. Each client has two servers in its own config file, written as the [guide](guides/clients.md) says:
server-everything ${versions().everything}, and \`clingy\`, which does what many do: it ignores the end of its stdin, and has a child in a session of its own.
Beside that, configs have what makes a client work offline; Codex has \`required = true\`, because its first turn waits for no other server.

Each play was made bare and with \`mainstay run --\` before the command. **With it, of every client in the table:**

- its own command for servers, where it has one that connects, says of both what it says when they are bare;
- a session is the same: what the tools answer, and the exit code;
- **0 processes are left** after that command, after its exit, and after SIGKILL of the client in the middle of a session;
- a server that gets SIGKILL between two calls is not missed: **the next call is answered**, by the next generation;
- after \`pkill -f\` with the server's name, which also hits what the client started, **the next call is answered**, in the same session;
- in its second session **the tools of a server that is not up yet are in its first request to the model**, and the call waits for the server;
- it accepts a config that \`mainstay adopt\` has changed and connects through mainstay, and \`mainstay release\` gives the old bytes back;
- after \`mainstay learn\`, its **first** session has the tools of a server that is not up yet;
- \`mainstay ps\` says which client it is, and \`mainstay events\` has each server's start and its teardown with 0 left.

**Without it**, this was seen. Left: processes of the two servers (three in all) that were still there ${GONE_WITHIN_MS.bare / 1000} s later. SIGKILL also hits the watchdog that Hermes starts.

| client | in \`mainstay ps\` | its command for servers | left after that | left after its exit | left after its SIGKILL | the call after a server's SIGKILL | tools of a server that takes ${SLOW_MS / 1000} s, in its first request |
|---|---|---|---|---|---|---|---|
${results.map(row).join('\n')}

${NOTES}`;
}

function row({ product, seen, called }) {
  const { list, session, death, kill, slow } = seen;
  const command = product.list === undefined ? 'none that connects' : `\`${product.program} ${product.list.join(' ')}\``;
  const cells = [named(product), `\`${called}\``, command, list?.bare.left.length ?? '', session.bare.left.length, kill.bare.left.length, after(death.bare), waited(slow.bare)];
  return `| ${cells.join(' | ')} |`;
}

// What the client made of it by itself.
function after({ results: [, second] }) {
  if (second === undefined) return 'was not made: its tools are gone';
  const whole = words(second).replace(/Wall time: [\d.]+ seconds|Output:/g, '').trim();
  // Hermes puts a warning around everything that a tool says.
  const text = whole.match(/^<untrusted_tool_result.*"error": "([^"]+)"/s)?.[1] ?? whole;
  return text.includes('tally 1') ? 'answered by a server that it starts itself' : `fails: ${text.length > 60 ? `${text.slice(0, 60)}…` : text}`.replaceAll('|', '\\|').replaceAll('\n', ' ');
}

// Whether the client's first turn waited for the server.
function waited({ first }) {
  if (first === undefined) return 'no request was made';
  return first.known ? `yes, after ${first.s} s` : 'no';
}

// All texts of a result, however it is wrapped.
function words(value) {
  if (typeof value !== 'object' || value === null) return String(value);
  return Object.entries(value).filter(([key]) => key !== 'type').map(([, one]) => words(one)).join(' ');
}
