//! One action in one client, bare or through mainstay.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_testkit::built;
use mainstay_testkit::client::{Carrier, Client};
use mainstay_testkit::killers::{self, Habit};
use mainstay_testkit::puppet::{Plan, Puppet, Reply};
use mainstay_testkit::stage::{Source, Stage, run};
use mainstay_testkit::terminal::Terminal;
use mainstay_testkit::wait::{HANG_STOP, until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::action::Action;
use crate::outcome::{Code, FAILS, InFlight, LEFT, Left, Next, Outcome, SILENCE};

/// With or without mainstay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Bare,
    Mainstay,
}

/// One cell of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub action: Action,
    pub habit: Habit,
    pub way: Way,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}/{:?}", self.action, self.habit, self.way)
    }
}

/// How long to wait for something that, by the page, does not come.
const IN_VAIN: Duration = Duration::from_secs(2);

/// The same while the page is written.
const UNKNOWN: Duration = Duration::from_secs(8);

impl Cell {
    /// Plays the action. The expected text of the page only decides how long to wait.
    pub fn play(self, mainstay: &Path, expected: Option<&str>) -> Outcome {
        let stage = Stage::new();
        let outcome = Play {
            cell: self,
            stage: &stage,
            mainstay: mainstay.to_path_buf(),
            expected,
        }
        .play();
        // Left processes are an outcome here. The census would report them as a failure.
        stage.census.end_all();
        outcome
    }
}

struct Play<'a> {
    cell: Cell,
    stage: &'a Stage,
    mainstay: PathBuf,
    expected: Option<&'a str>,
}

