#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_core::ids::{Identity, LinkId};
use mainstay_core::limits;
use mainstay_os::clock;
use mainstay_testkit::httpd::{Fault, Httpd};

use super::pay::{Paid, Zeal, pay};
use super::secret::Named;
use super::*;
use crate::ledger::time::rfc3339;
use crate::paths::Paths;
use crate::scratch::Scratch;

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
        seal: None,
        owner: Identity { pid: 1, start: 2 },
        boot: "boot".into(),
        since: rfc3339(since_ms),
        since_ms,
    }
}

/// Written by somebody who is dead now.
fn owe(paths: &Paths, note: Note) {
    drop(Held::write(paths, note).unwrap());
}

/// Tried for so long, without an attempt that counts.
fn tried_for(waited_ms: u64) -> note::Tried {
    note::Tried {
        last_ms: clock::wall_ms(),
        waited_ms,
        ..note::Tried::default()
    }
}

/// A debt whose session was opened with this URL and these headers.
fn sealed(url: &str, session: &str, headers: &[(&str, Source, &str)]) -> Note {
    let target = crate::http::target::Target::parse(url).unwrap();
    let mut values = hyper::HeaderMap::new();
    for (name, _, value) in headers {
        secret::insert(&mut values, name, value).unwrap();
    }
    let named = headers.iter().map(|(name, from, _)| Named {
        name: (*name).into(),
        from: from.clone(),
    });
    Note {
        url_secret: target.has_secret().then_some(Source::Flag),
        headers: named.collect(),
        seal: seal::Seal::of(&target, &values),
        ..note(&target.plain(), session, 0)
    }
}

/// What a bridge has that was given this URL and this one header.
fn of_bridge(url: &str, from: Source, value: &str) -> Keyring {
    let name = "authorization".to_string();
    Keyring {
        given: [(name.clone(), value.to_string())].into(),
        url: Some(crate::http::target::Target::parse(url).unwrap()),
        of: Some(secret::Own {
            url: Source::Flag,
            headers: vec![Named { name, from }],
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
fn ten_thousand_debts_are_listed_and_paid() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    open(&http, 20);
    for number in 1..=10_000 {
        // On a disk that syncs for real this is the slow part, so that only a few are written as they are in life.
        let note = note(&http.url(), &format!("session-{number}"), 0);
        if number <= 20 {
            owe(&paths, note);
        } else {
            let path = paths.debts().join(format!("{number:016x}.json"));
            fs::write(path, serde_json::to_vec(&note).unwrap()).unwrap();
        }
    }
    assert_eq!(list(&paths).len(), 10_000);
    let done = run(pay(&paths, &Keyring::default(), Zeal::Asked));
    assert_eq!(
        done.paid, 10_000,
        "the server knows twenty, and 404 is as good"
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
        owe(&paths, note(&http.url(), &format!("session-{session}"), 0));
    }
    run(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let paths = paths.clone();
            tasks.spawn(async move { pay(&paths, &Keyring::default(), Zeal::Asked).await.paid });
        }
        let mut paid = 0;
        while let Some(one) = tasks.join_next().await {
            paid += one.unwrap();
        }
        assert_eq!(paid, 3);
    });
    let deletes = http
        .sent()
        .iter()
        .filter(|one| one.verb == "DELETE")
        .count();
    assert_eq!(deletes, 3);
}

#[test]
fn whoever_only_looks_keeps_no_payer_away() {
    const ROUNDS: usize = 3_000;
    let scratch = Scratch::new();
    let paths = scratch.paths();
    owe(&paths, note("http://127.0.0.1:1/mcp", "session-1", 0));
    let path = list(&paths)[0].path.clone();
    let name = path.file_name().unwrap().to_str().unwrap();
    let place = paths.debts();
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
            .filter(|_| Held::claim(&place, name).is_none())
            .count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(kept_away, 0);
    });
}

#[test]
fn the_owner_s_lock_keeps_everybody_away() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    let mut held = Held::write(&paths, note(&http.url(), "a", 0)).unwrap();
    held.rewrite(Some("2024-11-05".into())).unwrap();
    assert_eq!(
        run(pay(&paths, &Keyring::default(), Zeal::Asked)),
        Paid {
            held: 1,
            ..Paid::default()
        }
    );
    assert!(list(&paths)[0].held);
    assert!(http.sent().is_empty());
    drop(held);
    assert_eq!(run(pay(&paths, &Keyring::default(), Zeal::Asked)).paid, 1);
    assert_eq!(http.sent()[0].headers["mcp-protocol-version"], "2024-11-05");
}

