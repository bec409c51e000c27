// A client on the TypeScript SDK 1.x; see play.mjs.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { SAMPLE, play, told } from './play.mjs';

const client = new Client({ name: 'interop', version: '1.0.0' }, { capabilities: { sampling: {} } });
client.setRequestHandler(CreateMessageRequestSchema, () => SAMPLE);

const requests = {
  ping: () => client.ping(),
  'tools/list': (params) => client.listTools(params),
  'tools/call': (params, onprogress) => client.callTool(params, undefined, { onprogress }),
  'resources/list': (params) => client.listResources(params),
  'resources/templates/list': (params) => client.listResourceTemplates(params),
  'resources/read': (params) => client.readResource(params),
  'resources/subscribe': (params) => client.subscribeResource(params),
  'resources/unsubscribe': (params) => client.unsubscribeResource(params),
  'prompts/list': (params) => client.listPrompts(params),
  'prompts/get': (params) => client.getPrompt(params),
  'completion/complete': (params) => client.complete(params),
  'logging/setLevel': ({ level }) => client.setLoggingLevel(level),
};

await play({
  connect: async () => {
    const { command, args, env, url } = told;
    const stdio = () => new StdioClientTransport({ command, args, env: { ...process.env, ...env } });
    await client.connect(url === undefined ? stdio() : new StreamableHTTPClientTransport(new URL(url)));
    return {
      server: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions(),
    };
  },
  ask: (method, params, onprogress) => requests[method](params, onprogress),
  close: () => client.close(),
});
