//! Starts a server: one clone, everything prepared before it, and the exact reason if it fails.
//!
//! The child gets a session of its own, the default signal state, and the descriptors 0, 1 and 2 that it was given,
//! but no others. It dies with its witness, and the witness dies with the thread that spawned it. It is in its leaf
//! before its first instruction runs. From us it inherits the umask, the limits and, if none is given, the directory.
//!
//! Invariants: the caller has one thread, and no other code waits for its children. No memory is allocated between
//! the clone and the exec. A failed spawn leaves no process, no zombie and no leaf.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mainstay_protocol::ids::Identity;
use mainstay_protocol::tier::{Tier, WhyNot};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::identity;
use crate::tier::{Choice, Place, pidns};
use crate::tree::{Hold, Tree};

pub(crate) mod child;
pub(crate) mod clone;
pub(crate) mod witness;

use child::Image;
use clone::NewChild;
use witness::Witness;

/// How much a server's `oom_score_adj` is raised above ours, so that the kernel kills it before us.
pub const OOM_RAISE: i32 = 200;

/// What to start, and how.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The command and its arguments; must not be empty.
    pub argv: &'a [CString],
    /// The complete environment, tag included.
    pub env: &'a [CString],
    /// The directory to run in; ours if none is given.
    pub cwd: Option<&'a Path>,
    /// The server's fd 0.
    pub stdin: BorrowedFd<'a>,
    /// The server's fd 1.
    pub stdout: BorrowedFd<'a>,
    /// The server's fd 2.
    pub stderr: BorrowedFd<'a>,
    /// Where it goes, from [`crate::tier::choose`].
    pub choice: Choice,
    /// Usually [`OOM_RAISE`].
    pub oom_score_adj_raise: i32,
}

/// A running server.
#[derive(Debug)]
pub struct Spawned {
    /// The server process, in our own pid namespace.
    pub who: Identity,
    /// The server and all its descendants; [`Tree::reap`] returns how it ends.
    pub tree: Tree,
    /// The tier in force. Weaker than the chosen one if that place refused the process.
    pub tier: Tier,
    /// Why no stronger tier.
    pub why_not: Vec<WhyNot>,
}

/// How far a spawn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was started: no pipe, no memory, no process.
    Clone,
    /// The process could not be put into the tier that was required.
    Place,
    /// The descriptors could not be put in place.
    Stdio,
    /// The directory could not be entered.
    Cwd,
    /// The file is there, but the interpreter or loader that it names is not.
    Interpreter,
    /// The command could not be executed.
    Exec,
}

/// Why a server could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnError {
    /// How far it came.
    pub stage: Stage,
    /// The kernel's reason.
    pub errno: i32,
    /// The file or directory that the error is about; for `Exec`, what was tried.
    pub path: PathBuf,
    /// For [`Stage::Place`]: the tiers that were refused, and why.
    pub why_not: Vec<WhyNot>,
}

impl SpawnError {
    /// What was wrong, as a fragment.
    pub fn problem(&self) -> String {
        let path = self.path.display();
        let reason = io::Error::from_raw_os_error(self.errno);
        match (self.stage, self.errno) {
            (Stage::Exec, libc::ENOENT) => format!("command not found: {path}"),
            (Stage::Exec, libc::EACCES) => format!("not executable: {path}"),
            (Stage::Exec, libc::E2BIG) => format!("arguments and environment too long for {path}"),
            (Stage::Exec, _) => format!("cannot execute {path}: {reason}"),
            (Stage::Interpreter, _) => {
                format!("{path} is there, but the interpreter that it names is not")
            }
            (Stage::Cwd, libc::ENOENT) => format!("no such directory: {path}"),
            (Stage::Cwd, _) => format!("cannot enter {path}: {reason}"),
            (Stage::Clone, witness::KILLED) => {
                "another process killed the one that was about to start it".into()
            }
            (Stage::Clone, _) => format!("no new process: {reason}"),
            (Stage::Stdio, _) => format!("the server's pipes could not be set up: {reason}"),
            (Stage::Place, _) => {
                let reasons: Vec<String> = self
                    .why_not
                    .iter()
                    .map(|why| format!("{}: {}", why.tier, why.reason))
                    .collect();
                format!("the required tier is not there ({})", reasons.join("; "))
            }
        }
    }

