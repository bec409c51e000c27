//! A scripted client in the test's own process: it starts a command with stdio as a real client would, and holds its ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use mainstay_os::identity;
use mainstay_protocol::ids::Identity;
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::card::state_dir;
use crate::stage::Stage;
use crate::wait::{Deadline, HANG_STOP, poll_for, until};
use crate::wire::Wire;

/// What a client uses as the server's stdin and stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Pipes: Codex, Copilot, Python clients.
    #[default]
    Pipes,
    /// A socket pair for each: node and bun.
    Sockets,
}

/// What a client does with the server's stderr.
#[derive(Debug, Default)]
pub enum Stderr {
    /// Writes it to a file.
    #[default]
    Log,
    /// Holds a pipe and never reads it: Gemini, Qwen.
    Deaf,
    /// With this.
    Given(OwnedFd),
}

/// How a client starts a command.
#[derive(Debug)]
pub struct Launch<'a> {
    stage: &'a Stage,
    command: Command,
    carrier: Carrier,
    stderr: Stderr,
}

/// A running command and our ends of its stdio.
#[derive(Debug)]
pub struct Client {
    /// The ends.
    pub wire: Wire,
    /// The process that was started.
    pub who: Identity,
    child: Child,
    log: PathBuf,
    /// The read end of a stderr pipe that is never read.
    deaf: Option<OwnedFd>,
}

impl<'a> Launch<'a> {
    /// A command by its words, program first.
    pub fn new(stage: &'a Stage, argv: &[OsString]) -> Self {
        let mut command = stage.command(&argv[0]);
        command.args(&argv[1..]);
        Self {
            stage,
            command,
            carrier: Carrier::default(),
            stderr: Stderr::default(),
        }
    }

    /// Chooses pipes or sockets.
    #[must_use]
    pub fn carrier(mut self, carrier: Carrier) -> Self {
        self.carrier = carrier;
        self
    }

    /// Chooses what becomes of stderr.
    #[must_use]
    pub fn stderr(mut self, stderr: Stderr) -> Self {
        self.stderr = stderr;
        self
    }

    /// Starts it in its own process group, as Codex does.
    #[must_use]
    pub fn own_group(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Changes anything else: variables, directory.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        change(&mut self.command);
        self
    }

    /// Starts it.
    pub fn start(mut self) -> Client {
        let (wire, theirs_in, theirs_out) = ends(self.carrier).expect("descriptors are to be had");
        let log = self.stage.path("stderr.log");
        let (theirs_err, deaf) = match self.stderr {
            Stderr::Log => {
                let file = File::options().create(true).append(true).open(&log);
                (file.expect("the HOME takes a file").into(), None)
            }
            Stderr::Deaf => {
                let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe is to be had");
                (theirs, Some(ours))
            }
            Stderr::Given(fd) => (fd, None),
        };
        let child = self
            .command
            .stdin(theirs_in)
            .stdout(theirs_out)
            .stderr(Stdio::from(theirs_err))
            .spawn()
            .expect("the command can be started");
        let who = identity::of(child.id() as i32).expect("an unreaped child is in the table");
        Client {
            wire,
            who,
            child,
            log,
            deaf,
        }
    }
}

impl Client {
    /// Starts a command with pipes and does the opening exchange.
    pub fn open(stage: &Stage, argv: &[OsString]) -> Self {
        let mut client = Launch::new(stage, argv).start();
        client
            .wire
            .initialize()
            .expect("the opening exchange succeeds");
        client
    }

    /// The same, and waits until the sweep of this start has ended. For a session that the test kills and then leaves to another
    /// command: a sweep that is still running might end the remains first.
    pub fn open_swept(stage: &Stage, argv: &[OsString]) -> Self {
        // A sweep removes this directory first of all, so once it is gone the sweep runs under its own name.
        let half_made = state_dir(stage.home()).join("run/.new-00000000");
        std::fs::create_dir_all(&half_made).expect("the HOME takes a directory");
        let client = Self::open(stage, argv);
        until("the sweep has begun", || {
            (!half_made.exists()).then_some(())
        });
        stage.census.wait_swept();
        client
    }

    /// Waits for the end of the process that was started.
    pub fn wait(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_raw(self.who.pid).expect("a pid is not 0");
        if let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            let end = Deadline::after(HANG_STOP);
            let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
            while poll_for(&mut fds, end.left()) == 0 {
                assert!(!end.passed(), "pid {} does not end", self.who.pid);
            }
        }
        self.child.wait().expect("a child can be waited for")
    }

    /// Whether the process that was started still runs.
    pub fn runs(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("a child can be asked")
            .is_none()
    }

    /// Closes stdin and waits for the end. Returns what still came on stdout.
    pub fn finish(&mut self) -> (ExitStatus, Vec<u8>) {
        self.wire.close_write();
        let rest = self.wire.rest().expect("stdout can be read to its end");
        (self.wait(), rest)
    }

    /// Closes stdin and waits for the process that was started. Another process may still hold its stdout.
    pub fn finish_without_waiting_for_stdout(&mut self) -> ExitStatus {
        self.wire.close_write();
        self.wait()
    }

    /// The text on stderr so far.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The read end of stderr, if it was started with [`Stderr::Deaf`].
    pub fn deaf_end(&self) -> Option<&OwnedFd> {
        self.deaf.as_ref()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Without this wait, the child would stay as a zombie of the test process. The census ends what is left.
        self.wire.close_write();
        if self.runs() && std::thread::panicking() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// Our ends and theirs: stdin and stdout.
pub fn ends(carrier: Carrier) -> io::Result<(Wire, Stdio, Stdio)> {
    let ((their_in, our_to), (our_from, their_out)) = match carrier {
        Carrier::Pipes => (
            pipe_with(PipeFlags::CLOEXEC)?,
            pipe_with(PipeFlags::CLOEXEC)?,
        ),
        Carrier::Sockets => (sockets()?, sockets()?),
    };
    Ok((
        Wire::new(our_to, our_from),
        their_in.into(),
        their_out.into(),
    ))
}

fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = UnixStream::pair()?;
    Ok((one.into(), other.into()))
}
