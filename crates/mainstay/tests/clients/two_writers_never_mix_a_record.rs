//! Two links of one configuration end at once. One of their records is stored whole, and no reader ever sees half of one.
//! guards: Of two writers of a record the last one wins, and no reader sees a mixture.

use std::path::Path;
use std::{fs, thread};

use mainstay_protocol::message::{lists::Which, remembered::Remembered};
use mainstay_store::cache::{CacheFile, Configuration};
use mainstay_store::state::Location;

use crate::support::home::Home;

fn cache_file(directory: &Location) -> CacheFile {
    let configuration = Configuration {
        argv: &["server".into()],
        cwd: Path::new("/"),
        env: &[],
    };
    CacheFile::of(directory, "demo", &configuration)
}

fn sample(bytes: usize) -> Remembered {
    let mut remembered = Remembered::default();
    let tools = format!(r#"{{"tools":["{}"]}}"#, "x".repeat(bytes));
    remembered.learn_list(None, Which::Tools, tools.as_bytes());
    remembered
}

#[test]
fn no_reader_sees_half_of_a_record() {
    let home = Home::new();
    let directory = home.paths().cache();
    let written = [sample(10), sample(300_000)];
    let both = written.clone().map(Remembered::from_disk);
    thread::scope(|scope| {
        for one in &written {
            let (directory, both) = (&directory, &both);
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut ours = cache_file(directory);
                    ours.save(&[], one).unwrap();
                    assert!(both.contains(&ours.load()), "half a record was read");
                }
            });
        }
    });
    assert!(both.contains(&cache_file(&directory).load()));
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "a record and its openings, and nothing else");
}
