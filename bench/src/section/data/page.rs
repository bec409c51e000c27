//! The page of the data path.

use super::{Figures, Run, WINDOW, WRITINGS};
use crate::lane::Kind;
use crate::section::{Block, Target};
use crate::stats::{Series, ms, number, ratio, us};
use crate::table::Table;
use crate::talk::Writing;

/// The growth of the keeper's own memory, in KiB, that counts as none: the most that its buffers may hold, whether they are
/// full or were just given back.
const FLAT_KIB: u64 = 64;

pub fn blocks(runs: &[Run; 2]) -> Vec<Block> {
    vec![
        format!(
            "The server answers each request line with a result line of the wanted size and does nothing else. All three lanes are up \
         at the same time and are measured in turn, block by block; they are started anew {} times. Ratios are to `cat | server | cat`, by p50. *One core*: client, \
         relays and server are all held on one core; on any core the figures are bimodal, because a wake-up across cores costs \
         about three times as much as one on the same core, and which of them a lane gets is the scheduler's whim: runs of one and the same \
         program have shown ratios from 0.9 to 3 for the small round trip, the high ones on a busy machine, where time is shared by session \
         and the `cat`s are in one session with the client while keeper and server are not. So the targets are for one core, where a run can be repeated; how any core fares is told beside them. \
         In bulk a relay does next to nothing per message but look at it, and that is what `cat` does not do: there a message costs us about \
         0.1 µs more than it costs a `cat`. One by one it is the turns that cost: the writer of the next message is interrupted for the \
         `cat`s after each of the first messages. The keeper waits for its turn, so it never interrupts the writer.",
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
        for &kind in &run.kinds {
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
        "Own memory of the keeper: {} KiB after the small messages, {} KiB after 10 results of 1 MB, {} KiB after {} more.",
        growth.before, growth.after_some, growth.after_all, growth.results,
    )
}

fn pipelined(runs: &[Run; 2]) -> Table {
    let mut table = Table::new(3, &["lane", "cores", "written", "messages/s", "ratio", "n"]);
    for run in runs {
        for writing in WRITINGS {
            for &kind in &run.kinds {
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
        for &kind in run.kinds.iter().filter(|&&kind| kind != Kind::Direct) {
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

/// The results for the targets: on one core, where a run can be repeated, and on any core.
pub fn targets(runs: &[Run; 2]) -> Vec<Target> {
    let [any, one] = runs;
    let small = |run: &Run| run.ratio(|figures| figures.small.p50());
    let large = |run: &Run| run.ratio(|figures| figures.large.p50());
    let rate = |run: &Run, writing| {
        let cat = run.rate(Kind::Cat, writing).max(1);
        run.rate(Kind::Mainstay, writing) as f64 / cat as f64
    };
    let cpu = |run: &Run| {
        let of = |kind| run.cpu_pipelined(kind, Writing::OneByOne) as f64 / 1e6;
        (of(Kind::Mainstay), of(Kind::Cat))
    };
    let grown = any.growth.after_all.saturating_sub(any.growth.after_some);
    vec![
        at_most(
            "round trip of a 200 B request, p50, against `cat \\| server \\| cat`, one core",
            "≤ 1.0",
            small(one),
            1.005,
        ),
        at_most("the same, any core", "≤ 1.0", small(any), 1.005),
        at_most(
            "1 MB result, against `cat \\| server \\| cat`, one core",
            "≤ 1.1 time",
            large(one),
            1.105,
        ),
        at_most("the same, any core", "≤ 1.1 time", large(any), 1.105),
        Target {
            what: "growth of the keeper over many 1 MB results",
            aim: "flat memory",
            measured: format!("{grown} KiB"),
            met: grown <= FLAT_KIB,
        },
        at_least(
            "pipelined small requests, with parsing, messages/s against `cat \\| server \\| cat`, written one by one, one core",
            rate(one, Writing::OneByOne),
        ),
        at_least(
            "the same, one by one, any core",
            rate(any, Writing::OneByOne),
        ),
        at_least("the same, in bulk, one core", rate(one, Writing::InBulk)),
        at_least("the same, in bulk, any core", rate(any, Writing::InBulk)),
        cpu_at_most(
            "CPU per 10,000 small requests, pipelined one by one, one core",
            cpu(one),
        ),
        cpu_at_most("the same, any core", cpu(any)),
    ]
}

fn at_most(what: &'static str, aim: &'static str, measured: f64, most: f64) -> Target {
    Target {
        what,
        aim,
        measured: format!("{measured:.2}"),
        met: measured <= most,
    }
}

fn at_least(what: &'static str, measured: f64) -> Target {
    Target {
        what,
        aim: "≥ 0.7",
        measured: format!("{measured:.2}"),
        met: measured >= 0.695,
    }
}

fn cpu_at_most(what: &'static str, (measured, cats): (f64, f64)) -> Target {
    Target {
        what,
        aim: "≤ 5 ms",
        measured: format!("{} ms (both `cat`s: {})", number(measured), number(cats)),
        met: measured <= 5.0,
    }
}
