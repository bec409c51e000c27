//! The write: what stays, what is refused, and what is left if it is ended after any step.
//! guards: No byte of a config file is lost, whatever ends the write and whatever the client writes meanwhile.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use mainstay_clients::explain::Explain as _;
use mainstay_clients::limits::WRITE_ATTEMPTS_MAX;
use mainstay_clients::plan::{self, Plan};
use mainstay_clients::refusal::Refusal;
use mainstay_clients::write::{Progress, Step, WriteError, Writing, Written, write};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{PROGRAM, adopt, client, file, release};

/// A fresh directory of this test.
pub fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        let _still_there = fs::remove_dir_all(&path);
    }
    fs::create_dir_all(&path).unwrap();
    path
}

const OLD: &str = r#"{"mcpServers":{"fs":{"command":"npx","args":["-y"]}}}"#;

fn new() -> String {
    crate::support::adopted("claude", OLD)
}

fn plan_adopt(bytes: &[u8]) -> Result<Plan, Refusal> {
    plan::adopt(
        bytes,
        client("claude"),
        file("claude"),
        &crate::support::wish(),
    )
}

struct Place {
    config: PathBuf,
    backups: PathBuf,
}

fn place(name: &str) -> Place {
    let home = scratch(name);
    let config = home.join(".claude.json");
    fs::write(&config, OLD).unwrap();
    Place {
        config,
        backups: home.join("state/backups"),
    }
}

impl Place {
    fn write(&self) -> Result<Written, WriteError> {
        write(&self.config, &self.backups, &mut plan_adopt)
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.config).unwrap()
    }

    /// Names beside the config that are not it.
    fn beside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.config.parent().unwrap()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.is_file() && *path != self.config)
            .collect()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_file_is_replaced_and_backups_are_kept() {
    let place = place("replaced");
    fs::set_permissions(&place.config, Permissions::from_mode(0o640)).unwrap();
    let written = place.write().unwrap();
    assert!(written.changed && written.attempts == 1);
    assert_eq!(place.text(), new());
    assert_eq!(mode(&place.config), 0o640);
    assert!(place.beside().is_empty());
    let (first, last) = (written.first_backup.unwrap(), written.last_backup.unwrap());
    for backup in [&first, &last] {
        assert_eq!(fs::read_to_string(backup).unwrap(), OLD);
        assert_eq!(mode(backup), 0o600);
    }
    assert_eq!(mode(&place.backups), 0o700);
    // Again: nothing to do, nothing is touched.
    let before = fs::metadata(&place.config).unwrap();
    let again = place.write().unwrap();
    let after = fs::metadata(&place.config).unwrap();
    assert!(!again.changed && again.last_backup.is_none());
    assert_eq!(
        (before.ino(), before.mtime_nsec()),
        (after.ino(), after.mtime_nsec())
    );
    // Back: the first backup stays, the last one is the adopted file.
    let mut back = |bytes: &[u8]| release("claude", bytes);
    let written = write(&place.config, &place.backups, &mut back).unwrap();
    assert_eq!(place.text(), OLD);
    assert_eq!(
        fs::read_to_string(written.first_backup.unwrap()).unwrap(),
        OLD
    );
    assert_eq!(
        fs::read_to_string(written.last_backup.unwrap()).unwrap(),
        new()
    );
}

#[test]
fn a_symbolic_link_stays_one() {
    let place = place("linked");
    let real = place.config.with_file_name("dotfiles");
    fs::create_dir(&real).unwrap();
    let target = real.join("claude.json");
    fs::rename(&place.config, &target).unwrap();
    symlink("dotfiles/claude.json", &place.config).unwrap();
    let written = place.write().unwrap();
    assert!(fs::symlink_metadata(&place.config).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&target).unwrap(), new());
    assert_eq!(written.target, fs::canonicalize(&target).unwrap());
}

#[test]
fn extended_attributes_stay() {
    let place = place("attributes");
    let attribute = "user.mainstay.test";
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&place.config, attribute, b"kept", flags).is_err() {
        crate::skip::skip("no extended attributes on this file system");
        return;
    }
    place.write().unwrap();
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(&place.config, attribute, &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"kept");
}

