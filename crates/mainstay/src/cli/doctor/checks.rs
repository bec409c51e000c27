//! The single checks: each looks at one thing and returns findings.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mainstay_core::event::{Detached, Seen};
use mainstay_core::ids::{Identity, LinkId, Tag};
use mainstay_core::limits;
use mainstay_os::watch_files::WATCHES_MAX;
use mainstay_os::{clock, identity, sweep};

use super::{Containment, Finding, Status};
use crate::config::{Config, ServerConfig, secret_file};
use crate::container::note;
use crate::debts;
use crate::ledger::files;
use crate::ledger::read::{Filter, Skipped, all};
use crate::ledger::time::DAY_MS;
use crate::paths::Paths;
use crate::recollection;
use crate::registry::ask::{Asked, NoAnswer};
use crate::registry::control::{Answer, Request};
use crate::registry::{self, Listed};
use crate::report::{Report, plain};
use crate::state::{DIRECTORY_MODE, Directory};
use crate::view::measure::{memory, processes};

/// Less room than this on the disk is worth a word.
const ROOM_BYTES: u64 = 64 * 1024 * 1024;

fn finding(check: &'static str, status: Status, what: impl Into<String>) -> Finding {
    Finding {
        check,
        status,
        what: what.into(),
        hint: None,
    }
}

