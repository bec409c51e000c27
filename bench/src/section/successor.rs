//! From the death of a keeper to the next generation: its spawn, and the first answer.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use mainstay_os::clock;
use mainstay_os::identity::Handle;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use super::{Block, Part, Target, tier};
use crate::args::Effort;
use crate::lane::Lane;
use crate::place::Place;
use crate::role;
use crate::stats::{Series, ms};
use crate::table::Table;
use crate::talk::Requests;

struct Case {
    tier: &'static str,
    size: usize,
    born: Series,
    answered: Series,
}

/// Measures.
pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let (tiers, missing) = tier::available(place)?;
    let births = place.path("births");
    mknodat(CWD, &births, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    // Opened for both ways, so that it never ends and never blocks a server's open.
    let mut cradle = File::options().read(true).write(true).open(&births)?;
    let mut cases = Vec::new();
    for tier in tiers {
        for size in [1, 30] {
            cases.push(Case {
                tier,
                size,
                born: Series::default(),
                answered: Series::default(),
            });
        }
    }
    for _ in 0..effort.pick(40, 2) {
        for case in &mut cases {
            case.once(place, &births, &mut cradle)?;
        }
    }
    let mut table = Table::new(
        1,
        &[
            "tier",
            "processes",
            "spawn min, ms",
            "p50",
            "p90",
            "first answer, p50",
            "n",
        ],
    );
    for case in &cases {
        table.row([
            case.tier.to_owned(),
            case.size.to_string(),
            ms(case.born.min()),
            ms(case.born.p50()),
            ms(case.born.quantile(0.9)),
            ms(case.answered.p50()),
            case.born.count().to_string(),
        ]);
    }
    let worst = |size| {
        let of = cases.iter().filter(|case| case.size == size);
        of.map(|case| case.born.p50()).max().unwrap_or(0)
    };
    let target = Target {
        what: "death of the keeper to the next generation's spawn, p50, worst tier",
        aim: "≤ 5 ms",
        measured: format!("{} ms (tree of 30: {})", ms(worst(1)), ms(worst(30))),
        met: worst(1) <= 5_000_000,
    };
    let mut blocks: Vec<Block> = vec![
        "The keeper gets SIGKILL while the client lives. *Spawn*: the first instruction of the next generation's `main`, by its own clock, so \
         its `exec` is in the figure; *first answer*: to a request that the client sends at once after the kill, replayed opening included. The \
         tree of the old generation is ended in between: it is the server alone, or one of 30 as above."
            .into(),
        table.into(),
    ];
    blocks.extend(missing.map(Block::from));
    Ok(Part::new(blocks, vec![target]))
}

impl Case {
    fn once(&mut self, place: &Place<'_>, births: &Path, cradle: &mut File) -> io::Result<()> {
        let birth = [OsString::from("--birth"), births.into()];
        let server = if self.size == 1 {
            [OsString::from(role::SERVE)]
                .into_iter()
                .chain(birth)
                .collect()
        } else {
            let members = (self.size - 1).to_string();
            let tree = ["--mark", place.mark(), "--tree", &members].map(OsString::from);
            [OsString::from(role::GROW)]
                .into_iter()
                .chain(birth)
                .chain(tree)
                .collect::<Vec<_>>()
        };
        // The unruly server ignores EOF's friends, not EOF; its tree ignores everything, so no grace is wasted on it.
        let options = ["--tier", self.tier, "--grace-term", "0ms"];
        let mut lane = Lane::of(place, &place.kept(&options, place.ours(server)))?;
        lane.talk.open()?;
        born(cradle)?;
        let keeper = lane.card(place).keeper.ok_or(io::ErrorKind::NotFound)?;
        let handle = Handle::open(keeper)?;
        let ping = Requests::new(1, 200, 200);
        let start = clock::now();
        handle.signal(Signal::KILL)?;
        let answered = lane.talk.ask(&ping)?;
        self.born.push(born(cradle)?.saturating_sub(start.0));
        self.answered.push(answered);
        lane.end().ok();
        place.wait_empty()
    }
}

/// The next birth that is told.
fn born(cradle: &mut File) -> io::Result<u64> {
    let mut ns = [0; 8];
    cradle.read_exact(&mut ns)?;
    Ok(u64::from_ne_bytes(ns))
}
