// `mainstay serve` in front of one server, and no process left when it has stopped.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { left, mark, members } from './census.mjs';

export class Front {
  #child;
  #tag = randomUUID();
  #home = mkdtempSync(join(tmpdir(), 'mainstay-interop-'));

  /** Starts it in front of the server's command, or of what `words` say; resolves when it listens. */
  static async start(at, server, words = ['--', ...server.command]) {
    const front = new Front();
    front.#child = spawn(at.mainstay, ['serve', '--listen', '127.0.0.1:0', '--json', '--name', server.id, ...words], {
      env: { ...process.env, ...mark(front.#tag), HOME: front.#home },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const { value } = await createInterface({ input: front.#child.stdout })[Symbol.asyncIterator]().next();
    front.url = JSON.parse(value).endpoints[0].url;
    return front;
  }

  /** How many processes it has now, itself included. */
  get members() {
    return members(this.#tag).length;
  }

  /** A figure that it tells of itself. */
  async metric(name) {
    const page = await (await fetch(new URL('/metrics', this.url))).text();
    const line = page.split('\n').find((one) => one.startsWith(`${name} `));
    return Number(line.slice(name.length + 1));
  }

  /** Tells it to stop; who is left afterwards. */
  async stop() {
    this.#child.kill('SIGTERM');
    await once(this.#child, 'exit');
    const still = await left(this.#tag);
    for (const pid of members(this.#tag)) process.kill(pid, 'SIGKILL'); // reported above; we end all that we started
    rmSync(this.#home, { recursive: true, force: true });
    return still;
  }
}