#[test]
fn what_cannot_be_paid_rests_and_is_given_up_loudly() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    http.always("DELETE", Fault::Status(500, ""));
    owe(&paths, note(&http.url(), "young", 0));
    let old = note(&http.url(), "old", limits::DEBT_KEPT_MS + 1);
    let old = Held::write(&paths, old).unwrap();
    old.note_attempt(&tried_for(limits::DEBT_KEPT_MS));
    drop(old);
    for attempt in 1..limits::DEBT_TRIES_LEAST {
        let done = run(pay(&paths, &Keyring::default(), Zeal::Asked));
        assert_eq!(
            (done.left, done.given_up),
            (2, 0),
            "the network may not be up yet: attempt {attempt}"
        );
    }
    let done = run(pay(&paths, &Keyring::default(), Zeal::Asked));
    assert_eq!((done.left, done.given_up, done.paid), (1, 1, 0));
    let left = list(&paths);
    assert_eq!(
        (left.len(), left[0].tried.attempts),
        (1, limits::DEBT_TRIES_LEAST)
    );
    assert_eq!(left[0].tried.why, "the server answered with HTTP 500");
    http.mend();
    assert_eq!(
        run(pay(&paths, &Keyring::default(), Zeal::Sweep)).left,
        1,
        "it rests"
    );
    assert_eq!(run(pay(&paths, &Keyring::default(), Zeal::Asked)).paid, 1);
    let events = fs::read_dir(paths.events()).unwrap().flatten();
    let text: String = events
        .map(|file| fs::read_to_string(file.path()).unwrap())
        .collect();
    assert!(
        text.contains("debt_given_up") && text.contains("debt_paid"),
        "{text}"
    );
    assert!(!text.contains("young"), "a session id is nobody's business");
}

#[test]
fn a_dead_server_is_knocked_at_once_for_all_its_debts() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    http.stop();
    for session in 0..50 {
        owe(&paths, note(&http.url(), &format!("{session}"), 0));
    }
    let done = run(pay(&paths, &Keyring::default(), Zeal::Asked));
    assert_eq!(done.left, 50);
    assert!(
        list(&paths)
            .iter()
            .all(|debt| debt.tried.why.contains("connection refused"))
    );
}

