// A client that does what the suite's client scenarios ask for, on the TypeScript SDK. By the SDK's own HTTP transport, or over stdio with `mainstay run --url`
// as its server (MAINSTAY_BETWEEN names the program), whose bridge it may have to kill (MAINSTAY_KILL_COUNT names the file for the score). The suite gives the
// URL as last word and the rest by variables.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { bridges, kill } from '../suite/processes.mjs';

const { MCP_CONFORMANCE_SCENARIO: scenario, MCP_CONFORMANCE_PROTOCOL_VERSION: version, MCP_CONFORMANCE_CONTEXT: context = '{}' } = process.env;
const { MAINSTAY_BETWEEN: between, MAINSTAY_NAME_BETWEEN: name, MAINSTAY_KILL_COUNT: count } = process.env;
const MODERN = ['2026-07-28'];
const url = process.argv.at(-1);

const plays = {
  initialize: { play: (client) => client.listTools() },
  tools_call: {
    play: async (client) => {
      await client.listTools();
      await client.callTool({ name: 'add_numbers', arguments: { a: 5, b: 3 } });
    },
  },
  'elicitation-sep1034-client-defaults': {
    capabilities: { elicitation: { form: { applyDefaults: true } } },
    answers: { 'elicitation/create': () => ({ action: 'accept', content: {} }) },
    play: async (client) => {
      const { tools } = await client.listTools();
      for (const { name } of tools) await client.callTool({ name, arguments: {} });
    },
  },
  'sse-retry': {
    play: async (client) => {
      const { tools } = await client.listTools();
      for (const { name } of tools) await client.callTool({ name, arguments: {} });
    },
  },
  'request-metadata': { capabilities: { roots: { listChanged: true }, sampling: {}, elicitation: {} }, play: (client) => client.listTools() },
  'http-standard-headers': {
    play: async (client) => {
      for (const { name } of (await client.listTools()).tools) await client.callTool({ name, arguments: {} });
      for (const { uri } of (await client.listResources()).resources) await client.readResource({ uri });
      for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name, arguments: {} });
    },
  },
  'http-custom-headers': {
    play: async (client) => {
      await client.listTools();
      for (const call of JSON.parse(context).toolCalls) await client.callTool(call);
    },
  },
  'http-invalid-tool-headers': {
    play: async (client) => {
      for (const { name } of (await client.listTools()).tools) await client.callTool({ name, arguments: { region: 'us-west1' } });
    },
  },
  'sep-2322-client-request-state': {
    capabilities: { elicitation: {} },
    answers: { 'elicitation/create': () => ({ action: 'accept', content: { confirmed: true } }) },
    play: async (client) => {
      for (const name of ['test_mrtr_echo_state', 'test_mrtr_no_state', 'test_mrtr_unrelated']) await client.callTool({ name, arguments: {} });
      // The SDK refuses an answer without `resultType`; the scenario wants no more than that nothing is sent again.
      await client.callTool({ name: 'test_mrtr_no_result_type', arguments: {} }).catch(() => undefined);
    },
  },
  'json-schema-ref-no-deref': { play: (client) => client.listTools() },
  'json-schema-2020-12-preservation': {
    play: async (client) => {
      const { tools } = await client.listTools();
      const { inputSchema: schema } = tools.find(({ name }) => name === 'json_schema_2020_12_tool');
      await client.callTool({ name: 'json_schema_echo', arguments: { schema } });
    },
  },
};

const { capabilities = {}, answers = {}, play } = plays[scenario];
const client = new Client(
  { name: 'mainstay-conformance-client', version: '1.0.0' },
  { capabilities, versionNegotiation: { mode: MODERN.includes(version) ? 'auto' : 'legacy' } },
);
for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(method, answer);
const through = () => new StdioClientTransport({ command: between, args: ['run', '--name', name, '--url', url], env: process.env });
await client.connect(between === undefined ? new StreamableHTTPClientTransport(new URL(url)) : through());
if (count !== undefined) {
  const modern = MODERN.includes(version);
  // Whatever the bridge has learnt by now is gone with it. In the modern era to connect asks nothing of it, so there is nothing to be lost yet.
  if (!modern) kill(bridges(url), count);
  for (const ask of modern ? ['listTools', 'callTool'] : ['listTools']) killedOnceAfter(ask, modern);
}
await play(client);
await client.close();

// Kills the bridge when this has been answered for the first time.
function killedOnceAfter(ask, modern) {
  const asked = client[ask].bind(client);
  client[ask] = async (...words) => {
    const told = await asked(...words);
    client[ask] = asked;
    // The SDK sends nothing to a server without tools, so the next bridge may not have answered yet. A bridge that is killed while it opens a session leaves
    // a session that cannot be closed. The modern era has neither sessions nor pings.
    if (!modern) await client.ping().catch(() => undefined);
    kill(bridges(url), count);
    return told;
  };
}
