//! One generation, as the keeper holds it: its process, its pipes, its tree.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mainstay_core::event::{Status, Usage};
use mainstay_core::ids::Identity;
use mainstay_core::link::Holders;
use mainstay_core::tier::{Tier, WhyNot};
use mainstay_os::spawn::{self, OOM_RAISE, SpawnError, Stage};
use mainstay_os::tree::Tree;
use mainstay_os::{clock, tier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

use super::code;
use super::plan::Plan;
use super::port::{Port, Way};
use super::watch::Watched;
use crate::container::held::Held;
use crate::exit::Exit;

/// How much of a dead server's stdin is read at a time: as much as a pipe has unless somebody changed it.
const READ_BYTES: usize = 64 * 1024;

/// A server that was started.
pub struct Running {
    /// The server process.
    pub who: Identity,
    /// When it was started, by the clock that stamps files.
    pub started: code::Stamp,
    /// Its tree.
    pub tree: Tree,
    /// Its pidfd, until it has ended; none if it cannot be watched, and then its witness's end must do.
    life: Option<Watched<OwnedFd>>,
    /// The tier in force.
    pub tier: Tier,
    /// Why no stronger one.
    pub why_not: Vec<WhyNot>,
    /// Its stdin, until it is closed.
    pub stdin: Option<Port>,
    /// The other end of its stdin once that is closed: what it leaves unread is there still.
    stdin_rest: Option<OwnedFd>,
    /// Its stdout, until its end.
    pub stdout: Option<Port>,
    /// How the process ended.
    pub exit: Option<Ended>,
    /// Everybody who was seen in the tree since the ladder began.
    pub seen: BTreeSet<i32>,
    /// How often memory had run out when it was started: in its leaf, on the machine.
    pub oom_kills: (Option<u64>, Option<u64>),
    /// The container that it runs in, if it is a container engine's command.
    pub container: Option<Held>,
}

/// How the server process ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// How.
    pub status: Status,
    /// What it used.
    pub usage: Usage,
}

/// Why it could not be started, in words.
pub struct Failure {
    /// What was wrong.
    pub problem: String,
    /// What to do.
    pub hint: String,
    /// The exit code for it.
    pub code: Exit,
}

/// Starts a generation by this command; its stderr comes apart.
pub fn start(plan: &Plan, argv: &[OsString], keeper: Identity) -> Result<(Running, Port), Failure> {
    let tag = plan.tag(keeper);
    let choice = tier::choose(plan.wish, &tag).map_err(|why_not| no_tier(&why_not))?;
    let (stdin, stdout, stderr) = pipes().map_err(|error| no_pipes(&error))?;
    let (argv, env) = (plan.argv_c(argv), plan.env_c(&tag));
    let port = |fd: OwnedFd, way| Port::of_ours(fd, way).map_err(|error| no_pipes(&error));
    // Once the server runs nothing may fail any more: nobody would end it.
    let (ours, theirs) = (
        (
            port(stdin.1, Way::Out)?,
            port(stdout.0, Way::In)?,
            port(stderr.0, Way::In)?,
        ),
        (stdin.0, stdout.1, stderr.1),
    );
    let started = clock::wall();
    let spawned = spawn::spawn(spawn::Plan {
        argv: &argv,
        env: &env,
        cwd: plan.cwd.as_deref(),
        stdin: theirs.0.as_fd(),
        stdout: theirs.1.as_fd(),
        stderr: theirs.2.as_fd(),
        choice,
        oom_score_adj_raise: OOM_RAISE,
    })
    .map_err(|error| not_spawned(&error))?;
    let oom_kills = (
        spawned.tree.oom_kills(),
        mainstay_os::measure::oom_kills_of_the_machine(),
    );
    let life = spawned.tree.pidfd().and_then(|fd| fd.try_clone().ok());
    let running = Running {
        who: spawned.who,
        started,
        life: life.and_then(|fd| Watched::new(fd).ok()),
        tree: spawned.tree,
        tier: spawned.tier,
        why_not: spawned.why_not,
        stdin: Some(ours.0),
        stdin_rest: None,
        stdout: Some(ours.1),
        exit: None,
        seen: BTreeSet::new(),
        oom_kills,
        container: None,
    };
    Ok((running, ours.2))
}

impl Running {
    /// Whether the server process has ended; that is told once.
    pub fn has_ended(&mut self) -> bool {
        self.life.take_if(Watched::poll_ready).is_some()
    }

    /// Closes its stdin.
    pub fn close_stdin(&mut self) {
        if let Some(stdin) = self.stdin.take() {
            // A reader of our own keeps no other reader from seeing the end; without one, less is known at a death.
            self.stdin_rest = other_end(&stdin).ok();
        }
    }