    /// What to do about it, as a fragment.
    pub fn hint(&self) -> &'static str {
        match (self.stage, self.errno) {
            (Stage::Exec, libc::ENOENT) => {
                "install it, or give its full path: a client may pass a shorter PATH than your shell has"
            }
            (Stage::Exec, libc::EACCES) => "make it executable (chmod +x), or name a file",
            (Stage::Exec, _) => "run the command by hand to see what it needs",
            (Stage::Interpreter, _) => "correct its first line (#!), or install the interpreter",
            (Stage::Cwd, _) => "make the directory, or correct `cwd` in the config file",
            (Stage::Clone, witness::KILLED) => {
                "mainstay trace-signals, as root, names the process that did it"
            }
            (Stage::Clone | Stage::Stdio, _) => {
                "the machine or this user is out of processes, descriptors or memory: end some"
            }
            (Stage::Place, _) => "ask for a weaker tier, or leave --require-tier out",
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem())
    }
}

impl std::error::Error for SpawnError {}

/// Starts a server. Blocks until its exec has succeeded or failed.
pub fn spawn(plan: Plan<'_>) -> Result<Spawned, SpawnError> {
    let image = Image::of(&plan).map_err(|errno| early_error(&plan, errno))?;
    let (verdict, report) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|errno| early_error(&plan, errno.raw_os_error()))?;
    let Plan { argv, choice, .. } = plan;
    let program = Path::new(OsStr::from_bytes(
        argv.first().map_or(b"", |a| a.to_bytes()),
    ));
    let placed = launch(&image, &report, choice);
    drop(report);
    let placed = match placed {
        Ok(placed) => placed,
        Err(refusal) => {
            // If the witness was killed, its child may still use our memory. When the pipe closes, it does not any
            // more.
            child::read_failure(verdict);
            return Err(refusal.at(program));
        }
    };
    let Placed {
        born,
        witness,
        hold,
        tier,
        why_not,
    } = placed;
    if let Some(failure) = child::read_failure(verdict) {
        // The failed server exits, then the namespace's init if there is one, then their witness.
        witness.wait_exit();
        return Err(failure.into_error(&image, program));
    }
    let who = match &hold {
        Hold::Pidns(init) => init.server,
        // A server that has already ended and was reaped has no entry. Then this identity matches no process.
        Hold::Parenthood | Hold::Leaf(_) => identity::of(born.pid).unwrap_or(Identity {
            pid: born.pid,
            start: 0,
        }),
    };
    Ok(Spawned {
        who,
        tree: Tree::new(who, born.pidfd, witness, hold),
        tier,
        why_not,
    })
}

struct Placed {
    born: NewChild,
    witness: Witness,
    hold: Hold,
    tier: Tier,
    why_not: Vec<WhyNot>,
}

struct CannotSpawn {
    stage: Stage,
    errno: i32,
    why_not: Vec<WhyNot>,
}

impl CannotSpawn {
    fn at(self, program: &Path) -> SpawnError {
        SpawnError {
            stage: self.stage,
            errno: self.errno,
            path: program.to_owned(),
            why_not: self.why_not,
        }
    }
}

/// Starts the child in its place, or in the next weaker one that the wish allows.
fn launch(image: &Image, report: &OwnedFd, mut choice: Choice) -> Result<Placed, CannotSpawn> {
    loop {
        let reason = match attempt(image, report, &mut choice) {
            Ok(((born, witness), hold, tier)) => {
                return Ok(Placed {
                    born,
                    witness,
                    hold,
                    tier,
                    why_not: choice.why_not,
                });
            }
            Err(Attempt::Clone(error)) => {
                return Err(CannotSpawn {
                    stage: Stage::Clone,
                    errno: error.raw_os_error().unwrap_or(libc::EIO),
                    why_not: Vec::new(),
                });
            }
            Err(Attempt::Place(reason)) => reason,
        };
        choice = choice.weaker(reason).map_err(|why_not| CannotSpawn {
            stage: Stage::Place,
            errno: libc::EPERM,
            why_not,
        })?;
    }
}

