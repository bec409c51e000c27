//! guards: A session of a living owner is never closed by another process, and its credentials go only to the server that opened it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use mainstay_os::clock;
use mainstay_protocol::ids::{Identity, LinkId};
use mainstay_protocol::limits;
use mainstay_protocol::time::rfc3339;
use mainstay_store::paths::Paths;
use mainstay_store::scratch::Scratch;
use mainstay_testkit::httpd::{Fault, Httpd};

use super::close::{CloseMode, CloseSummary, close_all};
use super::credentials::{self, NamedHeader};
use super::*;

fn note(url: &str, session: &str, age_ms: u64) -> Note {
    let since_ms = clock::wall_ms() - age_ms;
    Note {
        v: 1,
        server: "web".into(),
        link: LinkId(7),
        url: url.into(),
        url_secret: None,
        session: session.into(),
        version: Some("2025-11-25".into()),
        headers: Vec::new(),
        fingerprint: None,
        owner: Identity { pid: 1, start: 2 },
        boot: "boot".into(),
        since: rfc3339(since_ms),
        since_ms,
    }
}

/// Writes a note whose owner is dead.
fn leave_unclosed(paths: &Paths, note: Note) {
    drop(LockedNote::write(paths, note).unwrap());
}

/// Attempts over this time, none of which counts.
fn tried_for(waited_ms: u64) -> note::Attempts {
    note::Attempts {
        last_ms: clock::wall_ms(),
        waited_ms,
        ..note::Attempts::default()
    }
}

/// The note of a session that was opened with this URL and these headers.
fn opened_with(url: &str, session: &str, headers: &[(&str, Source, &str)]) -> Note {
    let target = mainstay_store::config::target::Target::parse(url).unwrap();
    let mut values = hyper::HeaderMap::new();
    for (name, _, value) in headers {
        credentials::insert(&mut values, name, value).unwrap();
    }
    let named = headers.iter().map(|(name, from, _)| NamedHeader {
        name: (*name).into(),
        from: from.clone(),
    });
    Note {
        url_secret: target.has_secret().then_some(Source::Flag),
        headers: named.collect(),
        fingerprint: fingerprint::Fingerprint::of(&target, &values),
        ..note(&target.plain(), session, 0)
    }
}

/// The keyring of a bridge with this URL and this one header.
fn bridge_keyring(url: &str, from: Source, value: &str) -> Keyring {
    let name = "authorization".to_string();
    Keyring {
        given: [(name.clone(), value.to_string())].into(),
        url: Some(mainstay_store::config::target::Target::parse(url).unwrap()),
        of: Some(credentials::OwnConfiguration {
            url: Source::Flag,
            headers: vec![NamedHeader { name, from }],
        }),
        ..Keyring::default()
    }
}

fn run<F: Future>(play: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(play)
}

fn open(http: &Httpd, sessions: u32) {
    use std::io::{Read, Write};
    let at = http.url().replace("http://", "").replace("/mcp", "");
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    for _ in 0..sessions {
        let body = r#"{"id":0,"method":"initialize","params":{}}"#;
        let request = format!(
            "POST /mcp HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut piece = [0; 4096];
        assert!(stream.read(&mut piece).unwrap() > 0);
    }
}

#[test]
fn ten_thousand_notes_are_listed_and_closed() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    open(&http, 20);
    for number in 1..=10_000 {
        // A synced write is slow, so only a few notes are written that way.
        let note = note(&http.url(), &format!("session-{number}"), 0);
        if number <= 20 {
            leave_unclosed(&paths, note);
        } else {
            let path = paths.sessions().join(format!("{number:016x}.json"));
            fs::write(path, serde_json::to_vec(&note).unwrap()).unwrap();
        }
    }
    assert_eq!(list(&paths).len(), 10_000);
    let done = run(close_all(&paths, &Keyring::default(), CloseMode::All));
    assert_eq!(
        done.closed, 10_000,
        "the server knows twenty; 404 for the others also means closed"
    );
    assert_eq!(http.open(), 0);
    assert!(list(&paths).is_empty());
}

