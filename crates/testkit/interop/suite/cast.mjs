// Who plays: clients, servers, and what is asked of each server. A step is a request of MCP as `{method, params}`.

import { versions } from './install.mjs';

const version = versions();
const call = (name, input = {}) => ({ method: 'tools/call', params: { name, arguments: input } });
const MEBIBYTE = 1 << 20;

/**
 * Clients, in the order of the page. `lacks`: requests that it cannot make. `only`: it is started for each request, which takes a second, so it
 * makes one of each of these.
 */
export function clients(at) {
  const script = (name) => at.script(`clients/${name}`);
  const legacy = ['subscriptions/listen'];
  return [
    { id: 'ts1', title: `TypeScript SDK ${version.typescript1}`, command: [at.node, script('typescript1.mjs')], lacks: legacy },
    { id: 'ts2', title: `TypeScript SDK ${version.typescript2}`, command: [at.node, script('typescript2.mjs')], era: 'legacy', lacks: legacy },
    { id: 'ts2-auto', title: `TypeScript SDK ${version.typescript2}, auto`, command: [at.node, script('typescript2.mjs')], era: 'auto', lacks: [] },
    { id: 'py1', title: `Python SDK ${version.python1}`, command: [at.python1, script('python1.py')], lacks: legacy },
    { id: 'py2', title: `Python SDK ${version.python2}, auto`, command: [at.python2, script('python2.py')], era: 'auto', lacks: [] },
    { id: 'rmcp', title: `rmcp ${version.rmcp}`, command: [at.rmcpClient], era: 'legacy', lacks: ['ping', ...legacy] },
    { id: 'rmcp-auto', title: `rmcp ${version.rmcp}, auto`, command: [at.rmcpClient], era: 'auto', lacks: ['ping'] },
    {
      id: 'inspector',
      title: `Inspector ${version.inspector} CLI, auto`,
      command: [at.node, script('inspector.mjs')],
      era: 'auto',
      told: { node: at.nodeOfInspector, inspector: at.inspector },
      only: ['tools/list', 'tools/call', 'resources/read', 'prompts/get'],
    },
  ];
}

/** Servers, in the order of the page. `slow(seconds)` is a call that tells its progress soon and then takes that long. */
export function servers(at) {
  return [
    {
      id: 'everything',
      title: `server-everything ${version.everything}`,
      command: [at.node, at.everything, 'stdio'],
      steps: EVERYTHING,
      echo: call('echo', { message: 'still there?' }),
      slow: (seconds) => call('trigger-long-running-operation', { duration: seconds, steps: seconds * 20 }),
      remembered: [LEVEL, { method: 'resources/subscribe', params: { uri: DOCUMENT } }],
      web: {
        start: (port) => ({ command: [at.node, '--import', LOOPBACK, at.everything, 'streamableHttp'], env: { PORT: port } }),
        opened: 'Session initialized with ID',
        closed: 'Received session termination request',
      },
    },
    { id: 'time', title: `mcp-server-time ${version.time}`, command: [at.time, '--local-timezone', 'UTC'], steps: TIME },
    { id: 'python1', title: `FastMCP of Python SDK ${version.python1}`, command: [at.python1, at.script('servers/python.py')], ...OURS },
    { id: 'fastmcp', title: `FastMCP ${version.fastmcp} on Python SDK ${version.python2}`, command: [at.python2, at.script('servers/python.py')], ...OURS, web: python(at) },
    { id: 'rmcp', title: `rmcp ${version.rmcp}`, command: [at.rmcpServer], ...OURS, web: rust(at) },
  ];
}

// Opened and closed: the words of the SDK and of its web server.
function python(at) {
  return {
    start: (port) => ({ command: [at.python2, at.script('servers/python.py')], env: { INTEROP_PORT: port } }),
    opened: 'Created new transport with session ID',
    closed: '"DELETE /mcp HTTP/1.1" 200',
  };
}

// Opened and closed: what the SDK's own table of sessions gained and lost.
function rust(at) {
  return { start: (port) => ({ command: [at.rmcpServer], env: { INTEROP_PORT: port } }), opened: 'opened ', closed: 'closed ' };
}

// server-everything would listen on all interfaces.
const LOOPBACK = `data:text/javascript,${encodeURIComponent(
  `import net from 'node:net'; const { listen } = net.Server.prototype;
   net.Server.prototype.listen = function (port, ...rest) { return listen.call(this, { port: Number(port), host: '127.0.0.1' }, ...rest); };`,
)}`;

/** Which clients meet the HTTP form of which servers, through `run --url`. */
export const WEB = {
  everything: ['ts1', 'py1', 'rmcp'],
  fastmcp: ['ts2', 'ts2-auto', 'py1', 'py2', 'rmcp-auto'],
  rmcp: ['ts1', 'ts2-auto', 'py1', 'py2', 'rmcp', 'rmcp-auto'],
};

/**
 * Which clients meet which servers. Where only the language differs that a server is written in, not all of them do: a Python server takes a
 * second to start.
 */
export function meets(client, server) {
  return MEETINGS[server.id].includes(client.id);
}

/** Which clients meet which servers over HTTP, through `mainstay serve`. */
export function meetsServed(client, server) {
  return SERVED[server.id]?.includes(client.id) ?? false;
}

/** What this client is to ask this server. */
export function steps(client, server) {
  if (client.only !== undefined) return client.only.map((method) => server.steps.find((step) => step.method === method));
  return server.steps.filter((step) => !client.lacks.includes(step.method));
}