/// Why one attempt failed: no process at all, or no process in that place.
enum Attempt {
    Clone(io::Error),
    Place(String),
}

impl From<io::Error> for Attempt {
    fn from(error: io::Error) -> Self {
        Self::Clone(error)
    }
}

fn attempt(
    image: &Image,
    report: &OwnedFd,
    choice: &mut Choice,
) -> Result<((NewChild, Witness), Hold, Tier), Attempt> {
    match std::mem::replace(&mut choice.place, Place::Subreaper) {
        Place::Subreaper => {
            let started = clone::start(image, report, None, None)?;
            Ok((started, Hold::Parenthood, Tier::Subreaper))
        }
        Place::Cgroup(leaf) => {
            match clone::start(image, report, Some(leaf.as_fd()), None) {
                Ok(started) => return Ok((started, Hold::Leaf(leaf), Tier::Cgroup)),
                Err(error) if error.raw_os_error() == Some(witness::KILLED) => {
                    return Err(Attempt::Clone(error));
                }
                Err(_) => {}
            }
            // No clone3 (seccomp), or none into a cgroup (before Linux 5.7): the child waits while we move it.
            let waiting = Waiting::start(image, report)?;
            if let Err(error) = leaf.add(waiting.born.pid) {
                waiting.reject();
                let path = leaf.path().display();
                return Err(Attempt::Place(format!(
                    "the server could not be moved into {path} ({error})"
                )));
            }
            Ok((waiting.admit(), Hold::Leaf(leaf), Tier::Cgroup))
        }
        Place::Scope(mut manager) => {
            let waiting = Waiting::start(image, report)?;
            let adopted = match manager.adopt(waiting.born.pid) {
                Ok(adopted) => adopted,
                Err(refusal) => {
                    waiting.reject();
                    return Err(Attempt::Place(refusal.to_string()));
                }
            };
            // The guardian starts while the server does, unless the guardian is required.
            let (born, guardian) = if choice.wish.allows(Tier::Cgroup) {
                let born = waiting.admit();
                (born, manager.confirm_guardian(&adopted))
            } else {
                match manager.confirm_guardian(&adopted) {
                    Ok(()) => (waiting.admit(), Ok(())),
                    Err(refusal) => {
                        waiting.reject();
                        return Err(Attempt::Place(refusal.to_string()));
                    }
                }
            };
            let tier = match guardian {
                Ok(()) => Tier::Scope,
                Err(refusal) => {
                    let tier = Tier::Scope;
                    let reason = refusal.to_string();
                    choice.why_not.push(WhyNot { tier, reason });
                    Tier::Cgroup
                }
            };
            Ok((born, Hold::Leaf(adopted.leaf), tier))
        }
        Place::Pidns => {
            let (started, init) = pidns::start(image, report).map_err(|failed| match failed {
                pidns::Failed::Place(reason) => Attempt::Place(reason),
                pidns::Failed::Lost(error) => Attempt::Clone(error),
            })?;
            Ok((started, Hold::Pidns(init), Tier::Pidns))
        }
    }
}

/// A child that waits before anything else until it is admitted.
struct Waiting {
    born: NewChild,
    witness: Witness,
    gate: OwnedFd,
}

impl Waiting {
    fn start(image: &Image, report: &OwnedFd) -> io::Result<Self> {
        let (wait, gate) = pipe_with(PipeFlags::CLOEXEC)?;
        let (born, witness) = clone::start(image, report, None, Some((&wait, &gate)))?;
        Ok(Self {
            born,
            witness,
            gate,
        })
    }

    fn admit(self) -> (NewChild, Witness) {
        // If the child died while it waited, its exit status tells, as for any other death.
        drop(File::from(self.gate).write_all(b"!"));
        (self.born, self.witness)
    }

    /// The child exits without a report, because the gate's write end is closed.
    fn reject(self) {
        drop(self.gate);
        self.witness.wait_exit();
    }
}

fn early_error(plan: &Plan<'_>, errno: i32) -> SpawnError {
    SpawnError {
        stage: if plan.argv.is_empty() {
            Stage::Exec
        } else {
            Stage::Clone
        },
        errno,
        path: PathBuf::new(),
        why_not: Vec::new(),
    }
}
