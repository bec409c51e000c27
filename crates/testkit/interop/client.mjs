// One session of the TypeScript SDK 1.x client; see session() in run.mjs for what goes in and out.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const { command, args, env, tool, input, stay } = JSON.parse(process.argv[2]);
const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);

const client = new Client({ name: 'interop', version: '1.0.0' });
await client.connect(
  new StdioClientTransport({ command, args, env: { ...process.env, ...env }, stderr: 'ignore' }),
);
const server = [client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()];
const { tools } = await client.listTools();
const result = await client.callTool({ name: tool, arguments: input });
const answers = { server, tools, result };
if (stay) {
  say(answers);
  await new Promise(() => setInterval(() => {}, 1 << 30));
}
const before = performance.now();
await client.close();
say({ ...answers, closeMs: performance.now() - before });
