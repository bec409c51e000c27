// What the TypeScript clients have in common: steps in, answers out. The other clients do the same in their own language.
//
// The only argument is JSON: the server's `command`, `args` and `env`, or its `url`, and the `era` to ask for. The first line on stdout answers for the
// connection; then each line on stdin is a request of MCP as `{method, params}` and has one line on stdout: `{answer}`, or `{error}` if it was
// refused; `{progress}` may come before it. End of input closes the session.

import { createInterface } from 'node:readline';

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

export const told = JSON.parse(process.argv[2]);

/** What a model would say: servers that ask for sampling get this. */
export const SAMPLE = { model: 'none', role: 'assistant', content: { type: 'text', text: 'a sample' } };

/** `connect()` answers for the connection; `ask(method, params, onprogress)` is one request; `close()` ends the session. */
export async function play({ connect, ask, close }) {
  await answer(connect);
  for await (const line of createInterface({ input: process.stdin })) {
    const { method, params } = JSON.parse(line);
    await answer(() => ask(method, params, (progress) => say({ progress })));
  }
  await close();
}

async function answer(act) {
  try {
    say({ answer: (await act()) ?? null });
  } catch (error) {
    say({ error: { code: error.code, message: error.message, data: error.data } });
  }
}
