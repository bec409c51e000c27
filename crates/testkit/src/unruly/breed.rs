//! Makes processes of every kind that escapes an ordinary clean-up.
//!
//! Each function returns when the new process is in place (in its session, orphaned, stopped, executed). A pipe shows that: it
//! closes on exec or by hand.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process, setsid, waitpid};

use super::{EXPIRE_S, linger};
use crate::fork::{Side, expire_after, fork, leave};
use crate::unruly::Flags;
use crate::wait::{Deadline, idle};

/// How long a process of a fork-and-exit chain lives. Without a pause one chain takes a whole core.
const COMET_PAUSE: Duration = Duration::from_millis(1);

/// When a chain ends by itself, by default.
const COMET_LIFE: Duration = Duration::from_secs(20);

/// Makes the processes of a server.
#[derive(Clone, Debug)]
pub struct Breed<'a>(&'a Flags);

impl<'a> Breed<'a> {
    /// For a server with these flags.
    pub fn of(flags: &'a Flags) -> Self {
        Self(flags)
    }

    /// Makes all processes that the flags ask for.
    pub fn make_all(&self) -> io::Result<()> {
        let flags = self.0;
        for (wanted, what) in [
            (flags.grandchild, "grandchild"),
            (flags.setsid_child, "setsid"),
            (flags.daemon, "daemon"),
            (flags.daemon_clean_env, "daemon_clean_env"),
            (flags.stopped_child, "stopped"),
        ] {
            if wanted {
                self.make(what)?;
            }
        }
        for number in 0..flags.tree {
            self.make(["grandchild", "setsid", "daemon"][number as usize % 3])?;
        }
        for number in 0..flags.comets {
            comet(number % 2 == 1, flags.comet_life.unwrap_or(COMET_LIFE))?;
        }
        orphans(flags.orphans)
    }

    /// Makes one process by the name of its kind.
    pub fn make(&self, what: &str) -> io::Result<()> {
        match what {
            "grandchild" => child(|| Ok(())),
            "setsid" => child(new_session),
            "daemon" => daemon(drop),
            "daemon_clean_env" => daemon(|ready| self.execute_bare(ready)),
            "stopped" => stopped(),
            "comet" => comet(false, self.0.comet_life.unwrap_or(COMET_LIFE)),
            unknown => Err(io::Error::other(format!(
                "no kind of process is called {unknown}"
            ))),
        }
    }

    fn execute_bare(&self, ready: OwnedFd) -> ! {
        // The pipe closes on exec, and so not before the empty environment is in force.
        let failed = std::env::current_exe().map(|program| {
            #[expect(
                clippy::disallowed_methods,
                reason = "an unruly member executes itself"
            )]
            let mut command = Command::new(program);
            command
                .args(["--mark", &self.0.mark, "--role", "idle"])
                .args(self.0.ignore_term.then_some("--ignore-term"))
                .env_clear()
                .exec()
        });
        drop((ready, failed));
        leave(72)
    }
}

/// A plain child. `prepare` runs in it before it counts as in place.
fn child(prepare: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (told, ready) = ready_pipe()?;
    match fork()? {
        Side::Child => {
            expire_after(EXPIRE_S);
            if prepare().is_err() {
                leave(73);
            }
            drop((ready, told));
            linger()
        }
        Side::Parent(_) => {
            drop(ready);
            wait_end(&told)
        }
    }
}

/// Double fork, own session, /dev/null only. It is orphaned before `in_place` reports that it is in place.
fn daemon(in_place: impl FnOnce(OwnedFd)) -> io::Result<()> {
    let (told, ready) = ready_pipe()?;
    match fork()? {
        Side::Child => {
            if new_session().is_err() {
                leave(73);
            }
            let parent = Some(getpid());
            match fork() {
                Ok(Side::Child) => {
                    expire_after(EXPIRE_S);
                    drop(told);
                    if null_stdio().is_err() {
                        leave(73);
                    }
                    // The parent exits at once. From then on this process is an orphan.
                    while getppid() == parent {
                        std::thread::yield_now();
                    }
                    in_place(ready);
                    linger()
                }
                Ok(Side::Parent(_)) => leave(0),
                Err(_) => leave(73),
            }
        }
        Side::Parent(pid) => {
            drop(ready);
            reap(pid)?;
            wait_end(&told)
        }
    }
}

/// A child that has got SIGSTOP.
fn stopped() -> io::Result<()> {
    match fork()? {
        Side::Child => {
            expire_after(EXPIRE_S);
            kill_process(getpid(), Signal::STOP).ok();
            linger()
        }
        Side::Parent(pid) => {
            waitpid(Pid::from_raw(pid), WaitOptions::UNTRACED)?;
            Ok(())
        }
    }
}

/// A chain of processes, each of which forks the next and exits.
fn comet(own_sessions: bool, life: Duration) -> io::Result<()> {
    let end = Deadline::after(life);
    match fork()? {
        Side::Child => loop {
            expire_after(EXPIRE_S);
            if own_sessions {
                setsid().ok();
            }
            idle(COMET_PAUSE);
            if end.passed() {
                leave(0);
            }
            match fork() {
                Ok(Side::Child) => {}
                Ok(Side::Parent(_)) => leave(0),
                // Out of processes for the moment: this process lives on and tries again.
                Err(_) => idle(COMET_PAUSE),
            }
        },
        // The first process is ours to reap. The others are orphans.
        Side::Parent(pid) => reap(pid),
    }
}

/// Grandchildren, one after the other, each orphaned and ended at once.
pub fn orphans(count: u32) -> io::Result<()> {
    for _ in 0..count {
        match fork()? {
            Side::Child => {
                drop(fork());
                leave(0)
            }
            Side::Parent(pid) => reap(pid)?,
        }
    }
    Ok(())
}

fn new_session() -> io::Result<()> {
    setsid()?;
    Ok(())
}

fn null_stdio() -> io::Result<()> {
    let null = OwnedFd::from(
        std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?,
    );
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Both ends close on exec. The reader sees the end when the last writer has exited or executed.
fn ready_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

fn wait_end(told: &OwnedFd) -> io::Result<()> {
    let mut byte = [0u8];
    loop {
        match rustix::io::read(told, &mut byte) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn reap(pid: i32) -> io::Result<()> {
    loop {
        match waitpid(Pid::from_raw(pid), WaitOptions::empty()) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
