//! The sandbox of the demo: a private directory that is HOME and working directory of every process of the demo.
//!
//! The directory also proves ownership. Its name is random and no other user may enter it, so every process with this working
//! directory is ours, whatever its parent, session or environment.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use mainstay_os::census::{self, Stat};
use mainstay_os::identity::Handle;
use mainstay_os::{clock, role};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Seen, What};
use mainstay_protocol::ids::Identity;
use mainstay_report::story::Story;
use mainstay_report::{Exit, Report, plain};
use mainstay_store::ledger::read::{Events, Filter};
use mainstay_store::paths::Paths;
use mainstay_store::registry::card::Card;
use mainstay_store::registry::list::find_card;
use mainstay_store::state::DIRECTORY_MODE;
use rustix::process::{Signal, WaitOptions, wait};

use super::announcements::{Announcement, Announcements};
use super::commands;
use super::connection::Connection;
use super::role::helpers::TREE_SIZE;
use super::role::server::THINKING;
use super::waiter::{DemoError, Waiter};

/// How long one step of a scene may take before the scene fails. Far more than a loaded machine needs.
pub const PATIENCE_MS: u64 = 20_000;
/// How long the last processes may take to end after a scene.
const SETTLE_MS: u64 = 5_000;
/// How long mainstay may take to end after all servers and clients of the demo have ended.
const LEAVE_MS: u64 = 1_000;

/// How many processes are waited for at once, so that few descriptors are enough to end all of them.
const AT_ONCE: usize = 8;

/// The directory of the demo, and the processes in it.
#[derive(Debug)]
pub struct Sandbox {
    /// The processes that have announced themselves.
    pub announcements: Announcements,
    pub waiter: Waiter,
    paths: Paths,
    home: Home,
}

/// The variables that processes of the demo get: where programs are, how to print, where the user's systemd is, and the mark of the tests.
const PASSED: [&str; 11] = [
    "PATH",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "USER",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "MAINSTAY_TEST",
];

/// The directory; it is removed on drop.
#[derive(Debug)]
struct Home(PathBuf);

impl Sandbox {
    /// Creates the directory.
    pub fn open() -> Result<Self, Report> {
        let home = Home::make()?;
        let failed = |error: &io::Error| {
            Report::new(Exit::Unhealthy, "cannot set up the demo").because(plain(error))
        };
        // A process of the demo that loses its parent becomes our child, so that it is reaped even if PID 1 does not reap.
        role::become_subreaper().map_err(|error| failed(&error))?;
        Ok(Self {
            announcements: Announcements::open(&home.0).map_err(|error| failed(&error))?,
            waiter: Waiter::with_signals().map_err(|error| failed(&error))?,
            paths: Paths::below(home.0.clone())?,
            home,
        })
    }

    /// A command that runs in the sandbox. It gets few variables of ours, because others may lead out of the sandbox: clients and mainstay find
    /// config files by `XDG_CONFIG_HOME`, `CLAUDE_CONFIG_DIR`, `CODEX_HOME` and more.
    pub fn command(&self, words: &[OsString]) -> Command {
        let mut command = commands::command(words);
        let passed = PASSED
            .iter()
            .filter_map(|name| Some((name, env::var_os(name)?)));
        command
            .env_clear()
            .envs(passed)
            .env("HOME", &self.home.0)
            .current_dir(&self.home.0);
        command
    }

    /// Starts a server with the demo itself as its client.
    pub fn serve(&self, words: &[OsString]) -> io::Result<(Child, Connection)> {
        Self::serve_as(&mut self.command(words))
    }

    /// The same, for a command of [`Self::command`].
    pub fn serve_as(command: &mut Command) -> io::Result<(Child, Connection)> {
        let mut child = commands::spawn_piped(command)?;
        let connection = Connection::of(&mut child)?;
        Ok((child, connection))
    }

    /// The state directory of the scenes' `mainstay run`.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The time limit of a wait that begins now.
    pub fn limit() -> Moment {
        clock::now().after_ms(PATIENCE_MS)
    }

    /// The card of the link with this name, as `mainstay ps` reads it.
    pub fn card(&self, name: &str) -> Result<Card, DemoError> {
        find_card(&self.paths, |card| card.name == name, || true)?
            .ok_or_else(|| DemoError::Failed(format!("no link has the name {name}")))
    }

    /// How often a server of this name was started so far, as `mainstay events` shows it.
    pub fn starts(&self, name: &str) -> Result<u32, DemoError> {
        let filter = Filter {
            server: Some(name.into()),
            ..Filter::default()
        };
        let mut starts = 0;
        // The closure never breaks.
        let _all: ControlFlow<()> = Events::open(&self.paths, filter).read(|event, _line| {
            starts += u32::from(matches!(event.what, What::Start(_)));
            ControlFlow::Continue(())
        })?;
        Ok(starts)
    }

    /// The text of `mainstay why` for the last event of a server that `of` accepts.
    pub fn story(&self, name: &str, of: impl Fn(&What) -> bool) -> Result<String, DemoError> {
        let filter = Filter {
            server: Some(name.into()),
            ..Filter::default()
        };
        let mut events = Vec::new();
        // The closure never breaks.
        let _all: ControlFlow<()> = Events::open(&self.paths, filter).read(|event, _line| {
            events.push(event.clone());
            ControlFlow::Continue(())
        })?;
        let death = events.iter().rposition(|event| of(&event.what));
        let story = death.and_then(|death| Story::of(&events, death));
        story
            .map(|story| story.told)
            .ok_or_else(|| DemoError::Failed(format!("no such event of {name} was recorded")))
    }