/// After each step the path holds the old or the new file, whole; the next write cleans up and finishes.
#[test]
fn a_write_that_is_killed_after_any_step_loses_nothing() {
    kill_after_each_step(true, 14);
}

/// The same on a file system that cannot exchange names.
#[test]
fn a_write_by_rename_that_is_killed_after_any_step_loses_nothing() {
    kill_after_each_step(false, 12);
}

fn kill_after_each_step(exchanges: bool, count: usize) {
    let mut seen = Vec::new();
    for steps in 0.. {
        let place = place(if exchanges { "killed" } else { "killed-rename" });
        let mut writing = Writing::new(&place.config, &place.backups);
        if !exchanges {
            writing = writing.without_exchange();
        }
        let mut finished = false;
        for _ in 0..steps {
            match writing.step(&mut plan_adopt).unwrap() {
                Progress::Did(step) => {
                    if !seen.contains(&step) {
                        seen.push(step);
                    }
                }
                Progress::Finished(_) => finished = true,
            }
        }
        // Descriptors close, and so do locks; nothing else is cleaned up.
        drop(writing);
        let text = place.text();
        assert!(text == OLD || text == new(), "after {steps} steps: {text}");
        if finished {
            break;
        }
        let left: Vec<Vec<u8>> = place
            .beside()
            .iter()
            .map(|path| fs::read(path).unwrap())
            .collect();
        place.write().unwrap();
        assert_eq!(place.text(), new(), "after {steps} steps");
        if text == OLD {
            // What the killed write left beside the config was kept before it was removed.
            let kept: Vec<Vec<u8>> = fs::read_dir(&place.backups)
                .unwrap()
                .map(|entry| fs::read(entry.unwrap().path()).unwrap())
                .collect();
            assert!(
                left.iter().all(|left| kept.contains(left)),
                "after {steps} steps"
            );
            assert!(place.beside().is_empty(), "after {steps} steps");
        }
        let mut back = |bytes: &[u8]| release("claude", bytes);
        write(&place.config, &place.backups, &mut back).unwrap();
        assert_eq!(place.text(), OLD);
        assert!(place.beside().is_empty());
    }
    assert_eq!(seen.len(), count, "{seen:?}");
}

/// The client writes between any two steps, in place or by a rename: its bytes are there in the end, and so is ours.
#[test]
fn what_the_client_writes_meanwhile_survives() {
    let theirs = OLD.replace("\"-y\"", "\"-y\", \"more\"");
    let adopted = crate::support::adopted("claude", &theirs);
    for by_rename in [false, true] {
        for at in [
            Step::Lock,
            Step::Read,
            Step::Plan,
            Step::KeepFirst,
            Step::KeepLast,
            Step::Create,
            Step::Fill,
            Step::CopyAttributes,
            Step::Sync,
            Step::Compare,
            Step::Exchange,
        ] {
            let place = place("meanwhile");
            let mut writing = Writing::new(&place.config, &place.backups);
            let mut wrote = false;
            let written = loop {
                if writing.next() == at && !wrote {
                    wrote = true;
                    client_writes(&place.config, &theirs, by_rename);
                }
                match writing.step(&mut plan_adopt).unwrap() {
                    Progress::Did(_) => {}
                    Progress::Finished(written) => break written,
                }
            };
            assert_eq!(place.text(), adopted, "{at:?} {by_rename}");
            assert!(place.beside().is_empty(), "{at:?} {by_rename}");
            assert!(written.changed);
            let again = at > Step::Read;
            assert_eq!(written.attempts, 1 + u32::from(again), "{at:?} {by_rename}");
            assert_eq!(
                fs::read_to_string(written.last_backup.unwrap()).unwrap(),
                theirs
            );
        }
    }
}

/// After the exchange the client may put its own copy back. Then its copy is adopted.
#[test]
fn what_the_client_writes_afterwards_is_adopted_too() {
    let theirs = OLD.replace("\"-y\"", "\"later\"");
    for at in [
        Step::CheckOld,
        Step::RemoveOld,
        Step::SyncDirectory,
        Step::ReadBack,
    ] {
        let place = place("afterwards");
        let mut writing = Writing::new(&place.config, &place.backups);
        let mut wrote = false;
        loop {
            if writing.next() == at && !wrote {
                wrote = true;
                client_writes(&place.config, &theirs, true);
            }
            if let Progress::Finished(_) = writing.step(&mut plan_adopt).unwrap() {
                break;
            }
        }
        assert_eq!(
            place.text(),
            crate::support::adopted("claude", &theirs),
            "{at:?}"
        );
        assert!(place.beside().is_empty());
    }
}

