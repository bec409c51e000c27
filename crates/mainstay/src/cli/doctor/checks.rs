//! The checks of `doctor`, one function each.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mainstay_core::reap::Verdict;
use mainstay_http::unclosed;
use mainstay_keeper::container::note;
use mainstay_os::watch_files::WATCHES_MAX;
use mainstay_os::{clock, identity, sweep};
use mainstay_protocol::event::{Detached, Seen};
use mainstay_protocol::ids::{Identity, LinkId, Tag};
use mainstay_protocol::limits;
use mainstay_protocol::time::DAY_MS;
use mainstay_report::measure::{count, memory, processes, span};
use mainstay_report::{Report, plain};
use mainstay_store::cache;
use mainstay_store::config::{Config, ServerConfig, secret_file};
use mainstay_store::ledger::files::{self, EventFile};
use mainstay_store::paths::Paths;
use mainstay_store::registry::Listed;
use mainstay_store::registry::ask::{Asked, NoAnswer};
use mainstay_store::registry::control::{Answer, Request};
use mainstay_store::state::{DIRECTORY_MODE, Directory};

use super::recent::{self, Recent};
use super::{Containment, Finding, Status};
use mainstay_observe::reap::{self, Total};

/// Less free space than this is a problem.
const ROOM_BYTES: u64 = 64 * 1024 * 1024;

fn finding(check: &'static str, status: Status, what: impl Into<String>) -> Finding {
    Finding::new(check, status, what)
}

/// A problem with the hint of the report; `hint` is used if the report has none.
fn problem(check: &'static str, report: &Report, hint: String) -> Finding {
    let hint = report.advice().map_or(hint, Into::into);
    finding(check, Status::Problem, report.problem()).hint(hint)
}

/// The tier in use, why no stronger one is, and whether the guard leaves the client's process tree.
pub fn containment(found: Option<&Containment>) -> Vec<Finding> {
    let Some(found) = found else {
        return vec![finding(
            "tier",
            Status::Note,
            "the tier of a server cannot be found out, because /proc cannot be read",
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
            "mainstay's guard process leaves the client's process tree, because init reaps orphans",
        ),
        Detached::No { why } => finding(
            "detach",
            Status::Note,
            format!("mainstay's guard process stays in the client's process tree: {why}"),
        )
        .hint("start the container with an init process that reaps orphans (`docker run --init`)"),
    });
    findings.push(match &found.memory_why_not {
        None => finding(
            "memory",
            Status::Ok,
            "the kernel enforces --memory-max",
        ),
        Some(why) => finding(
            "memory",
            Status::Note,
            format!("mainstay measures the memory for --memory-max, because the kernel cannot enforce it: {why}"),
        ),
    });
    findings
}

/// A problem if `/proc` shows another pid namespace than ours.
pub fn namespace() -> Option<Finding> {
    let why = identity::misnamed()?;
    let what = format!("nothing can be contained here: {why}");
    Some(finding("proc", Status::Problem, what).hint(identity::MISNAMED_HINT))
}

/// A note if the kernel allows too few inotify watches for a large directory under `--watch`.
pub fn inotify() -> Option<Finding> {
    let text = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok()?;
    let watches: usize = text.trim().parse().ok()?;
    let low = finding(
        "watch",
        Status::Note,
        format!(
            "all programs together may watch {watches} directories, which may not be enough for one --watch"
        ),
    );
    (watches < WATCHES_MAX).then(|| {
        low.hint(format!(
            "sysctl fs.inotify.max_user_watches={}",
            8 * WATCHES_MAX
        ))
    })
}

/// The state directories must exist, belong to us and be private, and the disk must have space.
pub fn paths(paths: &Paths) -> Vec<Finding> {
    let state = paths.state();
    // Looked at before they are made and mended.
    let loose: Vec<String> = [state.clone(), paths.events(), paths.run(), paths.cache()]
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
            format!("{} belongs to you and is private", state.display()),
        )
    } else {
        finding(
            "paths",
            Status::Note,
            format!("{}; it is private again now", loose.join(", ")),
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
                        "only {} are free on the disk of {}",
                        memory(room / 1024),
                        state.display()
                    ),
                )
                .hint("make space, because events are lost on a full disk"),
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
            "no config file is read, because HOME does not belong to you",
        )
        .hint("set HOME to your home directory");
    };
    match Config::load(paths) {
        Err(report) => problem("config", &report, "correct that line of the file".into()),
        Ok(_) if !file.exists() => finding(
            "config",
            Status::Ok,
            "there is no config file, and none is needed",
        ),
        Ok(config) if config.servers.values().any(ServerConfig::has_secret) => secrets(&file),
        Ok(config) => finding(
            "config",
            Status::Ok,
            format!(
                "{} is valid and has {} servers",
                file.display(),
                config.servers.len()
            ),
        ),
    }
}

