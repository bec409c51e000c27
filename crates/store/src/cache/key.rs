//! The key of a configuration: a digest of everything that may change what a server says about its abilities.
//!
//! That is the command, its arguments, its directory, its environment, and the versions of the files that it runs. Only a
//! digest is used, because arguments and variables may be credentials. A missed match costs one slow start; a wrong match is
//! corrected as soon as the server answers. So each variable counts, unless it is known to be noise: by the lists below, by
//! the profile of a client, or because earlier openings have shown it.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mainstay_clients::behaviour;
use mainstay_protocol::ids::TAG_VARIABLE;
use mainstay_protocol::lease::LEASE_VARIABLE;

use super::digest::Digest;
use super::openings::names_account;

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// The command, as the user wrote it.
    pub argv: &'a [OsString],
    /// Its working directory.
    pub cwd: &'a Path,
    /// Its environment, `NAME=VALUE` each.
    pub env: &'a [CString],
}

impl Configuration<'_> {
    /// Its key if no variable is known to be volatile.
    pub fn key(&self) -> String {
        KeyPrefix::of(self).key(self.env, |_| false)
    }

    /// The key of what `learn` saw. Neither the directory nor most of the environment counts, because `learn` runs in a shell and the client
    /// does not: only the command, its files, and variables that name an account.
    pub fn learned(&self, server: &str) -> String {
        let Configuration { argv, cwd, env } = *self;
        let mut digest = Fields(Digest::default());
        digest.field(b"mainstay learned 1");
        digest.field(server.as_bytes());
        digest.count(argv.len());
        for word in argv {
            digest.field(word.as_bytes());
        }
        let program = argv.first().and_then(|word| find(word, cwd, env));
        digest.file(program.as_deref());
        digest.file(script(argv, cwd).as_deref());
        let mut accounts: Vec<&[u8]> = env
            .iter()
            .map(CString::as_bytes)
            .filter(|entry| {
                let name = str::from_utf8(name(entry));
                name.is_ok_and(|name| names_account(name) && !is_noise(name))
            })
            .collect();
        accounts.sort_unstable();
        digest.count(accounts.len());
        for entry in accounts {
            digest.field(entry);
        }
        digest.finish()
    }

    /// The key of this command under this name, with any environment.
    pub fn command(&self, server: &str) -> String {
        let mut digest = Fields(Digest::default());
        digest.field(b"mainstay openings 1");
        digest.field(server.as_bytes());
        digest.command(self);
        digest.finish()
    }
}

/// Hex digits of a key, which is half of the digest.
pub const KEY_DIGITS: usize = 32;
/// Where a command without a slash is searched if PATH is not set.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// The part of a key without the environment: command, directory, and the files as they were when the server was started.
#[derive(Clone)]
pub struct KeyPrefix(Fields);

impl KeyPrefix {
    pub fn of(configuration: &Configuration<'_>) -> Self {
        let Configuration { argv, cwd, env } = *configuration;
        let mut digest = Fields(Digest::default());
        // Another word would make all existing cache files useless.
        digest.field(b"mainstay record 1");
        digest.command(configuration);
        let program = argv.first().and_then(|word| find(word, cwd, env));
        digest.file(program.as_deref());
        digest.file(script(argv, cwd).as_deref());
        Self(digest)
    }

    /// The key with this environment, without its volatile variables.
    pub fn key(&self, env: &[CString], is_volatile: impl Fn(&str) -> bool) -> String {
        let counts = |entry: &&[u8]| {
            let name = str::from_utf8(name(entry));
            !name.is_ok_and(|name| is_noise(name) || is_volatile(name))
        };
        let mut variables: Vec<&[u8]> = env.iter().map(CString::as_bytes).filter(counts).collect();
        variables.sort_unstable();
        let mut digest = self.0.clone();
        digest.count(variables.len());
        for entry in variables {
            digest.field(entry);
        }
        digest.finish()
    }
}

/// A digest of fields. The length of each field precedes it, so that two different configurations never give the same bytes.
#[derive(Clone)]
struct Fields(Digest);

impl Fields {
    fn finish(self) -> String {
        let (key, _) = self.0.finish();
        format!("{key:0KEY_DIGITS$x}")
    }

    fn command(&mut self, configuration: &Configuration<'_>) {
        self.count(configuration.argv.len());
        for word in configuration.argv {
            self.field(word.as_bytes());
        }
        self.field(configuration.cwd.as_os_str().as_bytes());
    }

    fn field(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.add(bytes);
    }

    fn count(&mut self, count: usize) {
        self.0.add(&(count as u64).to_le_bytes());
    }

