//! Leases on disk, with everything in them that nobody should have put there.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_core::event::What;
use mainstay_core::ids::{Identity, LinkId, Realm};
use mainstay_core::lease::{Over, Term};
use mainstay_core::limits::LEASES_MAX;
use mainstay_os::identity;

use super::member::{Member, Outcome, Tenant, Visit};
use super::place::{ENDED, GONE, TERM};
use super::tidy::tidy;
use super::*;
use crate::exit::Exit;
use crate::ledger::read::{Filter, all};
use crate::paths::Paths;
use crate::scratch::Scratch;

fn here() -> Realm {
    identity::realm().unwrap()
}

fn opened(paths: &Paths, name: &str) -> (Place, Term) {
    let opened = open(paths, name, &Wish::default()).unwrap();
    let place = Place::find(paths, name).unwrap().unwrap();
    (place, opened.term().clone())
}

fn tenant(id: u32) -> Tenant {
    let nobody = Identity {
        pid: i32::MAX,
        start: 1,
    };
    Tenant {
        id: LinkId(id),
        server: "demo".into(),
        keeper: nobody,
        guard: nobody,
        shim: nobody,
        ladder_ms: 10,
        outcome: None,
    }
}

fn outcome() -> Outcome {
    Outcome {
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
    let mut member = Member::enter(&place, tenant(1)).unwrap();
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
fn a_mark_is_for_good_and_the_first_one_counts() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, term) = opened(&paths, "job");
    let expired = Over::Expired { ttl_ms: 5 };
    assert!(place.end(&expired).unwrap().is_some());
    assert!(place.end(&Over::Closed { by: None }).unwrap().is_none());
    assert_eq!(place.mark(), Some(expired.clone()));
    // Whoever renewed it at the same time does not bring it back.
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
fn whoever_stays_keeps_the_directory_and_a_later_lease_is_another() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let late = Place::find(&paths, "job").unwrap().unwrap();
    let stay = place.end(&Over::Removed).unwrap().unwrap();
    assert!(late.awaited());
    assert!(!late.remove().unwrap());
    drop(stay);
    assert!(!late.awaited());
    assert!(place.remove().unwrap());
    let (fresh, term) = opened(&paths, "job");
    // One who is late takes nothing from the next lease.
    late.remove().unwrap();
    assert_eq!(fresh.state(&here()), State::Open(term));
    assert_eq!(late.term(), None);
}

#[test]
fn whoever_sweeps_meanwhile_disturbs_nobody_who_closes() {
    const ROUNDS: usize = 400;
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    tidy(&paths);
                }
            });
        }
        // A panic here must not leave the others at it for ever.
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
    tidy(&paths);
    assert_eq!(entries(&paths.lease()), [""; 0]);
}

#[test]
fn a_mark_in_a_directory_that_goes_is_no_end() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let late = Place::find(&paths, "job").unwrap().unwrap();
    drop(place.end(&Over::Removed).unwrap());
    let gone = paths.lease().join(format!("{GONE}1-1"));
    fs::rename(paths.lease().join("job"), &gone).unwrap();
    fs::remove_file(gone.join(ENDED)).unwrap();
    assert!(late.end(&Over::Closed { by: None }).unwrap().is_none());
}

#[test]
fn one_whose_mark_has_gone_first_is_not_open_again() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let late = Place::find(&paths, "job").unwrap().unwrap();
    drop(place.end(&Over::Closed { by: None }).unwrap());
    let gone = paths.lease().join(format!("{GONE}1-1"));
    fs::rename(paths.lease().join("job"), &gone).unwrap();
    fs::remove_file(gone.join(ENDED)).unwrap();
    assert!(late.term().is_some(), "what was agreed is still there");
    assert_eq!(late.mark(), Some(Over::Removed));
    assert!(matches!(late.state(&here()), State::Over(_, Over::Removed)));
}

#[test]
fn the_last_of_many_who_leave_at_once_takes_the_directory_away() {
    const ROUNDS: usize = 50;
    const MEMBERS: u32 = 4;
    let scratch = Scratch::new();
    let paths = scratch.paths();
    for round in 0..ROUNDS {
        let (place, _) = opened(&paths, "job");
        let members: Vec<Member> = (1..=MEMBERS)
            .map(|id| Member::enter(&place, tenant(id)).unwrap())
            .collect();
        let first = Barrier::new(MEMBERS as usize + 1);
        std::thread::scope(|scope| {
            for member in members {
                let place = Place::find(&paths, "job").unwrap().unwrap();
                let first = &first;
                scope.spawn(move || {
                    first.wait();
                    member.finish(&place, outcome());
                });
            }
            // Whoever ends it stays only until that is written down.
            let ended = place.end(&Over::Removed).unwrap();
            first.wait();
            drop(ended);
            place.remove_if_empty();
        });
        assert_eq!(entries(&paths.lease()), [""; 0], "in round {round}");
    }
}