#[test]
fn at_most_one_delete_is_under_way() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    open(&http, 3);
    for session in 1..=3 {
        leave_unclosed(&paths, note(&http.url(), &format!("session-{session}"), 0));
    }
    run(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let paths = paths.clone();
            tasks.spawn(async move {
                close_all(&paths, &Keyring::default(), CloseMode::All)
                    .await
                    .closed
            });
        }
        let mut closed = 0;
        while let Some(one) = tasks.join_next().await {
            closed += one.unwrap();
        }
        assert_eq!(closed, 3);
    });
    let deletes = http
        .sent()
        .iter()
        .filter(|one| one.verb == "DELETE")
        .count();
    assert_eq!(deletes, 3);
}

#[test]
fn listing_never_keeps_a_closing_process_away() {
    const ROUNDS: usize = 3_000;
    let scratch = Scratch::new();
    let paths = scratch.paths();
    leave_unclosed(&paths, note("http://127.0.0.1:1/mcp", "session-1", 0));
    let path = list(&paths)[0].path.clone();
    let name = path.file_name().unwrap().to_str().unwrap();
    let place = paths.sessions();
    let done = AtomicBool::new(false);
    let all_there = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                all_there.wait();
                while !done.load(Ordering::Relaxed) {
                    is_due(&paths);
                }
            });
        }
        all_there.wait();
        let kept_away = (0..ROUNDS)
            .filter(|_| LockedNote::lock(&place, name).is_none())
            .count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(kept_away, 0);
    });
}

#[test]
fn a_session_of_a_living_owner_is_not_closed() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    let owner = mainstay_os::identity::of(std::process::id() as i32).unwrap();
    let of_ours = Note {
        owner,
        ..note(&http.url(), "a", 0)
    };
    let mut held = LockedNote::write(&paths, of_ours).unwrap();
    held.rewrite(Some("2024-11-05".into())).unwrap();
    assert_eq!(
        run(close_all(&paths, &Keyring::default(), CloseMode::All)),
        CloseSummary {
            locked: 1,
            ..CloseSummary::default()
        }
    );
    assert!(list(&paths)[0].locked);
    assert!(http.sent().is_empty());
    drop(held);
    assert_eq!(
        run(close_all(&paths, &Keyring::default(), CloseMode::All)).closed,
        1
    );
    assert_eq!(http.sent()[0].headers["mcp-protocol-version"], "2024-11-05");
}

#[test]
fn sessions_close_waits_for_a_sweep_that_fails() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    open(&http, 1);
    let sweep = LockedNote::write(&paths, note(&http.url(), "session-1", 0)).unwrap();
    run(async {
        let keyring = Keyring::default();
        let mut asked = std::pin::pin!(close_all(&paths, &keyring, CloseMode::All));
        // The first try finds the note locked, and waits.
        let waits = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending()));
        assert!(waits.await);
        drop(sweep);
        assert_eq!(asked.await.closed, 1);
    });
    assert_eq!(http.open(), 0);
}