impl Finding {
    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A problem with the report's own hint, or with this one.
fn problem(check: &'static str, report: &Report, hint: String) -> Finding {
    let hint = report.advice().map_or(hint, Into::into);
    finding(check, Status::Problem, report.problem()).hint(hint)
}

/// The tier in force, why no stronger one, and whether the guard leaves the client's tree.
pub fn containment(found: Option<&Containment>) -> Vec<Finding> {
    let Some(found) = found else {
        return vec![finding(
            "tier",
            Status::Note,
            "this build cannot tell which tier a server would get",
        )];
    };
    let mut findings = vec![finding(
        "tier",
        Status::Ok,
        format!("{}: {}", found.tier, found.tier.promise()),
    )];
    for why in &found.why_not {
        findings.push(finding("tier", Status::Note, why.to_string()));
    }
    findings.push(match &found.detached {
        Detached::Yes => finding(
            "detach",
            Status::Ok,
            "the guard leaves the client's process tree; init reaps",
        ),
        Detached::No { why } => finding(
            "detach",
            Status::Note,
            format!("the guard stays in the client's process tree: {why}"),
        )
        .hint("in a container, start it with an init that reaps (`docker run --init`)"),
    });
    findings.push(match &found.memory_why_not {
        None => finding(
            "memory",
            Status::Ok,
            "the kernel itself holds a tree to --memory-max",
        ),
        Some(why) => finding(
            "memory",
            Status::Note,
            format!("--memory-max is watched by measuring: {why}"),
        ),
    });
    findings
}

/// Whether `/proc` shows our own namespace; a word only if not.
pub fn namespace() -> Option<Finding> {
    let why = identity::misnamed()?;
    let what = format!("nothing can be contained here: {why}");
    Some(finding("proc", Status::Problem, what).hint(identity::MISNAMED_HINT))
}

/// Whether there are watches enough for a large directory under `--watch`; a word only if not.
pub fn inotify() -> Option<Finding> {
    let text = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok()?;
    let watches: usize = text.trim().parse().ok()?;
    let low = finding(
        "watch",
        Status::Note,
        format!(
            "all programs together may watch {watches} directories, fewer than one --watch may need"
        ),
    );
    (watches < WATCHES_MAX).then(|| {
        low.hint(format!(
            "sysctl fs.inotify.max_user_watches={}",
            8 * WATCHES_MAX
        ))
    })
}

/// The state directories: there, ours, private, and room on the disk.
pub fn paths(paths: &Paths) -> Vec<Finding> {
    let state = paths.state();
    // Looked at before they are made and mended.
    let loose: Vec<String> = [state.clone(), paths.events(), paths.run(), paths.record()]
        .iter()
        .filter_map(|path| {
            let found = fs::symlink_metadata(path.path()).ok()?;
            let mode = found.mode() & 0o777;
            let loose = found.is_dir() && mode & !DIRECTORY_MODE != 0;
            loose.then(|| format!("{} was {mode:03o}", path.display()))
        })
        .collect();
    if let Err(report) = paths.make() {
        return vec![problem(
            "paths",
            &report,
            format!("look at {}", state.display()),
        )];
    }
    let mut findings = vec![if let Some(report) = paths.detour() {
        problem("paths", &report, "set HOME".into())
    } else if loose.is_empty() {
        finding(
            "paths",
            Status::Ok,
            format!("{} is ours and private", state.display()),
        )
    } else {
        finding(
            "paths",
            Status::Note,
            format!("{}; made private again", loose.join(", ")),
        )
    }];
    if let Ok(disk) = rustix::fs::statvfs(state.path()) {
        let room = disk.f_bavail.saturating_mul(disk.f_frsize);
        if room < ROOM_BYTES {
            findings.push(
                finding(
                    "paths",
                    Status::Problem,
                    format!(
                        "only {} left on the disk of {}",
                        memory(room / 1024),
                        state.display()
                    ),
                )
                .hint("events are lost on a full disk; make room"),
            );
        }
    }
    findings
}

/// The config file.
pub fn config(paths: &Paths) -> Finding {
    let Some(file) = paths.config_file() else {
        return finding(
            "config",
            Status::Note,
            "no config file is read: HOME is not ours",
        )
        .hint("set HOME to your home directory");
    };
    match Config::load(paths) {
        Err(report) => problem("config", &report, "correct that line of the file".into()),
        Ok(_) if !file.exists() => {
            finding("config", Status::Ok, "no config file, nothing is needed")
        }
        Ok(config) if config.servers.values().any(ServerConfig::has_secret) => secrets(&file),
        Ok(config) => finding(
            "config",
            Status::Ok,
            format!(
                "{} is understood, servers in it: {}",
                file.display(),
                config.servers.len()
            ),
        ),
    }
}

/// A config file that holds secrets.
fn secrets(file: &Path) -> Finding {
    let readers = fs::metadata(file).ok();
    match readers.and_then(|found| secret_file::readers(&found)) {
        Some(readers) => finding(
            "config",
            Status::Problem,
            format!("{} holds secrets, and {readers}", file.display()),
        )
        .hint(format!("make it yours alone: chmod 600 {}", file.display())),
        None => finding(
            "config",
            Status::Ok,
            format!(
                "{} is understood; only you can read its secrets",
                file.display()
            ),
        ),
    }
}

/// The links that live, and the directories of those that do not.
pub fn links(paths: &Paths) -> Vec<Finding> {
    let listed = match registry::list(paths) {
        Ok(listed) => listed,
        Err(error) => {
            let report = Report::new(crate::exit::Exit::State, "cannot read the registry")
                .because(plain(&error));
            return vec![problem(
                "links",
                &report,
                format!("look at {}", paths.run().display()),
            )];
        }
    };
    let (alive, dead): (Vec<Listed>, Vec<Listed>) =
        listed.into_iter().partition(|listed| listed.alive);
    let mut findings = silent_keepers(&alive);
    if findings.is_empty() {
        findings.push(finding(
            "links",
            Status::Ok,
            match alive.len() {
                0 => "none runs now".into(),
                count => format!("{count} run, and all keepers answer"),
            },
        ));
    }
    let (owing, dead): (Vec<Listed>, Vec<Listed>) = dead
        .into_iter()
        .partition(|listed| !containers(listed).is_empty());
    for listed in &owing {
        let containers = containers(listed).join(", ");
        findings.push(
            finding(
                "leftovers",
                Status::Problem,
                format!("of {} nobody has ended {containers}", name(listed)),
            )
            .hint("see that the engine's daemon runs; the next `mainstay run` ends it"),
        );
    }
    if !dead.is_empty() {
        let names: Vec<String> = dead.iter().map(name).collect();
        findings.push(
            finding(
                "leftovers",
                Status::Problem,
                format!("guard and keeper were killed: {}", names.join(", ")),
            )
            .hint("the next `mainstay run` ends what they left and removes their directories"),
        );
    }
    findings
}

/// The containers of a dead link, as far as they are known.
fn containers(listed: &Listed) -> Vec<String> {
    let notes = note::all(&listed.path);
    let ids = notes.iter().filter_map(note::Note::id);
    ids.map(|id| Seen::container(&id).comm).collect()
}

fn silent_keepers(alive: &[Listed]) -> Vec<Finding> {
    let asked: Vec<_> = alive
        .iter()
        .map(|listed| Asked::send(&listed.path, &Request::Status, limits::DOCTOR_PATIENCE_MS))
        .collect();
    let answers = asked.into_iter().map(|asked| asked.and_then(Asked::answer));
    alive
        .iter()
        .zip(answers)
        .filter_map(|(listed, answer)| {
            let what = match answer {
                Ok(Answer::Status(_)) => return None,
                Ok(Answer::Stopped { .. } | Answer::Restarted { .. }) => {
                    "answers something else".into()
                }
                Ok(Answer::Refused { error }) => format!("refuses: {error}"),
                Err(NoAnswer::Dead) => "does not listen".into(),
                Err(NoAnswer::Stuck { ms }) => format!("says nothing for {ms} ms"),
                Err(NoAnswer::Strange(what)) => format!("cannot be asked: {what}"),
            };
            let found = finding(
                "links",
                Status::Problem,
                format!("the keeper of {} {what}", name(listed)),
            );
            Some(found.hint("if it stays so, kill that keeper: its guard ends the tree"))
        })
        .collect()
}

fn name(listed: &Listed) -> String {
    match &listed.card {
        Some(card) => format!("{} ({})", card.name, listed.id),
        None => listed.id.to_string(),
    }
}

/// Processes that carry the tag of a keeper that is dead, whose link is dead too.
pub fn strays(paths: &Paths) -> Finding {
    let listed = registry::list(paths).unwrap_or_default();
    let living: HashSet<LinkId> = listed
        .iter()
        .filter(|link| link.alive)
        .map(|link| link.id)
        .collect();
    let recorded: Vec<(Tag, Vec<Identity>)> = listed
        .into_iter()
        .filter(|link| !link.alive)
        .filter_map(|link| link.card)
        .filter_map(|card| Some((card.tag()?, card.members)))
        .collect();
    let Ok(here) = identity::realm() else {
        return finding("strays", Status::Problem, "/proc cannot be read")
            .hint("mount /proc; nothing can be contained without it");
    };
    let found = sweep::find(&here, &recorded, &|link| living.contains(&link));
    let strays: Vec<String> = found
        .strays
        .into_iter()
        .flat_map(|stray| stray.members)
        .map(|seen| format!("{} ({})", seen.comm, seen.who.pid))
        .collect();
    if strays.is_empty() {
        return finding("strays", Status::Ok, "no process is left of a dead keeper");
    }
    finding(
        "strays",
        Status::Problem,
        format!(
            "{} of dead keepers: {}",
            processes(strays.len()),
            strays.join(", ")
        ),
    )
    .hint("the next `mainstay run` ends them")
}

/// The event files: readable, how many, and how many lines of the last day could not be read.
pub fn ledger(paths: &Paths) -> Finding {
    let unreadable = |error: &std::io::Error| {
        finding(
            "events",
            Status::Problem,
            format!("events cannot be read: {}", plain(error)),
        )
        .hint(format!("look at {}", paths.events().display()))
    };
    let files = match files::list(&paths.events()) {
        Ok(files) => files,
        Err(error) => return unreadable(&error),
    };
    let since_ms = clock::wall_ms().saturating_sub(DAY_MS);
    let filter = Filter {
        since_ms: Some(since_ms),
        ..Filter::default()
    };
    let (events, Skipped { torn, unknown }) = match all(paths, filter) {
        Ok(read) => read,
        Err(error) => return unreadable(&error),
    };
    let unwritable = files.last().and_then(|file| {
        let events = paths.events();
        let opened = events.open().and_then(|open| open.append(&file.name));
        opened
            .err()
            .map(|error| (events.path().join(&file.name), error))
    });
    if let Some((path, error)) = unwritable {
        return finding(
            "events",
            Status::Problem,
            format!(
                "events cannot be written to {}: {}",
                path.display(),
                plain(&error)
            ),
        )
        .hint("make it writable, or move it out of the way");
    }
    let size = |open: &Directory| -> u64 {
        let found = files.iter().filter_map(|file| open.look(&file.name).ok());
        found.map(|found| found.bytes).sum()
    };
    let kib = paths.events().open().map_or(0, |open| size(&open)) / 1024;
    let what = match files.len() {
        0 => "none written yet".into(),
        count => format!(
            "{count} event {} with {}, {} events in the last day",
            if count == 1 { "file" } else { "files" },
            memory(kib),
            events.len()
        ),
    };
    if torn + unknown == 0 {
        return finding("events", Status::Ok, what);
    }
    finding(
        "events",
        Status::Note,
        format!("{what}, {torn} torn and {unknown} unknown lines"),
    )
    .hint("torn lines come from a full disk or a power cut, unknown ones from a newer version")
}

/// HTTP sessions that nobody has closed yet.
pub fn debts(paths: &Paths) -> Finding {
    let all = debts::list(paths);
    let damaged = all.iter().filter(|debt| debt.note.is_err()).count();
    let due = all
        .iter()
        .filter(|debt| !debt.held && debt.note.is_ok())
        .count();
    let in_use = all.len() - damaged - due;
    if damaged > 0 {
        return finding(
            "debts",
            Status::Problem,
            format!("{damaged} notes of HTTP sessions cannot be read"),
        )
        .hint(format!(
            "look at them in {}, and remove what is no note",
            paths.debts().display()
        ));
    }
    if due > 0 {
        return finding(
            "debts",
            Status::Note,
            format!("{due} HTTP sessions of dead processes are not closed yet"),
        )
        .hint("`mainstay debts` says why, `mainstay debts pay` tries again");
    }
    let told = match in_use {
        0 => "no HTTP session is open".to_string(),
        number => format!("{number} HTTP sessions are in use"),
    };
    finding("debts", Status::Ok, told)
}

/// The records: how many, how large.
pub fn record(paths: &Paths) -> Finding {
    match recollection::extent(&paths.record()) {
        Ok((0, _)) => finding("record", Status::Ok, "nothing remembered yet"),
        Ok((count, bytes)) => finding(
            "record",
            Status::Ok,
            format!(
                "{count} {} remembered with {}",
                if count == 1 {
                    "configuration"
                } else {
                    "configurations"
                },
                memory(bytes.div_ceil(1024))
            ),
        ),
        Err(error) => finding(
            "record",
            Status::Problem,
            format!("records cannot be read: {}", plain(&error)),
        )
        .hint(format!("look at {}", paths.record().display())),
    }
}
