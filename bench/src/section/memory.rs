//! Memory of links that have worked and are idle.

use std::io;

use mainstay_testkit::wait::until;

use super::{Part, Target};
use crate::args::Effort;
use crate::footprint::{Memory, sleeps};
use crate::lane::{Kind, Lane};
use crate::place::Place;
use crate::stats::mb;
use crate::table::Table;
use crate::talk::Requests;

const ROLES: [&str; 3] = ["shim", "guard", "keeper"];
const PRIVATE_MAX_KIB: u64 = 400_000 / 1_024;
const PSS_100_MAX_KIB: u64 = 30_000_000 / 1_024;
const PSS_1_MAX_KIB: u64 = 3_000_000 / 1_024;

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let mut total = Table::new(
        1,
        &[
            "links",
            "own, MB",
            "per link",
            "private, MB",
            "per link",
            "PSS, MB",
            "per link",
            "page tables, MB",
        ],
    );
    let mut by_role = Table::new(
        1,
        &[
            "process",
            "own, KiB",
            "private, KiB",
            "PSS, KiB",
            "page tables, KiB",
        ],
    );
    let mut single = Memory::default();
    let mut most = (0, Memory::default());
    let counts = [1, 10, effort.pick(100, 20)].map(|links| (Kind::Mainstay, links));
    let kinds = place.kinds().into_iter();
    let old = kinds
        .filter(|&kind| kind == Kind::Old)
        .flat_map(|old| counts.map(|(_, links)| (old, links)));
    for (kind, links) in counts.into_iter().chain(old) {
        let lanes = idle_links(place, kind, links)?;
        let mut roles = [Memory::default(); 3];
        for lane in &lanes {
            for (role, &pid) in roles.iter_mut().zip(&lane.relays) {
                *role = [*role, Memory::of(pid)?].into_iter().sum();
            }
        }
        let all: Memory = roles.into_iter().sum();
        let count = links as u64;
        total.row([
            match kind {
                Kind::Old => format!("{links}, old"),
                Kind::Direct | Kind::Cat | Kind::Mainstay => links.to_string(),
            },
            mb(all.own),
            mb(all.own / count),
            mb(all.private),
            mb(all.private / count),
            mb(all.pss),
            mb(all.pss / count),
            mb(all.tables),
        ]);
        if links == 1 && kind == Kind::Mainstay {
            single = all;
            for (name, memory) in ROLES.iter().zip(roles) {
                by_role.row([
                    (*name).to_owned(),
                    memory.own.to_string(),
                    memory.private.to_string(),
                    memory.pss.to_string(),
                    memory.tables.to_string(),
                ]);
            }
        }
        if kind == Kind::Mainstay {
            most = (links, all);
        }
        for lane in lanes {
            lane.end()?;
        }
        place.wait_empty()?;
    }
    let blocks = vec![
        "After the opening exchange, 100 round trips of 200 B and one of 10 kB, once the keeper has noted the tree. Shim, guard and keeper \
         together; the server is not counted. *Own*: anonymous and shared memory (heap, stacks, changed data, the record), which exists \
         because of this link only. *Private*: pages that no other process has. A single link has the pages of the program's file for itself, \
         so they are in its private figure; a second link shares them, and the kernel may drop them at any time. So the target for one \
         server is held against *own* for one link alone, and against *private* for each of many. *PSS*: every page, divided by its users."
            .into(),
        total.into(),
        "One link alone, by process:".into(),
        by_role.into(),
    ];
    Ok(Part::new(blocks, targets(single, most)))
}

fn targets(single: Memory, (links, all): (usize, Memory)) -> Vec<Target> {
    let count = links as u64;
    vec![
        Target {
            what: "private memory of shim + guard + keeper per idle server",
            aim: "≤ 0.4 MB",
            measured: format!(
                "{} MB (one alone, own), {} MB (each of {links}, private); one alone with the program's file: {}",
                mb(single.own),
                mb(all.private / count),
                mb(single.private),
            ),
            met: all.private / count <= PRIVATE_MAX_KIB && single.own <= PRIVATE_MAX_KIB,
        },
        Target {
            what: "PSS of one idle link alone",
            aim: "≤ 3 MB",
            measured: format!("{} MB", mb(single.pss)),
            met: single.pss <= PSS_1_MAX_KIB,
        },
        Target {
            what: "PSS of 100 idle links",
            aim: "≤ 30 MB",
            measured: format!("{} MB for {links}", mb(all.pss)),
            met: all.pss <= PSS_100_MAX_KIB * count / 100,
        },
    ]
}

fn idle_links(place: &Place<'_>, kind: Kind, count: usize) -> io::Result<Vec<Lane>> {
    let small = Requests::new(100, 200, 200);
    let middle = Requests::new(1, 10_000, 10_000);
    let mut lanes = Vec::new();
    for _ in 0..count {
        let mut lane = Lane::start(place, kind)?;
        for _ in 0..small.count() {
            lane.talk.ask(&small)?;
        }
        lane.talk.ask(&middle)?;
        lanes.push(lane);
    }
    place.wait_noted(count);
    // Noting is the keeper's last work but one. After it, the keeper gives back what it does not need.
    let relays = || lanes.iter().flat_map(|lane| &lane.relays);
    until("all of ours wait", || {
        relays().all(|&pid| sleeps(pid)).then_some(())
    });
    Ok(lanes)
}
