//! From the death of a keeper to the next generation: its spawn, and the first answer.

use std::io;

use mainstay_os::clock;
use mainstay_os::identity::Handle;
use rustix::process::Signal;

use super::cradle::Cradle;
use super::{Block, Part, Target, tier};
use crate::args::Effort;
use crate::lane::Lane;
use crate::place::Place;
use crate::stats::{Series, ms};
use crate::table::Table;
use crate::talk::Requests;

struct Case {
    tier: &'static str,
    size: usize,
    born: Series,
    answered: Series,
}

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let (tiers, missing) = tier::available(place)?;
    let mut cradle = Cradle::make(place)?;
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
            case.once(place, &mut cradle)?;
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
    fn once(&mut self, place: &Place<'_>, cradle: &mut Cradle) -> io::Result<()> {
        let server = cradle.server(place, self.size);
        // The unruly server itself ends at EOF. Its tree ignores EOF and SIGTERM, so no grace is wasted on it.
        let options = ["--tier", self.tier, "--grace-term", "0ms"];
        let mut lane = Lane::of(place, &place.kept(&options, server))?;
        lane.talk.open()?;
        cradle.born()?;
        let keeper = lane.card(place).keeper.ok_or(io::ErrorKind::NotFound)?;
        let handle = Handle::open(keeper)?;
        let ping = Requests::new(1, 200, 200);
        let start = clock::now();
        handle.signal(Signal::KILL)?;
        let answered = lane.talk.ask(&ping)?;
        self.born.push(cradle.born()?.saturating_sub(start.0));
        self.answered.push(answered);
        lane.end().ok();
        place.wait_empty()
    }
}
