// A stand-in for a model, on loopback: it speaks the four dialects that clients speak to models, and plays a script of tool calls. The n-th turn is the
// one that comes with n results; what it is not asked for with tools (titles, summaries) it answers with a word.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { DIALECTS } from './dialects.mjs';

export class Model {
  #server = createServer((request, response) => {
    this.#serve(request, response).catch((error) => {
      this.errors.push(error);
      response.destroy();
    });
  });
  #script;
  #begun = new Set();

  /** What the tools answered, in order, as the client passed it on. */
  results = [];
  /** What went wrong here. */
  errors = [];
  /** Tools that were offered but not the one that was wanted. */
  missed = [];
  /** When the first turn was asked for, by the clock of `performance`, and whether the wanted tool was among those offered. */
  first = undefined;

  /** `script`: the calls, each `{tool, input, before}`; `before` is awaited once, before the call is asked for. */
  constructor(script) {
    this.#script = script;
  }

  /** The same model in another session: it begins anew with another script. */
  begin(script) {
    this.#script = script;
    this.#begun = new Set();
    this.results = [];
    this.missed = [];
    this.first = undefined;
  }

  async start() {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    this.url = `http://127.0.0.1:${this.#server.address().port}`;
    return this;
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #serve(request, response) {
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    const path = request.url.split('?')[0];
    const dialect = DIALECTS.find((one) => request.method === 'POST' && one.path.test(path));
    if (dialect === undefined) return refuse(response);
    const asked = JSON.parse(body);
    const { offered, results } = dialect.read(asked);
    const answer = offered.length === 0 ? { text: 'a title' } : await this.#turn(offered, results);
    if (response.destroyed) return;
    const streamed = dialect.streamed(asked, path);
    response.writeHead(200, { 'content-type': streamed ? 'text/event-stream' : 'application/json' });
    response.end(streamed ? dialect.stream(answer) : JSON.stringify(dialect.whole(answer)));
  }

  // The same turn may be asked for twice: a client that heard nothing asks again.
  async #turn(offered, results) {
    const turn = results.length;
    if (turn > this.results.length || turn === this.#script.length) this.results = results;
    if (turn >= this.#script.length) return { text: 'that was all' };
    const { tool, input, before } = this.#script[turn];
    const known = offered.find(({ name }) => name.endsWith(tool));
    this.first ??= { at: performance.now(), known: known !== undefined };
    if (known === undefined) {
      this.missed.push({ tool, offered: offered.map(({ name }) => name) });
      return { text: `there is no ${tool}` };
    }
    if (!this.#begun.has(turn)) {
      this.#begun.add(turn);
      await before?.();
    }
    return { call: { ...known, id: `call_${turn + 1}`, input } };
  }
}

// Lists of models, counts of tokens and the like: clients can do without.
function refuse(response) {
  response.writeHead(404, { 'content-type': 'application/json' });
  response.end('{"error":{"message":"not here"}}');
}