/// The client writes once in the last moment and once more before that is put back: the newer bytes stay, the older ones are kept.
#[test]
fn a_client_that_writes_twice_in_the_last_moment_loses_nothing() {
    let older = OLD.replace("\"-y\"", "\"older\"");
    let newer = OLD.replace("\"-y\"", "\"newer\"");
    for by_rename in [false, true] {
        let place = place("twice");
        let mut writing = Writing::new(&place.config, &place.backups);
        let mut writes = vec![(Step::CheckOld, &newer), (Step::Exchange, &older)];
        while !matches!(
            {
                if let Some((step, text)) = writes.last()
                    && writing.next() == *step
                {
                    client_writes(&place.config, text, by_rename);
                    writes.pop();
                }
                writing.step(&mut plan_adopt).unwrap()
            },
            Progress::Finished(_)
        ) {}
        let adopted = crate::support::adopted("claude", &newer);
        let kept: Vec<String> = fs::read_dir(&place.backups)
            .unwrap()
            .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        // What is written in place after the exchange goes into our own new file, which is then planned from.
        assert_eq!(place.text(), adopted, "{by_rename}");
        assert!(kept.contains(&older), "{by_rename}: {kept:?}");
        assert!(place.beside().is_empty());
    }
}

fn client_writes(config: &Path, text: &str, by_rename: bool) {
    if by_rename {
        let other = config.with_file_name("theirs.tmp");
        fs::write(&other, text).unwrap();
        fs::rename(other, config).unwrap();
    } else {
        fs::write(config, text).unwrap();
    }
}

#[test]
fn a_file_that_never_rests_is_given_up_and_left_to_the_client() {
    let place = place("restless");
    let mut writing = Writing::new(&place.config, &place.backups);
    let mut count = 0;
    let error = loop {
        if writing.next() == Step::Compare {
            count += 1;
            fs::write(&place.config, format!("{OLD}{}", " ".repeat(count))).unwrap();
        }
        match writing.step(&mut plan_adopt) {
            Ok(Progress::Did(_)) => {}
            Ok(Progress::Finished(_)) => panic!("it cannot have rested"),
            Err(error) => break error,
        }
    };
    writing.abandon();
    assert!(
        matches!(error, WriteError::KeepsChanging { attempts, .. } if attempts == WRITE_ATTEMPTS_MAX)
    );
    assert_eq!(place.text(), format!("{OLD}{}", " ".repeat(count)));
    assert!(place.beside().is_empty());
}

#[test]
fn two_writes_of_one_file_do_not_overlap() {
    let place = place("busy");
    let mut first = Writing::new(&place.config, &place.backups);
    first.step(&mut plan_adopt).unwrap();
    assert!(matches!(place.write(), Err(WriteError::Busy { .. })));
    drop(first);
    place.write().unwrap();
}