#[test]
fn whoever_closes_is_told_of_the_servers_though_others_look_whether_somebody_waits() {
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
fn whoever_renews_or_opens_meanwhile_is_told_how_it_is() {
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
fn who_is_in_it_is_known_by_the_lock() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, _) = opened(&paths, "job");
    let first = Member::enter(&place, tenant(1)).unwrap();
    let visits = Visit::all(&place).unwrap();
    assert!(
        visits[0].held() && visits[0].held(),
        "two visitors are not owners"
    );
    // A killed keeper's successor takes its place; who had looked before sees the old one go.
    drop(first);
    let second = Member::enter(&place, tenant(1)).unwrap();
    assert!(!visits[0].held());
    assert!(Visit::all(&place).unwrap()[0].held());
    second.leave(&place);
    assert_eq!(Visit::all(&place).unwrap().len(), 0);
    // What was open can still be read.
    assert_eq!(visits[0].tenant(), Some(tenant(1)));
}

#[test]
fn a_torn_file_at_any_byte_is_as_good_as_none() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let (place, term) = opened(&paths, "job");
    let whole = serde_json::to_vec(&term).unwrap();
    for end in 0..whole.len() {
        fs::write(place.directory().through().join(TERM), &whole[..end]).unwrap();
        assert_eq!(place.state(&here()), State::Over(None, Over::Removed));
    }
    fs::write(place.directory().through().join(TERM), &whole).unwrap();
    let mut member = Member::enter(&place, tenant(1)).unwrap();
    member.tell(outcome()).unwrap();
    let file = place.directory().through().join("00000001");
    let whole = fs::read(&file).unwrap();
    for end in 0..whole.len() {
        fs::write(&file, &whole[..end]).unwrap();
        let told = Visit::all(&place).unwrap()[0].tenant();
        assert!(told.and_then(|tenant| tenant.outcome).is_none());
    }
    drop(member);
    // Nobody knows what became of it: it is looked for, and the lease closes.
    assert!(shut(&paths, "job").confirmed());
}

/// Puts something where a file of ours should be.
type Put = fn(&Path);

const HOSTILE: [(&str, Put); 7] = [
    ("garbage", |path| fs::write(path, "\u{0}\u{7f}{[").unwrap()),
    ("nothing", |path| fs::write(path, "").unwrap()),
    ("other JSON", |path| fs::write(path, "[[1], {}]").unwrap()),
    ("fifty megabytes", |path| {
        let mut file = File::create(path).unwrap();
        file.set_len(50 << 20).unwrap();
        file.write_all(b"{\"v\":1,").unwrap();
    }),
    ("a link to a file that never ends", |path| {
        symlink("/dev/zero", path).unwrap();
    }),
    ("a link to itself", |path| symlink(path, path).unwrap()),
    ("a pipe that nobody writes to", |path| {
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }),
];

#[test]
fn hostile_files_hold_nobody_up() {
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
            crate::cli::lease::rows(&paths).unwrap();
            Member::enter(&place, tenant(9)).unwrap();
            let renewed = renew(&paths, "job", None);
            assert_eq!(renewed.is_err(), over, "{what} as {name}");
            // It closes, and the name can be used again.
            let closed = shut(&paths, "job");
            assert_eq!(closed.left(), 0, "{what} as {name}");
            tidy(&paths);
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
        assert!(Place::find(&paths, "job").unwrap().is_none(), "{what}");
        assert_eq!(shut(&paths, "job").was, Was::Unknown, "{what}");
        assert!(open(&paths, "job", &Wish::default()).is_err(), "{what}");
        tidy(&paths);
        fs::remove_file(&path).unwrap();
    }
    symlink(scratch.path(), paths.lease().join("job")).unwrap();
    assert!(Place::find(&paths, "job").unwrap().is_none());
    assert!(Place::find(&paths, "../run").unwrap().is_none());
}

#[test]
fn what_was_half_made_or_half_removed_goes() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let gone = paths.lease().join(".gone-1-2");
    fs::create_dir(&gone).unwrap();
    fs::write(gone.join(TERM), "{").unwrap();
    let new = paths.lease().join(".new-00000001");
    fs::create_dir(&new).unwrap();
    let (open, term) = opened(&paths, "job");
    tidy(&paths);
    assert!(
        !gone.exists() && new.exists(),
        "a new one may be somebody's"
    );
    assert_eq!(open.state(&here()), State::Open(term));
    let long_ago = std::time::UNIX_EPOCH;
    File::open(&new).unwrap().set_modified(long_ago).unwrap();
    tidy(&paths);
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
