//! Time to zero: from a kill to the moment when no process of the tree is left.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use mainstay_os::clock;
use mainstay_os::identity::Handle;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::Signal;

use super::{Block, Part, Target, tier};
use crate::args::Effort;
use crate::place::Place;
use crate::role;
use crate::stats::{Series, ms};
use crate::table::Table;

/// The process that gets SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Keeper,
    GuardAndKeeper,
}

impl Victim {
    const ALL: [Self; 3] = [Self::Client, Self::Keeper, Self::GuardAndKeeper];

    fn words(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Keeper => "keeper",
            Self::GuardAndKeeper => "guard + keeper",
        }
    }
}

struct Case {
    tier: &'static str,
    victim: Victim,
    size: usize,
    times: Series,
}

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let (tiers, missing) = tier::available(place)?;
    let mut cases = Vec::new();
    for tier in tiers {
        for victim in Victim::ALL {
            for size in [3, 30, 300] {
                cases.push(Case {
                    tier,
                    victim,
                    size,
                    times: Series::default(),
                });
            }
        }
    }
    for round in 0..effort.pick(40, 1) {
        for case in &mut cases {
            // The large trees are slow to set up, so a third of the rounds is enough.
            if case.size < 300 || round % 3 == 0 {
                let ns = once(place, case)?;
                case.times.push(ns);
            }
        }
    }
    let mut blocks: Vec<Block> = vec![
        "Of each tree the root is the server, a third of the others are plain children, a third have sessions of their own, a third are \
         double-forked daemons; all ignore SIGTERM and SIGHUP. From the kill to the end of a pipe that every member holds. \
         *Client*: the client process gets SIGKILL, with `--grace-eof 0ms --grace-term 0ms`, so that the whole ladder down to the kill rung is \
         in the figure. *Keeper*: its guard ends the tree. *Guard + keeper*: the shim starts a new pair, which finds the tree by leaf, tag and \
         recorded members."
            .into(),
        table(&cases).into(),
    ];
    blocks.extend(missing.map(Block::from));
    Ok(Part::new(blocks, targets(&cases)))
}

fn table(cases: &[Case]) -> Table {
    let mut table = Table::new(
        2,
        &[
            "SIGKILL to",
            "tier",
            "processes",
            "min, ms",
            "p50",
            "p90",
            "max",
            "n",
        ],
    );
    for victim in Victim::ALL {
        for case in cases.iter().filter(|case| case.victim == victim) {
            table.row([
                case.victim.words().to_owned(),
                case.tier.to_owned(),
                case.size.to_string(),
                ms(case.times.min()),
                ms(case.times.p50()),
                ms(case.times.quantile(0.9)),
                ms(case.times.max()),
                case.times.count().to_string(),
            ]);
        }
    }
    table
}

fn targets(cases: &[Case]) -> Vec<Target> {
    let worst = |victim| {
        let of = |case: &&Case| case.victim == victim && case.size == 30;
        cases
            .iter()
            .filter(of)
            .map(|case| case.times.p50())
            .max()
            .unwrap_or(0)
    };
    [
        (
            Victim::Client,
            "time to zero, 30 processes with escapees, from the kill of the client (kill rung), p50, worst tier",
        ),
        (
            Victim::Keeper,
            "time to zero, 30 processes with escapees, from the death of the keeper, p50, worst tier",
        ),
        (
            Victim::GuardAndKeeper,
            "time to zero, 30 processes with escapees, from the death of guard and keeper at once, p50, worst tier",
        ),
    ]
    .map(|(victim, what)| Target {
        what,
        aim: "≤ 10 ms",
        measured: format!("{} ms", ms(worst(victim))),
        met: worst(victim) <= 10_000_000,
    })
    .into()
}

fn once(place: &Place<'_>, case: &Case) -> io::Result<u64> {
    let held = Fifo::make(place.path("held"))?;
    let mut client = start(place, case, held.path())?;
    let card = place.card("is complete", |_| true);
    let victims = match case.victim {
        Victim::Client => vec![mainstay_os::identity::of(client.id() as i32)?],
        Victim::Keeper => card.keeper.into_iter().collect(),
        Victim::GuardAndKeeper => card.guard.into_iter().chain(card.keeper).collect(),
    };
    let handles: Vec<Handle> = victims
        .into_iter()
        .map(Handle::open)
        .collect::<io::Result<_>>()?;
    let start = clock::now();
    for handle in &handles {
        handle.signal(Signal::KILL)?;
    }
    held.wait_for_end()?;
    let took = clock::now() - start;
    // The link survives this kill, so the client is killed to end it.
    client.kill()?;
    client.wait()?;
    place.wait_empty()?;
    Ok(took)
}

/// Starts a client with its link and its tree, and waits until all of it exists.
fn start(place: &Place<'_>, case: &Case, held: &Path) -> io::Result<Child> {
    let members = (case.size - 1).to_string();
    let server = place.ours([
        OsString::from(role::GROW),
        "--hold".into(),
        held.into(),
        "--mark".into(),
        place.mark().into(),
        "--tree".into(),
        members.into(),
    ]);
    let options = [
        "--tier",
        case.tier,
        "--grace-eof",
        "0ms",
        "--grace-term",
        "0ms",
    ];
    let mut words = vec![OsString::from(role::HOLD)];
    words.extend(place.kept(&options, server));
    let mut client = place
        .command(&place.ours(words))?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = client.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line != "ready\n" {
        client.kill()?;
        client.wait()?;
        return Err(io::Error::other("the client did not get ready"));
    }
    Ok(client)
}

/// A FIFO: we read, and a whole tree holds the other end.
pub struct Fifo {
    path: PathBuf,
    reader: OwnedFd,
}

impl Fifo {
    pub fn make(path: PathBuf) -> io::Result<Self> {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let reader = open(
            &path,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self { path, reader })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until no process holds the other end.
    pub fn wait_for_end(self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
        while !fds[0].revents().contains(PollFlags::HUP) {
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut byte = [0];
        match File::from(self.reader).read(&mut byte)? {
            0 => Ok(()),
            _ => Err(io::Error::other(
                "a process wrote into the pipe that is only held",
            )),
        }
    }
}
