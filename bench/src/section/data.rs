//! The data path: round trips, large results, many small requests, and what they cost.

use std::io;

use super::{Block, Part, Target};
use crate::args::Effort;
use crate::footprint::{Memory, cpu_ns};
use crate::lane::{Kind, Lane};
use crate::pin::{Cores, Pin};
use crate::place::Place;
use crate::stats::{Series, ms, number, ratio, us};
use crate::table::Table;
use crate::talk::Requests;

const SMALL: usize = 200;
const MIDDLE: usize = 10_000;
const LARGE: usize = 1_000_000;
/// Small requests that may be unanswered at a time.
const WINDOW: usize = 128;
/// Growth of the keeper's private memory, in KiB, that counts as none: allocator and page granularity.
const FLAT_KIB: u64 = 32;

/// What one lane showed.
#[derive(Default)]
struct Figures {
    small: Series,
    middle: Series,
    large: Series,
    /// Nanoseconds for each block of pipelined requests.
    blocks: Series,
    /// Nanoseconds of the relays' processor time.
    cpu_sequential: u64,
    cpu_pipelined: u64,
}

/// The keeper's private memory in KiB.
#[derive(Default)]
struct Growth {
    before: u64,
    after_one: u64,
    after_all: u64,
}

struct Run {
    cores: Cores,
    lanes: [Figures; 3],
    growth: Growth,
    /// Requests in a block.
    block: usize,
}

/// Measures.
pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let runs = [
        run(place, effort, Cores::Any)?,
        run(place, effort, Cores::One)?,
    ];
    Ok(Part::new(blocks(&runs), targets(&runs)))
}

fn run(place: &Place<'_>, effort: Effort, cores: Cores) -> io::Result<Run> {
    let _pin = Pin::to(cores)?;
    let mut lanes = Vec::new();
    for kind in Kind::ALL {
        lanes.push(Lane::start(place, kind)?);
    }
    let mut figures: [Figures; 3] = Default::default();
    let small = Requests::new(1_000, SMALL, SMALL);
    rounds(&mut lanes, effort.pick(100, 5), |number, lane| {
        let into = &mut figures[number];
        let before = cpu_ns(&lane.relays)?;
        for _ in 0..effort.pick(200, 50) {
            into.small.push(lane.talk.ask(&small)?);
        }
        into.cpu_sequential += cpu_ns(&lane.relays)? - before;
        Ok(())
    })?;
    let middle = Requests::new(100, MIDDLE, MIDDLE);
    rounds(&mut lanes, effort.pick(100, 5), |number, lane| {
        for _ in 0..effort.pick(100, 20) {
            figures[number].middle.push(lane.talk.ask(&middle)?);
        }
        Ok(())
    })?;
    let many = Requests::new(effort.pick(20_000, 2_000), SMALL, SMALL);
    rounds(&mut lanes, effort.pick(20, 3), |number, lane| {
        let into = &mut figures[number];
        let before = cpu_ns(&lane.relays)?;
        into.blocks.push(lane.talk.pipeline(&many, WINDOW)?);
        into.cpu_pipelined += cpu_ns(&lane.relays)? - before;
        Ok(())
    })?;
    let large = Requests::new(10, SMALL, LARGE);
    let keeper = lanes[Kind::Mainstay as usize].relays[2];
    let before = Memory::of(keeper)?.private;
    lanes[Kind::Mainstay as usize].talk.ask(&large)?;
    let after_one = Memory::of(keeper)?.private;
    rounds(&mut lanes, effort.pick(50, 3), |number, lane| {
        for _ in 0..effort.pick(10, 3) {
            figures[number].large.push(lane.talk.ask(&large)?);
        }
        Ok(())
    })?;
    let after_all = Memory::of(keeper)?.private;
    for lane in lanes {
        lane.end()?;
    }
    Ok(Run {
        cores,
        lanes: figures,
        growth: Growth {
            before,
            after_one,
            after_all,
        },
        block: many.count(),
    })
}

/// Each lane in turn, again and again: whatever the machine does meanwhile, it does it to all of them.
fn rounds(
    lanes: &mut [Lane],
    count: usize,
    mut each: impl FnMut(usize, &mut Lane) -> io::Result<()>,
) -> io::Result<()> {
    for round in 0..count {
        for step in 0..lanes.len() {
            // Another one begins each time.
            let number = (round + step) % lanes.len();
            each(number, &mut lanes[number])?;
        }
    }
    Ok(())
}

impl Run {
    fn of(&self, kind: Kind) -> &Figures {
        &self.lanes[kind as usize]
    }

    /// One figure of mainstay, as a ratio to the cats'.
    fn ratio(&self, of: impl Fn(&Figures) -> u64) -> f64 {
        of(self.of(Kind::Mainstay)) as f64 / of(self.of(Kind::Cat)).max(1) as f64
    }

    /// Messages per second.
    fn rate(&self, kind: Kind) -> u64 {
        self.block as u64 * 1_000_000_000 / self.of(kind).blocks.p50().max(1)
    }

    /// The relays' processor time for 10,000 of so many requests, in nanoseconds.
    fn per_10_000(cpu: u64, requests: usize) -> u64 {
        cpu * 10_000 / (requests as u64).max(1)
    }

