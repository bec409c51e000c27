//! Everything beside the keeper: the clock, the client's pipes, the server's process with its tree, and the process that may kill
//! the keeper.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_core::link::Holders;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::{Seen, Status};
use mainstay_protocol::ids::Identity;

use super::dice::Dice;
use super::pipe::Pipe;
use super::watch::Watch;

/// Whether the story is printed while it runs.
static ALOUD: AtomicBool = AtomicBool::new(false);

/// From now on the story is printed while it runs.
pub fn tell_aloud() {
    ALOUD.store(true, Ordering::Relaxed);
}

/// Why the keeper stops in the middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// It was killed.
    Killed,
    /// A promise is broken: this one.
    Broken(String),
}

/// A promise is broken.
pub fn broken<T>(what: impl Into<String>) -> Result<T, Halt> {
    Err(Halt::Broken(what.into()))
}

/// Everything that is not the keeper.
#[derive(Debug)]
pub struct Outside {
    /// The time.
    pub now: Moment,
    /// Chance.
    pub dice: Dice,
    /// The client's stdin for us.
    pub from_client: Pipe,
    /// Our stdout.
    pub to_client: Pipe,
    /// The number of the client, from 1.
    pub attachment: u32,
    /// The process that was started last.
    pub process: Option<Process>,
    /// How the next processes react to their end.
    pub manners: Manners,
    /// The chance, in a thousand, that a start fails.
    pub start_fails: u64,
    /// The client often sends large lines, and several at once, so that no pipe is narrow.
    pub bulky: bool,
    /// Most requests of the client are tool calls, which are not sent a second time.
    pub calls_mostly: bool,
    /// A tap watches each message, so that no line takes the fast path.
    pub watched: bool,
    /// The first promise that was broken while the relay ran.
    pub broken: Option<String>,
    /// The promises.
    pub watch: Watch,
    /// The story so far, if a trace was asked for.
    pub trace: Option<Vec<String>>,
}

/// How a server and its tree react to their end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// It ends this long after its stdin was closed.
    pub eof_ms: Option<u64>,
    /// It ends this long after SIGTERM.
    pub term_ms: Option<u64>,
    /// Other processes in its tree.
    pub others: u32,
    /// They end with it, or at SIGTERM.
    pub others_obey: bool,
    /// They hold its pipes and serve when it has exited.
    pub serve_on: bool,
    /// A process survives the kill.
    pub unkillable: bool,
}

/// A server process with its tree.
#[derive(Debug)]
pub struct Process {
    /// Which generation it is.
    pub generation: u32,
    /// Its stdin.
    pub stdin: Pipe,
    /// Its stdout.
    pub stdout: Pipe,
    /// How and when the process that was started ended.
    pub ended: Option<(Status, Moment)>,
    /// When it got SIGTERM.
    pub terminated: Option<Moment>,
    /// Living others in its tree.
    pub others: u32,
    /// How it reacts to its end.
    pub manners: Manners,
}

impl Outside {
    /// Adds a step to the story.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let ms = self.now.0 / 1_000_000;
            let line = format!("{ms:>8} ms  {}", what());
            if ALOUD.load(Ordering::Relaxed) {
                drop(writeln!(std::io::stderr(), "{line}"));
            }
            trace.push(line);
        }
    }

    /// What the relay has done since the last call.
    pub fn verdict(&mut self) -> Result<(), Halt> {
        match self.broken.take() {
            None => Ok(()),
            Some(what) => Err(Halt::Broken(what)),
        }
    }

    /// Stores what the relay has done.
    pub fn judge(&mut self, verdict: Result<(), Halt>) {
        if let Err(Halt::Broken(what)) = verdict {
            self.broken.get_or_insert(what);
        }
    }

    /// How the process that was started last has ended.
    pub fn ended(&self) -> Option<Status> {
        let (status, _) = self.process.as_ref()?.ended?;
        Some(status)
    }

    /// True if no process of the tree is left.
    pub fn tree_empty(&self) -> bool {
        self.process.as_ref().is_none_or(Process::tree_empty)
    }

    /// The processes that hold both pipes of a server that has ended.
    pub fn holders(&self) -> Holders {
        let process = self.process.as_ref();
        if process.is_some_and(|p| p.serves() && !p.stdin.writer_gone && !p.stdout.reader_gone) {
            Holders::Others { written: None }
        } else {
            Holders::None
        }
    }

    /// Closes the client's pipes.
    pub fn let_go_of_client(&mut self) {
        self.note(|| "the client's pipes are let go".into());
        self.to_client.writer_gone = true;
        self.from_client.reader_gone = true;
    }

    /// Starts a process. Returns false if that fails.
    pub fn start(&mut self, generation: u32) -> Result<bool, Halt> {
        if let Some(process) = &self.process
            && !process.tree_empty()
            && !process.manners.unkillable
        {
            return broken("a generation is started while the last one lives");
        }
        if self.dice.permille(self.start_fails) {
            return Ok(false);
        }
        let rooms: &[usize] = if self.bulky {
            &[4_096, 65_536]
        } else {
            &[16, 512, 4_096, 65_536]
        };
        let room = self.dice.pick(rooms);
        let manners = self.manners;
        self.process = Some(Process {
            generation,
            stdin: Pipe::new(room),
            stdout: Pipe::new(65_536),
            ended: None,
            terminated: None,
            others: manners.others,
            manners,
        });
        Ok(true)
    }

    /// The keeper was killed: its guard ends the tree.
    pub fn end_tree_of_killed_keeper(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill(self.now);
        }
        self.process = None;
    }
}

impl Process {
    /// The process that was started ends by itself, or is killed by another process.
    pub fn end(&mut self, status: Status, now: Moment) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some((status, now));
        if self.manners.others_obey && !self.manners.serve_on {
            self.others = 0;
        }
        self.let_go();
    }

    /// Sends SIGTERM to the whole tree.
    pub fn terminate(&mut self, now: Moment) {
        self.terminated.get_or_insert(now);
        if self.manners.others_obey {
            self.others = 0;
            self.let_go();
        }
    }

    /// Sends SIGKILL to the whole tree. Returns the processes that are left.
    pub fn kill(&mut self, now: Moment) -> Vec<Seen> {
        if self.manners.unkillable {
            let who = Identity { pid: 7, start: 1 };
            let comm = "stuck".into();
            return vec![Seen { who, comm }];
        }
        let killed = Status::Signal {
            number: 9,
            core: false,
        };
        self.ended.get_or_insert((killed, now));
        self.others = 0;
        self.let_go();
        Vec::new()
    }

    /// True if no process of the tree is left.
    pub fn tree_empty(&self) -> bool {
        self.ended.is_some() && self.others == 0
    }

    /// True if a process holds its pipes.
    pub fn serves(&self) -> bool {
        self.ended.is_none() || (self.manners.serve_on && self.others > 0)
    }

    fn let_go(&mut self) {
        if !self.serves() {
            self.stdin.reader_gone = true;
            self.stdout.writer_gone = true;
        }
    }
}

/// Bytes as readable text.
pub fn text(bytes: &[u8]) -> impl Display {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    if text.len() > 300 {
        let head: String = text.chars().take(120).collect();
        let tail: Vec<char> = text.chars().rev().take(60).collect();
        let tail: String = tail.into_iter().rev().collect();
        return format!("{head} … {tail} ({} bytes)", bytes.len());
    }
    text.into()
}
