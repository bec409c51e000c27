//! Two links of one configuration end at once: one of their records is there, whole, and nobody ever reads half of one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
use std::path::Path;
use std::{fs, thread};

use mainstay::recollection::{Configuration, Recollection};
use mainstay::state::Location;
use mainstay_core::message::{lists::Which, remembered::Remembered};
use support::Home;

fn recollection(directory: &Location) -> Recollection {
    let configuration = Configuration {
        argv: &["server".into()],
        cwd: Path::new("/"),
        env: &[],
    };
    Recollection::of(directory, "demo", &configuration)
}

fn sample(bytes: usize) -> Remembered {
    let mut remembered = Remembered::default();
    let tools = format!(r#"{{"tools":["{}"]}}"#, "x".repeat(bytes));
    remembered.learn_list(None, Which::Tools, tools.as_bytes());
    remembered
}

#[test]
fn and_no_reader_sees_half() {
    let home = Home::new();
    let directory = home.paths().record();
    let written = [sample(10), sample(300_000)];
    let both = written.clone().map(Remembered::from_disk);
    thread::scope(|scope| {
        for one in &written {
            let (directory, both) = (&directory, &both);
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut ours = recollection(directory);
                    ours.save(&[], one).unwrap();
                    assert!(both.contains(&ours.load()), "half a record was read");
                }
            });
        }
    });
    assert!(both.contains(&recollection(&directory).load()));
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "a record and its openings, and nothing else");
}