    fn cpu_sequential(&self, kind: Kind) -> u64 {
        let figures = self.of(kind);
        Self::per_10_000(figures.cpu_sequential, figures.small.count())
    }

    fn cpu_pipelined(&self, kind: Kind) -> u64 {
        let figures = self.of(kind);
        Self::per_10_000(figures.cpu_pipelined, figures.blocks.count() * self.block)
    }
}

fn blocks(runs: &[Run; 2]) -> Vec<Block> {
    let mut blocks = vec![
        "The server answers each request line with a result line of the wanted size and does nothing else. All three lanes are up \
         at the same time and are measured in turn, block by block. Ratios are to `cat | server | cat`, by p50. *One core*: client, \
         relays and server are all held on one core; on any core the figures are bimodal, because a wake-up across cores costs \
         about three times as much as one on the same core."
            .into(),
    ];
    blocks.extend([
        Block::from("**Round trips, one at a time** (µs)"),
        Block::from(round_trips(runs, "200 B", |figures| &figures.small)),
        Block::from(round_trips(runs, "10 kB", |figures| &figures.middle)),
        Block::from("**1 MB results** (µs)"),
        Block::from(round_trips(runs, "1 MB", |figures| &figures.large)),
        Block::from(growth(runs)),
        Block::from(format!(
            "**Pipelined requests of 200 B** (at most {WINDOW} unanswered), and the processor time of the relays (both `cat`s, or shim, \
             guard and keeper) for 10,000 requests"
        )),
        Block::from(pipelined(runs)),
    ]);
    blocks
}

fn round_trips(runs: &[Run; 2], size: &str, of: fn(&Figures) -> &Series) -> Table {
    let lane = format!("{size}, lane");
    let mut table = Table::new(2, &[&lane, "cores", "min", "p50", "p99", "ratio", "n"]);
    for run in runs {
        for kind in Kind::ALL {
            let series = of(run.of(kind));
            table.row([
                kind.words().to_owned(),
                run.cores.words().to_owned(),
                us(series.min()),
                us(series.p50()),
                us(series.quantile(0.99)),
                ratio(series.p50(), of(run.of(Kind::Cat)).p50()),
                series.count().to_string(),
            ]);
        }
    }
    table
}

fn growth(runs: &[Run; 2]) -> String {
    let growth = &runs[0].growth;
    format!(
        "Private memory of the keeper: {} KiB after the small messages, {} KiB after the first 1 MB result, {} KiB after {} more.",
        growth.before,
        growth.after_one,
        growth.after_all,
        runs[0].of(Kind::Mainstay).large.count(),
    )
}

fn pipelined(runs: &[Run; 2]) -> Table {
    let mut table = Table::new(
        2,
        &[
            "lane",
            "cores",
            "messages/s",
            "ratio",
            "CPU pipelined, ms",
            "CPU one at a time, ms",
            "n",
        ],
    );
    for run in runs {
        for kind in Kind::ALL {
            table.row([
                kind.words().to_owned(),
                run.cores.words().to_owned(),
                run.rate(kind).to_string(),
                ratio(run.rate(kind), run.rate(Kind::Cat)),
                ms(run.cpu_pipelined(kind)),
                ms(run.cpu_sequential(kind)),
                (run.of(kind).blocks.count() * run.block).to_string(),
            ]);
        }
    }
    table
}

fn targets(runs: &[Run; 2]) -> Vec<Target> {
    let [any, one] = runs;
    let both = |of: &dyn Fn(&Run) -> f64| (of(any), of(one));
    let told = |(any, one): (f64, f64)| format!("{any:.2} (one core: {one:.2})");
    let small = both(&|run| run.ratio(|figures| figures.small.p50()));
    let large = both(&|run| run.ratio(|figures| figures.large.p50()));
    let rate = both(&|run| run.rate(Kind::Mainstay) as f64 / run.rate(Kind::Cat).max(1) as f64);
    let cpu = both(&|run| run.cpu_pipelined(Kind::Mainstay) as f64 / 1e6);
    let grown = any.growth.after_all.saturating_sub(any.growth.after_one);
    vec![
        Target {
            what: "round trip of a 200 B request, p50, against `cat \\| server \\| cat`",
            aim: "≤ 1.0",
            measured: told(small),
            met: small.0.max(small.1) <= 1.005,
        },
        Target {
            what: "1 MB result, against `cat \\| server \\| cat`",
            aim: "≤ 1.1 time",
            measured: told(large),
            met: large.0.max(large.1) <= 1.105,
        },
        Target {
            what: "growth of the keeper over many 1 MB results",
            aim: "flat memory",
            measured: format!("{grown} KiB"),
            met: grown <= FLAT_KIB,
        },
        Target {
            what: "pipelined small requests, with parsing, messages/s against `cat \\| server \\| cat`",
            aim: "≥ 0.7",
            measured: told(rate),
            met: rate.0.min(rate.1) >= 0.695,
        },
        Target {
            what: "CPU per 10,000 small requests (pipelined)",
            aim: "≤ 5 ms",
            measured: format!("{} ms (one core: {})", number(cpu.0), number(cpu.1)),
            met: cpu.0.max(cpu.1) <= 5.0,
        },
    ]
}