    /// Takes what nobody has read out of its stdin; none while somebody may read it yet.
    pub fn take_unread(&mut self) -> Option<Vec<u8>> {
        let rest = match (&self.stdin, self.stdin_rest.take()) {
            (Some(stdin), _) if !self.stdin_has_readers() => other_end(stdin).ok()?,
            (None, Some(rest)) if self.tree.members().is_empty() => rest,
            (Some(_) | None, rest) => {
                self.stdin_rest = rest;
                return None;
            }
        };
        let mut unread = Vec::with_capacity(READ_BYTES);
        // Its end, or nothing more before it.
        while rustix::io::read(&rest, rustix::buffer::spare_capacity(&mut unread))
            .is_ok_and(|len| len > 0)
        {
            unread.reserve(READ_BYTES);
        }
        Some(unread)
    }

    /// Whether somebody still reads the server's stdin.
    pub fn stdin_has_readers(&self) -> bool {
        let Some(stdin) = &self.stdin else {
            return false;
        };
        let mut fds = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok() && !fds[0].revents().contains(PollFlags::ERR)
    }

    /// Who of the tree still holds both its stdin and its stdout.
    pub fn holders(&self) -> Holders {
        match &self.stdout {
            Some(stdout) if self.stdin_has_readers() => Holders::Somebody {
                written: self.tree.written_by_writers(stdout),
            },
            Some(_) | None => Holders::Nobody,
        }
    }

    /// Notes who is in the tree now.
    pub fn look(&mut self) -> Vec<Identity> {
        let members = self.tree.members();
        self.seen.extend(members.iter().map(|stat| stat.pid));
        members.iter().map(mainstay_os::census::Stat::who).collect()
    }
}

/// The end that others read from; the kernel keeps what is in a pipe as long as one of its ends is open.
fn other_end(stdin: &Port) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", stdin.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
}

type Ends = (OwnedFd, OwnedFd);

/// Three pipes; our ends do not block, the server's do.
fn pipes() -> io::Result<(Ends, Ends, Ends)> {
    let pipe = |ours: fn(&Ends) -> &OwnedFd| -> io::Result<Ends> {
        let ends = pipe_with(PipeFlags::CLOEXEC)?;
        let flags = fcntl_getfl(ours(&ends))?;
        fcntl_setfl(ours(&ends), flags | OFlags::NONBLOCK)?;
        Ok(ends)
    };
    let from_us = pipe(|ends| &ends.1)?;
    Ok((from_us, pipe(|ends| &ends.0)?, pipe(|ends| &ends.0)?))
}

fn no_tier(why_not: &[WhyNot]) -> Failure {
    let reasons: Vec<String> = why_not
        .iter()
        .map(|why| format!("{}: {}", why.tier, why.reason))
        .collect();
    Failure {
        problem: format!("the required tier is not there ({})", reasons.join("; ")),
        hint: "ask for a weaker tier, or leave --tier and --require-tier out".into(),
        code: Exit::Failed,
    }
}

fn no_pipes(error: &io::Error) -> Failure {
    Failure {
        problem: format!("no pipes for the server: {error}"),
        hint: "raise the limit of open files (ulimit -n)".into(),
        code: Exit::Failed,
    }
}

fn not_spawned(error: &SpawnError) -> Failure {
    let code = match (error.stage, error.errno) {
        (Stage::Exec, libc::ENOENT) => Exit::NoSuchCommand,
        (Stage::Exec | Stage::Interpreter, _) => Exit::NotExecutable,
        (Stage::Clone | Stage::Place | Stage::Stdio | Stage::Cwd, _) => Exit::Failed,
    };
    Failure {
        problem: error.problem(),
        hint: error.hint().into(),
        code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Paths;
    use mainstay_core::event::Detached;
    use mainstay_core::ids::LinkId;
    use mainstay_core::limits::Limits;
    use mainstay_core::policy::Policy;
    use mainstay_os::{census, identity};

    fn plan(argv: &[&str]) -> Plan {
        Plan {
            id: LinkId(7),
            name: "s".into(),
            argv: argv.iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: None,
            limits: Limits::default(),
            policy: Policy::default(),
            watch: Vec::new(),
            record: false,
            lease: None,
            frames: None,
            secrets: false,
            wish: tier::Wish::Exactly(Tier::Subreaper),
            paths: Paths::nowhere(),
            realm: identity::realm().unwrap(),
            started_at: String::new(),
            shim: identity::me().unwrap(),
            ancestors: Vec::new(),
            client: None,
            detached: Detached::Yes,
            linger: None,
            refused: None,
        }
    }

    #[test]
    fn without_ports_nobody_is_started() {
        let me = identity::me().unwrap();
        // No list of what is ready was begun in this thread, so a port to read from is refused.
        let word = format!("without-ports-{}", me.pid);
        let plan = plan(&["sh", "-c", "sleep 9; exit 0", &word]);
        let failure = start(&plan, &plan.argv, me).err();
        let problem = failure.map(|failure| failure.problem).unwrap_or_default();
        assert!(problem.contains("no pipes for the server"), "{problem}");
        let children = census::children(me.pid).unwrap();
        let started = children
            .iter()
            .find(|&&pid| census::cmdline(pid).contains(&word));
        assert_eq!(started, None);
    }
}
