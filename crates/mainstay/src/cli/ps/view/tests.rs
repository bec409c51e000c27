//! The screen of `ps`, at several widths.
//! guards: No line of `ps` is wider than its terminal, from 60 to 200 columns, and colour carries no meaning alone.

use super::samples::row;
use super::*;
use crate::cli::ps::Process;
use crate::cli::ps::trouble::Trouble;
use mainstay_protocol::tier::WhyNot;
use mainstay_report::samples::assert_snapshot;
use mainstay_report::width::width;

const DIR: &str = env!("CARGO_MANIFEST_DIR");

fn screen(columns: usize) -> Screen<'static> {
    Screen {
        columns,
        colour: false,
        wide: false,
        home: Some(Path::new("/home/ann")),
    }
}

/// Two sessions: one with a resting server, one with a server that was given up.
fn sessions() -> Vec<Row> {
    let mut time = row("time", 0xcc98_0000);
    time.argv = [
        "uvx",
        "mcp-server-time",
        "--local-timezone",
        "Europe/Berlin",
    ]
    .map(Into::into)
    .into();
    let mut resting = row("a-server-with-a-rather-long-name", 0xab00_0000);
    resting.state = "resting".into();
    resting.pid = None;
    resting.uptime_ms = None;
    resting.processes = 0;
    resting.rss_kib = 0;
    let mut crash = row("crash", 0x2c76_0000);
    crash.client = Some(mainstay_report::samples::seen(19_002, "python"));
    crash.client_directory = Some("/srv/proj2".into());
    crash.state = "abandoned".into();
    crash.pid = None;
    crash.uptime_ms = None;
    crash.processes = 0;
    crash.rss_kib = 0;
    crash.trouble = Some(Trouble {
        reason: "5 deaths in 1 min".into(),
        command: "mainstay why crash".into(),
    });
    vec![row("files-work", 0x2fb4_ce64), time, resting, crash]
}

/// An orphan, and a server of a living client.
fn others() -> Vec<Other> {
    let orphan = Other {
        name: "deaf.py".into(),
        verdict: Verdict::Orphan,
        rss_kib: 10_240,
        age_ms: 840_000,
        pid: 28_748,
        client: None,
    };
    let used = Other {
        name: "mcp-server-time".into(),
        verdict: Verdict::InUse,
        client: Some(mainstay_report::samples::seen(27_819, "codex")),
        ..orphan.clone()
    };
    vec![orphan, used]
}

#[test]
fn a_server_that_is_unsure_is_explained() {
    let mut others = others();
    assert!(!render(&[], &others, screen(80)).contains("unsure"));
    others[0].verdict = Verdict::Unsure;
    let text = render(&[], &others, screen(80));
    assert!(
        text.contains("\nunsure: not proven to be an orphan"),
        "{text}"
    );
    assert!(text.contains("`mainstay reap`"), "{text}");
}

#[test]
fn two_sessions_and_an_orphan_at_80_columns() {
    let text = render(&sessions(), &others(), screen(80));
    assert_snapshot(DIR, "src/cli/ps/view/sessions-80.txt", &text);
}

#[test]
fn two_sessions_and_an_orphan_at_120_columns() {
    let text = render(&sessions(), &others(), screen(120));
    assert_snapshot(DIR, "src/cli/ps/view/sessions-120.txt", &text);
}

#[test]
fn all_columns_with_wide() {
    let wide = Screen {
        wide: true,
        ..screen(1_000)
    };
    let text = render(&sessions(), &[], wide);
    assert_snapshot(DIR, "src/cli/ps/view/sessions-wide.txt", &text);
}

