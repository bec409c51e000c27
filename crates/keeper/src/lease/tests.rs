//! Leases on disk, also with foreign and damaged files in them.
//! guards: A closed lease stays closed, and hostile files in its directory delay no process.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_os::identity;
use mainstay_protocol::event::What;
use mainstay_protocol::ids::{Identity, LinkId, Realm};
use mainstay_protocol::lease::{Over, Term};
use mainstay_protocol::limits::LEASES_MAX;
use mainstay_report::Exit;
use mainstay_store::ledger::read::{Filter, all};
use mainstay_store::paths::Paths;
use mainstay_store::scratch::{HOSTILE, Scratch};

use super::directory::{ENDED, GONE, TERM};
use super::member::{Member, MemberFile, MemberInfo, ServerOutcome};
use super::tidy::{dead_members, tidy};
use super::*;

fn here() -> Realm {
    identity::realm().unwrap()
}

fn opened(paths: &Paths, name: &str) -> (LeaseDirectory, Term) {
    let opened = open(paths, name, &Wish::default()).unwrap();
    let place = LeaseDirectory::find(paths, name).unwrap().unwrap();
    (place, opened.term().clone())
}

fn info(id: u32) -> MemberInfo {
    let dead = Identity {
        pid: i32::MAX,
        start: 1,
    };
    MemberInfo {
        id: LinkId(id),
        server: "demo".into(),
        keeper: dead,
        guard: dead,
        shim: dead,
        ladder_ms: 10,
        outcome: None,
    }
}

fn outcome() -> ServerOutcome {
    ServerOutcome {
        pid: Some(7),
        ended: 2,
        left: Vec::new(),
        ms: 3,
    }
}

fn shut(paths: &Paths, name: &str) -> Closed {
    close(paths, name, None, Some(0)).unwrap()
}

fn entries(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).unwrap().flatten();
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_lease_is_private_and_leaves_nothing() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, term) = opened(&paths, "job");
    assert_eq!(place.state(&here()), State::Open(term.clone()));
    assert!(term.ttl_ms.is_some(), "never bound by nothing");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&paths.lease().join("job")), 0o700);
    assert_eq!(mode(&paths.lease().join("job").join(TERM)), 0o600);
    let mut member = Member::enter(&place, info(1)).unwrap();
    assert_eq!(mode(&paths.lease().join("job/00000001")), 0o600);
    member.tell(outcome()).unwrap();
    drop(member);
    let closed = shut(&paths, "job");
    assert_eq!((closed.was, closed.servers.len()), (Was::Open, 1));
    assert_eq!(
        (closed.servers[0].pid, closed.servers[0].ended),
        (Some(7), 2)
    );
    assert_eq!(entries(&paths.lease()), [""; 0]);
    assert_eq!(shut(&paths, "job").was, Was::Unknown);
}

#[test]
fn a_lease_that_is_over_stays_over_with_its_first_reason() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, term) = opened(&paths, "job");
    let expired = Over::Expired { ttl_ms: 5 };
    assert!(place.end(&expired).unwrap().is_some());
    assert!(place.end(&Over::Closed { by: None }).unwrap().is_none());
    assert_eq!(place.mark(), Some(expired.clone()));
    // A renewal at the same time does not bring it back.
    place.agree(&term).unwrap();
    assert_eq!(place.state(&here()), State::Over(Some(term), expired));
    let problem = renew(&paths, "job", None).unwrap_err().problem();
    assert!(
        problem.contains("expired: it was not renewed for 5 ms"),
        "{problem}"
    );
    assert_eq!(
        entries(&place.directory().through()).len(),
        2,
        "nothing half made is left"
    );
}