#[test]
fn a_session_that_cannot_be_closed_waits_and_is_given_up_with_an_event() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    http.always("DELETE", Fault::Status(500, ""));
    leave_unclosed(&paths, note(&http.url(), "young", 0));
    let old = note(&http.url(), "old", limits::UNCLOSED_KEPT_MS + 1);
    let old = LockedNote::write(&paths, old).unwrap();
    old.write_attempts(&tried_for(limits::UNCLOSED_KEPT_MS));
    drop(old);
    for attempt in 1..limits::CLOSE_TRIES_LEAST {
        let done = run(close_all(&paths, &Keyring::default(), CloseMode::All));
        assert_eq!(
            (done.left, done.given_up),
            (2, 0),
            "the network may not be up yet: attempt {attempt}"
        );
    }
    let done = run(close_all(&paths, &Keyring::default(), CloseMode::All));
    assert_eq!((done.left, done.given_up, done.closed), (1, 1, 0));
    let left = list(&paths);
    assert_eq!(
        (left.len(), left[0].attempts.count),
        (1, limits::CLOSE_TRIES_LEAST)
    );
    assert_eq!(left[0].attempts.why, "the server answered with HTTP 500");
    http.mend();
    assert_eq!(
        run(close_all(&paths, &Keyring::default(), CloseMode::Due)).left,
        1,
        "it is too early for the next attempt"
    );
    assert_eq!(
        run(close_all(&paths, &Keyring::default(), CloseMode::All)).closed,
        1
    );
    let events = fs::read_dir(paths.events()).unwrap().flatten();
    let text: String = events
        .map(|file| fs::read_to_string(file.path()).unwrap())
        .collect();
    assert!(
        text.contains("session_given_up") && text.contains("session_closed_late"),
        "{text}"
    );
    assert!(!text.contains("young"), "events contain no session id");
}

#[test]
fn an_unreachable_server_is_tried_once_for_all_its_sessions() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    http.stop();
    for session in 0..50 {
        leave_unclosed(&paths, note(&http.url(), &format!("{session}"), 0));
    }
    let done = run(close_all(&paths, &Keyring::default(), CloseMode::All));
    assert_eq!(done.left, 50);
    assert!(
        list(&paths)
            .iter()
            .all(|one| one.attempts.why.contains("connection refused"))
    );
}

#[test]
fn damaged_notes_are_listed_and_never_removed() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let whole = serde_json::to_vec(&note("http://h/mcp", "x", 0)).unwrap();
    fs::write(paths.sessions().join("torn.json"), &whole[..40]).unwrap();
    fs::write(paths.sessions().join("empty.json"), "").unwrap();
    fs::write(paths.sessions().join("huge.json"), "x".repeat(1 << 20)).unwrap();
    fs::write(paths.sessions().join(".new-half"), &whole[..40]).unwrap();
    fs::write(paths.sessions().join(".new-whole"), &whole).unwrap();
    fs::write(paths.sessions().join(".new-young"), "").unwrap();
    for old in [".new-half", ".new-whole"] {
        let file = fs::File::options()
            .append(true)
            .open(paths.sessions().join(old));
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_hours(24);
        file.unwrap().set_modified(long_ago).unwrap();
    }
    let done = run(close_all(&paths, &Keyring::default(), CloseMode::Due));
    assert_eq!(done.closed, 0);
    let shown = list(&paths);
    assert_eq!(shown.iter().filter(|one| one.note.is_err()).count(), 3);
    assert_eq!(
        shown.iter().filter(|one| one.note.is_ok()).count(),
        1,
        "a complete note with a temporary name counts"
    );
    assert!(!paths.sessions().join(".new-half").exists());
    assert!(
        paths.sessions().join(".new-young").exists(),
        "its writer may still live"
    );
}

#[test]
fn secrets_are_found_where_they_came_from() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let text = "[server.web]\nurl = \"http://h/mcp?key=s3cret\"\nheaders = { X-Config = \"c\" }\n";
    fs::create_dir_all(paths.config_file().unwrap().parent().unwrap()).unwrap();
    fs::write(paths.config_file().unwrap(), text).unwrap();
    let keyring = Keyring {
        config: mainstay_store::config::Config::load(&paths).unwrap(),
        ..Keyring::default()
    };
    let named = |name: &str, from: Source| NamedHeader {
        name: name.into(),
        from,
    };
    let from_config = [named("x-config", Source::Config("web".into()))];
    assert_eq!(
        keyring.headers("http://h/mcp", &from_config).unwrap()["x-config"],
        "c"
    );
    let target = keyring
        .target("http://h/mcp", Some(&Source::Config("web".into())))
        .unwrap();
    assert_eq!(target.path(), "/mcp?key=s3cret");
    let missing = keyring.headers(
        "http://h/mcp",
        &[named("x", Source::Variable("NOT_SET_HERE".into()))],
    );
    let missing = missing.unwrap_err().to_string();
    assert!(
        missing.contains("`x` came from the variable NOT_SET_HERE"),
        "{missing}"
    );
    // A value that was given for one server is not sent to another.
    let keyring = Keyring {
        given: [("x".to_string(), "v".to_string())].into(),
        url: Some(mainstay_store::config::target::Target::parse("http://h/mcp").unwrap()),
        ..Keyring::default()
    };
    assert!(
        keyring
            .headers("http://h/mcp", &[named("x", Source::Flag)])
            .is_ok()
    );
    assert!(
        keyring
            .headers("http://other/mcp", &[named("x", Source::Flag)])
            .is_err()
    );
}