#[test]
fn garbage_is_shown_and_touched_by_nobody() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let whole = serde_json::to_vec(&note("http://h/mcp", "x", 0)).unwrap();
    fs::write(paths.debts().join("torn.json"), &whole[..40]).unwrap();
    fs::write(paths.debts().join("empty.json"), "").unwrap();
    fs::write(paths.debts().join("huge.json"), "x".repeat(1 << 20)).unwrap();
    fs::write(paths.debts().join(".new-half"), &whole[..40]).unwrap();
    fs::write(paths.debts().join(".new-whole"), &whole).unwrap();
    fs::write(paths.debts().join(".new-young"), "").unwrap();
    for old in [".new-half", ".new-whole"] {
        let file = fs::File::options()
            .append(true)
            .open(paths.debts().join(old));
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_hours(24);
        file.unwrap().set_modified(long_ago).unwrap();
    }
    let done = run(pay(&paths, &Keyring::default(), Zeal::Sweep));
    assert_eq!(done.paid, 0);
    let shown = list(&paths);
    assert_eq!(shown.iter().filter(|debt| debt.note.is_err()).count(), 3);
    assert_eq!(
        shown.iter().filter(|debt| debt.note.is_ok()).count(),
        1,
        "a note that was whole counts"
    );
    assert!(!paths.debts().join(".new-half").exists());
    assert!(
        paths.debts().join(".new-young").exists(),
        "somebody may be about to write it"
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
        config: crate::config::Config::load(&paths).unwrap(),
        ..Keyring::default()
    };
    let named = |name: &str, from: Source| Named {
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
    let missing = missing.unwrap_err();
    assert!(
        missing.contains("`x` came from the variable NOT_SET_HERE"),
        "{missing}"
    );
    // What was given for one server is not sent to another.
    let keyring = Keyring {
        given: [("x".to_string(), "v".to_string())].into(),
        url: Some(crate::http::target::Target::parse("http://h/mcp").unwrap()),
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
fn a_table_that_names_another_host_by_now_gives_nothing_away() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let old = Httpd::start();
    let text = "[server.web]\nurl = \"https://new.example/mcp\"\nheaders = { Authorization = \"Bearer new\" }\n";
    fs::create_dir_all(paths.config_file().unwrap().parent().unwrap()).unwrap();
    fs::write(paths.config_file().unwrap(), text).unwrap();
    let keyring = Keyring {
        config: crate::config::Config::load(&paths).unwrap(),
        ..Keyring::default()
    };
    let mut note = note(&old.url(), "a", 0);
    note.headers = vec![Named {
        name: "authorization".into(),
        from: Source::Config("web".into()),
    }];
    owe(&paths, note);
    let done = run(pay(&paths, &keyring, Zeal::Asked));
    assert_eq!((done.paid, done.left), (0, 1));
    assert!(old.sent().is_empty(), "the new host's secret is not for it");
    let why = &list(&paths)[0].tried.why;
    assert!(
        why.contains("[server.web]") && why.contains("not to be had now"),
        "{why}"
    );
}

#[test]
fn a_clock_that_was_wrong_keeps_nobody_from_paying() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    for (session, next_ms, later_ms) in [
        ("far", clock::wall_ms() + 2 * limits::DEBT_RETRY_MOST_MS, 0),
        ("born later", 0, 1 << 40),
    ] {
        let mut note = note(&http.url(), session, 0);
        note.since_ms += later_ms;
        let held = Held::write(&paths, note).unwrap();
        held.note_attempt(&note::Tried {
            attempts: 1,
            why: "x".into(),
            next_ms,
            ..note::Tried::default()
        });
    }
    assert!(is_due(&paths));
    assert_eq!(run(pay(&paths, &Keyring::default(), Zeal::Sweep)).paid, 2);
}

#[test]
fn nothing_in_the_directory_can_keep_us_waiting_or_lead_elsewhere() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    let at = |name: &str| paths.debts().join(name);
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
    assert!(shown.iter().all(|debt| debt.note.is_err() && !debt.held));
    assert!(!is_due(&paths), "nobody can pay them");
    let done = run(pay(&paths, &Keyring::default(), Zeal::Sweep));
    assert_eq!((done.paid, done.given_up), (0, 0));
    assert!(http.sent().is_empty());
    assert_eq!(list(&paths).len(), strange, "and nobody removes them");
}

#[test]
fn an_opening_that_nobody_will_hear_of_is_told_and_not_kept() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let held = Held::opening(&paths, note("http://127.0.0.1:9/mcp", "", 0)).unwrap();
    assert!(list(&paths)[0].held && !is_due(&paths));
    assert_eq!(
        run(pay(&paths, &Keyring::default(), Zeal::Sweep)),
        Paid::default(),
        "its owner lives"
    );
    drop(held);
    assert!(is_due(&paths) && !list(&paths)[0].held);
    assert_eq!(
        run(pay(&paths, &Keyring::default(), Zeal::Sweep)).given_up,
        1
    );
    assert!(list(&paths).is_empty());
    let events = fs::read_dir(paths.events()).unwrap().flatten();
    let text: String = events
        .map(|file| fs::read_to_string(file.path()).unwrap())
        .collect();
    assert!(
        text.contains("only its own idle limit can end that"),
        "{text}"
    );
}

#[test]
fn whoever_writes_a_note_no_secret_of_a_url_gets_into_it() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    let url = http.url().replace("http://", "http://user:hunter2@") + "?key=hunter2";
    let held = Held::write(&paths, note(&url, "a", 0)).unwrap();
    assert_eq!(held.note.url, http.url());
    assert_eq!(held.note.url_secret, Some(Source::Flag));
    drop(held);
    for entry in fs::read_dir(paths.debts()).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
    }
    // It is paid by whoever has it.
    let missing = run(pay(&paths, &Keyring::default(), Zeal::Asked));
    assert_eq!(missing.left, 1);
    let keyring = Keyring {
        url: Some(crate::http::target::Target::parse(&url).unwrap()),
        ..Keyring::default()
    };
    assert_eq!(run(pay(&paths, &keyring, Zeal::Asked)).paid, 1);
    assert_eq!(http.sent()[0].path, "/mcp?key=hunter2");
}

