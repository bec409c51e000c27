// The clients that people use: where their programs are, what their config looks like (as docs/guides/clients.md says it), and how a session is held without a
// terminal, an account or a network. `configure` gets the servers as `{name, command, args}` and the model's URL, and says which files have what in them.

const json = (value) => JSON.stringify(value, null, 2);
const byName = (servers, entry) => Object.fromEntries(servers.map((server) => [server.name, entry(server)]));
const plain = ({ command, args }) => ({ command, args });
const KEY = 'never-checked-here';
const MODEL = 'stand-in';

/**
 * All of them, in the order of the page. `program`: the command that npm makes of it, or pip where `python` says so. `scripts`: install scripts it needs. `list`: its own
 * command that connects to servers, `lists` what that says of each server that is well. `session`: its arguments for one prompt.
 * `inspects`: a file that the Inspector can read, too. `hooks`: whether `reap --install --hook` is for it.
 * `startsAgain`: it starts a server again if its own process before that server is hit by `pkill -f`.
 */
export const PRODUCTS = [
  {
    id: 'claude',
    hooks: true,
    inspects: '.claude.json',
    title: 'Claude Code',
    package: '@anthropic-ai/claude-code',
    program: 'claude',
    scripts: ['@anthropic-ai/claude-code/install.cjs'],
    env: (url) => ({
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_API_KEY: KEY,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      ENABLE_TOOL_SEARCH: 'false',
      MCP_CONNECTION_NONBLOCKING: '0',
    }),
    configure: (servers) => ({ '.claude.json': json({ mcpServers: byName(servers, plain) }) }),
    list: ['mcp', 'list'],
    lists: /Connected/g,
    session: (prompt) => ['-p', prompt, '--allowedTools', 'mcp__clingy', 'mcp__everything', 'mcp__gated'],
  },
  {
    id: 'codex',
    title: 'Codex',
    package: '@openai/codex',
    program: 'codex',
    env: () => ({ STAND_IN_KEY: KEY }),
    configure: (servers, url) => ({
      '.codex/config.toml': [
        `model = "${MODEL}"`,
        'model_provider = "here"',
        'approval_policy = "never"',
        '[analytics]\nenabled = false',
        `[model_providers.here]\nname = "here"\nbase_url = "${url}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\nrequest_max_retries = 0\nstream_max_retries = 0`,
        // Its first turn does not wait for servers that are not required.
        ...servers.map(({ name, command, args }) => `[mcp_servers.${name}]\ncommand = ${JSON.stringify(command)}\nargs = ${JSON.stringify(args)}\nrequired = true`),
      ].join('\n'),
    }),
    session: (prompt) => ['exec', '--skip-git-repo-check', prompt],
  },
  {
    id: 'gemini',
    inspects: '.gemini/settings.json',
    title: 'Gemini CLI',
    package: '@google/gemini-cli',
    program: 'gemini',
    env: (url) => ({ GOOGLE_GEMINI_BASE_URL: url, GEMINI_API_KEY: KEY, GEMINI_CLI_TRUST_WORKSPACE: 'true', GEMINI_TELEMETRY_ENABLED: 'false' }),
    configure: (servers) => ({
      '.gemini/settings.json': json({
        security: { auth: { selectedType: 'gemini-api-key' } },
        privacy: { usageStatisticsEnabled: false },
        general: { enableAutoUpdate: false },
        mcpServers: byName(servers, plain),
      }),
    }),
    list: ['mcp', 'list'],
    lists: /Connected/g,
    session: (prompt) => ['-m', 'gemini-2.5-flash', '--approval-mode', 'yolo', '-p', prompt],
  },
  {
    id: 'qwen',
    title: 'Qwen Code',
    package: '@qwen-code/qwen-code',
    program: 'qwen',
    env: (url) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: KEY, OPENAI_MODEL: MODEL }),
    configure: (servers) => ({
      '.qwen/settings.json': json({
        security: { auth: { selectedType: 'openai' } },
        privacy: { usageStatisticsEnabled: false },
        general: { enableAutoUpdate: false },
        tools: { toolSearch: { enabled: false } },
        mcpServers: byName(servers, plain),
      }),
    }),
    list: ['mcp', 'list'],
    lists: /Connected/g,
    session: (prompt) => ['--approval-mode', 'yolo', '-p', prompt],
  },
  {
    id: 'copilot',
    title: 'Copilot CLI',
    package: '@github/copilot',
    program: 'copilot',
    env: (url) => ({
      COPILOT_PROVIDER_BASE_URL: `${url}/v1`,
      COPILOT_PROVIDER_TYPE: 'openai',
      COPILOT_PROVIDER_API_KEY: KEY,
      COPILOT_MODEL: MODEL,
      COPILOT_OFFLINE: 'true',
    }),
    configure: (servers) => ({
      '.copilot/mcp-config.json': json({ mcpServers: byName(servers, ({ command, args }) => ({ type: 'local', command, args, tools: ['*'] })) }),
    }),
    session: (prompt) => ['--no-auto-update', '--disable-builtin-mcps', '--allow-all-tools', '-p', prompt],
  },
  {
    id: 'opencode',
    title: 'opencode',
    package: 'opencode-ai',
    program: 'opencode',
    scripts: ['opencode-ai/postinstall.mjs'],
    env: () => ({
      OPENCODE_DISABLE_MODELS_FETCH: '1',
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
      OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
    }),
    configure: (servers, url) => ({
      '.config/opencode/opencode.json': json({
        share: 'disabled',
        model: `here/${MODEL}`,
        provider: {
          here: { npm: '@ai-sdk/openai-compatible', options: { baseURL: `${url}/v1`, apiKey: KEY }, models: { [MODEL]: { name: MODEL, tool_call: true } } },
        },
        mcp: byName(servers, ({ command, args }) => ({ type: 'local', command: [command, ...args] })),
      }),
    }),
    list: ['mcp', 'list'],
    lists: /✓.* connected/g,
    session: (prompt) => ['run', prompt],
  },
  {
    id: 'continue',
    title: 'Continue CLI',
    package: '@continuedev/cli',
    program: 'cn',
    env: () => ({ CONTINUE_TELEMETRY_ENABLED: '0', CONTINUE_METRICS_ENABLED: '0', CONTINUE_CLI_AUTO_UPDATED: '1' }),
    // JSON is YAML.
    configure: (servers, url) => ({
      '.continue/config.yaml': json({
        name: 'here',
        version: '1.0.0',
        schema: 'v1',
        models: [{ name: MODEL, provider: 'openai', model: MODEL, apiBase: `${url}/v1`, apiKey: KEY, roles: ['chat'], capabilities: ['tool_use'] }],
        mcpServers: servers,
      }),
    }),
    session: (prompt, home) => ['--config', `${home}/.continue/config.yaml`, '--auto', '-p', prompt],
  },
  {
    id: 'cline',
    title: 'Cline CLI',
    package: 'cline',
    program: 'cline',
    env: () => ({ CLINE_TELEMETRY_DISABLED: '1' }),
    prepare: (url) => [['auth', '-p', 'openai-compatible', '-k', KEY, '-m', MODEL, '-b', `${url}/v1`]],
    configure: (servers) => ({ '.cline/data/settings/cline_mcp_settings.json': json({ mcpServers: byName(servers, plain) }) }),
    session: (prompt) => [prompt],
  },
  {
    id: 'hermes',
    title: 'Hermes',
    package: 'hermes-agent',
    python: true,
    startsAgain: true,
    program: 'hermes',
    env: () => ({ OPENAI_API_KEY: KEY }),
    // JSON is YAML.
    configure: (servers, url) => ({
      '.hermes/config.yaml': json({
        model: { default: MODEL, provider: 'custom', base_url: `${url}/v1`, api_key: KEY },
        security: { allow_lazy_installs: false },
        mcp_servers: byName(servers, plain),
      }),
    }),
    session: (prompt) => ['chat', '-q', prompt, '--yolo'],
  },
];
