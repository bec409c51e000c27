//! Never worse than bare: whatever happens to a client, its server, mainstay or the machine, a user of mainstay is at least as
//! well off as one without it. Scripted clients play every action. They end and restart servers as real clients do, each bare and
//! through mainstay. `docs/never-worse.md` has the outcomes.
//! guards: With mainstay, no action has a worse outcome for the user than without it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod action;
mod cell;
mod outcome;
mod page;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use action::Action;
use cell::{Cell, Way};
use mainstay_testkit::built::under_test;
use mainstay_testkit::killers::Habit;
use mainstay_testkit::skip::skip;
use outcome::Outcome;
use page::Page;

/// Cells that run at the same time. Most of them wait, for a client's timeout or for a server's grace.
const BESIDE: usize = 12;

#[test]
fn no_cell_is_worse_and_the_page_says_so() {
    let mainstay = under_test(env!("CARGO_BIN_EXE_mainstay"));
    let bless = std::env::var_os("MAINSTAY_BLESS").is_some();
    let wanted = std::env::var("MAINSTAY_CELLS").ok();
    let page = Page::read();
    let cells = cells(wanted.as_deref());
    let queue = Mutex::new(VecDeque::from(cells));
    let played: Mutex<BTreeMap<Cell, Result<Outcome, String>>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(|| {
                loop {
                    let Some(cell) = queue.lock().unwrap().pop_front() else {
                        return;
                    };
                    let expected = page.cell(cell).filter(|_| !bless);
                    let outcome = catch_unwind(AssertUnwindSafe(|| cell.play(&mainstay, expected)));
                    let outcome = outcome.map_err(|panic| told(&*panic));
                    played.lock().unwrap().insert(cell, outcome);
                }
            });
        }
    });
    let played = played.into_inner().unwrap();
    let mut wrong: Vec<String> = Vec::new();
    for (cell, outcome) in &played {
        match outcome {
            Err(problem) => wrong.push(format!("{cell}: {problem}")),
            Ok(ours) if cell.way == Way::Mainstay => {
                let bare = &played[&Cell {
                    way: Way::Bare,
                    ..*cell
                }];
                if let Ok(bare) = bare
                    && ours.worse_than(*bare)
                {
                    wrong.push(format!("{cell}: {ours} is worse than bare: {bare}"));
                }
            }
            Ok(_) => {}
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    page.settle(&played, bless, wanted.is_none());
}

/// All cells that are wanted and can be played here.
fn cells(wanted: Option<&str>) -> Vec<Cell> {
    let root = rustix::process::geteuid().is_root();
    let mut cells = Vec::new();
    for action in Action::ALL {
        if action.needs_root() && !root {
            skip(&format!("never worse: \"{}\" needs root", action.words()));
            continue;
        }
        for habit in Habit::ALL {
            cells.extend([Way::Bare, Way::Mainstay].map(|way| Cell { action, habit, way }));
        }
    }
    cells.retain(|cell| {
        let name = cell.to_string();
        wanted.is_none_or(|words| words.split(' ').all(|word| name.contains(word)))
    });
    cells
}

fn told(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default()
}
