//! Start-up: how much later a server's first byte and its first answers come than without mainstay.

mod opening;

use std::io;

use mainstay_os::clock;

use super::{Block, Part, Target, tier};
use crate::args::Effort;
use crate::lane::{Kind, Lane};
use crate::place::Place;
use crate::role;
use crate::stats::{Series, ms};
use crate::table::Table;

/// One way to start.
struct Way {
    name: String,
    /// The build and the options of `mainstay run`, or none for a bare server.
    options: Option<(Kind, Vec<&'static str>)>,
    /// From the spawn to the server's first instruction, by its own clock.
    born: Series,
    /// From the spawn to its first byte at the client.
    seen: Series,
}

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let (tiers, missing) = tier::available(place)?;
    let mut ways = vec![Way::new("direct".into(), None)];
    for tier in tiers {
        for kind in place.kinds() {
            if let Kind::Mainstay | Kind::Old = kind {
                ways.push(Way::new(
                    format!("{}, tier {tier}", kind.words()),
                    Some((kind, vec!["--tier", tier])),
                ));
            }
        }
    }
    for _ in 0..effort.pick(200, 5) {
        for way in &mut ways {
            way.start(place)?;
        }
    }
    let mut table = Table::new(
        1,
        &[
            "start-up, ms",
            "first instruction, p50",
            "first byte, min",
            "p50",
            "p99",
            "added, p50",
            "n",
        ],
    );
    let bare = ways[0].seen.p50();
    let mut worst = 0;
    for way in &ways {
        let added = way.seen.p50().saturating_sub(bare);
        if !matches!(way.options, Some((Kind::Old, _))) {
            worst = worst.max(added);
        }
        table.row([
            way.name.clone(),
            ms(way.born.p50()),
            ms(way.seen.min()),
            ms(way.seen.p50()),
            ms(way.seen.quantile(0.99)),
            ms(added),
            way.seen.count().to_string(),
        ]);
    }
    let mut blocks: Vec<Block> = vec![
        "From the client's spawn of the command. *First instruction*: of the server's `main`, by its own clock; *first byte*: of the \
         server's output, read by the client. The server is a static program of 1 MB."
            .into(),
        table.into(),
    ];
    blocks.extend(missing.map(Block::from));
    let first_byte = Target {
        what: "start-up added before the server's own first byte, p50, worst tier",
        aim: "≤ 3 ms",
        measured: format!("{} ms", ms(worst)),
        met: worst <= 3_000_000,
    };
    let (opening, targets) = opening::measure(place, effort)?;
    blocks.extend(opening);
    Ok(Part::new(
        blocks,
        [first_byte].into_iter().chain(targets).collect(),
    ))
}

impl Way {
    fn new(name: String, options: Option<(Kind, Vec<&'static str>)>) -> Self {
        Self {
            name,
            options,
            born: Series::default(),
            seen: Series::default(),
        }
    }

    fn start(&mut self, place: &Place<'_>) -> io::Result<()> {
        let server = place.ours([role::SERVE, "--hello"]);
        let argv = match &self.options {
            Some((Kind::Old, options)) => place
                .kept_by_old(options, server)
                .ok_or(io::ErrorKind::NotFound)?,
            Some((_, options)) => place.kept(options, server),
            None => server,
        };
        let start = clock::now();
        let mut lane = Lane::of(place, &argv)?;
        let hello = lane.talk.first_line()?;
        self.seen.push(clock::now() - start);
        self.born.push(time_in(hello)?.saturating_sub(start.0));
        lane.end()?;
        // A process that still ends after the shim must not disturb the next measurement.
        place.wait_empty()
    }
}

/// The only number of a hello that is longer than a version.
fn time_in(hello: &[u8]) -> io::Result<u64> {
    String::from_utf8_lossy(hello)
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .max()
        .filter(|&ns| ns > 2)
        .ok_or_else(|| io::Error::other("the server did not say hello"))
}
