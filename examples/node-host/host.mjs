// A long-lived host in the style of copilot-sdk: one client, one session per job, stdio servers that belong to the session.
//
//   printf 'job-1\njob-2\n' | node host.mjs npx -y @playwright/mcp
//
// Each line of stdin is a job. For each, one line of JSON goes to stdout. The client below never ends a server by itself: it
// forgets a deleted session and nothing else, as the clients of the report do. The lease is what ends it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { MAINSTAY, closeLease, openLease } from "./lease.mjs";

class Client {
  sessions = new Map();

  async createSession({ sessionId, mcpServers }) {
    await openLease(sessionId);
    const servers = Object.values(mcpServers).map(({ command, args, env = {} }) => {
      // The one change to a session's configuration: `mainstay run --` before the command, the lease in its environment.
      const child = spawn(MAINSTAY, ["run", "--", command, ...args], {
        env: { ...process.env, ...env, MAINSTAY_LEASE: sessionId },
        stdio: ["pipe", "pipe", "inherit"],
      });
      const lines = createInterface({ input: child.stdout });
      return { child, lines, gone: once(child, "exit") };
    });
    this.sessions.set(sessionId, servers);
    return { sessionId, servers };
  }

  async deleteSession(sessionId) {
    const servers = this.sessions.get(sessionId) ?? [];
    this.sessions.delete(sessionId);
    const closed = await closeLease(sessionId);
    // The servers are gone; Node has still to notice the ends of its own children.
    await Promise.all(servers.map(({ gone }) => gone));
    return closed;
  }
}

// One request, one answer.
async function ask({ child, lines }, id, method, params) {
  const answer = once(lines, "line");
  child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
  const [line] = await answer;
  return JSON.parse(line);
}

async function runJob(client, sessionId, command, args) {
  const session = await client.createSession({
    sessionId,
    mcpServers: { worker: { command, args } },
  });
  const answer = await ask(session.servers[0], 1, "initialize", {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "node-host", version: "1" },
  });
  const closed = await client.deleteSession(sessionId);
  return {
    job: sessionId,
    answered: "result" in answer,
    servers: closed.servers.length,
    ended: closed.ended,
    left: closed.left,
  };
}

const [command, ...args] = process.argv.slice(2);
if (command === undefined) {
  console.error("which server command?");
  process.exit(2);
}
const client = new Client();
for await (const job of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await runJob(client, job, command, args)));
}
