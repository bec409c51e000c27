// `mainstay reap --install --hook` in Claude Code: the hook runs at the end of a session, whatever stood in the settings before, and its removal gives the
// old bytes back.

import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Model } from './model.mjs';
import { Stage } from './stage.mjs';

/** No file, and each place where the hook can be put. */
const SETTINGS = [undefined, '{}\n', '{"hooks": {}}', '{"hooks": {"SessionEnd": []}}'];

/** What did not hold. */
export async function hooked(at, product) {
  const faults = [];
  const model = await new Model([]).start();
  const stage = new Stage(at, product, model.url, () => []);
  const file = join(stage.home, '.claude/settings.json');
  const program = join(stage.home, 'hook/mainstay');
  const ran = join(stage.home, 'ran');
  for (const directory of [file, program].map(dirname)) mkdirSync(directory, { recursive: true });
  const read = () => (existsSync(file) ? readFileSync(file, 'utf8') : undefined);
  try {
    for (const old of SETTINGS) {
      for (const one of [file, program, ran]) rmSync(one, { force: true });
      if (old !== undefined) writeFileSync(file, old);
      copyFileSync(at.mainstay, program);
      const { status, stderr } = spawnSync(program, ['reap', '--install', '--hook'], { env: stage.env, encoding: 'utf8' });
      if (status !== 0) faults.push(`hook: ${stderr}`);
      // Something that leaves a trace takes the place of the program that the hook names.
      rmSync(program);
      writeFileSync(program, `#!/bin/sh\necho "$@" > ${ran}\n`, { mode: 0o755 });
      const { code, said } = await stage.start(product.session('hello', stage.home)).ended;
      const trace = existsSync(ran) ? readFileSync(ran, 'utf8') : 'nothing';
      if (code !== 0 || trace !== 'reap\n') faults.push(`hook, settings were ${old}: exit code ${code}, ran ${trace}\n${read()}\n${said}`);
      await stage.mainstay('reap', '--uninstall', '--hook');
      if (read() !== old) faults.push(`hook: the settings were ${old}, and are ${read()}`);
    }
  } finally {
    faults.push(...model.errors.map((error) => error.stack));
    await stage.clear();
    model.stop();
  }
  return faults;
}
