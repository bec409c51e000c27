//! The opening as the client sees it: how long after its spawn of the command the first two requests are answered.

use std::io;

use mainstay_os::clock;

use crate::args::Effort;
use crate::lane::{Kind, Lane};
use crate::pin::{Cores, Pin};
use crate::place::Place;
use crate::section::{Block, Target};
use crate::stats::{Series, ms};
use crate::table::Table;
use crate::talk::Writing;

const OPENED_MAX_NS: u64 = 3_000_000;
const LISTED_MAX_NS: u64 = 3_300_000;

struct Opening {
    kind: Kind,
    /// From the spawn to the answer of `initialize`.
    opened: Series,
    /// From the spawn to the answer of the first `tools/list`.
    listed: Series,
}

/// Measures on one core, because there all work that a relay does before it passes a message on is time that the client waits.
pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<(Vec<Block>, Vec<Target>)> {
    let _pin = Pin::to(Cores::One)?;
    let mut lanes: Vec<Opening> = place.kinds().into_iter().map(Opening::new).collect();
    for round in 0..effort.pick(200, 5) {
        for step in 0..lanes.len() {
            // Another lane is first each time.
            let number = (round + step) % lanes.len();
            lanes[number].take(place)?;
        }
    }
    let text = "By the client's clock, from its spawn of the command (of the first of three, for `cat | server | cat`): until `initialize` is \
                answered, and until the first `tools/list`, which the client sends together with `notifications/initialized`, is. Client, relays and \
                server are all held on one core.";
    let mut table = Table::new(
        1,
        &[
            "opening, ms",
            "`initialize`, min",
            "p50",
            "p99",
            "added, p50",
            "first `tools/list`, min",
            "p50",
            "p99",
            "added, p50",
            "n",
        ],
    );
    let bare = (lanes[0].opened.p50(), lanes[0].listed.p50());
    let mut targets = Vec::new();
    for lane in &lanes {
        let (opened, listed) = (&lane.opened, &lane.listed);
        let added = (
            opened.p50().saturating_sub(bare.0),
            listed.p50().saturating_sub(bare.1),
        );
        table.row([
            lane.kind.words().to_owned(),
            ms(opened.min()),
            ms(opened.p50()),
            ms(opened.quantile(0.99)),
            ms(added.0),
            ms(listed.min()),
            ms(listed.p50()),
            ms(listed.quantile(0.99)),
            ms(added.1),
            opened.count().to_string(),
        ]);
        if lane.kind == Kind::Mainstay {
            targets = targets_of(added);
        }
    }
    Ok((vec![text.into(), table.into()], targets))
}

fn targets_of((opened, listed): (u64, u64)) -> Vec<Target> {
    vec![
        Target {
            what: "`initialize` answered, by the client's clock, over direct, p50, one core",
            aim: "≤ 3.0 ms",
            measured: format!("{} ms", ms(opened)),
            met: opened <= OPENED_MAX_NS,
        },
        Target {
            what: "first `tools/list` answered, the same",
            aim: "≤ 3.3 ms",
            measured: format!("{} ms", ms(listed)),
            met: listed <= LISTED_MAX_NS,
        },
    ]
}

impl Opening {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            opened: Series::default(),
            listed: Series::default(),
        }
    }

    fn take(&mut self, place: &Place<'_>) -> io::Result<()> {
        let start = clock::now();
        let mut lane = Lane::start_silent(place, self.kind, Writing::InBulk)?;
        lane.talk.greet()?;
        self.opened.push(clock::now() - start);
        lane.talk.list()?;
        self.listed.push(clock::now() - start);
        lane.end()?;
        // A process that still ends after the shim must not disturb the next measurement.
        place.wait_empty()
    }
}