impl Play<'_> {
    fn play(mut self) -> Outcome {
        let mut outcome = Outcome::default();
        if matches!(self.cell.action, Action::Upgraded | Action::Removed) {
            let copy = self.stage.path("mainstay");
            self.stage.program(&copy, Source::Copy(&self.mainstay));
            self.mainstay = copy;
        }
        let words = self.words();
        let Some(mut client) = Puppet::begin(self.stage, self.plan(), &words) else {
            outcome.next = Some(Next::Fails);
            outcome.left = Some(self.left());
            return outcome;
        };
        let Reply::Answer(first) = client.ask(HANG_STOP, "env", &json!({})) else {
            panic!("the server does not answer before anything has happened");
        };
        let server = identity::of(first["pid"].as_i64().unwrap() as i32).ok();
        let habit = self.cell.habit;
        match self.cell.action {
            Action::ClientExits => {}
            Action::ClientKilled => {
                client.kill();
                outcome.left = Some(self.left());
                return outcome;
            }
            Action::TerminalClosed => {
                client.hang_up();
                outcome.left = Some(self.left());
                return outcome;
            }
            Action::ServerCrashes => {
                let wait = self.patience(SILENCE);
                let reply = client.ask(wait, "crash", &json!({"signal": 11}));
                outcome.in_flight = Some(match reply {
                    Reply::Silence => InFlight::Silence,
                    Reply::Lost => InFlight::Lost,
                    Reply::Error => InFlight::Error,
                    Reply::Answer(_) => InFlight::Answer,
                });
                outcome.next = Some(self.next(&mut client));
            }
            Action::ServerHangs => {
                freeze(server.unwrap());
                outcome.next = Some(self.next(&mut client));
            }
            Action::Reconnect => {
                client.end(habit);
                outcome.next = Some(self.reconnect(&mut client));
            }
            Action::ReconnectAfterHang => {
                freeze(server.unwrap());
                client.end(habit);
                outcome.next = Some(self.reconnect(&mut client));
            }
            Action::EditAndReconnect => {
                self.write_server("new");
                client.end(habit);
                let wait = self.patience(FAILS);
                let reply = if client.reconnect() {
                    client.ask(wait, "env", &json!({}))
                } else {
                    Reply::Lost
                };
                (outcome.next, outcome.code) = match &reply {
                    Reply::Answer(said) if version(said, "new") => {
                        (Some(Next::Works), Some(Code::New))
                    }
                    Reply::Answer(_) => (Some(Next::Works), Some(Code::Old)),
                    Reply::Silence | Reply::Lost | Reply::Error => {
                        (Some(Next::Fails), Some(Code::Old))
                    }
                };
            }
            Action::Disable => {
                client.end(habit);
                outcome.left = Some(self.left());
                client.exit();
                return outcome;
            }
            Action::Pkill => {
                let name = self.server_name();
                let mut pkill = self.stage.command("pkill");
                assert!(pkill.args(["-f", &name]).status().unwrap().success());
                // A server with a pending SIGTERM may still take a request out of its pipe, in the kernel, and die with it. The
                // next call is the one after that death.
                gone(server.unwrap());
                outcome.next = Some(self.next(&mut client));
            }
            Action::ShimKilled => {
                killers::at_once(&client.shims);
                client.end(habit);
                outcome.next = Some(self.reconnect(&mut client));
            }
            Action::GuardKilled | Action::KeeperKilled => {
                // A bare server has no such process, so nothing happens to it.
                if self.cell.way == Way::Mainstay {
                    let card = self.stage.card();
                    let guard = self.cell.action == Action::GuardKilled;
                    let victim = if guard { card.guard } else { card.keeper };
                    killers::at_once(&[victim.unwrap()]);
                }
                outcome.next = Some(self.next(&mut client));
            }
            Action::AllKilled => {
                let mut victims = client.shims.clone();
                if self.cell.way == Way::Mainstay {
                    let card = self.stage.card();
                    victims.extend(card.guard.into_iter().chain(card.keeper));
                }
                killers::at_once(&victims);
                outcome.next = Some(self.next(&mut client));
                client.exit();
                if self.cell.way == Way::Mainstay {
                    Client::open(self.stage, &self.words()).finish();
                }
                outcome.left = Some(self.left());
                return outcome;
            }
            Action::Upgraded => {
                let new = self.stage.path("mainstay-new");
                self.stage.program(&new, Source::Copy(&self.mainstay));
                fs::rename(new, &self.mainstay).unwrap();
                outcome.next = Some(self.next(&mut client));
            }
            Action::Removed => {
                fs::remove_file(&self.mainstay).unwrap();
                outcome.next = Some(self.next(&mut client));
            }
            Action::FullDisk
            | Action::HomeUnset
            | Action::HomeIsNoDirectory
            | Action::HomeUnwritable => {
                outcome.next = Some(self.next(&mut client));
            }
        }
        client.end(habit);
        client.exit();
        outcome.left = Some(self.left());
        outcome
    }

    fn plan(&self) -> Plan {
        let habit = self.cell.habit;
        let name = match habit {
            Habit::Claude => "claude",
            Habit::Codex => "codex",
            Habit::Copilot => "copilot",
            Habit::Sdk => "some-client",
        };
        let program = self.stage.path(name);
        symlink(built::puppet(), &program).unwrap();
        let terminal = (self.cell.action == Action::TerminalClosed)
            .then(|| Terminal::open().expect("a terminal is to be had"));
        Plan {
            carrier: if habit == Habit::Claude {
                Carrier::Sockets
            } else {
                Carrier::Pipes
            },
            own_group: habit == Habit::Codex,
            configured: true,
            program: Some(program),
            behind: self.behind(),
            terminal,
            ..Plan::default()
        }
    }

    /// The command in front of the client, if the action is about its surroundings.
    fn behind(&self) -> Vec<OsString> {
        let full = "mkdir \"$HOME/small\" && export HOME=\"$HOME/small\" && mount -t tmpfs -o size=64k none \"$HOME\" && \
                    { head -c 1000000 /dev/zero > \"$HOME/full\" 2>&-; exec \"$@\"; }";
        // Without HOME the home of the user counts, which must not be the real one here.
        let unset = "me=$(id -u) && awk -F: -v OFS=: -v me=\"$me\" -v home=\"$HOME\" '$3 == me { $6 = home } 1' /etc/passwd \
                     > \"$HOME/passwd\" && mount --bind \"$HOME/passwd\" /etc/passwd && unset HOME && exec \"$@\"";
        let words: &[(Action, &[&str])] = &[
            (Action::FullDisk, &["unshare", "-m", "sh", "-c", full, "sh"]),
            (
                Action::HomeUnset,
                &["unshare", "-m", "sh", "-c", unset, "sh"],
            ),
            (Action::HomeIsNoDirectory, &["env", "HOME=/dev/null"]),
            (Action::HomeUnwritable, &["env", "HOME=/proc"]),
        ];
        let mut here = words
            .iter()
            .filter(|(action, _)| *action == self.cell.action);
        let words = here.next().map_or(&[][..], |(_, words)| words);
        words.iter().map(Into::into).collect()
    }

    fn words(&self) -> Vec<OsString> {
        self.write_server("old");
        let server = vec!["sh".into(), self.server().into()];
        match self.cell.way {
            Way::Bare => server,
            Way::Mainstay => {
                let disable = self.cell.action == Action::Disable;
                let options: &[&str] = if disable { &["--linger", "1s"] } else { &[] };
                run(&self.mainstay, options, server)
            }
        }
    }

    /// The server is a script, which can be edited.
    fn server(&self) -> PathBuf {
        self.stage.path(&format!("{}.sh", self.server_name()))
    }

    /// A word that only the command lines of the server's processes and of mainstay contain.
    fn server_name(&self) -> String {
        format!("server-{}", self.stage.census.mark())
    }

    fn write_server(&self, version: &str) {
        let name = self.server_name();
        let habits = ["--ignore-eof", "--version", version, "--extra-tool", &name];
        let words: Vec<String> = self
            .stage
            .unruly(&habits)
            .iter()
            .map(|word| format!("'{}'", word.to_string_lossy()))
            .collect();
        let words = words.join(" ");
        let text = if self.cell.action.without_launcher() {
            format!("exec {words}\n")
        } else {
            format!("{words}; exit $?\n")
        };
        fs::write(self.server(), text).unwrap();
    }

    /// How long to wait for something that may end with this outcome.
    fn patience(&self, worst: &str) -> Duration {
        match self.expected {
            Some(text) if text.contains(worst) => IN_VAIN,
            Some(text) if !text.is_empty() => HANG_STOP,
            Some(_) | None => UNKNOWN,
        }
    }

    fn next(&self, client: &mut Puppet) -> Next {
        match client.ask(self.patience(FAILS), "pid", &json!({})) {
            Reply::Answer(_) => Next::Works,
            Reply::Silence | Reply::Lost | Reply::Error => Next::Fails,
        }
    }

    fn reconnect(&self, client: &mut Puppet) -> Next {
        if client.reconnect() {
            self.next(client)
        } else {
            Next::Fails
        }
    }

    fn left(&self) -> Left {
        if self.stage.census.wait_empty(self.patience(LEFT)).is_empty() {
            Left::Nothing
        } else {
            Left::Some
        }
    }
}

fn freeze(who: Identity) {
    Handle::open(who).unwrap().signal(Signal::STOP).unwrap();
    until("it is stopped", || {
        (mainstay_os::census::stat(who.pid).ok()?.state == b'T').then_some(())
    });
}

/// Waits for the end of a process.
fn gone(who: Identity) {
    if let Ok(handle) = Handle::open(who) {
        until("it has ended", || handle.ended().then_some(()));
    }
}

fn version(said: &Value, version: &str) -> bool {
    let words = said["argv"].as_array().into_iter().flatten();
    words.into_iter().any(|word| word == version)
}
