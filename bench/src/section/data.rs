//! The data path: round trips, large results, many small requests, and what they cost.

mod page;

use std::io;

use super::Part;
use crate::args::Effort;
use crate::footprint::{Memory, cpu_ns};
use crate::lane::{Kind, Lane};
use crate::pin::{Cores, Pin};
use crate::place::Place;
use crate::stats::Series;
use crate::talk::{Requests, Writing};

const SMALL: usize = 200;
const MIDDLE: usize = 10_000;
const LARGE: usize = 1_000_000;
/// The most small requests that may be unanswered at a time.
const WINDOW: usize = 128;

const WRITINGS: [Writing; 2] = [Writing::InBulk, Writing::OneByOne];

/// The figures of one lane.
#[derive(Default)]
struct Figures {
    small: Series,
    middle: Series,
    large: Series,
    /// Pipelined, in bulk and one by one.
    streams: [Stream; 2],
    /// Nanoseconds of the relays' processor time for the small round trips.
    cpu_sequential: u64,
}

/// Pipelined requests.
#[derive(Default)]
struct Stream {
    /// Nanoseconds for each block.
    blocks: Series,
    /// Nanoseconds of the relays' processor time for all of them.
    cpu: u64,
}

/// The keeper's own memory in KiB: without the pages of the program file, which come and go with other links.
#[derive(Default)]
struct Growth {
    before: u64,
    after_some: u64,
    after_all: u64,
    /// The number of them.
    results: usize,
}

struct Run {
    cores: Cores,
    lanes: [Figures; 4],
    /// The kinds that were measured.
    kinds: Vec<Kind>,
    growth: Growth,
    /// Requests in a block.
    block: usize,
    /// How often the lanes were started again.
    sets: usize,
}

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let runs = [
        run(place, effort, Cores::Any)?,
        run(place, effort, Cores::One)?,
    ];
    Ok(Part::new(page::blocks(&runs), page::targets(&runs)))
}

/// Measures several sets of lanes, one after another, because it is luck on which cores the scheduler keeps the processes of one
/// set.
fn run(place: &Place<'_>, effort: Effort, cores: Cores) -> io::Result<Run> {
    let _pin = Pin::to(cores)?;
    let mut run = Run {
        cores,
        lanes: Default::default(),
        kinds: place.kinds(),
        growth: Growth::default(),
        block: effort.pick(20_000, 2_000),
        sets: effort.pick(10, 1),
    };
    for _ in 0..run.sets {
        run.measure_set(place, effort)?;
    }
    Ok(run)
}

/// One lane of each kind.
fn start(place: &Place<'_>, writing: Writing) -> io::Result<Vec<Lane>> {
    let kinds = place.kinds().into_iter();
    kinds
        .map(|kind| Lane::start_writing(place, kind, writing))
        .collect()
}

fn end(lanes: Vec<Lane>) -> io::Result<()> {
    lanes.into_iter().try_for_each(Lane::end)
}

/// Measures each lane in turn, again and again, so that other work on the machine affects all of them alike.
fn rounds(
    lanes: &mut [Lane],
    count: usize,
    mut each: impl FnMut(usize, &mut Lane) -> io::Result<()>,
) -> io::Result<()> {
    for round in 0..count {
        for step in 0..lanes.len() {
            // Another lane is first each time.
            let number = (round + step) % lanes.len();
            each(number, &mut lanes[number])?;
        }
    }
    Ok(())
}

impl Run {
    fn measure_set(&mut self, place: &Place<'_>, effort: Effort) -> io::Result<()> {
        let mut lanes = start(place, Writing::InBulk)?;
        self.round_trips(&mut lanes, effort)?;
        self.streams(&mut lanes, effort, Writing::InBulk)?;
        self.large_results(&mut lanes, effort)?;
        end(lanes)?;
        let mut lanes = start(place, Writing::OneByOne)?;
        self.streams(&mut lanes, effort, Writing::OneByOne)?;
        end(lanes)
    }

