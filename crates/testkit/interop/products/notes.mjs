// What docs/clients.md says beside the table: what was tried by hand, and what could not be tried.

/** The rest of the page. */
export const NOTES = `## Let the client write its config

Every client below has a command that adds a server. Leave out the \`--\` before the server's own command there: \`mainstay run COMMAND …\` means the same, and
not every client passes a second \`--\` on. Where the guide's entry and this one differ, the guide's is the one that was played.

| client | command | what becomes of a \`--\` behind \`run\` |
|---|---|---|
| Claude Code, Codex, Copilot CLI, opencode, Auggie | \`claude mcp add NAME -- mainstay run COMMAND …\`, likewise \`codex\`, \`copilot\`, \`opencode\`, \`auggie\` | it is kept |
| Gemini CLI, Qwen Code | \`gemini mcp add NAME mainstay run COMMAND …\`, likewise \`qwen\` | it is dropped, which does no harm |
| Amp | \`amp mcp add NAME -- mainstay run COMMAND …\` | **it is dropped with everything before it**: the server would be started bare. Look into the file |

mainstay itself changes no client's config. \`mcp remove\` of the client removes the whole server: to go back, remove it and add the server's own command again.

## By hand

On 2026-11-16, each through \`mainstay run --\`:

| what | result |
|---|---|
| terminal interface of Claude Code 2.1.325, Codex 0.166.0, Gemini CLI 0.61.0, Qwen Code 0.24.4, in tmux: a prompt, two calls, the server killed between them, Ctrl-C | the second call is answered; 0 left. Claude Code also with the terminal closed instead |
| the same of Codex | its terminal interface gives servers to a daemon (\`codex app-server\`), which is their client and stays; it let go of them a minute later, and 0 were left |
| terminal interface of Copilot CLI 1.0.102, opencode 1.18.33 | both servers connected, 0 left after Ctrl-C; no prompt was got into them from a script |
| mcporter 0.12.3: \`list\`, \`call\`; mcp-cli 2.0.0 of wong2: \`call-tool\`; fastmcp 4.1.2: \`list --command\` | they list and call; 0 left |

## Not tried

| client | why |
|---|---|
| Amp, Auggie | sessions need an account; their \`mcp list\` prints the config and connects to nothing |
| Crush, Kilo Code CLI | the program is not in the npm package: Crush fetches it from elsewhere, and Kilo's package for this platform was not to be had |
| Goose | neither npm nor PyPI has a present version |
| Claude Desktop, VS Code, Cursor, Windsurf, Zed, JetBrains, Kiro, Warp, LM Studio | desktop programs that no package registry has |
| macOS, Windows | mainstay is for Linux so far |

## Run it

\`\`\`sh
node crates/testkit/interop/clients.mjs
\`\`\`

It needs Rust, Node 20, Python 3, npm and PyPI, takes 2 GB under \`target/interop\`, and six minutes. Everything is installed first; then the clients run in a network
namespace with nothing but loopback, each in a HOME of its own. Words choose: \`clients.mjs gemini codex\`. CI plays Gemini CLI, which is installed in seconds (100 MB).
\`MAINSTAY_UNDER_TEST=/path/to/mainstay\` takes an installed binary.

| what | where, in \`crates/testkit/interop/products\` |
|---|---|
| versions | a directory for each client: \`package.json\` and \`package-lock.json\`, or \`requirements.txt\` with hashes |
| each client: its config, its commands, what makes it work offline | \`cast.mjs\` |
| what is played, and what must hold | \`acts.mjs\` |
| the model | \`model.mjs\`, \`dialects.mjs\` |
`;
