//! Mistakes that people make on the command line: each is told what is wrong and what to type instead.
//! guards: A mistake on the command line is answered with what is wrong and with the command to type instead.

use std::process::Stdio;

use mainstay_os::identity::{self, Handle};
use mainstay_protocol::ids::Identity;
use mainstay_store::registry::Entry;
use mainstay_testkit::wait::until;
use rustix::process::Signal;

use crate::support::at_terminal::AtTerminal;
use crate::support::home::{Home, card, outcome};
use crate::support::keepers::entry;

/// Two servers of one name, of different clients in different directories, and a third one.
fn twins(home: &Home) -> Vec<Entry> {
    let twin = |id: u32, client: Option<&str>, cwd: String| {
        let entry = entry(home, id, "play");
        let mut card = card(id, "play");
        card.cwd = cwd;
        card.client = client.map(|comm| mainstay_protocol::event::Seen {
            who: Identity {
                pid: 4711,
                start: 1,
            },
            comm: comm.into(),
        });
        entry.write(&card).unwrap();
        entry
    };
    let work = home.path().join("work").display().to_string();
    vec![
        twin(0x3f2a_0001, Some("claude"), work),
        twin(0x95c6_0002, None, "/srv".into()),
        entry(home, 0x0bad_0003, "my server"),
    ]
}

#[test]
fn an_ambiguous_name_is_refused_with_the_command_for_each_server() {
    let home = Home::new();
    let _twins = twins(&home);
    let listed = |verb: &str| {
        format!(
            "error: 2 servers are called `play`\nhint: name one of them by its id:\n\
             \x20 mainstay {verb} 3f2a  claude (4711), in ~/work\n\
             \x20 mainstay {verb} 95c6  no client, in /srv\n"
        )
    };
    for verb in ["stop", "restart", "kill"] {
        let verb_shown = if verb == "kill" { "stop" } else { verb };
        let all = format!("or all of them: mainstay {verb_shown} play --all\n");
        let refused = home.mainstay(&[verb, "play"]);
        assert_eq!(
            refused,
            outcome("", &(listed(verb_shown) + &all), 1),
            "{verb}"
        );
    }
    for verb in ["tap", "logs"] {
        assert_eq!(
            home.mainstay(&[verb, "play"]),
            outcome("", &listed(verb), 1)
        );
    }
    // JSON is for results; an error stays on stderr.
    let refused = home.mainstay(&["stop", "play", "--json"]);
    assert_eq!((refused.stdout.as_str(), refused.code), ("", Some(1)));
}

#[test]
fn a_command_without_a_name_lists_the_servers_that_run() {
    let home = Home::new();
    for verb in ["stop", "restart", "tap", "logs"] {
        let none = format!(
            "error: `mainstay {verb}` needs the name of a server\nhint: no server runs under mainstay now\n"
        );
        assert_eq!(home.mainstay(&[verb]), outcome("", &none, 2));
    }
    let _twins = twins(&home);
    for verb in ["stop", "restart", "tap", "logs"] {
        let list = format!(
            "error: `mainstay {verb}` needs the name of a server\nhint: these servers run:\n\
             \x20 mainstay {verb} 'my server'  no client, in /\n\
             \x20 mainstay {verb} 3f2a         play, claude (4711), in ~/work\n\
             \x20 mainstay {verb} 95c6         play, no client, in /srv\n"
        );
        assert_eq!(home.mainstay(&[verb]), outcome("", &list, 2));
    }
}

#[test]
fn words_that_people_type_lead_to_the_right_command() {
    let home = Home::new();
    for (typed, meant) in [
        ("list", "ps"),
        ("status", "ps"),
        ("kill", "stop"),
        ("log", "logs"),
    ] {
        assert_eq!(home.mainstay(&[typed]), home.mainstay(&[meant]), "{typed}");
        let help = home.mainstay(&["--help"]).stdout;
        assert!(!help.contains(&format!("  {typed} ")), "{help}");
    }
}

#[test]
fn a_program_in_the_place_of_a_command_suggests_run() {
    let home = Home::new();
    for (words, meant) in [
        (
            &["npx", "-y", "@playwright/mcp"][..],
            "-- npx -y @playwright/mcp",
        ),
        (&["uvx", "mcp-server-time"], "-- uvx mcp-server-time"),
        (&["node", "server.js"], "-- node server.js"),
        (&["python", "my server.py"], "-- python 'my server.py'"),
        (&["./server"], "-- ./server"),
        (&["--name", "a", "--", "npx", "b"], "--name a -- npx b"),
        (
            &["npx", "foo", "--api-key", "sesame-0123456789"],
            "-- npx foo --api-key '[hidden]'",
        ),
    ] {
        let first = words[0];
        let text = format!(
            "error: `{first}` is not a command of mainstay\nhint: did you mean: mainstay run {meant}\n"
        );
        assert_eq!(home.mainstay(words), outcome("", &text, 2), "{words:?}");
    }
    // A mistyped command keeps its own suggestion.
    let typo = home.mainstay(&["pss"]);
    assert!(
        typo.stderr.contains("hint: did you mean `mainstay ps`?"),
        "{}",
        typo.stderr
    );
    // Nothing was asked by a client.
    assert!(home.mainstay(&["events", "--json"]).stdout.is_empty());
}

