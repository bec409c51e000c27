// Nothing is killed: a client must see the same server through mainstay as bare, and leave no process behind.

import { steps } from './cast.mjs';
import { brief, difference } from './diff.mjs';
import { Front } from './front.mjs';
import { Session } from './session.mjs';

/** Plays the server's steps with the client twice; what did not hold, as texts. */
export async function equal(at, client, server) {
  const faults = [];
  const bare = await transcript(client, server, server.command);
  const kept = await transcript(client, server, [at.mainstay, 'run', '--name', server.id, '--', ...server.command]);
  const differs = difference(bare.entries, kept.entries);
  if (differs !== undefined) faults.push(`bare (-) and through mainstay (+) differ\n${differs}\nstderr: ${kept.stderr}`);
  if (bare.entries.every(({ said }) => said.error !== undefined)) faults.push(`not one answer\nstderr: ${bare.stderr}`);
  if (kept.left.length > 0) faults.push(`left after close():\n${kept.left.join('\n')}`);
  return faults;
}

/** Kills the client in the middle of its session; what did not hold. */
export async function abandoned(at, client, server) {
  const session = new Session(client, [at.mainstay, 'run', '--name', server.id, '--', ...server.command]);
  await session.connected();
  await session.ask(server.steps[1]);
  const lived = session.members;
  const left = await session.kill();
  // The client, shim, guard, keeper and the server.
  if (lived < 5) return [`only ${lived} were there before the client was killed`];
  return left.length > 0 ? [`left after SIGKILL of the client:\n${left.join('\n')}`] : [];
}

/** Plays the server's steps with the client over stdio, bare, and over HTTP, through `mainstay serve`; what did not hold, as texts. */
export async function served(at, client, server) {
  const faults = [];
  const bare = await transcript(client, server, server.command);
  const front = await Front.start(at, server);
  const kept = await transcript(client, server, front.url);
  const left = await front.stop();
  const differs = difference(...[bare.entries, kept.entries].map((entries) => entries.map(overHttp)));
  if (differs !== undefined) faults.push(`bare (-) and through mainstay serve (+) differ\n${differs}\nstderr: ${kept.stderr}`);
  if (bare.entries.every(({ said }) => said.error !== undefined)) faults.push(`not one answer\nstderr: ${bare.stderr}`);
  if (left.length > 0) faults.push(`left after serve has stopped:\n${left.join('\n')}`);
  return faults;
}

// Over HTTP a modern server's "method not found" is status 404, for which each SDK has its own text.
function overHttp({ step, said }) {
  const unknown = said?.error?.code === -32601 || said?.error?.data?.status === 404;
  return { step, said: unknown ? 'method not found' : said };
}

/** What a client sees of a server that is started by this command. */
export async function transcript(client, server, command) {
  const session = new Session(client, command);
  const entries = [];
  const note = async (step, said) => entries.push({ step, said: brief(certain(await said)) });
  try {
    await note({ method: 'connect' }, session.connected());
    for (const step of steps(client, server)) await note(step, session.ask(step));
  } catch (error) {
    entries.push({ step: { method: 'the end' }, said: error.message });
  }
  return { entries, left: await session.close(), stderr: session.stderr };
}

// A client that has the answer listens no more, so that the last progress, told just before, is a matter of luck.
function certain({ progress, ...said }) {
  return progress === undefined ? said : { progress: progress.filter((one) => one.progress !== one.total), ...said };
}
