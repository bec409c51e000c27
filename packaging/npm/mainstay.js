#!/usr/bin/env node
// Starts the mainstay program of this platform. Node is replaced by it where Node can do that (22.15 and later), so that no
// Node process stays in memory for the life of a server. Older versions wait for the program and pass on its signals and status.
'use strict';

const { constants } = require('node:os');

const name = `mcp-mainstay-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/mainstay`);
} catch {
  console.error(
    `error: the package ${name} is not installed\n` +
      '  hint: install mcp-mainstay again without --omit=optional; mainstay runs on Linux with x64 or arm64',
  );
  process.exit(127);
}
const words = process.argv.slice(2);

if (process.execve) {
  process.execve(program, [program, ...words], process.env);
}

if (process.stderr.isTTY) {
  console.error(
    `hint: Node ${process.versions.node} stays in memory beside mainstay; Node 22.15 does not, nor does ${program}`,
  );
}
const { spawn } = require('node:child_process');
const child = spawn(program, words, { stdio: 'inherit' });

// A terminal sends these to the program itself, because it is in the same foreground group. Passed on, it would get them twice.
const fromTerminal = process.stdin.isTTY ? ['SIGINT', 'SIGQUIT'] : [];
for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGUSR2', 'SIGWINCH']) {
  process.on(signal, () => {
    if (!fromTerminal.includes(signal)) child.kill(signal);
  });
}

child.on('error', (error) => {
  console.error(`error: cannot start ${program}\n  why: ${error.message}`);
  process.exit(error.code === 'ENOENT' ? 127 : 126);
});
child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  // End by the same signal, so that our parent sees what happened. Where that does not end us, use the shell's number.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  setImmediate(() => process.exit(128 + constants.signals[signal]));
});
