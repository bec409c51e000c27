//! What is told of the data path.

use super::{Figures, Run, WINDOW, WRITINGS};
use crate::lane::Kind;
use crate::section::{Block, Target};
use crate::stats::{Series, ms, number, ratio, us};
use crate::table::Table;
use crate::talk::Writing;

/// Growth of the keeper's private memory, in KiB, that counts as none: what its buffers may hold at most, whether they
/// are full or were just given back.
const FLAT_KIB: u64 = 64;

/// Text and tables.
pub fn blocks(runs: &[Run; 2]) -> Vec<Block> {
    vec![
        format!(
            "The server answers each request line with a result line of the wanted size and does nothing else. All three lanes are up \
         at the same time and are measured in turn, block by block; they are started anew {} times. Ratios are to `cat | server | cat`, by p50. *One core*: client, \
         relays and server are all held on one core; on any core the figures are bimodal, because a wake-up across cores costs \
         about three times as much as one on the same core, and which of them a lane gets is the scheduler's whim: runs of one and the same \
         program have shown ratios from 0.9 to 3 for the small round trip, the high ones on a busy machine, where time is shared by session \
         and the `cat`s are in one session with the client while keeper and server are not. So the targets are held against one core.",
            runs[0].sets
        )
        .into(),
        Block::from("**Round trips, one at a time** (µs)"),
        Block::from(round_trips(runs, "200 B", |figures| &figures.small)),
        Block::from(round_trips(runs, "10 kB", |figures| &figures.middle)),
        Block::from("**1 MB results** (µs)"),
        Block::from(round_trips(runs, "1 MB", |figures| &figures.large)),
        Block::from(growth(runs)),
        Block::from(format!(
            "**Pipelined requests of 200 B** (at most {WINDOW} unanswered). *One by one*: client and server write each message by itself, as MCP \
             clients and servers do; *in bulk*: they write as many as there are, which is the least that a relay can cost"
        )),
        Block::from(pipelined(runs)),
        Block::from(
            "**Processor time** of the relays (both `cat`s, or shim, guard and keeper) for 10,000 requests of 200 B (ms)",
        ),
        Block::from(processor_time(runs)),
    ]
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
        "Private memory of the keeper: {} KiB after the small messages, {} KiB after 10 results of 1 MB, {} KiB after {} more.",
        growth.before, growth.after_some, growth.after_all, growth.results,
    )
}

fn pipelined(runs: &[Run; 2]) -> Table {
    let mut table = Table::new(3, &["lane", "cores", "written", "messages/s", "ratio", "n"]);
    for run in runs {
        for writing in WRITINGS {
            for kind in Kind::ALL {
                let rate = run.rate(kind, writing);
                table.row([
                    kind.words().to_owned(),
                    run.cores.words().to_owned(),
                    words(writing).to_owned(),
                    rate.to_string(),
                    ratio(rate, run.rate(Kind::Cat, writing)),
                    (run.stream(kind, writing).blocks.count() * run.block).to_string(),
                ]);
            }
        }
    }
    table
}

fn processor_time(runs: &[Run; 2]) -> Table {
    let mut table = Table::new(
        2,
        &[
            "lane",
            "cores",
            "pipelined in bulk",
            "pipelined one by one",
            "one at a time",
        ],
    );
    for run in runs {
        for kind in [Kind::Cat, Kind::Mainstay] {
            table.row([
                kind.words().to_owned(),
                run.cores.words().to_owned(),
                ms(run.cpu_pipelined(kind, Writing::InBulk)),
                ms(run.cpu_pipelined(kind, Writing::OneByOne)),
                ms(run.cpu_sequential(kind)),
            ]);
        }
    }
    table
}

fn words(writing: Writing) -> &'static str {
    match writing {
        Writing::InBulk => "in bulk",
        Writing::OneByOne => "one by one",
    }
}

/// How the targets fare.
pub fn targets(runs: &[Run; 2]) -> Vec<Target> {
    let [any, one] = runs;
    let both = |of: &dyn Fn(&Run) -> f64| (of(any), of(one));
    let told = |(any, one): (f64, f64)| format!("{one:.2} (any core: {any:.2})");
    let small = both(&|run| run.ratio(|figures| figures.small.p50()));
    let large = both(&|run| run.ratio(|figures| figures.large.p50()));
    let rate = |writing| {
        both(&|run| {
            let cat = run.rate(Kind::Cat, writing).max(1);
            run.rate(Kind::Mainstay, writing) as f64 / cat as f64
        })
    };
    let (one_by_one, in_bulk) = (rate(Writing::OneByOne), rate(Writing::InBulk));
    let cpu = both(&|run| run.cpu_pipelined(Kind::Mainstay, Writing::OneByOne) as f64 / 1e6);
    let grown = any.growth.after_all.saturating_sub(any.growth.after_some);
    vec![
        Target {
            what: "round trip of a 200 B request, p50, against `cat \\| server \\| cat`",
            aim: "≤ 1.0",
            measured: told(small),
            met: small.1 <= 1.005,
        },
        Target {
            what: "1 MB result, against `cat \\| server \\| cat`",
            aim: "≤ 1.1 time",
            measured: told(large),
            met: large.1 <= 1.105,
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
            measured: format!("{}; in bulk {}", told(one_by_one), told(in_bulk)),
            met: one_by_one.1 >= 0.695,
        },
        Target {
            what: "CPU per 10,000 small requests, pipelined",
            aim: "≤ 5 ms",
            measured: format!("{} ms (any core: {})", number(cpu.1), number(cpu.0)),
            met: cpu.1 <= 5.0,
        },
    ]
}