/// A config file that contains secrets.
fn secrets(file: &Path) -> Finding {
    let readers = fs::metadata(file).ok();
    match readers.and_then(|found| secret_file::readers(&found)) {
        Some(readers) => finding(
            "config",
            Status::Problem,
            format!("{} contains secrets, and {readers}", file.display()),
        )
        .hint(format!(
            "make it readable only for you: chmod 600 {}",
            file.display()
        )),
        None => finding(
            "config",
            Status::Ok,
            format!("{} is valid; only you can read its secrets", file.display()),
        ),
    }
}

/// The keepers of running links must answer; dead links leave a directory.
pub fn links(paths: &Paths, listed: &io::Result<Vec<Listed>>) -> Vec<Finding> {
    let listed = match listed {
        Ok(listed) => listed,
        Err(error) => {
            let report = Report::new(mainstay_report::Exit::State, "cannot read the registry")
                .because(plain(error));
            return vec![problem(
                "links",
                &report,
                format!("look at {}", paths.run().display()),
            )];
        }
    };
    let (alive, dead): (Vec<&Listed>, Vec<&Listed>) =
        listed.iter().partition(|listed| listed.alive);
    let mut findings = silent_keepers(&alive);
    if findings.is_empty() {
        findings.push(finding(
            "links",
            Status::Ok,
            match alive.len() {
                0 => "no server runs now".into(),
                count => format!("{count} run, and all their keepers answer"),
            },
        ));
    }
    let (with_containers, dead): (Vec<&Listed>, Vec<&Listed>) = dead
        .into_iter()
        .partition(|listed| !containers(listed).is_empty());
    for listed in with_containers {
        let containers = containers(listed).join(", ");
        findings.push(
            finding(
                "links",
                Status::Problem,
                format!("{} is dead, but {containers} still runs", name(listed)),
            )
            .hint(
                "check that the container engine runs; the next `mainstay run` ends the container",
            ),
        );
    }
    if !dead.is_empty() {
        let names: Vec<String> = dead.into_iter().map(name).collect();
        findings.push(
            finding(
                "links",
                Status::Problem,
                format!("the mainstay processes of these servers were killed: {}", names.join(", ")),
            )
            .hint("the next `mainstay run` ends the processes that are left and removes the directories"),
        );
    }
    findings
}

/// The known containers of a dead link.
fn containers(listed: &Listed) -> Vec<String> {
    let notes = note::all(&listed.path);
    let ids = notes.iter().filter_map(note::Note::id);
    ids.map(|id| Seen::container(&id).comm).collect()
}

fn silent_keepers(alive: &[&Listed]) -> Vec<Finding> {
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
                    "sends an answer to another request".into()
                }
                Ok(Answer::Refused { error }) => format!("refuses: {error}"),
                Err(NoAnswer::Dead) => "does not listen".into(),
                Err(NoAnswer::Stuck { ms }) => format!("has not answered for {ms} ms"),
                Err(NoAnswer::Strange(what)) => format!("cannot be asked: {what}"),
            };
            let found = finding(
                "links",
                Status::Problem,
                format!("the keeper of {} {what}", name(listed)),
            );
            Some(found.hint("if this does not change, kill that keeper; its guard then ends the server's processes"))
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
pub fn leftovers(pids: &io::Result<Vec<i32>>, listed: &io::Result<Vec<Listed>>) -> Finding {
    let listed = listed.as_deref().unwrap_or_default();
    let living: HashSet<LinkId> = listed
        .iter()
        .filter(|link| link.alive)
        .map(|link| link.id)
        .collect();
    let recorded: Vec<(Tag, Vec<Identity>)> = listed
        .iter()
        .filter(|link| !link.alive)
        .filter_map(|link| link.card.as_ref())
        .filter_map(|card| Some((card.tag()?, card.members.clone())))
        .collect();
    let (Ok(here), Ok(pids)) = (identity::realm(), pids) else {
        return finding("leftovers", Status::Problem, "/proc cannot be read")
            .hint("mount /proc; mainstay cannot find processes without it");
    };
    let found = sweep::find_for_report(pids, &here, &recorded, &|link| living.contains(&link));
    let leftovers: Vec<String> = found
        .strays
        .into_iter()
        .flat_map(|stray| stray.members)
        .map(|seen| format!("{} ({})", seen.comm, seen.who.pid))
        .collect();
    if leftovers.is_empty() {
        return finding(
            "leftovers",
            Status::Ok,
            "no process is left of a killed mainstay",
        );
    }
    finding(
        "leftovers",
        Status::Problem,
        format!(
            "{} left of a killed mainstay: {}",
            processes(leftovers.len()),
            leftovers.join(", ")
        ),
    )
    .hint("the next `mainstay run` ends them")
}