#[test]
fn what_is_said_about_a_debt_goes_with_it() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let held = Held::write(&paths, note("http://127.0.0.1:9/mcp", "a", 0)).unwrap();
    held.note_attempt(&note::Tried::default());
    held.strike_out().unwrap();
    assert_eq!(fs::read_dir(paths.debts()).unwrap().count(), 0);
    // Its payer was killed between the two.
    fs::write(paths.debts().join("a.tried"), "{}").unwrap();
    fs::write(paths.debts().join("b.tried-new"), "{").unwrap();
    run(pay(&paths, &Keyring::default(), Zeal::Sweep));
    assert_eq!(fs::read_dir(paths.debts()).unwrap().count(), 0);
}

#[test]
fn no_such_session_is_believed_only_with_what_opened_it() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    let flag = || ("authorization", Source::Flag, "work");
    for (status, body) in [(404, ""), (410, ""), (400, "no such session")] {
        http.always("DELETE", Fault::Status(status, body));
        owe(&paths, sealed(&http.url(), "a", &[flag()]));
        for value in ["home", "other"] {
            let home = of_bridge(&http.url(), Source::Flag, value);
            let done = run(pay(&paths, &home, Zeal::Asked));
            assert_eq!((done.paid, done.left), (0, 1), "{status}");
        }
        let left = &list(&paths)[0].tried;
        assert!(
            left.why.contains(&format!("HTTP {status} to credentials")),
            "{left:?}"
        );
        let now = clock::wall_ms();
        assert!(
            left.attempts == 0 && !left.rests(now),
            "it is left to whoever has them: {left:?}"
        );
        let work = of_bridge(&http.url(), Source::Flag, "work");
        let done = run(pay(&paths, &work, Zeal::Sweep));
        assert_eq!((done.paid, done.left), (1, 0), "{status}");
        http.mend();
    }
    // One that closes it has closed it, whoever asks.
    http.always("DELETE", Fault::Status(200, ""));
    owe(&paths, sealed(&http.url(), "a", &[flag()]));
    let home = of_bridge(&http.url(), Source::Flag, "renewed");
    assert_eq!(run(pay(&paths, &home, Zeal::Sweep)).paid, 1);
}

#[test]
fn two_accounts_of_one_url_differ_in_its_query() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    http.always("DELETE", Fault::Status(404, "not yours"));
    let url = |key: &str| format!("{}?key={key}", http.url());
    owe(&paths, sealed(&url("a"), "a", &[]));
    for (key, paid) in [("b", 0), ("a", 1)] {
        let bridge = of_bridge(&url(key), Source::Flag, "x");
        assert_eq!(run(pay(&paths, &bridge, Zeal::Sweep)).paid, paid, "{key}");
    }
}

#[test]
fn a_bridge_gives_only_what_its_own_configuration_has() {
    let http = Httpd::start();
    let (one, other) = (
        Source::Variable("NOT_SET_HERE".into()),
        Source::Variable("NOT_SET_EITHER".into()),
    );
    let note = sealed(
        &http.url(),
        "a",
        &[("authorization", one.clone(), "Bearer a")],
    );
    let found = |from: &Source, value: &str| {
        let bridge = of_bridge(&http.url(), from.clone(), value);
        bridge.find(&note).map(|opened| opened.proven)
    };
    assert_eq!(found(&one, "Bearer a"), Ok(true));
    assert_eq!(found(&one, "Bearer renewed"), Ok(false), "but it is sent");
    assert!(found(&other, "Bearer b").is_err(), "another account's");
    // A note of an older version has no seal, and is readable.
    let old: Note = {
        let mut text = serde_json::to_value(&note).unwrap();
        text.as_object_mut().unwrap().remove("seal").unwrap();
        serde_json::from_value(text).unwrap()
    };
    let bridge = of_bridge(&http.url(), one, "Bearer a");
    assert!(!bridge.find(&old).unwrap().proven);
    assert!(Keyring::default().find(&old).is_err());
}