#[test]
fn a_closing_process_keeps_the_directory_and_a_later_lease_is_another() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let late = LeaseDirectory::find(&paths, "job").unwrap().unwrap();
    let stay = place.end(&Over::Removed).unwrap().unwrap();
    assert!(late.awaited());
    assert!(!late.remove().unwrap());
    drop(stay);
    assert!(!late.awaited());
    assert!(place.remove().unwrap());
    let (fresh, term) = opened(&paths, "job");
    // A late removal takes nothing from the next lease.
    late.remove().unwrap();
    assert_eq!(fresh.state(&here()), State::Open(term));
    assert_eq!(late.term(), None);
}

#[test]
fn a_sweep_does_not_disturb_a_closing_process() {
    const ROUNDS: usize = 400;
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    tidy(&paths, &[]);
                }
            });
        }
        // A panic here must not leave the other threads running for ever.
        let closed = std::panic::catch_unwind(|| {
            for _ in 0..ROUNDS {
                open(&paths, "job", &Wish::default()).unwrap();
                assert_eq!(shut(&paths, "job").was, Was::Open);
            }
        });
        done.store(true, Ordering::Relaxed);
        closed.unwrap();
    });
    let (events, _) = all(&paths, Filter::default()).unwrap();
    let ends = events
        .iter()
        .filter(|event| matches!(event.what, What::LeaseEnded(_)));
    assert_eq!(ends.count(), ROUNDS, "each one is told once");
    tidy(&paths, &[]);
    assert_eq!(entries(&paths.lease()), [""; 0]);
}

#[test]
fn a_mark_in_a_directory_that_is_being_removed_does_not_count() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let late = LeaseDirectory::find(&paths, "job").unwrap().unwrap();
    drop(place.end(&Over::Removed).unwrap());
    let gone = paths.lease().join(format!("{GONE}1-1"));
    fs::rename(paths.lease().join("job"), &gone).unwrap();
    fs::remove_file(gone.join(ENDED)).unwrap();
    assert!(late.end(&Over::Closed { by: None }).unwrap().is_none());
}

#[test]
fn a_lease_whose_mark_is_removed_first_is_not_open_again() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let late = LeaseDirectory::find(&paths, "job").unwrap().unwrap();
    drop(place.end(&Over::Closed { by: None }).unwrap());
    let gone = paths.lease().join(format!("{GONE}1-1"));
    fs::rename(paths.lease().join("job"), &gone).unwrap();
    fs::remove_file(gone.join(ENDED)).unwrap();
    assert!(late.term().is_some(), "what was agreed is still there");
    assert_eq!(late.mark(), Some(Over::Removed));
    assert!(matches!(late.state(&here()), State::Over(_, Over::Removed)));
}

#[test]
fn of_many_keepers_that_leave_at_once_the_last_removes_the_directory() {
    const ROUNDS: usize = 50;
    const MEMBERS: u32 = 4;
    let scratch = Scratch::new();
    let paths = scratch.paths();
    for round in 0..ROUNDS {
        let (place, _) = opened(&paths, "job");
        let members: Vec<Member> = (1..=MEMBERS)
            .map(|id| Member::enter(&place, info(id)).unwrap())
            .collect();
        let first = Barrier::new(MEMBERS as usize + 1);
        std::thread::scope(|scope| {
            for member in members {
                let place = LeaseDirectory::find(&paths, "job").unwrap().unwrap();
                let first = &first;
                scope.spawn(move || {
                    first.wait();
                    member.finish(&place, outcome());
                });
            }
            // The process that ends it holds the lock only until the event is written.
            let ended = place.end(&Over::Removed).unwrap();
            first.wait();
            drop(ended);
            place.remove_if_empty();
        });
        assert_eq!(entries(&paths.lease()), [""; 0], "in round {round}");
    }
}

#[test]
fn a_closing_process_gets_all_outcomes_while_keepers_check_for_it() {
    const ROUNDS: usize = 5_000;
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    drop(place.end(&Over::Removed).unwrap());
    let done = AtomicBool::new(false);
    let all_there = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                all_there.wait();
                while !done.load(Ordering::Relaxed) {
                    place.awaited();
                }
            });
        }
        all_there.wait();
        let refused = (0..ROUNDS).filter(|_| place.stay().is_err()).count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(refused, 0);
    });
}

