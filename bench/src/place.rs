//! The place of one section: its own HOME, marked processes, and the programs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mainstay_testkit::card::Card;
use mainstay_testkit::stage::Stage;
use mainstay_testkit::wait::{HANG_STOP, until};
use serde_json::Value;

use crate::lane::Kind;
use crate::watchdog::Watchdog;

/// The programs that are measured.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This program, which is also the server.
    pub bench: PathBuf,
    /// The `mainstay` under measurement.
    pub mainstay: PathBuf,
    /// Another build of it.
    pub old: Option<PathBuf>,
}

impl Programs {
    /// Finds `mainstay` next to us, and the other build where the user said.
    pub fn find(old: Option<&Path>) -> io::Result<Self> {
        let bench = std::env::current_exe()?;
        let mainstay = bench.with_file_name("mainstay");
        if !mainstay.is_file() {
            let release = if cfg!(debug_assertions) {
                ""
            } else {
                " --release"
            };
            return Err(io::Error::other(format!(
                "there is no mainstay next to {}; build it: cargo build{release} -p mainstay",
                bench.display()
            )));
        }
        // The absolute path, because the measured program runs in another directory.
        let old = old.map(std::fs::canonicalize).transpose()?;
        Ok(Self {
            bench,
            mainstay,
            old,
        })
    }
}

pub struct Place<'p> {
    stage: Stage,
    programs: &'p Programs,
    watchdog: Watchdog,
}

/// The longest time between two steps of a measurement.
const STEP_LIMIT: Duration = HANG_STOP;

impl<'p> Place<'p> {
    pub fn new(programs: &'p Programs) -> Self {
        let stage = Stage::new();
        let watchdog = Watchdog::start(stage.census.mark(), STEP_LIMIT);
        Self {
            stage,
            programs,
            watchdog,
        }
    }

    /// A command of this program with these words.
    pub fn ours<W: Into<OsString>>(&self, words: impl IntoIterator<Item = W>) -> Vec<OsString> {
        let mut argv = vec![self.programs.bench.clone().into_os_string()];
        argv.extend(words.into_iter().map(Into::into));
        argv
    }

    /// The `mainstay` under measurement.
    pub fn mainstay(&self) -> OsString {
        self.programs.mainstay.clone().into_os_string()
    }

    /// `mainstay run` with these options, for this server.
    pub fn kept(&self, options: &[&str], server: Vec<OsString>) -> Vec<OsString> {
        mainstay_testkit::stage::run(&self.programs.mainstay, options, server)
    }

    /// The same with the other build, or none if no other was named.
    pub fn kept_by_old(&self, options: &[&str], server: Vec<OsString>) -> Option<Vec<OsString>> {
        let old = self.programs.old.as_ref()?;
        Some(mainstay_testkit::stage::run(old, options, server))
    }

    /// The `mainstay` under measurement, or the other build if one was named.
    pub fn build(&self, old: bool) -> Option<OsString> {
        if old {
            return self.programs.old.clone().map(Into::into);
        }
        Some(self.mainstay())
    }

    /// Whether another build was named.
    pub fn has_old(&self) -> bool {
        self.programs.old.is_some()
    }

    /// The kinds of lanes to measure.
    pub fn kinds(&self) -> Vec<Kind> {
        let old = self.programs.old.is_some().then_some(Kind::Old);
        Kind::ALL.into_iter().chain(old).collect()
    }

    /// The command as it is started: marked, in this HOME, with its stderr in a log.
    pub fn command(&self, argv: &[OsString]) -> io::Result<Command> {
        self.watchdog.step();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.stage.path("stderr.log"))?;
        let (program, words) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = self.stage.command(program);
        command.args(words).stderr(Stdio::from(log));
        Ok(command)
    }

    /// A path in the HOME.
    pub fn path(&self, name: &str) -> PathBuf {
        self.stage.path(name)
    }

    /// The mark that every process carries.
    pub fn mark(&self) -> &str {
        self.stage.census.mark()
    }

    /// Waits for a complete card that fulfils a condition.
    pub fn card(&self, what: &str, holds: impl Fn(&Card) -> bool) -> Card {
        self.stage.card_that(what, holds)
    }

    /// Waits until the tree of each link was noted, which is the last thing that an idle keeper does.
    pub fn wait_noted(&self, links: usize) {
        until("every link notes its members", || {
            let noted = |card: &Card| card.dir.join("members.json").exists();
            let cards = self.stage.cards();
            (cards.len() == links && cards.iter().all(noted)).then_some(())
        });
    }

    /// Reports to the watchdog a step that neither starts nor waits for a process.
    pub fn step(&self) {
        self.watchdog.step();
    }

    /// Waits until this many links hibernate and returns their cards. Such a link has no server.
    pub fn resting(&self, links: usize) -> Vec<Card> {
        until("the servers are put to rest", || {
            self.watchdog.step();
            let mut cards = self.stage.cards();
            cards.retain(|card| card.json["state"] == "resting" && card.keeper.is_some());
            (cards.len() == links).then_some(cards)
        })
    }

    /// The last event of this kind of a link.
    pub fn last_event(&self, kind: &str, id: &str) -> io::Result<Value> {
        let mut told = self.stage.events(kind);
        told.retain(|event| event["id"] == id);
        told.pop()
            .ok_or_else(|| io::Error::other(format!("no event `{kind}` of link {id} was written")))
    }

    /// Waits until no process is left.
    pub fn wait_empty(&self) -> io::Result<()> {
        self.watchdog.step();
        let left = self.stage.census.wait_empty(HANG_STOP);
        if left.is_empty() {
            return Ok(());
        }
        let told = self.stage.census.describe(&left);
        self.stage.census.end_all();
        Err(io::Error::other(told))
    }

    /// The processes that were still there when the watchdog gave up, if it did.
    pub fn hung(&self) -> Option<String> {
        self.watchdog.barked()
    }

    /// What happened here, for the report of a failure.
    pub fn story(&self) -> String {
        self.stage.story()
    }

    /// Ends the processes that a failed measurement left.
    pub fn end_all(&self) {
        self.stage.census.end_all();
    }
}