#[test]
fn a_variable_is_nobody_s_until_the_value_or_the_user_says_whose() {
    // Any variable that every process has.
    let value = std::env::var("PATH").unwrap();
    let from = || Source::Variable("PATH".into());
    let at = |url: &str, value: &str| sealed(url, "a", &[("x", from(), value)]);
    let here = Keyring::default();
    assert!(here.find(&at("http://h/mcp", &value)).unwrap().proven);
    let told = here.find(&at("http://h/mcp", "then")).err().unwrap();
    assert!(told.contains("may be another server's"), "{told}");
    let said = Keyring {
        url: Some(crate::http::target::Target::parse("http://h/mcp").unwrap()),
        ..Keyring::default()
    };
    assert!(!said.find(&at("http://h/mcp", "then")).unwrap().proven);
    assert!(said.find(&at("http://other/mcp", "then")).is_err());
    let bridge = of_bridge("http://h/mcp", Source::Flag, "y");
    assert!(bridge.find(&at("http://h/mcp", "then")).is_err());
}

#[test]
fn a_table_without_a_url_is_for_nobody_in_particular() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let text = "[server.web]\nheaders = { X = \"c\" }\n";
    fs::create_dir_all(paths.config_file().unwrap().parent().unwrap()).unwrap();
    fs::write(paths.config_file().unwrap(), text).unwrap();
    let keyring = |url: Option<&str>| Keyring {
        config: crate::config::Config::load(&paths).unwrap(),
        url: url.map(|url| crate::http::target::Target::parse(url).unwrap()),
        ..Keyring::default()
    };
    let from = || Source::Config("web".into());
    let then = sealed("http://h/mcp", "a", &[("x", from(), "then")]);
    let same = sealed("http://h/mcp", "a", &[("x", from(), "c")]);
    assert!(keyring(None).find(&then).is_err());
    assert!(keyring(Some("http://other/mcp")).find(&then).is_err());
    assert!(keyring(None).find(&same).unwrap().proven);
    assert!(!keyring(Some("http://h/mcp")).find(&then).unwrap().proven);
}

#[test]
fn a_clock_that_jumps_gives_nothing_up() {
    let scratch = Scratch::new();
    let paths = scratch.paths();
    let http = Httpd::start();
    http.always("DELETE", Fault::Status(500, ""));
    let fifty_years = 50 * 365 * limits::DEBT_KEPT_MS;
    owe(
        &paths,
        note(&http.url(), "written in the past", fifty_years),
    );
    let tried = Held::write(&paths, note(&http.url(), "tried in the past", fifty_years)).unwrap();
    tried.note_attempt(&note::Tried {
        last_ms: 1,
        ..note::Tried::default()
    });
    drop(tried);
    // Its secret is not here: nobody else has had the time to look, either.
    let headers = [("x", Source::Flag, "v")];
    let since_ms = 1;
    let missing = sealed(&http.url(), "without its secret", &headers);
    owe(
        &paths,
        Note {
            since_ms,
            ..missing
        },
    );
    for attempt in 0..2 * limits::DEBT_TRIES_LEAST {
        let done = run(pay(&paths, &Keyring::default(), Zeal::Asked));
        assert_eq!((done.left, done.given_up), (3, 0), "attempt {attempt}");
    }
    assert!(
        list(&paths)
            .iter()
            .all(|one| one.tried.waited_ms < limits::DEBT_KEPT_MS)
    );
    // A day later.
    for name in list::files(&paths.debts().open().unwrap()) {
        let held = Held::claim(&paths.debts(), &name).unwrap();
        held.note_attempt(&note::Tried {
            waited_ms: limits::DEBT_KEPT_MS,
            ..held.tried()
        });
    }
    let done = run(pay(&paths, &Keyring::default(), Zeal::Asked));
    assert_eq!((done.left, done.given_up), (0, 3));
}

#[test]
fn what_an_older_version_has_tried_is_read() {
    let old = r#"{"attempts":3,"why":"x","next_ms":7}"#;
    let tried: note::Tried = serde_json::from_str(old).unwrap();
    assert_eq!((tried.attempts, tried.next_ms), (3, 7));
    assert_eq!(tried.waited_until(clock::wall_ms()), 0);
}