#[test]
fn a_header_of_the_config_file_goes_only_to_the_host_of_its_table() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let old = Httpd::start();
    let text = "[server.web]\nurl = \"https://new.example/mcp\"\nheaders = { Authorization = \"Bearer new\" }\n";
    fs::create_dir_all(paths.config_file().unwrap().parent().unwrap()).unwrap();
    fs::write(paths.config_file().unwrap(), text).unwrap();
    let keyring = Keyring {
        config: mainstay_store::config::Config::load(&paths).unwrap(),
        ..Keyring::default()
    };
    let mut note = note(&old.url(), "a", 0);
    note.headers = vec![NamedHeader {
        name: "authorization".into(),
        from: Source::Config("web".into()),
    }];
    leave_unclosed(&paths, note);
    let done = run(close_all(&paths, &keyring, CloseMode::All));
    assert_eq!((done.closed, done.left), (0, 1));
    assert!(
        old.sent().is_empty(),
        "the secret of the new host is not sent to the old one"
    );
    let why = &list(&paths)[0].attempts.why;
    assert!(
        why.contains("[server.web]") && why.contains("not known here"),
        "{why}"
    );
}

#[test]
fn a_wrong_clock_does_not_delay_the_next_attempt() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    for (session, next_ms, later_ms) in [
        ("far", clock::wall_ms() + 2 * limits::CLOSE_RETRY_MOST_MS, 0),
        ("born later", 0, 1 << 40),
    ] {
        let mut note = note(&http.url(), session, 0);
        note.since_ms += later_ms;
        let held = LockedNote::write(&paths, note).unwrap();
        held.write_attempts(&note::Attempts {
            count: 1,
            why: "x".into(),
            next_ms,
            ..note::Attempts::default()
        });
    }
    assert!(is_due(&paths));
    assert_eq!(
        run(close_all(&paths, &Keyring::default(), CloseMode::Due)).closed,
        2
    );
}

#[test]
fn pipes_directories_links_and_foreign_files_are_neither_opened_nor_removed() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    let at = |name: &str| paths.sessions().join(name);
    let whole = serde_json::to_vec(&note(&http.url(), "x", 0)).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        at("pipe.json").path(),
        rustix::fs::Mode::RUSR,
    )
    .unwrap();
    fs::create_dir(at("folder.json")).unwrap();
    fs::write(scratch.path().join("elsewhere"), &whole).unwrap();
    std::os::unix::fs::symlink(scratch.path().join("elsewhere"), at("link.json")).unwrap();
    let mut strange = 3;
    if rustix::process::geteuid().is_root() {
        fs::write(at("foreign.json"), &whole).unwrap();
        std::os::unix::fs::chown(at("foreign.json"), Some(12_345), None).unwrap();
        strange += 1;
    }
    let shown = list(&paths);
    assert_eq!(shown.len(), strange);
    assert!(shown.iter().all(|one| one.note.is_err() && !one.locked));
    assert!(!is_due(&paths), "they cannot be closed");
    let done = run(close_all(&paths, &Keyring::default(), CloseMode::Due));
    assert_eq!((done.closed, done.given_up), (0, 0));
    assert!(http.sent().is_empty());
    assert_eq!(list(&paths).len(), strange, "they are not removed");
}