#[test]
fn renew_and_open_report_the_state_while_the_lease_is_closed() {
    const ROUNDS: usize = 150;
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let wish = Wish {
        owner: process(std::process::id() as i32),
        ..Wish::default()
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    shut(&paths, "job");
                }
            });
        }
        let told = std::panic::catch_unwind(|| {
            for _ in 0..ROUNDS {
                open(&paths, "job", &wish).unwrap();
                if let Err(report) = renew(&paths, "job", None) {
                    assert_eq!(report.exit(), Exit::NotFound, "{}", report.problem());
                }
            }
        });
        done.store(true, Ordering::Relaxed);
        told.unwrap();
    });
}

#[test]
fn the_lock_says_whether_a_member_lives() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let first = Member::enter(&place, info(1)).unwrap();
    let files = MemberFile::all(&place).unwrap();
    assert!(
        files[0].held() && files[0].held(),
        "two visitors are not owners"
    );
    // The successor of a killed keeper replaces its file. A process that opened the old file sees its lock become free.
    drop(first);
    let second = Member::enter(&place, info(1)).unwrap();
    assert!(!files[0].held());
    assert!(MemberFile::all(&place).unwrap()[0].held());
    second.leave(&place);
    assert_eq!(MemberFile::all(&place).unwrap().len(), 0);
    // What was open can still be read.
    assert_eq!(files[0].info(), Some(info(1)));
}

/// The files of members in a lease's directory.
fn members(paths: &Paths, name: &str) -> Vec<LinkId> {
    let place = LeaseDirectory::find(paths, name).unwrap();
    let files = place.map(|place| MemberFile::all(&place).unwrap());
    let files = files.into_iter().flatten();
    files.map(|file| file.id).collect()
}

#[test]
fn a_killed_member_stays_until_a_sweep_has_proved_that_nothing_of_it_is_left() {
    for over in [false, true] {
        let scratch = Scratch::new();
        let paths = scratch.paths();
        let (place, _) = opened(&paths, "job");
        if over {
            drop(place.end(&Over::Closed { by: None }).unwrap());
        }
        // The keeper was killed after the search of a sweep, and before the sweep tidies up.
        let before = dead_members(&paths);
        drop(Member::enter(&place, info(1)).unwrap());
        tidy(&paths, &before);
        assert_eq!(members(&paths, "job"), [LinkId(1)], "over: {over}");
        let dead = dead_members(&paths);
        tidy(&paths, &dead);
        assert_eq!(members(&paths, "job"), [], "over: {over}");
        assert_eq!(place.directory().has(TERM), !over);
    }
}

#[test]
fn the_proof_for_a_killed_keeper_is_none_for_its_successor() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    drop(Member::enter(&place, info(1)).unwrap());
    let dead = dead_members(&paths);
    let mut successor = info(1);
    successor.keeper.start += 1;
    drop(Member::enter(&place, successor).unwrap());
    tidy(&paths, &dead);
    assert_eq!(members(&paths, "job"), [LinkId(1)]);
}

#[test]
fn a_keeper_that_is_still_exiting_is_not_dead_though_its_lock_is_free() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let mut exiting = info(1);
    exiting.keeper = identity::me().unwrap();
    drop(Member::enter(&place, exiting).unwrap());
    assert_eq!(dead_members(&paths), []);
    // Its tree is not looked for while it lives, so nothing is confirmed.
    let closed = shut(&paths, "job");
    assert!(!closed.confirmed(), "{closed:?}");
    assert_eq!(members(&paths, "job"), [LinkId(1)]);
}

