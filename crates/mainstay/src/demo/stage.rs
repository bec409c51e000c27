//! Where the scenes play: a private directory that is HOME and working directory of every process of the demo.
//!
//! The directory is also the proof of ownership: its name is random and nobody else may enter it, so whoever has it as
//! working directory is ours, whatever its parent, session or environment.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use mainstay_core::clock::Moment;
use mainstay_core::event::{Seen, What};
use mainstay_core::ids::Identity;
use mainstay_os::census::{self, Stat};
use mainstay_os::identity::Handle;
use mainstay_os::{clock, role};
use rustix::process::{Signal, WaitOptions, wait};

use super::door;
use super::roll::Roll;
use super::watch::{Trouble, Watch};
use super::wire::Wire;
use crate::exit::Exit;
use crate::ledger::read::{Events, Filter};
use crate::paths::Paths;
use crate::registry::card::Card;
use crate::registry::list::find_card;
use crate::report::{Report, plain};
use crate::state::DIRECTORY_MODE;
use crate::view::story::Story;

/// How long anything on the stage may take before the scene is given up. Far above what a loaded machine needs.
pub const PATIENCE_MS: u64 = 20_000;
/// How long the last ones may take to leave when a scene is over.
const SETTLE_MS: u64 = 5_000;
/// How long mainstay may take to leave when all players have been ended.
const LEAVE_MS: u64 = 1_000;

/// Processes that are waited for at once: a demo that has run out of descriptors must still end everybody.
const AT_ONCE: usize = 8;

/// The place of all scenes.
#[derive(Debug)]
pub struct Stage {
    /// Who has said that it is here.
    pub roll: Roll,
    /// Where waits happen.
    pub watch: Watch,
    paths: Paths,
    home: Home,
}

/// The directory; it goes when the stage goes.
#[derive(Debug)]
struct Home(PathBuf);

impl Stage {
    /// Sets it up.
    pub fn open() -> Result<Self, Report> {
        let home = Home::make()?;
        let failed = |error: &io::Error| {
            Report::new(Exit::Unhealthy, "cannot set up the demo").because(plain(error))
        };
        // Whoever loses its parent on this stage becomes our child, and is reaped, whatever PID 1 does.
        role::become_subreaper().map_err(|error| failed(&error))?;
        Ok(Self {
            roll: Roll::open(&home.0).map_err(|error| failed(&error))?,
            watch: Watch::listening().map_err(|error| failed(&error))?,
            paths: Paths::below(home.0.clone())?,
            home,
        })
    }

    /// A command that plays on this stage.
    pub fn command(&self, words: &[OsString]) -> Command {
        let mut command = door::command(words);
        command.env("HOME", &self.home.0).current_dir(&self.home.0);
        command
    }

    /// Starts a server's command with the demo itself as its client.
    pub fn serve(&self, words: &[OsString]) -> io::Result<(Child, Wire)> {
        Self::serve_as(&mut self.command(words))
    }

    /// The same for a command that was made here.
    pub fn serve_as(command: &mut Command) -> io::Result<(Child, Wire)> {
        let mut child = door::serve(command)?;
        let wire = Wire::of(&mut child)?;
        Ok((child, wire))
    }

    /// Where the scenes' mainstay keeps its state.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// When a wait that begins now is given up.
    pub fn limit() -> Moment {
        clock::now().after_ms(PATIENCE_MS)
    }

    /// The card of the link with this name, as `mainstay ps` would read it.
    pub fn card(&self, name: &str) -> Result<Card, Trouble> {
        find_card(&self.paths, |card| card.name == name, || true)?
            .ok_or_else(|| Trouble::Failed(format!("no link has the name {name}")))
    }

    /// How often a server of this name was started so far, as `mainstay events` would tell it.
    pub fn starts(&self, name: &str) -> Result<u32, Trouble> {
        let filter = Filter {
            server: Some(name.into()),
            ..Filter::default()
        };
        let mut starts = 0;
        // Nothing breaks it off.
        let _all: ControlFlow<()> = Events::open(&self.paths, filter).read(|event, _line| {
            starts += u32::from(matches!(event.what, What::Start(_)));
            ControlFlow::Continue(())
        })?;
        Ok(starts)
    }