#[test]
fn an_opening_without_an_answer_is_reported_and_its_note_removed() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let held = LockedNote::opening(&paths, note("http://127.0.0.1:9/mcp", "", 0)).unwrap();
    assert!(list(&paths)[0].locked && !is_due(&paths));
    assert_eq!(
        run(close_all(&paths, &Keyring::default(), CloseMode::Due)),
        CloseSummary::default(),
        "its owner lives"
    );
    drop(held);
    assert!(is_due(&paths) && !list(&paths)[0].locked);
    assert_eq!(
        run(close_all(&paths, &Keyring::default(), CloseMode::Due)).given_up,
        1
    );
    assert!(list(&paths).is_empty());
    let events = fs::read_dir(paths.events()).unwrap().flatten();
    let text: String = events
        .map(|file| fs::read_to_string(file.path()).unwrap())
        .collect();
    assert!(
        text.contains("only its own idle limit can end it"),
        "{text}"
    );
}

#[test]
fn a_note_never_contains_a_secret_of_the_url() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    let url = http.url().replace("http://", "http://user:hunter2@") + "?key=hunter2";
    let held = LockedNote::write(&paths, note(&url, "a", 0)).unwrap();
    assert_eq!(held.note.url, http.url());
    assert_eq!(held.note.url_secret, Some(Source::Flag));
    drop(held);
    for entry in fs::read_dir(paths.sessions()).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
    }
    // A process that knows the secret closes the session.
    let missing = run(close_all(&paths, &Keyring::default(), CloseMode::All));
    assert_eq!(missing.left, 1);
    let keyring = Keyring {
        url: Some(mainstay_store::config::target::Target::parse(&url).unwrap()),
        ..Keyring::default()
    };
    assert_eq!(run(close_all(&paths, &keyring, CloseMode::All)).closed, 1);
    assert_eq!(http.sent()[0].path, "/mcp?key=hunter2");
}

#[test]
fn the_attempts_are_removed_with_their_note() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let held = LockedNote::write(&paths, note("http://127.0.0.1:9/mcp", "a", 0)).unwrap();
    held.write_attempts(&note::Attempts::default());
    held.remove().unwrap();
    assert_eq!(fs::read_dir(paths.sessions()).unwrap().count(), 0);
    // The closing process was killed between the two removals.
    fs::write(paths.sessions().join("a.tried"), "{}").unwrap();
    fs::write(paths.sessions().join("b.tried-new"), "{").unwrap();
    run(close_all(&paths, &Keyring::default(), CloseMode::Due));
    assert_eq!(fs::read_dir(paths.sessions()).unwrap().count(), 0);
}

#[test]
fn no_such_session_counts_only_with_the_credentials_that_opened_it() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    let flag = || ("authorization", Source::Flag, "work");
    for (status, body) in [(404, ""), (410, ""), (400, "no such session")] {
        http.always("DELETE", Fault::Status(status, body));
        leave_unclosed(&paths, opened_with(&http.url(), "a", &[flag()]));
        for value in ["home", "other"] {
            let home = bridge_keyring(&http.url(), Source::Flag, value);
            let done = run(close_all(&paths, &home, CloseMode::All));
            assert_eq!((done.closed, done.left), (0, 1), "{status}");
        }
        let left = &list(&paths)[0].attempts;
        assert!(
            left.why.contains(&format!("HTTP {status} to credentials")),
            "{left:?}"
        );
        let now = clock::wall_ms();
        assert!(
            left.count == 0 && !left.must_wait(now),
            "another process may try at once: {left:?}"
        );
        let work = bridge_keyring(&http.url(), Source::Flag, "work");
        let done = run(close_all(&paths, &work, CloseMode::Due));
        assert_eq!((done.closed, done.left), (1, 0), "{status}");
        http.mend();
    }
    // A success counts with any credentials.
    http.always("DELETE", Fault::Status(200, ""));
    leave_unclosed(&paths, opened_with(&http.url(), "a", &[flag()]));
    let home = bridge_keyring(&http.url(), Source::Flag, "renewed");
    assert_eq!(run(close_all(&paths, &home, CloseMode::Due)).closed, 1);
}

