//! Many idle processes: most have `/dev/null` as stdin, like daemons, some also have pipes of their own, and a few talk over pipes with the
//! process that started them, like servers.
//!
//! They end with the process that made them, because the kernel kills them then.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use mainstay_testkit::fork::{Side, expire_after, fork, leave};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// No process of a crowd lives longer than this.
const EXPIRE_S: u32 = 600;

/// Makes as many processes as the word says, or as the limits of this user allow, prints how many they are, and waits for the end of its stdin.
pub fn gather(words: &[OsString]) -> io::Result<()> {
    let count = words.first().and_then(|word| word.to_str()?.parse().ok());
    let count: usize = count.ok_or(io::ErrorKind::InvalidInput)?;
    let mut held = Vec::new();
    let mut made = 0;
    while made < count {
        let wire = Habit::of(made).wire()?;
        match fork() {
            Ok(Side::Child) => {
                // The wires of the others are not its own.
                held.clear();
                live(Habit::of(made), wire)
            }
            Ok(Side::Parent(_)) => held.extend(wire.map(|wire| wire.ours)),
            // The limit of processes is reached.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
        made += 1;
    }
    rustix::io::write(rustix::stdio::stdout(), format!("{made}\n").as_bytes())?;
    // The measurement holds the other end.
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(held);
    Ok(())
}

/// What the descriptors of a process are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// `/dev/null` three times.
    Quiet,
    /// The same, and two pipes to itself.
    Pipes,
    /// Pipes from and to the process that made it.
    Wire,
}

struct Wire {
    ours: (OwnedFd, OwnedFd),
    theirs: (OwnedFd, OwnedFd),
}

impl Habit {
    fn of(number: usize) -> Self {
        match number % 50 {
            0 => Self::Wire,
            1..=10 => Self::Pipes,
            _ => Self::Quiet,
        }
    }

    fn wire(self) -> io::Result<Option<Wire>> {
        if self != Self::Wire {
            return Ok(None);
        }
        let (their_in, to) = pipe_with(PipeFlags::CLOEXEC)?;
        let (from, their_out) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Some(Wire {
            ours: (to, from),
            theirs: (their_in, their_out),
        }))
    }
}

fn live(habit: Habit, wire: Option<Wire>) -> ! {
    expire_after(EXPIRE_S);
    match arrange(habit, wire) {
        Ok(_held) => loop {
            rustix::event::pause();
        },
        Err(_) => leave(73),
    }
}

fn arrange(habit: Habit, wire: Option<Wire>) -> io::Result<Vec<OwnedFd>> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    drop(null);
    if let Some(Wire { ours, theirs }) = wire {
        dup2_stdin(&theirs.0)?;
        dup2_stdout(&theirs.1)?;
        drop(ours);
    }
    let mut held = Vec::new();
    if habit == Habit::Pipes {
        for _ in 0..2 {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            held.extend([reader, writer]);
        }
    }
    Ok(held)
}
