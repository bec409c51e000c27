//! A server that a host has started: a child process of the host, with pipes.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use mainstay_os::census;
use mainstay_report::plain;
use mainstay_store::paths::Paths;
use mainstay_store::registry;
use mainstay_store::registry::card::Card;

use super::HostError;

/// The variable with the path of the mainstay binary.
const BINARY_VARIABLE: &str = "MAINSTAY_BIN";

/// Children of dropped [`Server`]s that had not ended: they are reaped whenever the library is used.
static UNREAPED: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// The command of a server, like [`std::process::Command`]. Environment and directory are inherited unless they are set; stdin
/// and stdout are pipes.
#[derive(Clone, Debug)]
pub struct ServerCommand {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    cwd: Option<PathBuf>,
    options: Vec<OsString>,
    stderr_piped: bool,
}

impl ServerCommand {
    /// A command that runs this program.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            options: Vec::new(),
            stderr_piped: false,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), Some(value.into())));
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.env.push((name.into(), None));
        self
    }

    /// Sets the directory that the server runs in.
    #[must_use]
    pub fn current_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    /// Sets the server's name in `mainstay ps` and in events. Without it, the name is made from the command.
    #[must_use]
    pub fn name(self, name: impl AsRef<OsStr>) -> Self {
        self.option("--name", name)
    }

    /// Adds an option of `mainstay run` with its value, such as `--grace-eof` and `5s`.
    #[must_use]
    pub fn option(mut self, option: &str, value: impl AsRef<OsStr>) -> Self {
        let mut word = OsString::from(option);
        word.push("=");
        word.push(value.as_ref());
        self.options.push(word);
        self
    }

    /// Makes stderr a pipe too, which the host must read. Without it, stderr is inherited.
    #[must_use]
    pub fn stderr_piped(mut self) -> Self {
        self.stderr_piped = true;
        self
    }
}

/// A server that was started in a lease.
///
/// Dropping it closes the pipes, as a client that exits does: the server then ends in the background. The lease does not end
/// with its servers.
#[derive(Debug)]
pub struct Server {
    /// The server's stdin. Closing it ends the server.
    pub stdin: Option<ChildStdin>,
    /// The server's stdout.
    pub stdout: Option<ChildStdout>,
    /// The server's stderr, with [`ServerCommand::stderr_piped`].
    pub stderr: Option<ChildStderr>,
    paths: Paths,
    child: Option<Child>,
    shim: u32,
}

impl Server {
    /// The pid of the shim, which is a child of this process.
    pub fn id(&self) -> u32 {
        self.shim
    }

    /// The pid of the server process itself; none while it does not run. It changes when the server is restarted.
    ///
    /// A new server is listed a moment after its start, so this call may wait for that moment.
    pub fn pid(&self) -> Option<i32> {
        let ours = |card: &Card| {
            let shim = card.shim.as_ref();
            shim.is_some_and(|seen| seen.who.pid as u32 == self.shim)
        };
        let lives = || census::stat(self.shim as i32).is_ok_and(|stat| !stat.dead());
        let card = registry::find_card(&self.paths, ours, lives).ok()??;
        Some(card.server?.who.pid)
    }

    /// Closes stdin, if it is still open, and waits until the server has ended. The status is the server's own, or 125 if mainstay
    /// could not start it or its lease is not open.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        self.child.as_mut().ok_or_else(gone)?.wait()
    }

    /// The exit status, if the server has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        self.child.as_mut().ok_or_else(gone)?.try_wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stdin = None;
        self.stdout = None;
        self.stderr = None;
        if let Some(child) = self.child.take() {
            unreaped().push(child);
        }
        reap();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the mainstay binary, which is what starts servers"
)]
pub(super) fn start(
    paths: &Paths,
    lease: &str,
    mainstay: Option<&PathBuf>,
    server: &ServerCommand,
) -> Result<Server, HostError> {
    reap();
    let binary = mainstay
        .cloned()
        .or_else(|| std::env::var_os(BINARY_VARIABLE).map(PathBuf::from))
        .unwrap_or_else(|| "mainstay".into());
    let mut command = Command::new(&binary);
    command
        .arg("run")
        .arg(format!("--lease={lease}"))
        .args(&server.options)
        .arg("--")
        .arg(&server.program)
        .args(&server.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if server.stderr_piped {
        command.stderr(Stdio::piped());
    }
    for (name, value) in &server.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(cwd) = &server.cwd {
        command.current_dir(cwd);
    }
    let mut child = command
        .spawn()
        .map_err(|error| not_started(&binary, &error))?;
    Ok(Server {
        stdin: child.stdin.take(),
        stdout: child.stdout.take(),
        stderr: child.stderr.take(),
        paths: paths.clone(),
        shim: child.id(),
        child: Some(child),
    })
}

/// Reaps the children of dropped servers that have ended.
pub(super) fn reap() {
    unreaped().retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

fn unreaped() -> std::sync::MutexGuard<'static, Vec<Child>> {
    UNREAPED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_started(binary: &Path, error: &io::Error) -> HostError {
    HostError::new(
        format!(
            "the mainstay binary `{}` cannot be started: {}",
            binary.display(),
            plain(error)
        ),
        format!(
            "install mainstay, or set its path with {BINARY_VARIABLE} or LeaseOptions::mainstay"
        ),
    )
}
