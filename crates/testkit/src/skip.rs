//! The tests that could not run here, and why.
//!
//! `cargo test` shows no output of a test that passes, so a test that cannot run would look like one that ran. It calls [`skip`],
//! which adds a line to a list, one list for each run of cargo. The last test program of a run
//! (`tests/what_was_not_tested_is_named.rs`) shows the list as one line and, where a run may skip nothing, fails.
//!
//! The tests of `os` include this file too, so it uses nothing of the testkit.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::thread;

/// The variable with the list's path. It is set for copies of a test program, which cannot find the list. Otherwise the list
/// belongs to the run of cargo.
pub const LIST: &str = "MAINSTAY_NOT_TESTED";

/// If this variable is set, tests may be skipped only for a reason with one of these words (separated by commas). Others fail the
/// run.
pub const MAY_SKIP: &str = "MAINSTAY_MAY_SKIP";

/// Notes that the calling test, or a part of it, does not run here.
pub fn skip(why: &str) {
    if let Some(list) = list() {
        add(&list, &program(), &test(), why);
    }
}

/// Whether we are root. If not, that is noted.
pub fn root_or_skip(why: &str) -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        skip(why);
    }
    root
}

/// The list of this run, or none for a program outside of a build directory.
pub fn list() -> Option<PathBuf> {
    if let Some(list) = env::var_os(LIST) {
        return Some(list.into());
    }
    let program = env::current_exe().ok()?;
    let mut folder = program.parent()?;
    if folder.ends_with("deps") {
        folder = folder.parent()?;
    }
    let folder = folder.join("not-tested");
    fs::create_dir_all(&folder).ok()?;
    let (pid, start) = run_of_cargo();
    Some(folder.join(format!("{pid}-{start}")))
}

/// Adds one line to the list.
pub fn add(list: &Path, program: &str, test: &str, why: &str) {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("{why}\t{program}\t{test}\n");
    let file = File::options().create(true).append(true).open(list);
    // One write, because other tests add lines at the same time.
    drop(file.and_then(|mut file| file.write_all(line.as_bytes())));
}

/// Removes the list of this run and returns the skipped tests by reason. Lists of earlier runs are removed as well.
pub fn take() -> BTreeMap<String, Vec<String>> {
    let Some(list) = list() else {
        return BTreeMap::new();
    };
    let text = fs::read_to_string(&list).unwrap_or_default();
    drop(fs::remove_file(&list));
    for other in list
        .parent()
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = other.file_name().to_string_lossy().into_owned();
        let lives = name.split_once('-').is_some_and(|(pid, start)| {
            let found = pid.parse().ok().and_then(stat);
            found.is_some_and(|stat| stat.start.to_string() == start)
        });
        if !lives {
            drop(fs::remove_file(other.path()));
        }
    }
    by_reason(&text)
}

/// The tests of a list, by reason.
pub fn by_reason(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split('\t');
        if let (Some(why), Some(program), Some(test)) = (words.next(), words.next(), words.next()) {
            let name = format!("{program}::{test}");
            let tests = found.entry(why.to_owned()).or_default();
            if !tests.contains(&name) {
                tests.push(name);
            }
        }
    }
    for tests in found.values_mut() {
        tests.sort();
    }
    found
}

/// The last line of a run.
pub fn told(skipped: &BTreeMap<String, Vec<String>>) -> String {
    if skipped.is_empty() {
        return "not tested here: nothing, every test could run".into();
    }
    let each: Vec<String> = skipped
        .iter()
        .map(|(why, tests)| format!("{} ({why})", tests.join(", ")))
        .collect();
    format!("not tested here: {}", each.join("; "))
}

/// The tests that were skipped for a reason that none of these words (separated by commas) allows.
pub fn not_allowed(skipped: &BTreeMap<String, Vec<String>>, words: &str) -> Vec<String> {
    let allows = |why: &str| {
        words
            .split(',')
            .map(str::trim)
            .any(|word| !word.is_empty() && why.contains(word))
    };
    skipped.keys().filter(|why| !allows(why)).cloned().collect()
}

/// The program, without cargo's hash.
fn program() -> String {
    let exe = env::current_exe().unwrap_or_default();
    let name = exe.file_name().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('-') {
        Some((name, _)) => name.to_owned(),
        None => name.into_owned(),
    }
}

/// The name of the test, because threads are named by their tests. With one thread for all tests, only a copy for one test knows
/// it.
fn test() -> String {
    let current = thread::current();
    let named = current.name().filter(|&name| name != "main");
    let asked = || env::args().skip_while(|word| word != "--exact").nth(1);
    named
        .map(str::to_owned)
        .or_else(asked)
        .unwrap_or_else(|| "a test".into())
}

/// Pid and start time of the cargo that runs this program, however far above, or of the parent if there is none.
fn run_of_cargo() -> (u32, u64) {
    let parent = parent_id();
    let mut pid = parent;
    while let Some(stat) = stat(pid) {
        if stat.comm == "cargo" {
            return (pid, stat.start);
        }
        pid = stat.ppid;
    }
    (parent, stat(parent).map_or(0, |stat| stat.start))
}

struct Stat {
    comm: String,
    ppid: u32,
    start: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = text.rsplit_once(')')?;
    let words: Vec<&str> = tail.split_whitespace().collect();
    Some(Stat {
        comm: head.split_once('(')?.1.to_owned(),
        ppid: words.get(1)?.parse().ok()?,
        start: words.get(19)?.parse().ok()?,
    })
}
