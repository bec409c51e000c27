//! Links whose server is hibernated: their memory, and how fast they are awake.

use std::io;

use crate::args::Effort;
use crate::footprint::Memory;
use crate::lane::{Lane, pids};
use crate::place::Place;
use crate::role;
use crate::section::{Part, Target};
use crate::stats::{Series, mb, ms};
use crate::table::Table;
use crate::talk::Requests;

/// The idle time after which a server is hibernated here.
const IDLE: &str = "500ms";
/// DESIGN §5.6: a hibernated link stays open at about this much.
const OWN_MAX_KIB: u64 = 200_000 / 1_024;

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let mut table = Table::new(
        1,
        &[
            "links at rest",
            "own, MB",
            "per link",
            "private per link",
            "PSS per link",
            "waking, p50, ms",
            "max",
        ],
    );
    let mut per_link = Vec::new();
    for links in [1, effort.pick(100, 5)] {
        let (memory, waking) = resting(place, links)?;
        let count = links as u64;
        per_link.push((links, memory.own / count));
        table.row([
            links.to_string(),
            mb(memory.own),
            mb(memory.own / count),
            mb(memory.private / count),
            mb(memory.pss / count),
            ms(waking.p50()),
            ms(waking.max()),
        ]);
    }
    let told: Vec<String> = per_link
        .iter()
        .map(|(links, own)| match links {
            1 => format!("{} MB (one alone)", mb(*own)),
            links => format!("{} MB (each of {links})", mb(*own)),
        })
        .collect();
    let target = Target {
        what: "own memory of shim + guard + keeper per server that rests",
        aim: "≤ 0.2 MB",
        measured: told.join(", "),
        met: per_link.iter().all(|(_, own)| *own <= OWN_MAX_KIB),
    };
    let blocks = vec![
        "**Rest.** Links with `--hibernate`, after the opening exchange, 100 round trips of 200 B and one of 10 kB, when all their servers \
         have been put to rest; columns as for idle links. *Waking*: from a request to its answer, with the server's start and the replayed \
         opening."
            .into(),
        table.into(),
    ];
    Ok(Part::new(blocks, vec![target]))
}

/// Hibernates this many links. Returns their memory then, and how long each of them takes to wake.
fn resting(place: &Place<'_>, links: usize) -> io::Result<(Memory, Series)> {
    let small = Requests::new(100, 200, 200);
    let middle = Requests::new(1, 10_000, 10_000);
    let mut lanes = Vec::new();
    for _ in 0..links {
        let server = place.ours([role::SERVE]);
        let mut lane = Lane::of(place, &place.kept(&["--hibernate", IDLE], server))?;
        lane.talk.open()?;
        for _ in 0..small.count() {
            lane.talk.ask(&small)?;
        }
        lane.talk.ask(&middle)?;
        lanes.push(lane);
    }
    let mut memory = Memory::default();
    for card in place.resting(links) {
        for pid in pids(&card) {
            memory = [memory, Memory::of(pid)?].into_iter().sum();
        }
    }
    let mut waking = Series::default();
    for mut lane in lanes {
        waking.push(lane.talk.ask(&small)?);
        lane.end()?;
        place.step();
    }
    place.wait_empty()?;
    Ok((memory, waking))
}
