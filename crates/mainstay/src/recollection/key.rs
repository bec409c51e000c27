//! Which configuration this is: everything that may change what a server says when it is asked what it can do.
//!
//! Command, arguments, directory, environment, and which files are behind them. Of all this only a digest is ever stored:
//! arguments and variables may be credentials. A missed match costs one slow start; a false one is corrected as soon as
//! the server answers. So everything counts that is not known to be noise: by these lists, by the profile of a client, or
//! because the openings before have shown it.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mainstay_core::ids::TAG_VARIABLE;
use mainstay_core::lease::LEASE_VARIABLE;

use super::sha256::Sha256;
use crate::profile;

/// A server as it is started.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// The command, as the user wrote it.
    pub argv: &'a [OsString],
    /// The directory that it runs in.
    pub cwd: &'a Path,
    /// Its environment, `NAME=VALUE` each.
    pub env: &'a [CString],
}

impl Configuration<'_> {
    /// Its key, where nothing is learned of its environment.
    pub fn key(&self) -> String {
        Begun::of(self).key(self.env, |_| false)
    }

    /// The key of all that is started by this command under this name, whatever its environment is.
    pub fn command(&self, server: &str) -> String {
        let mut digest = Fields(Sha256::new());
        digest.field(b"mainstay openings 1");
        digest.field(server.as_bytes());
        digest.command(self);
        digest.finish()
    }
}

/// Hex digits of a key: half of the digest.
pub const KEY_DIGITS: usize = 32;
/// Where a command without a slash is looked for without a PATH.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// A key without the environment: the command, the directory and the files as they were when the server was started.
#[derive(Clone)]
pub struct Begun(Fields);

impl Begun {
    /// That of a configuration.
    pub fn of(configuration: &Configuration<'_>) -> Self {
        let Configuration { argv, cwd, env } = *configuration;
        let mut digest = Fields(Sha256::new());
        digest.field(b"mainstay record 1");
        digest.command(configuration);
        let program = argv.first().and_then(|word| find(word, cwd, env));
        digest.file(program.as_deref());
        digest.file(script(argv, cwd).as_deref());
        Self(digest)
    }

    /// The key with this environment, but for what is volatile in it.
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

/// Each field with its length before it, so that no two configurations are written alike.
#[derive(Clone)]
struct Fields(Sha256);

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

    /// Where a file is, and which version of it. The directory is told without links: version managers put one with a
    /// new name for each shell into PATH. The file is told by its own name: a link in a virtual environment is not the
    /// interpreter that it leads to.
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

/// The file that will be executed, looked for as the start will: by the server's own PATH, from its own directory.
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

/// The program proper, where the command is only what runs it.
fn script(argv: &[OsString], cwd: &Path) -> Option<PathBuf> {
    let (program, words) = argv.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    // `python3.12` and `pypy3` are called so too.
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

/// Whether a variable says where, when and in which session the client works, not what the server is.
pub fn is_noise(name: &str) -> bool {
    NOISE.contains(&name)
        || NOISE_PREFIXES.iter().any(|noise| name.starts_with(noise))
        || profile::is_of_session(name)
}

/// Commands that run a file named by an argument, in order.
const INTERPRETERS: [&str; 28] = [
    "bash", "bun", "bunx", "dash", "deno", "dotnet", "env", "fish", "java", "ksh", "lua", "mono",
    "node", "nodejs", "npx", "perl", "php", "pnpm", "pypy", "python", "ruby", "sh", "ts-node",
    "tsx", "uv", "uvx", "yarn", "zsh",
];

/// Variables that do not count. PATH counts by what is found through it.
const NOISE: [&str; 62] = [
    TAG_VARIABLE,
    LEASE_VARIABLE,
    // Where we are.
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
    // The login; not all of `SSH_`, for some servers are told host and password so.
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    // A trace that the client is a part of.
    "TRACEPARENT",
    "TRACESTATE",
    // Launchers.
    "npm_command",
    "npm_execpath",
    "npm_node_execpath",
    "FNM_MULTISHELL_PATH",
    "DIRENV_DIFF",
];

/// Variables that begin so do not count either.
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