#[test]
fn columns_with_news_are_shown() {
    let plain = render(&[row("a", 1)], &[], screen(120));
    for title in ["LEASE", "SWAP", "TIER"] {
        assert!(!plain.contains(title), "{plain}");
    }
    let mut rows = vec![row("a", 1), row("b", 2)];
    rows[0].lease = Some("job-17".into());
    rows[0].swap_kib = 2_048;
    rows[1].tier = Some(Tier::Subreaper);
    let text = render(&rows, &[], screen(120));
    for shown in [
        "LEASE",
        "job-17",
        "SWAP",
        "2.0 MiB",
        "TIER",
        "subreaper",
        "PID",
        "PROCS",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

fn process(pid: i32, depth: usize, command: &str) -> Process {
    Process {
        pid,
        ppid: 1,
        depth,
        command: command.into(),
        rss_kib: 2_048,
        swap_kib: 0,
    }
}

#[test]
fn secrets_in_a_command_are_hidden() {
    let mut row = row("a", 1);
    row.argv = ["my-server", "--api-key", "hunter2hunter2"]
        .map(Into::into)
        .into();
    let text = render(&[row], &[], screen(120));
    assert!(text.contains("my-server --api-key "), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn processes_are_indented_below_their_server() {
    let mut row = row("a", 1);
    row.why_not = vec![WhyNot {
        tier: Tier::Scope,
        reason: "no systemd user manager".into(),
    }];
    let one = std::slice::from_ref(&row);
    assert!(!render(one, &[], screen(80)).contains("scope"));
    row.tree = Some(vec![
        process(4711, 0, "node server.js"),
        process(4712, 1, "node server.js"),
    ]);
    let mut other = row.clone();
    other.server = "b".into();
    let text = render(&[row.clone(), other.clone()], &[], screen(80));
    assert!(
        text.contains(
            "\n    └ 4711 2.0 MiB  node server.js\n      └ 4712 2.0 MiB  node server.js\n"
        ),
        "{text}"
    );
    // The reason is the same for all of them, so it is told once.
    let reason = "\nnot scope: no systemd user manager\n";
    assert_eq!(text.matches("not scope").count(), 1, "{text}");
    assert!(text.contains(reason), "{text}");
    other.why_not.clear();
    let text = render(&[row, other], &[], screen(80));
    assert!(text.contains("\na: not scope: "), "{text}");
}

#[test]
fn a_client_without_a_readable_directory_has_that_of_its_servers() {
    let mut rows = vec![row("a", 1), row("b", 2)];
    for row in &mut rows {
        row.client_directory = None;
        row.directory = "/home/ann".into();
    }
    assert!(render(&rows, &[], screen(80)).contains("\nclaude 4000  ~ "));
    rows[1].directory = "/".into();
    assert!(render(&rows, &[], screen(80)).contains("\nclaude 4000   "));
    rows.truncate(1);
    rows[0].client = None;
    assert!(render(&rows, &[], screen(80)).contains("\nno client   "));
}

#[test]
fn every_state_but_ready_is_explained_once() {
    let mut rows: Vec<Row> = Vec::new();
    for (state, id) in STATES.iter().zip(1..) {
        for copy in [0, 100] {
            let mut row = row("a", id + copy);
            row.state = state.word.into();
            rows.push(row);
        }
    }
    let text = render(&rows, &[], screen(80));
    for state in STATES {
        let line = format!("\n{}: ", state.word);
        let times = text.matches(&line).count();
        assert_eq!(times, usize::from(state.word != "ready"), "{text}");
    }
}

/// Rows of every kind, from a seed: long and wide names, every state, troubles, no client, any size.
fn generated(seed: u64, count: usize) -> Vec<Row> {
    let mut state = seed;
    let mut next = |below: u64| {
        // Numbers of Knuth's MMIX: the same rows on every machine.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let names = [
        "a",
        "mcp-server-filesystem-with-a-name-that-is-longer-than-any-terminal-should-have-to-show",
        "日本語のサーバー名前はとても長いです",
        "🦀🦀🦀",
        "e\u{301}te\u{301}",
        "tab\tand\u{202e}turn",
    ];
    (0..count)
        .map(|place| {
            let mut row = row(names[next(6) as usize], place as u32);
            row.state = STATES[next(16) as usize].word.into();
            row.rss_kib = next(1 << 34);
            row.swap_kib = next(2) * next(1 << 34);
            row.uptime_ms = (next(3) > 0).then(|| next(1 << 40));
            row.pid = (next(3) > 0).then(|| next(4_194_304) as i32);
            row.processes = next(2_000) as usize;
            row.lease = (next(4) == 0).then(|| names[next(6) as usize].into());
            row.tier = [None, Some(Tier::Cgroup), Some(Tier::Subreaper)][next(3) as usize];
            let pid = 4_000_000 + next(5) as i32;
            row.client =
                (next(5) > 0).then(|| mainstay_report::samples::seen(pid, names[pid as usize % 6]));
            row.client_directory = (next(2) > 0).then(|| "/home/ann/日本/".repeat(9));
            row.short_id = row.id.to_string();
            row.tree = (next(8) == 0).then(|| {
                (0..next(5) as usize)
                    .map(|depth| process(4_000_000, depth * 9, names[depth]))
                    .collect()
            });
            row.trouble = (next(6) == 0).then(|| Trouble {
                reason: "5 deaths and 3 failed starts in 10 min".into(),
                command: format!("mainstay why {}", row.server),
            });
            row
        })
        .collect()
}

#[test]
fn no_line_is_wider_than_its_terminal() {
    for (rows, step) in [(0, 1), (1, 1), (7, 1), (40, 3), (500, 35)] {
        for columns in (60..=200).step_by(step) {
            for seed in 0..3 {
                let generated = generated(seed, rows);
                let mut others = others();
                for (other, row) in others.iter_mut().zip(&generated) {
                    other.name.clone_from(&row.server);
                    other.rss_kib = row.rss_kib;
                    other.age_ms = row.uptime_ms.unwrap_or(0);
                    other.client.clone_from(&row.client);
                }
                let text = render(&generated, &others, screen(columns));
                for line in text.lines() {
                    assert!(
                        width(line) <= columns,
                        "{columns}, seed {seed}: {line}\n{text}"
                    );
                }
            }
        }
    }
}

#[test]
fn many_servers_without_mainstay_are_counted() {
    let many: Vec<Other> = others().into_iter().cycle().take(50).collect();
    let text = render(&[], &many, screen(80));
    assert!(text.contains("without mainstay "), "{text}");
    assert!(
        text.contains("\n… 30 more: `mainstay reap` lists all\n"),
        "{text}"
    );
    assert_eq!(render(&[], &[], screen(80)), "");
}

#[test]
fn colour_carries_no_meaning_alone() {
    let plain = render(&sessions(), &[], screen(80));
    let coloured = render(
        &sessions(),
        &[],
        Screen {
            colour: true,
            ..screen(80)
        },
    );
    let mut stripped = String::new();
    for part in coloured.split('\u{1b}') {
        let code = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        stripped += code.map_or(part, |(_, rest)| rest);
    }
    assert_eq!(stripped, plain);
}