#[test]
fn two_accounts_of_one_url_differ_in_its_query() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    http.always("DELETE", Fault::Status(404, "not yours"));
    let url = |key: &str| format!("{}?key={key}", http.url());
    leave_unclosed(&paths, opened_with(&url("a"), "a", &[]));
    for (key, closed) in [("b", 0), ("a", 1)] {
        let bridge = bridge_keyring(&url(key), Source::Flag, "x");
        assert_eq!(
            run(close_all(&paths, &bridge, CloseMode::Due)).closed,
            closed,
            "{key}"
        );
    }
}

#[test]
fn a_bridge_sends_only_secrets_of_its_own_configuration() {
    let http = Httpd::start();
    let (one, other) = (
        Source::Variable("NOT_SET_HERE".into()),
        Source::Variable("NOT_SET_EITHER".into()),
    );
    let note = opened_with(
        &http.url(),
        "a",
        &[("authorization", one.clone(), "Bearer a")],
    );
    let found = |from: &Source, value: &str| {
        let bridge = bridge_keyring(&http.url(), from.clone(), value);
        bridge.find(&note).map(|found| found.proven)
    };
    assert_eq!(found(&one, "Bearer a"), Ok(true));
    assert_eq!(
        found(&one, "Bearer renewed"),
        Ok(false),
        "unproven, but sent"
    );
    assert!(
        found(&other, "Bearer b").is_err(),
        "a secret of another account"
    );
    // A note of an older version has no fingerprint, and can be read.
    let old: Note = {
        let mut text = serde_json::to_value(&note).unwrap();
        text.as_object_mut().unwrap().remove("seal").unwrap();
        serde_json::from_value(text).unwrap()
    };
    let bridge = bridge_keyring(&http.url(), one, "Bearer a");
    assert!(!bridge.find(&old).unwrap().proven);
    assert!(Keyring::default().find(&old).is_err());
}

#[test]
fn a_variable_is_sent_only_if_the_fingerprint_or_the_user_says_so() {
    // Any variable that every process has.
    let value = std::env::var("PATH").unwrap();
    let from = || Source::Variable("PATH".into());
    let at = |url: &str, value: &str| opened_with(url, "a", &[("x", from(), value)]);
    let here = Keyring::default();
    assert!(here.find(&at("http://h/mcp", &value)).unwrap().proven);
    let error = here.find(&at("http://h/mcp", "then")).unwrap_err();
    assert!(matches!(
        error,
        credentials::CredentialError::UnsureValue(_)
    ));
    let said = Keyring {
        url: Some(mainstay_store::config::target::Target::parse("http://h/mcp").unwrap()),
        ..Keyring::default()
    };
    assert!(!said.find(&at("http://h/mcp", "then")).unwrap().proven);
    assert!(said.find(&at("http://other/mcp", "then")).is_err());
    let bridge = bridge_keyring("http://h/mcp", Source::Flag, "y");
    assert!(bridge.find(&at("http://h/mcp", "then")).is_err());
}

#[test]
fn a_table_without_a_url_is_used_only_if_the_fingerprint_or_the_user_says_so() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let text = "[server.web]\nheaders = { X = \"c\" }\n";
    fs::create_dir_all(paths.config_file().unwrap().parent().unwrap()).unwrap();
    fs::write(paths.config_file().unwrap(), text).unwrap();
    let keyring = |url: Option<&str>| Keyring {
        config: mainstay_store::config::Config::load(&paths).unwrap(),
        url: url.map(|url| mainstay_store::config::target::Target::parse(url).unwrap()),
        ..Keyring::default()
    };
    let from = || Source::Config("web".into());
    let then = opened_with("http://h/mcp", "a", &[("x", from(), "then")]);
    let same = opened_with("http://h/mcp", "a", &[("x", from(), "c")]);
    assert!(keyring(None).find(&then).is_err());
    assert!(keyring(Some("http://other/mcp")).find(&then).is_err());
    assert!(keyring(None).find(&same).unwrap().proven);
    assert!(!keyring(Some("http://h/mcp")).find(&then).unwrap().proven);
}

