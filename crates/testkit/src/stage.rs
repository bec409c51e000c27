//! The place of one test: its own HOME, its own mark, and the commands that carry both.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;

use crate::built;
use crate::card::{self, Card};
use crate::census::{Census, MARK_VARIABLE};
use crate::quiet::Quiet;
use crate::wait::until;

/// The place of one test. Dropping it asserts that no process is left, then removes the HOME.
#[derive(Debug)]
pub struct Stage {
    /// The processes of this test.
    pub census: Census,
    home: Home,
    _quiet: Quiet,
}

#[derive(Debug)]
struct Home(PathBuf);

/// The content of a program.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A copy of this program.
    Copy(&'a Path),
    /// This script.
    Text(&'a str),
}

impl Stage {
    /// A fresh one, beside those of other tests. A test has one at a time.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        Self::with(Quiet::shared())
    }

    /// A fresh one while no other test of this user has one. For processes that another test's start would sweep.
    pub fn alone() -> Self {
        Self::with(Quiet::alone())
    }

    fn with(quiet: io::Result<Quiet>) -> Self {
        let quiet = quiet.expect("the temporary directory has a lock for us");
        let census = Census::new();
        let home = std::env::temp_dir().join(format!("mainstay-test-{}", census.mark()));
        fs::create_dir(&home).expect("the temporary directory takes a directory");
        // Some systems reach it through a link, but mainstay prints real paths.
        let home = home
            .canonicalize()
            .expect("a directory just made has a path");
        Self {
            census,
            home: Home(home),
            _quiet: quiet,
        }
    }

    /// The HOME of this test.
    pub fn home(&self) -> &Path {
        &self.home.0
    }

    /// A path in the HOME.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.0.join(name)
    }

    /// A command with the mark, HOME, PATH and no other variable, like hosts that pass only a few. Programs in `bin` of the HOME
    /// are found first.
    pub fn command(&self, program: impl Into<OsString>) -> Command {
        #[expect(
            clippy::disallowed_methods,
            reason = "the only place where tests start processes"
        )]
        let mut command = Command::new(program.into());
        let mut path = self.path("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", path)
            .env(MARK_VARIABLE, self.census.mark())
            .current_dir(self.home());
        command
    }

    /// Makes a program from a text or as a copy of another. Another process writes it: our own descriptor could be copied into a
    /// fork of another test at that moment, and a file that is open for writing cannot be executed.
    pub fn program(&self, path: &Path, from: Source<'_>) {
        let mut command = self.command("sh");
        let script = r#"if [ -n "$2" ]; then cp "$2" "$1"; else printf %s "$3" > "$1"; fi && chmod 755 "$1""#;
        command.args(["-c", script, "sh"]).arg(path);
        match from {
            Source::Copy(program) => command.arg(program),
            Source::Text(text) => command.args(["", text]),
        };
        let made = command.output().expect("a shell can be started");
        assert!(made.status.success(), "{made:?}");
    }

    /// The unruly server with these flags.
    pub fn unruly<A: AsRef<str>>(&self, habits: &[A]) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec![
            built::unruly().into(),
            "--mark".into(),
            self.census.mark().into(),
        ];
        argv.extend(habits.iter().map(|habit| habit.as_ref().into()));
        argv
    }

    /// Every card in the HOME.
    pub fn cards(&self) -> Vec<Card> {
        card::cards(self.home())
    }

    /// Waits for the one card in the HOME, complete with a living server.
    pub fn card(&self) -> Card {
        self.card_that("names its shim, guard, keeper and server", |_| true)
    }

    /// Waits for the one complete card that fulfils a condition.
    pub fn card_that(&self, what: &str, holds: impl Fn(&Card) -> bool) -> Card {
        until(
            &format!("a card that {what}, in {}", self.home().display()),
            || {
                self.cards().into_iter().find(|card| {
                    [card.shim, card.guard, card.keeper, card.server]
                        .iter()
                        .all(Option::is_some)
                        && holds(card)
                })
            },
        )
    }

    /// The events of this kind, now.
    pub fn events(&self, word: &str) -> Vec<Value> {
        card::events_called(self.home(), word)
    }

    /// Waits for the first event of this kind.
    pub fn event(&self, word: &str) -> Value {
        self.event_that(word, |_| true)
    }

    /// Waits for the first event of this kind that fulfils a condition.
    pub fn event_that(&self, word: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(
            &format!("an event `{word}` in {}", self.home().display()),
            || self.events(word).into_iter().find(|event| holds(event)),
        )
    }

    /// The report of a failed test: the events and all stderr.
    pub fn story(&self) -> String {
        let mut story = String::new();
        for event in card::events(self.home()) {
            writeln!(story, "  event {event}").expect("a string takes everything");
        }
        for name in ["stderr.log", "client-stderr.log"] {
            let text = fs::read(self.path(name)).unwrap_or_default();
            let tail =
                String::from_utf8_lossy(&text[text.len().saturating_sub(2_000)..]).into_owned();
            for line in tail.lines() {
                writeln!(story, "  {name}: {line}").expect("a string takes everything");
            }
        }
        story
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if thread::panicking() {
            drop(write!(
                io::stderr(),
                "the story of {}:\n{}",
                self.census.mark(),
                self.story()
            ));
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A process killed in the middle of a write may have left anything. Leftover files are no reason to fail a test.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// `mainstay run` with these options, for this server.
pub fn run(
    mainstay: impl Into<OsString>,
    options: &[&str],
    server: Vec<OsString>,
) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![mainstay.into(), "run".into()];
    argv.extend(options.iter().map(Into::into));
    argv.push("--".into());
    argv.extend(server);
    argv
}
