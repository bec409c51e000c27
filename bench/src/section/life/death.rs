//! From the death of a server to the next generation: its spawn, and the first answer.

use std::io;

use mainstay_os::clock;
use mainstay_os::identity::Handle;
use rustix::process::Signal;

use crate::args::Effort;
use crate::lane::Lane;
use crate::place::Place;
use crate::section::cradle::Cradle;
use crate::section::{Part, Target};
use crate::stats::{Series, ms};
use crate::table::Table;
use crate::talk::Requests;

struct Case {
    tier: &'static str,
    size: usize,
    born: Series,
    answered: Series,
}

pub fn measure(
    place: &Place<'_>,
    effort: Effort,
    cradle: &mut Cradle,
    tiers: &[&'static str],
) -> io::Result<Part> {
    let mut own = Series::default();
    let mut cases = Vec::new();
    for &tier in tiers {
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
        own.push(bare(place, cradle)?);
        for case in &mut cases {
            case.once(place, cradle)?;
        }
    }
    let blocks = vec![
        "**Death.** The server gets SIGKILL while the client lives. *Spawn*: the first instruction of the next generation's `main`, by its own \
         clock, so its `exec` is in the figure; *first answer*: to a ping that the client sends at once after the kill, replayed opening \
         included. The old tree, the server alone or one of 30 as above, is ended in between. *Without its own start*: less what the bare \
         server takes from its spawn by the client to its first answer after an opening, by p50."
            .into(),
        table(&cases, own.p50()).into(),
    ];
    Ok(Part::new(blocks, vec![target(&cases)]))
}

fn table(cases: &[Case], own: u64) -> Table {
    let mut table = Table::new(
        1,
        &[
            "tier",
            "processes",
            "spawn min, ms",
            "p50",
            "p90",
            "first answer, p50",
            "without its own start",
            "n",
        ],
    );
    for case in cases {
        let answered = case.answered.p50();
        // The large tree's server is another program, whose start was not measured.
        let added = match case.size {
            1 => ms(answered.saturating_sub(own)),
            _ => "-".into(),
        };
        table.row([
            case.tier.to_owned(),
            case.size.to_string(),
            ms(case.born.min()),
            ms(case.born.p50()),
            ms(case.born.quantile(0.9)),
            ms(answered),
            added,
            case.born.count().to_string(),
        ]);
    }
    table
}

fn target(cases: &[Case]) -> Target {
    let worst = |size| {
        let of = cases.iter().filter(|case| case.size == size);
        of.map(|case| case.born.p50()).max().unwrap_or(0)
    };
    Target {
        what: "death of the server to the next generation's spawn, p50, worst tier",
        aim: "≤ 5 ms",
        measured: format!("{} ms (tree of 30: {})", ms(worst(1)), ms(worst(30))),
        met: worst(1) <= 5_000_000,
    }
}

/// The time that the server itself takes from its spawn to its first answer after an opening.
fn bare(place: &Place<'_>, cradle: &mut Cradle) -> io::Result<u64> {
    let server = cradle.server(place, 1);
    let start = clock::now();
    let mut lane = Lane::of(place, &server)?;
    lane.talk.open()?;
    lane.talk.ask(&Requests::pings(1))?;
    let took = clock::now() - start;
    cradle.born()?;
    lane.end()?;
    Ok(took)
}

impl Case {
    fn once(&mut self, place: &Place<'_>, cradle: &mut Cradle) -> io::Result<()> {
        let server = cradle.server(place, self.size);
        // The tree ignores SIGTERM, so no grace is wasted on it.
        let options = ["--tier", self.tier, "--grace-term", "0ms"];
        let mut lane = Lane::of(place, &place.kept(&options, server))?;
        lane.talk.open()?;
        cradle.born()?;
        let server = lane.card(place).server.ok_or(io::ErrorKind::NotFound)?;
        let handle = Handle::open(server)?;
        let ping = Requests::pings(1);
        let start = clock::now();
        handle.signal(Signal::KILL)?;
        let answered = lane.talk.ask(&ping)?;
        self.born.push(cradle.born()?.saturating_sub(start.0));
        self.answered.push(answered);
        lane.end()?;
        place.wait_empty()
    }
}