/** Which process is killed for which client, how often between two calls and during one. A server that takes long to start is killed less often. */
export const KILLS = [
  { victim: 'server', client: 'ts1', server: 'everything', between: 50, during: 50 },
  { victim: 'server', client: 'ts2', server: 'rmcp', between: 50, during: 50 },
  { victim: 'server', client: 'ts2-auto', server: 'rmcp', between: 50, during: 50 },
  { victim: 'server', client: 'py1', server: 'rmcp', between: 50, during: 50 },
  { victim: 'server', client: 'py2', server: 'rmcp', between: 50, during: 50 },
  { victim: 'server', client: 'rmcp', server: 'rmcp', between: 50, during: 50 },
  { victim: 'server', client: 'rmcp-auto', server: 'rmcp', between: 50, during: 50 },
  { victim: 'server', client: 'py1', server: 'python1', between: 5, during: 5 },
  { victim: 'server', client: 'py2', server: 'fastmcp', between: 5, during: 5 },
  { victim: 'keeper', client: 'ts1', server: 'everything', between: 2, during: 2 },
  { victim: 'keeper', client: 'ts2-auto', server: 'rmcp', between: 2, during: 2 },
  { victim: 'keeper', client: 'py2', server: 'rmcp', between: 2, during: 2 },
];

const MEETINGS = {
  everything: ['ts1', 'ts2', 'ts2-auto', 'py1', 'py2', 'rmcp', 'rmcp-auto', 'inspector'],
  time: ['ts1', 'py1'],
  python1: ['ts1', 'ts2-auto', 'py1', 'py2', 'rmcp'],
  fastmcp: ['ts2', 'ts2-auto', 'py1', 'py2', 'rmcp-auto', 'inspector'],
  rmcp: ['ts1', 'ts2', 'ts2-auto', 'py1', 'py2', 'rmcp', 'rmcp-auto'],
};

const SERVED = {
  everything: ['ts1', 'ts2', 'ts2-auto', 'py1', 'py2', 'rmcp', 'rmcp-auto', 'inspector'],
  fastmcp: ['ts2-auto', 'py2', 'rmcp-auto'],
  rmcp: ['ts2-auto', 'py2', 'rmcp', 'rmcp-auto'],
};

const LEVEL = { method: 'logging/setLevel', params: { level: 'warning' } };
const DOCUMENT = 'demo://resource/static/document/features.md';

const EVERYTHING = [
  { method: 'tools/list' },
  call('echo', { message: 'hello, wörld' }),
  call('get-sum', { a: 2, b: 3 }),
  call('get-structured-content', { location: 'Chicago' }),
  call('get-tiny-image'),
  call('get-annotated-message', { messageType: 'error', includeImage: true }),
  call('trigger-long-running-operation', { duration: 0.3, steps: 3 }),
  call('trigger-sampling-request', { prompt: 'hello', maxTokens: 10 }),
  call('get-sum', { a: 'two', b: 3 }),
  call('no-such-tool'),
  { method: 'resources/list' },
  { method: 'resources/templates/list' },
  { method: 'resources/read', params: { uri: DOCUMENT } },
  { method: 'resources/read', params: { uri: 'demo://nowhere' } },
  { method: 'prompts/list' },
  { method: 'prompts/get', params: { name: 'args-prompt', arguments: { city: 'Zürich' } } },
  { method: 'prompts/get', params: { name: 'no-such-prompt', arguments: {} } },
  { method: 'completion/complete', params: { ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name: 'department', value: 'E' } } },
  LEVEL,
  { method: 'resources/subscribe', params: { uri: DOCUMENT } },
  { method: 'resources/unsubscribe', params: { uri: DOCUMENT } },
  { method: 'subscriptions/listen', params: { notifications: { toolsListChanged: true } } },
  { method: 'ping' },
  { method: 'tools/list' },
];

const TIME = [
  { method: 'tools/list' },
  call('convert_time', { source_timezone: 'UTC', time: '12:00', target_timezone: 'Asia/Tokyo' }),
  call('convert_time', { source_timezone: 'UTC', time: 'noon', target_timezone: 'Asia/Tokyo' }),
  call('no-such-tool'),
  { method: 'ping' },
  { method: 'tools/list' },
];

// servers/python.py and rmcp/src/bin/server.rs have the same to offer.
const OURS = {
  steps: [
    { method: 'tools/list' },
    call('echo', { message: 'hello, wörld' }),
    call('slow', { seconds: 0.3, steps: 3 }),
    call('big', { bytes: 2 * MEBIBYTE }),
    call('fail', { why: 'because' }),
    call('no-such-tool'),
    { method: 'resources/list' },
    { method: 'resources/templates/list' },
    { method: 'resources/read', params: { uri: 'memo://greeting' } },
    { method: 'resources/read', params: { uri: 'memo://greeting/Ann' } },
    { method: 'resources/read', params: { uri: 'memo://nowhere' } },
    { method: 'prompts/list' },
    { method: 'prompts/get', params: { name: 'introduce', arguments: { name: 'Ann' } } },
    LEVEL,
    { method: 'resources/subscribe', params: { uri: 'memo://greeting' } },
    { method: 'resources/unsubscribe', params: { uri: 'memo://greeting' } },
    { method: 'subscriptions/listen', params: { notifications: { toolsListChanged: true } } },
    { method: 'ping' },
    { method: 'tools/list' },
  ],
  echo: call('echo', { message: 'still there?' }),
  slow: (seconds) => call('slow', { seconds, steps: 1 }),
  remembered: [
    LEVEL,
    { method: 'resources/subscribe', params: { uri: 'memo://greeting' } },
    { method: 'subscriptions/listen', params: { notifications: { toolsListChanged: true } } },
  ],
};