#[test]
fn a_file_torn_at_any_byte_counts_as_missing() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, term) = opened(&paths, "job");
    let whole = serde_json::to_vec(&term).unwrap();
    for end in 0..whole.len() {
        fs::write(place.directory().through().join(TERM), &whole[..end]).unwrap();
        assert_eq!(place.state(&here()), State::Over(None, Over::Removed));
    }
    fs::write(place.directory().through().join(TERM), &whole).unwrap();
    let mut member = Member::enter(&place, info(1)).unwrap();
    member.tell(outcome()).unwrap();
    let file = place.directory().through().join("00000001");
    let whole = fs::read(&file).unwrap();
    for end in 0..whole.len() {
        fs::write(&file, &whole[..end]).unwrap();
        let told = MemberFile::all(&place).unwrap()[0].info();
        assert!(told.and_then(|info| info.outcome).is_none());
    }
    drop(member);
    // Its outcome is unknown: its tree is searched, and the lease closes.
    assert!(shut(&paths, "job").confirmed());
}
#[test]
fn hostile_files_delay_no_process() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    for (what, put) in HOSTILE {
        for name in [TERM, ENDED, "00000009", "stranger"] {
            let (place, _) = opened(&paths, "job");
            let path = paths.lease().join("job").join(name);
            fs::remove_file(&path).ok();
            put(&path);
            let over = matches!(place.state(&here()), State::Over(..));
            assert_eq!(over, name == TERM || name == ENDED, "{what} as {name}");
            assert_eq!(names(&paths).unwrap(), ["job"], "{what} as {name}");
            MemberFile::all(&place).unwrap();
            Member::enter(&place, info(9)).unwrap();
            let renewed = renew(&paths, "job", None);
            assert_eq!(renewed.is_err(), over, "{what} as {name}");
            // It closes, and the name can be used again.
            let closed = shut(&paths, "job");
            assert_eq!(closed.left(), 0, "{what} as {name}");
            tidy(&paths, &[]);
            assert_eq!(entries(&paths.lease()), [""; 0], "{what} as {name}");
        }
    }
}

#[test]
fn hostile_directories_are_no_leases() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    for (what, put) in HOSTILE {
        let path = paths.lease().join("job");
        put(&path);
        assert!(
            LeaseDirectory::find(&paths, "job").unwrap().is_none(),
            "{what}"
        );
        assert_eq!(shut(&paths, "job").was, Was::Unknown, "{what}");
        assert!(open(&paths, "job", &Wish::default()).is_err(), "{what}");
        tidy(&paths, &[]);
        fs::remove_file(&path).unwrap();
    }
    symlink(scratch.path(), paths.lease().join("job")).unwrap();
    assert!(LeaseDirectory::find(&paths, "job").unwrap().is_none());
    assert!(LeaseDirectory::find(&paths, "../run").unwrap().is_none());
}

#[test]
fn half_made_and_half_removed_directories_are_removed() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let gone = paths.lease().join(".gone-1-2");
    fs::create_dir(&gone).unwrap();
    fs::write(gone.join(TERM), "{").unwrap();
    let new = paths.lease().join(".new-00000001");
    fs::create_dir(&new).unwrap();
    let (open, term) = opened(&paths, "job");
    tidy(&paths, &[]);
    assert!(!gone.exists() && new.exists(), "a new one may be in use");
    assert_eq!(open.state(&here()), State::Open(term));
    let long_ago = std::time::UNIX_EPOCH;
    File::open(&new).unwrap().set_modified(long_ago).unwrap();
    tidy(&paths, &[]);
    assert_eq!(entries(&paths.lease()), ["job"]);
}

#[test]
fn names_times_and_numbers_have_limits() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    for name in ["", "a/b", "..", &"x".repeat(65)] {
        assert!(open(&paths, name, &Wish::default()).is_err(), "{name}");
    }
    let never = Wish {
        ttl_ms: Some(0),
        ..Wish::default()
    };
    assert!(open(&paths, "job", &never).is_err());
    for number in 0..LEASES_MAX {
        symlink("x", paths.lease().join(format!("x{number}"))).unwrap();
    }
    let problem = open(&paths, "job", &Wish::default()).unwrap_err().problem();
    assert!(
        problem.contains("4096 leases are there already"),
        "{problem}"
    );
}
