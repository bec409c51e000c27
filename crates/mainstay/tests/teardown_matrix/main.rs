//! Every cause of an end × every kind of tree × every available tier, with real processes: no process is left, or exactly those
//! that the page names. A tier that the machine affords must open. A tier that is not played is named.
//!
//! `MAINSTAY_CELLS=words` plays only the cells whose name has all of these words (and compares nothing). `MAINSTAY_BLESS=1`
//! rewrites docs/teardown-matrix.md. Steps and times go to a file in the target directory.
//! guards: No process of a server's tree is left after any cause of an end, on any tier, except those that the page names.

mod cause;
mod cell;
mod lab;
mod page;
mod tree;

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use mainstay_protocol::tier::Tier;
use mainstay_testkit::afford::affords;
use mainstay_testkit::built::under_test;
use mainstay_testkit::client::Launch;
use mainstay_testkit::skip::skip;
use mainstay_testkit::stage::{Stage, run};

use cause::Cause;
use cell::{Cell, Outcome};
use tree::Tree;

/// Cells that run at the same time. They wait for grace periods more than they work.
const BESIDE: usize = 8;

/// The same in the lab, where a start has half a second for its scope and one manager makes them all.
const BESIDE_IN_THE_LAB: usize = 3;

type Results = BTreeMap<String, Result<Outcome, String>>;

#[test]
fn every_cell_ends_as_the_page_says() {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let wanted = std::env::var("MAINSTAY_CELLS").ok();
    let wanted = wanted.as_deref();
    if let Some(lab) = lab::inside() {
        let cells = cells(&[lab::TIER], wanted);
        lab::hand_over(&lab, &play(&mainstay, &cells, BESIDE_IN_THE_LAB));
        return;
    }
    let mut tiers = tiers(&mainstay);
    let with_lab = !tiers.contains(&lab::TIER) && !cells(&[lab::TIER], wanted).is_empty();
    let with_lab = with_lab
        && lab::affordable()
            .inspect_err(|why| skip(&format!("tier {} is not played: {why}", lab::TIER)))
            .is_ok();
    // The lab belongs to another user, so its cells and ours cannot sweep each other's processes.
    let results = thread::scope(|scope| {
        let in_the_lab = with_lab
            .then(|| scope.spawn(|| lab::play(&mainstay, "every_cell_ends_as_the_page_says")));
        let mut results = play(&mainstay, &cells(&tiers, wanted), BESIDE);
        let in_the_lab =
            in_the_lab.map(|lab| lab.join().unwrap_or_else(|panic| resume_unwind(panic)));
        results.extend(in_the_lab.into_iter().flatten());
        results
    });
    tiers.extend(with_lab.then_some(lab::TIER));
    log(&results);
    let failed: Vec<String> = results
        .iter()
        .filter_map(|(name, result)| Some(format!("{name}: {}", result.as_ref().err()?)))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} cells failed:\n{}",
        failed.len(),
        results.len(),
        failed.join("\n")
    );
    if wanted.is_some() {
        return;
    }
    let sections: Vec<(Tier, String)> = tiers
        .iter()
        .map(|&tier| {
            let word = |cell| {
                results[&name(cell)]
                    .as_ref()
                    .map_or_else(|_| String::new(), |outcome| outcome.word.clone())
            };
            (tier, page::section(tier, word))
        })
        .collect();
    page::settle(&sections, std::env::var_os("MAINSTAY_BLESS").is_some());
}

/// All cells of these tiers that are wanted.
fn cells(tiers: &[Tier], wanted: Option<&str>) -> Vec<Cell> {
    tiers
        .iter()
        .flat_map(|&tier| Cause::ALL.map(|cause| Tree::ALL.map(|tree| Cell { tier, cause, tree })))
        .flatten()
        .filter(|&cell| {
            wanted.is_none_or(|words| words.split(' ').all(|word| name(cell).contains(word)))
        })
        .collect()
}

fn name(cell: Cell) -> String {
    format!("{}/{:?}/{:?}", cell.tier, cell.cause, cell.tree)
}

/// The tiers that are played right here. A tier that the machine affords must open. For the others, the reason is printed.
fn tiers(mainstay: &Path) -> Vec<Tier> {
    Tier::ALL
        .into_iter()
        .filter(|&tier| {
            let Err(refusal) = opens(mainstay, tier) else {
                return true;
            };
            match affords(tier) {
                Ok(()) => panic!("tier {tier} is to be had here, but: {refusal}"),
                Err(_) if tier == lab::TIER => {}
                Err(why) => skip(&format!("tier {tier} does not open: {why}; {refusal}")),
            }
            false
        })
        .collect()
}

/// Starts a server under that tier. Returns the program's message if it cannot.
fn opens(mainstay: &Path, tier: Tier) -> Result<(), String> {
    let stage = Stage::new();
    let options = ["--tier", tier.word(), "--require-tier", tier.word()];
    let mut client =
        Launch::new(&stage, &run(mainstay, &options, stage.unruly::<&str>(&[]))).start();
    let opened = client.wire.initialize();
    client.finish();
    opened
        .map(drop)
        .map_err(|_| client.stderr_text().trim().replace('\n', "; "))
}

/// Plays first the cells that can run beside each other, then the others one at a time.
fn play(mainstay: &Path, cells: &[Cell], beside: usize) -> Results {
    let (alone, others): (Vec<Cell>, Vec<Cell>) = cells.iter().partition(|cell| cell.alone());
    let results = Mutex::new(Results::new());
    let queue = Mutex::new(VecDeque::from(others));
    let note = |cell: Cell| {
        let result =
            catch_unwind(AssertUnwindSafe(|| cell.play(mainstay))).map_err(|panic| told(&*panic));
        results
            .lock()
            .expect("no panic while held")
            .insert(name(cell), result);
    };
    thread::scope(|scope| {
        for _ in 0..beside {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no panic while held").pop_front();
                    match next {
                        Some(cell) => note(cell),
                        None => return,
                    }
                }
            });
        }
    });
    alone.into_iter().for_each(note);
    results.into_inner().expect("no panic while held")
}

fn told(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default()
}

/// Writes the results that differ in each run and so are not on the page.
fn log(results: &Results) {
    let lines: Vec<String> = results
        .iter()
        .map(|(name, result)| match result {
            Ok(outcome) => format!("{name}: {} ({})", outcome.word, outcome.rungs),
            Err(problem) => format!("{name}: FAILED {problem}"),
        })
        .collect();
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("teardown-matrix.log");
    fs::write(file, lines.join("\n") + "\n").expect("the target directory takes a file");
}