    /// What `mainstay why` says of the last such event of a server.
    pub fn story(&self, name: &str, of: impl Fn(&What) -> bool) -> Result<String, Trouble> {
        let filter = Filter {
            server: Some(name.into()),
            ..Filter::default()
        };
        let mut events = Vec::new();
        // Nothing breaks it off.
        let _all: ControlFlow<()> = Events::open(&self.paths, filter).read(|event, _line| {
            events.push(event.clone());
            ControlFlow::Continue(())
        })?;
        let death = events.iter().rposition(|event| of(&event.what));
        let story = death.and_then(|death| Story::of(&events, death));
        story
            .map(|story| story.told)
            .ok_or_else(|| Trouble::Failed(format!("nothing was written down of {name}")))
    }

    /// Waits until all of these have ended; whether they have.
    pub fn ended(&self, handles: &[&Handle], limit: Moment) -> Result<bool, Trouble> {
        for handle in handles {
            if self.watch.wait(&[handle.as_fd()], limit)? == [false] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// After a scene: waits until nobody is on the stage. Whoever does not leave is told and ended.
    pub fn settle(&mut self) -> Result<Vec<Seen>, Trouble> {
        let limit = clock::now().after_ms(SETTLE_MS);
        self.roll.clear();
        loop {
            let here = self.here()?;
            if here.is_empty() {
                reap();
                return Ok(Vec::new());
            }
            let handles: Vec<Handle> = here.iter().take(AT_ONCE).filter_map(handle).collect();
            if !self.ended(&handles.iter().collect::<Vec<_>>(), limit)? {
                break;
            }
        }
        let left = self.here()?;
        self.clear()?;
        Ok(left.into_iter().map(seen).collect())
    }

    /// Takes the stage down: ends whoever is still on it, says who that was, and removes the directory.
    pub fn close(mut self) -> io::Result<Vec<Seen>> {
        let left = self.here()?;
        self.clear()?;
        let Self {
            home, roll, watch, ..
        } = self;
        drop((roll, watch));
        home.remove()?;
        Ok(left.into_iter().map(seen).collect())
    }

    /// Everybody on the stage who is alive.
    fn here(&self) -> io::Result<Vec<Stat>> {
        Ok(census::pids()?
            .into_iter()
            .filter(|pid| {
                fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.home.0)
            })
            .filter_map(|pid| census::stat(pid).ok())
            .filter(|stat| !stat.dead())
            .collect())
    }

    /// Ends everybody on the stage. The players first: then mainstay has nothing left to keep, and leaves by itself,
    /// with its cgroups removed; whoever does not leave is ended, too.
    pub fn clear(&mut self) -> io::Result<()> {
        self.roll.clear();
        let limit = clock::now().after_ms(SETTLE_MS);
        self.end(is_player, limit)?;
        let others = self.here()?;
        let others: Vec<Handle> = others.iter().take(AT_ONCE).filter_map(handle).collect();
        await_ends(&others, clock::now().after_ms(LEAVE_MS));
        self.end(|_| true, limit)?;
        reap();
        Ok(())
    }

    /// Kills such processes, again until none is here: a killed keeper has a guard that starts the next one.
    fn end(&self, whom: fn(&Stat) -> bool, limit: Moment) -> io::Result<()> {
        loop {
            let mut here = self.here()?;
            here.retain(whom);
            if here.is_empty() {
                return Ok(());
            }
            let victims: Vec<Handle> = here.iter().take(AT_ONCE).filter_map(handle).collect();
            if clock::now() >= limit {
                return Err(io::Error::other("some processes cannot be ended"));
            }
            for victim in &victims {
                // One that has ended meanwhile is what we want.
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
                    // A string takes everything.
                    write!(name, "{byte:02x}").ok();
                }
                let path = parent.join(name);
                DirBuilder::new().mode(DIRECTORY_MODE).create(&path)?;
                // The kernel tells working directories by their real paths.
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
        // After `remove` there is nothing; else we are on our way out with an error that has been told.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Opens a handle on somebody who may have ended meanwhile.
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

/// Whether it plays a part, and is not one of mainstay's own.
fn is_player(stat: &Stat) -> bool {
    census::cmdline(stat.pid)
        .get(2)
        .is_some_and(|word| word == "--act")
}

/// Waits until all of them have ended, or the time has come. Deaf to signals: this is how the demo ends.
fn await_ends(handles: &[Handle], limit: Moment) {
    for handle in handles {
        drop(Watch::blind().wait(&[handle.as_fd()], limit));
    }
}

/// Reaps whoever has ended.
fn reap() {
    while let Ok(Some(_ended)) = wait(WaitOptions::NOHANG) {}
}