    fn round_trips(&mut self, lanes: &mut [Lane], effort: Effort) -> io::Result<()> {
        let small = Requests::new(1_000, SMALL, SMALL);
        let middle = Requests::new(100, MIDDLE, MIDDLE);
        let warm = effort.pick(200, 20);
        rounds(lanes, 1, |_, lane| {
            (0..warm).try_for_each(|_| lane.talk.ask(&small).map(drop))
        })?;
        rounds(lanes, effort.pick(10, 5), |number, lane| {
            let into = &mut self.lanes[number];
            let before = cpu_ns(&lane.relays)?;
            for _ in 0..effort.pick(200, 50) {
                into.small.push(lane.talk.ask(&small)?);
            }
            into.cpu_sequential += cpu_ns(&lane.relays)? - before;
            Ok(())
        })?;
        rounds(lanes, effort.pick(10, 5), |number, lane| {
            for _ in 0..effort.pick(100, 20) {
                self.lanes[number].middle.push(lane.talk.ask(&middle)?);
            }
            Ok(())
        })
    }

    fn streams(&mut self, lanes: &mut [Lane], effort: Effort, writing: Writing) -> io::Result<()> {
        let many = Requests::new(self.block, SMALL, SMALL);
        rounds(lanes, effort.pick(3, 3), |number, lane| {
            let into = &mut self.lanes[number].streams[writing as usize];
            let before = cpu_ns(&lane.relays)?;
            into.blocks
                .push(lane.talk.pipeline(&many, WINDOW, writing)?);
            into.cpu += cpu_ns(&lane.relays)? - before;
            Ok(())
        })
    }

    fn large_results(&mut self, lanes: &mut [Lane], effort: Effort) -> io::Result<()> {
        let large = Requests::new(10, SMALL, LARGE);
        let mainstay = &mut lanes[Kind::Mainstay as usize];
        let keeper = mainstay.relays[2];
        self.growth.before = Memory::of(keeper)?.own;
        for _ in 0..large.count() {
            mainstay.talk.ask(&large)?;
        }
        self.growth.after_some = Memory::of(keeper)?.own;
        rounds(lanes, effort.pick(10, 3), |number, lane| {
            for _ in 0..effort.pick(10, 3) {
                self.lanes[number].large.push(lane.talk.ask(&large)?);
            }
            Ok(())
        })?;
        self.growth.after_all = Memory::of(keeper)?.own;
        self.growth.results = effort.pick(10, 3) * effort.pick(10, 3);
        Ok(())
    }

    fn of(&self, kind: Kind) -> &Figures {
        &self.lanes[kind as usize]
    }

    /// One figure of mainstay as a ratio to that of the `cat`s.
    fn ratio(&self, of: impl Fn(&Figures) -> u64) -> f64 {
        of(self.of(Kind::Mainstay)) as f64 / of(self.of(Kind::Cat)).max(1) as f64
    }

    fn stream(&self, kind: Kind, writing: Writing) -> &Stream {
        &self.of(kind).streams[writing as usize]
    }

    /// Messages per second.
    fn rate(&self, kind: Kind, writing: Writing) -> u64 {
        self.block as u64 * 1_000_000_000 / self.stream(kind, writing).blocks.p50().max(1)
    }

    /// The relays' processor time for 10,000 of this many requests, in nanoseconds.
    fn per_10_000(cpu: u64, requests: usize) -> u64 {
        cpu * 10_000 / (requests as u64).max(1)
    }

    fn cpu_sequential(&self, kind: Kind) -> u64 {
        let figures = self.of(kind);
        Self::per_10_000(figures.cpu_sequential, figures.small.count())
    }

    fn cpu_pipelined(&self, kind: Kind, writing: Writing) -> u64 {
        let stream = self.stream(kind, writing);
        Self::per_10_000(stream.cpu, stream.blocks.count() * self.block)
    }
}