#[test]
fn a_server_that_cannot_be_started_has_a_hint_that_fits_the_mistake() {
    let home = Home::new();
    home.config("[server.spaced]\ncommand = \"nosuch -y foo\"\n");
    let here = std::env::current_dir().unwrap().display().to_string();
    let spaces = "the command has spaces: write each word apart, `mainstay run -- nosuch -y foo`, or in a config file `command = \"nosuch\"` and `args = [\"-y\", \"foo\"]`";
    let directory = format!(
        "it was looked for in {here}, the directory that the server runs in: give its full path, or set `cwd` in the config file"
    );
    let either = "a server is either started or reached by its URL: leave one of the two out";
    let watched = format!("name a file or directory that exists; a relative path begins in {here}");
    for (words, problem, hint, code) in [
        (
            &["run", "nosuch -y foo"][..],
            "command not found: nosuch -y foo",
            spaces,
            127,
        ),
        (
            &["run", "--name", "spaced"],
            "command not found: nosuch -y foo",
            spaces,
            127,
        ),
        (
            &["run", "--", "./nope.sh"],
            "command not found: ./nope.sh",
            &directory,
            127,
        ),
        (
            &["run", "--", "/nope/server"],
            "command not found: /nope/server",
            "correct the path, or install the server there",
            127,
        ),
        (
            &["run", "--url", "http://127.0.0.1:1/mcp", "--", "cat"],
            "--url and a server command are both given",
            either,
            2,
        ),
        (
            &["run", "--watch", "/nonexistent", "--", "cat"],
            "cannot watch /nonexistent: no such file or directory",
            &watched,
            2,
        ),
    ] {
        let refused = home.mainstay(words);
        let end = format!(": {problem}\nhint: {hint}\n");
        assert!(
            refused.stderr.starts_with("mainstay: cannot start `"),
            "{}",
            refused.stderr
        );
        assert!(refused.stderr.ends_with(&end), "{}", refused.stderr);
        assert_eq!(refused.code, Some(code), "{words:?}");
    }
}

#[test]
fn a_name_with_a_space_is_quoted_in_commands() {
    let home = Home::new();
    let _live = [
        entry(&home, 0x1a00_0000, "my server"),
        entry(&home, 0x2b00_0000, "my server"),
    ];
    let refused = home.mainstay(&["stop", "my server"]);
    assert!(
        refused
            .stderr
            .ends_with("or all of them: mainstay stop 'my server' --all\n"),
        "{}",
        refused.stderr
    );
}

#[test]
fn why_names_servers_and_no_leases() {
    let home = Home::new();
    assert_eq!(
        home.mainstay(&["lease", "open", "job-17", "--ttl", "1h"])
            .code,
        Some(0)
    );
    assert_eq!(
        home.mainstay(&["run", "--name", "play", "--", "false"])
            .code,
        Some(1)
    );
    assert_eq!(
        home.mainstay(&["why", "zzz"]),
        outcome(
            "",
            "error: no server is called `zzz`\nhint: known servers: play\n",
            1
        )
    );
    assert_eq!(home.mainstay(&["lease", "close", "job-17"]).code, Some(0));
}

#[test]
fn run_at_a_terminal_says_that_it_waits_for_a_client() {
    let home = Home::new();
    let mut command = home.command(&["run", "--", "cat"]);
    let mut run = AtTerminal::typed(command.stdout(Stdio::null()));
    run.wait_for("mainstay waits for an MCP client on stdin");
    run.wait_for("Ctrl-C ends it");
    end_by_signal(run.pid());
    run.end();
    let piped = home.mainstay(&["run", "--", "true"]);
    assert_eq!(piped, outcome("", "", 0));
}

#[test]
fn commands_that_run_until_they_are_stopped_say_how_to_stop_them() {
    let home = Home::new();
    for (words, text) in [
        (
            &["events", "--follow"][..],
            "new events are shown as they happen; Ctrl-C ends it",
        ),
        (
            &["watch", "--all"],
            "servers are shown as they start and end; Ctrl-C ends it",
        ),
    ] {
        let mut running = AtTerminal::start(home.command(words).stdout(Stdio::null()));
        running.wait_for(text);
        end_by_signal(running.pid());
        running.end();
        let mut quiet = home.command(words);
        quiet.arg("--json").stdout(Stdio::null());
        let quiet = AtTerminal::start(&mut quiet);
        until("it waits", || {
            let state = std::fs::read_to_string(format!("/proc/{}/syscall", quiet.pid())).ok();
            state
                .is_none_or(|state| !state.starts_with("running"))
                .then_some(())
        });
        assert_eq!(quiet.said(), "");
        end_by_signal(quiet.pid());
        quiet.end();
    }
}

/// Not SIGINT: a shell that starts these tests in the background ignores it, and so would the command.
fn end_by_signal(pid: i32) {
    let handle = Handle::open(identity::of(pid).unwrap()).unwrap();
    handle.signal(Signal::TERM).unwrap();
}
