// A server as they are found in the wild: it ignores the end of its stdin, and has a child in a session of its own. It ends on SIGTERM, the child does
// not. What it holds in memory is a count. Its directory (the first argument) gets a file named after its pid.

import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

// A time limit, in case it is never ended.
const AT_MOST_S = '300';

const [directory] = process.argv.slice(2);
let count = 0;

spawn('sleep', [AT_MOST_S], { detached: true, stdio: 'ignore' }).unref();
writeFileSync(join(directory, `${process.pid}`), '');
setTimeout(() => process.exit(), Number(AT_MOST_S) * 1000);
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined || method === undefined) return;
  const answer = METHODS[method];
  const said = answer === undefined ? { error: { code: -32601, message: 'method not found' } } : { result: answer(params) };
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...said })}\n`);
});

const METHODS = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'clingy', version: '1.0.0' } }),
  ping: () => ({}),
  'tools/list': () => ({ tools: [{ name: 'tally', description: 'counts its calls', annotations: { readOnlyHint: true }, inputSchema: { type: 'object', properties: {} } }] }),
  'tools/call': () => ({ content: [{ type: 'text', text: `tally ${(count += 1)}` }] }),
};
