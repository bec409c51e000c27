// A server that takes its time: it reads nothing before the file that its first argument names is there.

import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';

const LOOK_EVERY_MS = 20;
// Not for ever, should the file never come.
const AT_MOST_MS = 300_000;

const [gate] = process.argv.slice(2);

setTimeout(() => process.exit(), AT_MOST_MS).unref();
while (!existsSync(gate)) await new Promise((next) => setTimeout(next, LOOK_EVERY_MS));
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined || method === undefined) return;
  const answer = METHODS[method];
  const said = answer === undefined ? { error: { code: -32601, message: 'method not found' } } : { result: answer(params) };
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...said })}\n`);
});

const METHODS = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'gated', version: '1.0.0' } }),
  ping: () => ({}),
  'tools/list': () => ({ tools: [{ name: 'greet', description: 'greets', annotations: { readOnlyHint: true }, inputSchema: { type: 'object', properties: {} } }] }),
  'tools/call': () => ({ content: [{ type: 'text', text: 'good morning' }] }),
};
