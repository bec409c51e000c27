// A client on the TypeScript SDK 2.x, in the era that it is told: `legacy` or `auto`; see play.mjs.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { SAMPLE, play, told } from './play.mjs';

const client = new Client(
  { name: 'interop', version: '1.0.0' },
  { capabilities: { sampling: {} }, versionNegotiation: { mode: told.era } },
);
client.setRequestHandler('sampling/createMessage', () => SAMPLE);

// Every list is asked for anew: a cached one says nothing about the server.
const fresh = { cacheMode: 'refresh' };
const requests = {
  ping: () => client.ping(),
  'tools/list': (params) => client.listTools(params, fresh),
  'tools/call': (params, onprogress) => client.callTool(params, { onprogress }),
  'resources/list': (params) => client.listResources(params, fresh),
  'resources/templates/list': (params) => client.listResourceTemplates(params, fresh),
  'resources/read': (params) => client.readResource(params, fresh),
  'resources/subscribe': (params) => client.subscribeResource(params),
  'resources/unsubscribe': (params) => client.unsubscribeResource(params),
  'subscriptions/listen': async ({ notifications }) => (await client.listen(notifications)).honoredFilter,
  'prompts/list': (params) => client.listPrompts(params, fresh),
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
      protocol: client.getNegotiatedProtocolVersion(),
      server: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions(),
    };
  },
  ask: (method, params, onprogress) => requests[method](params, onprogress),
  close: () => client.close(),
});