    /// Adds path and version of a file. Links in its directory are resolved, because version managers put a link with a new
    /// name into PATH for each shell. The file itself is not resolved: a link in a virtual environment is not the same as the
    /// interpreter that it points to.
    fn file(&mut self, path: Option<&Path>) {
        let Some((path, found)) = path.and_then(|path| Some((path, fs::metadata(path).ok()?)))
        else {
            self.field(b"");
            return;
        };
        let directory = path.parent().and_then(|dir| fs::canonicalize(dir).ok());
        self.field(directory.unwrap_or_default().as_os_str().as_bytes());
        self.field(path.file_name().unwrap_or_default().as_bytes());
        self.0.add(&found.size().to_le_bytes());
        self.0.add(&found.mtime().to_le_bytes());
        self.0.add(&found.mtime_nsec().to_le_bytes());
    }
}

/// The file that will be executed, searched as the start does it: with the PATH and the directory of the server.
fn find(program: &OsStr, cwd: &Path, env: &[CString]) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(cwd.join(program));
    }
    let path = env
        .iter()
        .find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="))
        .unwrap_or(PATH_DEFAULT);
    path.split(|&byte| byte == b':')
        .map(|directory| cwd.join(OsStr::from_bytes(directory)).join(program))
        .find(|file| {
            fs::metadata(file)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

/// The script, if the command is an interpreter.
fn script(argv: &[OsString], cwd: &Path) -> Option<PathBuf> {
    let (program, words) = argv.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    // Such as `python3.12` and `pypy3`.
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS.binary_search(&name).ok()?;
    words
        .iter()
        .map(|word| cwd.join(word))
        .find(|file| fs::metadata(file).is_ok_and(|found| found.is_file()))
}

/// The name of a variable that is written as `NAME=VALUE`.
pub fn name(entry: &[u8]) -> &[u8] {
    entry.split(|&byte| byte == b'=').next().unwrap_or(entry)
}

/// True if a variable describes the session of the client and not the server.
pub fn is_noise(name: &str) -> bool {
    NOISE.contains(&name)
        || NOISE_PREFIXES.iter().any(|noise| name.starts_with(noise))
        || behaviour::is_of_session(name)
}

/// Commands that run a file named by an argument, sorted.
const INTERPRETERS: [&str; 28] = [
    "bash", "bun", "bunx", "dash", "deno", "dotnet", "env", "fish", "java", "ksh", "lua", "mono",
    "node", "nodejs", "npx", "perl", "php", "pnpm", "pypy", "python", "ruby", "sh", "ts-node",
    "tsx", "uv", "uvx", "yarn", "zsh",
];

/// Variables that do not count. PATH counts by the files that are found with it.
const NOISE: [&str; 62] = [
    TAG_VARIABLE,
    LEASE_VARIABLE,
    // The working directory and the shell.
    "PATH",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "INIT_CWD",
    // The terminal.
    "TERM",
    "TERMCAP",
    "TERMINFO",
    "COLORTERM",
    "COLORFGBG",
    "COLUMNS",
    "LINES",
    "LS_COLORS",
    "LSCOLORS",
    "VTE_VERSION",
    "WINDOWID",
    "WINDOWPATH",
    "WINDOW",
    "STY",
    "TMUX",
    "TMUX_PANE",
    "ZELLIJ",
    "GPG_TTY",
    "WT_SESSION",
    "WT_PROFILE_ID",
    "WSL_INTEROP",
    "PS1",
    "PROMPT_COMMAND",
    // The desktop session.
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DESKTOP_STARTUP_ID",
    "XDG_ACTIVATION_TOKEN",
    "XDG_VTNR",
    "XDG_SEAT",
    "SESSION_MANAGER",
    "DBUS_SESSION_BUS_ADDRESS",
    "GIO_LAUNCHED_DESKTOP_FILE",
    "GIO_LAUNCHED_DESKTOP_FILE_PID",
    "GNOME_KEYRING_CONTROL",
    "GPG_AGENT_INFO",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MANAGERPID",
    "SYSTEMD_EXEC_PID",
    "NOTIFY_SOCKET",
    // The login. Not all of `SSH_`, because some servers get host and password that way.
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    // The trace of the client.
    "TRACEPARENT",
    "TRACESTATE",
    // Launchers.
    "npm_command",
    "npm_execpath",
    "npm_node_execpath",
    "FNM_MULTISHELL_PATH",
    "DIRENV_DIFF",
];

/// Variables that begin with one of these do not count either.
const NOISE_PREFIXES: [&str; 16] = [
    "ALACRITTY_",
    "DIRENV_",
    "GHOSTTY_",
    "GNOME_TERMINAL_",
    "ITERM_",
    "KITTY_",
    "KONSOLE_",
    "TERM_",
    "VSCODE_",
    "WEZTERM_",
    "XDG_SESSION_",
    "ZELLIJ_",
    "__MISE_",
    "npm_config_",
    "npm_lifecycle_",
    "npm_package_",
];

#[cfg(test)]
mod tests;
