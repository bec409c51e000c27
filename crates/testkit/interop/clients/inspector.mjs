// Inspector's command line: each request is a run of its own, from connect to close; see play.mjs.

import { spawnSync } from 'node:child_process';
import { play, told } from './play.mjs';

// A busy machine is not what is tried.
const CONNECT_WITHIN_MS = '60000';
const pairs = (option, values = {}) => Object.entries(values).flatMap(([name, value]) => [option, `${name}=${value}`]);
const options = {
  'tools/call': ({ name, arguments: input }) => ['--tool-name', name, ...pairs('--tool-arg', input)],
  'resources/read': ({ uri }) => ['--uri', uri],
  'prompts/get': ({ name, arguments: input }) => ['--prompt-name', name, ...pairs('--prompt-args', input)],
  'logging/setLevel': ({ level }) => ['--log-level', level],
};

await play({
  connect: () => ({}),
  ask: (method, params) => {
    const asked = ['--connect-timeout', CONNECT_WITHIN_MS, '--protocol-era', told.era, '--method', method, ...(options[method]?.(params) ?? [])];
    // The server's command line has a `--` of its own, so it comes last; a URL comes first, before options that take all that follows.
    const [first, last] = told.url === undefined ? [[], ['--', told.command, ...told.args]] : [[told.url, '--transport', 'http'], []];
    const ran = spawnSync(told.node, [told.inspector, '--cli', ...first, ...asked, ...last], { encoding: 'utf8' });
    process.stderr.write(ran.stderr);
    if (ran.status !== 0 && ran.stdout === '') throw new Error(`exit code ${ran.status}`);
    return { status: ran.status, said: JSON.parse(ran.stdout) };
  },
  close: () => {},
});