#[test]
fn every_bad_input_has_an_error_with_three_parts_and_changes_nothing() {
    let home = scratch("bad");
    let backups = home.join("backups");
    let path = |name: &str| home.join(name);
    fs::create_dir(path("directory")).unwrap();
    mknodat(
        CWD,
        path("fifo"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    symlink("nowhere", path("dangling")).unwrap();
    symlink("loop", path("loop")).unwrap();
    fs::write(path("broken"), "{").unwrap();
    fs::write(path("nul"), b"{\0}").unwrap();
    fs::write(path("latin"), b"{\"a\":\"\xe9\"}").unwrap();
    File::create(path("large"))
        .unwrap()
        .set_len(50 * 1024 * 1024)
        .unwrap();
    fs::write(path("readonly"), OLD).unwrap();
    fs::set_permissions(path("readonly"), Permissions::from_mode(0o444)).unwrap();
    fs::write(path("twice"), OLD).unwrap();
    fs::hard_link(path("twice"), path("other")).unwrap();
    for (name, what) in [
        ("absent", "does not exist"),
        ("directory", "is a directory"),
        ("fifo", "is a FIFO"),
        ("dangling", "is a symbolic link to no file"),
        ("loop", "cannot be read"),
        ("broken", "line 1, column 1"),
        ("nul", "byte 1 is NUL"),
        ("latin", "byte 6 is not UTF-8"),
        ("large", "has 52428800 bytes"),
        ("readonly", "is read-only"),
        ("twice", "has 2 names"),
    ] {
        let error = write(&path(name), &backups, &mut plan_adopt).unwrap_err();
        let told = error.explain();
        assert!(told.what.contains(what), "{name}: {told:?}");
        assert!(!told.why.is_empty() && !told.hint.is_empty(), "{name}");
        assert!(
            !told.what.ends_with('.') && !told.hint.ends_with('.'),
            "{name}"
        );
    }
    assert_eq!(fs::read_to_string(path("readonly")).unwrap(), OLD);
    assert_eq!(fs::read_to_string(path("other")).unwrap(), OLD);
    assert!(!fs::read_dir(&home).unwrap().any(|entry| {
        let name = entry.unwrap().file_name();
        name.to_string_lossy().contains("mainstay-new")
    }));
}

/// A user who is not root.
const ANN: u32 = 12345;

/// Does something as a user who is not root: root takes that user's id, in a thread of its own.
fn without_root(own: &Path, act: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() {
        return act();
    }
    chown(own, Some(ANN), Some(ANN)).unwrap();
    for entry in fs::read_dir(own).unwrap() {
        chown(entry.unwrap().path(), Some(ANN), Some(ANN)).unwrap();
    }
    thread::scope(|scope| {
        let as_ann = scope.spawn(|| {
            let group = rustix::fs::Gid::from_raw(ANN);
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            let ann = rustix::fs::Uid::from_raw(ANN);
            rustix::thread::set_thread_res_uid(ann, ann, ann).unwrap();
            act();
        });
        as_ann.join().unwrap();
    });
}

#[test]
fn directories_that_forbid_writing_are_reported() {
    let place = place("forbidden");
    let home = place.config.parent().unwrap().to_owned();
    without_root(&home, || {
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        fs::create_dir_all(&place.backups).unwrap();
        set(&home, 0o500).unwrap();
        let error = place.write().unwrap_err();
        set(&home, 0o700).unwrap();
        assert!(matches!(error, WriteError::Directory { .. }), "{error}");
        set(&place.config, 0o000).unwrap();
        let error = place.write().unwrap_err();
        assert!(matches!(error, WriteError::Unreadable { .. }), "{error}");
        set(&place.config, 0o600).unwrap();
        set(&place.backups, 0o500).unwrap();
        let error = place.write().unwrap_err();
        assert!(matches!(error, WriteError::Backup { .. }), "{error}");
        assert_eq!(place.text(), OLD);
        set(&place.backups, 0o700).unwrap();
        place.write().unwrap();
        assert_eq!(place.text(), new());
    });
}

#[test]
fn files_of_another_user_are_not_changed_and_the_group_stays() {
    let place = place("owners");
    if !crate::skip::root_or_skip("no root, so no files of another user") {
        return;
    }
    chown(&place.config, Some(ANN), None).unwrap();
    let error = place.write().unwrap_err();
    assert!(
        matches!(error, WriteError::OtherOwner { owner: ANN, .. }),
        "{error}"
    );
    chown(&place.config, Some(0), Some(ANN)).unwrap();
    place.write().unwrap();
    assert_eq!(fs::metadata(&place.config).unwrap().gid(), ANN);
    let elsewhere = place.config.with_file_name("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    chown(&elsewhere, Some(ANN), None).unwrap();
    let mut back = |bytes: &[u8]| release("claude", bytes);
    let error = write(&place.config, &elsewhere, &mut back).unwrap_err();
    assert!(matches!(error, WriteError::OtherOwner { .. }), "{error}");
    assert_eq!(place.text(), new());
}

#[test]
fn the_path_of_the_program_is_in_the_file() {
    let place = place("path");
    place.write().unwrap();
    assert!(place.text().contains(PROGRAM));
    assert!(adopt("claude", place.text().as_bytes()).is_ok());
}
