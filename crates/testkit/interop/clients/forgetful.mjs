// A client on the TypeScript SDK 1.x that opens many sessions, makes a call in each, says how many answered, and ends none of them: it waits
// to be killed. The only argument is JSON: `sessions`, the `call` to make, and the `url` of the server or its `command`.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const AT_ONCE = 10;
const { sessions, call, url, command } = JSON.parse(process.argv[2]);
const transport = () =>
  url === undefined
    ? new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env })
    : new StreamableHTTPClientTransport(new URL(url));

const open = async () => {
  const client = new Client({ name: 'forgetful', version: '1.0.0' });
  await client.connect(transport());
  return client.callTool(call.params);
};
// A few at a time: between the first answer in a session and the next request, the session is idle.
let started = 0;
let answered = 0;
const opener = async () => {
  while (started < sessions) {
    started += 1;
    const { content } = await open();
    if (content.length > 0) answered += 1;
  }
};
await Promise.all(Array.from({ length: AT_ONCE }, opener));
process.stdout.write(`${answered}\n`);
process.stdin.resume();