#[test]
fn a_jump_of_the_clock_gives_no_session_up() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    http.always("DELETE", Fault::Status(500, ""));
    let fifty_years = 50 * 365 * limits::UNCLOSED_KEPT_MS;
    leave_unclosed(
        &paths,
        note(&http.url(), "written in the past", fifty_years),
    );
    let tried =
        LockedNote::write(&paths, note(&http.url(), "tried in the past", fifty_years)).unwrap();
    tried.write_attempts(&note::Attempts {
        last_ms: 1,
        ..note::Attempts::default()
    });
    drop(tried);
    // Its secret is not known here, and no other process had time to try.
    let headers = [("x", Source::Flag, "v")];
    let since_ms = 1;
    let missing = opened_with(&http.url(), "without its secret", &headers);
    leave_unclosed(
        &paths,
        Note {
            since_ms,
            ..missing
        },
    );
    for attempt in 0..2 * limits::CLOSE_TRIES_LEAST {
        let done = run(close_all(&paths, &Keyring::default(), CloseMode::All));
        assert_eq!((done.left, done.given_up), (3, 0), "attempt {attempt}");
    }
    assert!(
        list(&paths)
            .iter()
            .all(|one| one.attempts.waited_ms < limits::UNCLOSED_KEPT_MS)
    );
    // A day later.
    for name in list::files(&paths.sessions().open().unwrap()) {
        let held = LockedNote::lock(&paths.sessions(), &name).unwrap();
        held.write_attempts(&note::Attempts {
            waited_ms: limits::UNCLOSED_KEPT_MS,
            ..held.attempts()
        });
    }
    let done = run(close_all(&paths, &Keyring::default(), CloseMode::All));
    assert_eq!((done.left, done.given_up), (0, 3));
}

#[test]
fn the_attempts_of_an_older_version_are_read() {
    let old = r#"{"attempts":3,"why":"x","next_ms":7}"#;
    let tried: note::Attempts = serde_json::from_str(old).unwrap();
    assert_eq!((tried.count, tried.next_ms), (3, 7));
    assert_eq!(tried.waited_until(clock::wall_ms()), 0);
}

#[test]
fn notes_of_an_earlier_version_are_listed_and_closed() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    open(&http, 2);
    // Earlier versions have another directory, and the same format.
    let old = paths.old_sessions().make().unwrap();
    let text = format!(
        r#"{{"v":1,"server":"web","link":"{}","url":"{}","session":"session-1","headers":[],"owner":{},"boot":"b","since":"s","since_ms":1}}"#,
        LinkId(7),
        http.url(),
        serde_json::to_string(&Identity { pid: 1, start: 2 }).unwrap(),
    );
    old.replace("0000000000000001.json", text.as_bytes())
        .unwrap();
    leave_unclosed(&paths, note(&http.url(), "session-2", 0));
    let listed = list(&paths);
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed[0].path.ends_with("debts/0000000000000001.json"));
    // A process of that version holds the lock of its note until it ends.
    let owner = LockedNote::lock(&paths.old_sessions(), "0000000000000001.json").unwrap();
    let done = run(close_all(&paths, &Keyring::default(), CloseMode::Due));
    assert_eq!((done.closed, done.locked), (1, 1));
    drop(owner);
    assert!(is_due(&paths));
    let done = run(close_all(&paths, &Keyring::default(), CloseMode::Due));
    assert_eq!((done.closed, http.open()), (1, 0));
    assert!(list(&paths).is_empty());
    assert!(old.names().unwrap().is_empty());
}