    /// Waits until a server with its helpers has announced itself and its tool `think` was called. Returns the processes.
    pub fn thinking_server(&mut self, limit: Moment) -> Result<Vec<Announcement>, DemoError> {
        self.announcements
            .wait_until(&self.waiter, "the server", limit, |announced| {
                announced.len() > TREE_SIZE && announced.iter().any(|one| one.what == THINKING)
            })?;
        let mut tree = self.announcements.take(|_| true);
        tree.retain(|one| one.what != THINKING);
        Ok(tree)
    }

    /// Waits until all of these processes have ended. Returns false if the time is up before.
    pub fn ended(&self, handles: &[&Handle], limit: Moment) -> Result<bool, DemoError> {
        for handle in handles {
            if self.waiter.wait(&[handle.as_fd()], limit)? == [false] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// After a scene: waits until no process is left. Processes that do not end are killed and returned.
    pub fn wait_until_empty(&mut self) -> Result<Vec<Seen>, DemoError> {
        let limit = clock::now().after_ms(SETTLE_MS);
        self.announcements.clear();
        loop {
            let here = self.processes()?;
            if here.is_empty() {
                reap();
                return Ok(Vec::new());
            }
            let handles: Vec<Handle> = here.iter().take(AT_ONCE).filter_map(handle).collect();
            if !self.ended(&handles.iter().collect::<Vec<_>>(), limit)? {
                break;
            }
        }
        let left = self.processes()?;
        self.end_all()?;
        Ok(left.into_iter().map(seen).collect())
    }

    /// Kills and returns the processes that are left, and removes the directory.
    pub fn close(mut self) -> io::Result<Vec<Seen>> {
        let left = self.processes()?;
        self.end_all()?;
        let Self {
            home,
            announcements,
            waiter,
            ..
        } = self;
        drop((announcements, waiter));
        home.remove()?;
        Ok(left.into_iter().map(seen).collect())
    }

    /// The living processes of the demo.
    fn processes(&self) -> io::Result<Vec<Stat>> {
        Ok(census::pids()?
            .into_iter()
            .filter(|pid| {
                fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.home.0)
            })
            .filter_map(|pid| census::stat(pid).ok())
            .filter(|stat| !stat.dead())
            .collect())
    }

    /// Ends all processes of the demo. Servers and clients come first: then mainstay has nothing left to keep, ends by itself and
    /// removes its cgroups. What is still left is killed too.
    pub fn end_all(&mut self) -> io::Result<()> {
        self.announcements.clear();
        let limit = clock::now().after_ms(SETTLE_MS);
        self.kill_all(has_role, limit)?;
        let others = self.processes()?;
        let others: Vec<Handle> = others.iter().take(AT_ONCE).filter_map(handle).collect();
        await_ends(&others, clock::now().after_ms(LEAVE_MS));
        self.kill_all(|_| true, limit)?;
        reap();
        Ok(())
    }

    /// Kills the processes that `selects` accepts, and repeats it until none is left, because the guard of a killed keeper starts
    /// another keeper.
    fn kill_all(&self, selects: fn(&Stat) -> bool, limit: Moment) -> io::Result<()> {
        loop {
            let mut here = self.processes()?;
            here.retain(selects);
            if here.is_empty() {
                return Ok(());
            }
            let victims: Vec<Handle> = here.iter().take(AT_ONCE).filter_map(handle).collect();
            if clock::now() >= limit {
                return Err(io::Error::other("some processes cannot be ended"));
            }
            for victim in &victims {
                // An error means that the process has ended already.
                victim.signal(Signal::KILL).ok();
            }
            await_ends(&victims, limit);
            reap();
        }
    }
}

impl Home {
    fn make() -> Result<Self, Report> {
        let mut random = [0u8; 6];
        let failed = |error: &io::Error, path: &Path| {
            Report::new(
                Exit::Unhealthy,
                format!("cannot make a directory in {}", path.display()),
            )
            .because(plain(error))
            .hint("set TMPDIR to a directory that you can write to")
        };
        let parent = std::env::temp_dir();
        let made = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(io::Error::from)
            .and_then(|_len| {
                let mut name = String::from("mainstay-demo-");
                for byte in random {
                    // Writing to a `String` cannot fail.
                    write!(name, "{byte:02x}").ok();
                }
                let path = parent.join(name);
                DirBuilder::new().mode(DIRECTORY_MODE).create(&path)?;
                // `/proc/PID/cwd` shows real paths.
                path.canonicalize()
            });
        made.map(Self).map_err(|error| failed(&error, &parent))
    }

    fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Only needed on the way out with an error, which was already reported; after `remove` the directory is gone.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Opens a handle; none if the process has ended meanwhile.
fn handle(stat: &Stat) -> Option<Handle> {
    Handle::open(Identity {
        pid: stat.pid,
        start: stat.start,
    })
    .ok()
}

fn seen(stat: Stat) -> Seen {
    Seen {
        who: stat.who(),
        comm: stat.comm,
    }
}

/// Whether this is a server, client or helper of a scene, not a process of `mainstay run`.
fn has_role(stat: &Stat) -> bool {
    census::cmdline(stat.pid)
        .get(2)
        .is_some_and(|word| word == "--role")
}

/// Waits until all of them have ended, or the time is up. Ignores signals, because this also runs after an interruption.
fn await_ends(handles: &[Handle], limit: Moment) {
    for handle in handles {
        drop(Waiter::without_signals().wait(&[handle.as_fd()], limit));
    }
}

/// Reaps all children that have ended.
fn reap() {
    while let Ok(Some(_ended)) = wait(WaitOptions::NOHANG) {}
}