/// Servers that were not started through mainstay and whose client is gone; a word only if there are some.
pub fn orphans(pids: &io::Result<Vec<i32>>) -> Option<Finding> {
    let orphans = reap::orphans_among(pids.as_deref().ok()?);
    let total = Total::of(&orphans, Verdict::Orphan);
    let what = format!(
        "{} without a client, {}",
        count(total.servers, "server"),
        memory(total.rss_kib + total.swap_kib)
    );
    let mut found = finding("orphan", Status::Note, what)
        .command("mainstay reap")
        .hint("`mainstay reap` lists them, `mainstay reap --yes` ends them");
    found.details = orphans
        .iter()
        .map(|orphan| {
            let taken = memory(orphan.rss_kib + orphan.swap_kib);
            let age = span(orphan.age_ms);
            format!("{} ({}), {age} old, {taken}", orphan.name, orphan.who.pid)
        })
        .collect();
    (total.servers > 0).then_some(found)
}

/// The event files must be readable and writable; counts them and the lines of the last day that could not be parsed. Also names the servers that
/// were in trouble in the last day.
pub fn events(paths: &Paths, listed: &io::Result<Vec<Listed>>) -> Vec<Finding> {
    let unreadable = |error: &io::Error| {
        let what = format!("events cannot be read: {}", plain(error));
        let found = finding("events", Status::Problem, what);
        vec![found.hint(format!("look at {}", paths.events().display()))]
    };
    let now_ms = clock::wall_ms();
    let files = match files::list(&paths.events()) {
        Ok(files) => files,
        Err(error) => return unreadable(&error),
    };
    let recent = match recent::read(&files, now_ms.saturating_sub(DAY_MS)) {
        Ok(recent) => recent,
        Err(error) => return unreadable(&error),
    };
    let given_up = |listed: &Listed| {
        let card = listed.card.as_ref();
        listed.alive && card.is_some_and(|card| card.state == "abandoned")
    };
    let listed = listed.as_deref().unwrap_or_default().iter();
    let given_up: Vec<LinkId> = listed
        .filter(|one| given_up(one))
        .map(|one| one.id)
        .collect();
    let mut findings = vec![ledger(paths, &files, &recent)];
    findings.extend(recent.findings(now_ms, &given_up));
    findings
}

fn ledger(paths: &Paths, files: &[EventFile], recent: &Recent) -> Finding {
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
        .hint("make the file writable, or move it away");
    }
    let size = |open: &Directory| -> u64 {
        let found = files.iter().filter_map(|file| open.look(&file.name).ok());
        found.map(|found| found.bytes).sum()
    };
    let kib = paths.events().open().map_or(0, |open| size(&open)) / 1024;
    let what = match files.len() {
        0 => "no events yet".into(),
        count => format!(
            "{count} event {} with {}, {}{} events in the last day",
            if count == 1 { "file" } else { "files" },
            memory(kib),
            if recent.more { "more than " } else { "" },
            recent.events
        ),
    };
    let Recent { torn, unknown, .. } = *recent;
    if torn + unknown == 0 {
        return finding("events", Status::Ok, what);
    }
    finding(
        "events",
        Status::Note,
        format!("{what}, {torn} incomplete and {unknown} unknown lines"),
    )
    .hint(
        "incomplete lines come from a full disk or a power cut, unknown ones from a newer version",
    )
}

/// HTTP sessions that are not closed yet.
pub fn sessions(paths: &Paths) -> Finding {
    let all = unclosed::list(paths);
    let damaged = all.iter().filter(|one| one.note.is_err()).count();
    let due = all
        .iter()
        .filter(|one| !one.locked && one.note.is_ok())
        .count();
    let in_use = all.len() - damaged - due;
    if damaged > 0 {
        return finding(
            "sessions",
            Status::Problem,
            format!("{damaged} notes of HTTP sessions cannot be read"),
        )
        .hint(format!(
            "look at them in {}, and remove what mainstay did not write",
            paths.sessions().display()
        ));
    }
    if due > 0 {
        return finding(
            "sessions",
            Status::Note,
            format!("{due} HTTP sessions of dead processes are not closed yet"),
        )
        .command("mainstay sessions")
        .hint("`mainstay sessions` says why, `mainstay sessions close` tries again");
    }
    let what = match in_use {
        0 => "no HTTP session is open".to_string(),
        number => format!("{number} HTTP sessions are in use"),
    };
    finding("sessions", Status::Ok, what)
}

/// The cache: how many configurations, how many bytes.
pub fn cache(paths: &Paths) -> Finding {
    match cache::extent(&paths.cache()) {
        Ok((0, _)) => finding("cache", Status::Ok, "empty"),
        Ok((count, bytes)) => finding(
            "cache",
            Status::Ok,
            format!(
                "{count} {} with {}",
                if count == 1 {
                    "configuration"
                } else {
                    "configurations"
                },
                memory(bytes.div_ceil(1024))
            ),
        ),
        Err(error) => finding(
            "cache",
            Status::Problem,
            format!("the cache cannot be read: {}", plain(&error)),
        )
        .hint(format!("look at {}", paths.cache().display())),
    }
}
