use mainstay_core::event::{Part, Signal, Teardown};

use super::*;
use crate::samples;

fn lines(what: What) -> String {
    Happening::of(&samples::event(what)).render(false)
}

#[test]
fn every_kind_in_words() {
    let all: String = samples::all().into_iter().map(lines).collect();
    assert_eq!(
        all,
        "\
22:31:07.123  playwright  start  pid 4711, generation 1, tier cgroup, for claude (4000)
    not scope: no systemd user manager
22:31:07.123  playwright  start_failed  there is no command `npxx`
    command: npxx -y @playwright/mcp
    hint: is it installed, and in PATH?
22:31:07.123  playwright  exit  pid 4711, SIGSEGV (core dumped) after 3.20 s, 2 requests unanswered
    stderr: oh no
22:31:07.123  playwright  teardown  0 left after 12 ms (EOF), the client closed stdin, 3 ended
22:31:07.123  playwright  sweep  1 of link 0000beef ended, whose keeper 42 is dead (found by leaf, tag)
22:31:07.123  playwright  signal  SIGTERM from claude (4000), uid 1000, the client
    file: /usr/bin/node
    command: claude --resume
22:31:07.123  playwright  gone  the client ended: pid 4000, SIGKILL
22:31:07.123  playwright  guard_lost  pid 43, SIGKILL, side guard 48
22:31:07.123  playwright  keeper_lost  pid 44, SIGKILL, 3 of the tree ended, 1 request answered with an error, new keeper 49
22:31:07.123  playwright  client_moved  pid 4000 is gone (exit code 0), node (4001) holds the client's end
22:31:07.123  playwright  junk  3 lines on stdout so far that are no messages, the first: Listening on stdio
22:31:07.123  playwright  stderr_dropped  96 MiB so far, because the client does not read it
22:31:07.123  playwright  opening_silent  no answer to the opening request for 55.00 s; the server is left running
22:31:07.123  playwright  renewal  generation 2 to be replaced: src/server.py has changed, 1 request may still be answered
22:31:07.123  playwright  replayed  generation 3 is ready after 180 ms with log level, 2 subscriptions, 1 request
22:31:07.123  playwright  differs  generation 3: it has lost prompts
22:31:07.123  playwright  abandoned  5 deaths within 1m00s, last: exit code 1, tried again every 1m00s
22:31:07.123  playwright  list_changed  the client was told that its tools have changed
22:31:07.123  playwright  instant  initialize was answered from the record after 300 ms
22:31:07.123  playwright  probes_unanswered  3 questions unanswered; the server does not know them and is not asked any more
22:31:07.123  playwright  call_deadline  tools/call was answered with an error after 1m00s
22:31:07.123  playwright  lease_opened  the lease `job-17` was opened by node (4000): until node (4000) ends, for 10m00s if not renewed
22:31:07.123  playwright  lease_ended  the lease `job-17` was closed by node (pid 4000)
22:31:07.123  playwright  suspects  the server was ended by nobody knows whom; 2 processes were there that could have done it
    claude (4000), the client: claude
    bash (4100), its command line speaks of ending processes: bash mcp-cleanup.sh
22:31:07.123  playwright  pipe_end  the client closed its end of stdin
22:31:07.123  playwright  recording_hurt  /home/ann/frames.jsonl is not whole: No space left on device, 12 frames lost so far
22:31:07.123  playwright  signal_traced  SIGKILL from pkill (5000) to the server (4711), delivered
    command: pkill -9 node
22:31:07.123  playwright  serve_started  listens on 127.0.0.1:8808 for files, time
22:31:07.123  playwright  serve_stopped  by SIGTERM, after 12 sessions: 0 left
22:31:07.123  playwright  session_began  session 7
22:31:07.123  playwright  session_over  session 7 after 30m00s and 31 requests: nobody used it for its whole time
22:31:07.123  playwright  session_opened  at https://mcp.example/mcp, and written down as a debt
22:31:07.123  playwright  session_closed  at https://mcp.example/mcp, by our DELETE (HTTP 200)
22:31:07.123  playwright  debt_paid  the session at https://mcp.example/mcp, open since 2026-11-15T12:00:00.000Z, was closed (HTTP 404, 2 attempts)
22:31:07.123  playwright  debt_given_up  the session at https://mcp.example/mcp, open since 2026-11-14T12:00:00.000Z, was never closed (9 attempts): mcp.example: connection refused
22:31:07.123  playwright  lingering  the shim got SIGTERM while the client lives: kept for 1m00s, 1 request unanswered
22:31:07.123  playwright  reattached  the client came back after 4.10 s, 1 answer dropped meanwhile
22:31:07.123  playwright  linger_ended  nobody came back after 1m00s
"
    );
}

#[test]
fn leftovers_are_named() {
    let teardown = What::Teardown(Teardown {
        cause: mainstay_core::event::Cause::Asked,
        rungs: Vec::new(),
        ms: 9_000,
        ended: 1,
        left: vec![samples::seen(77, "stuck\nname")],
    });
    assert_eq!(
        lines(teardown),
        "22:31:07.123  playwright  teardown  1 left after 9.00 s, mainstay stop, 1 ended\n    left: stuck name (77)\n"
    );
}

#[test]
fn a_sender_is_only_named_if_it_is_sure() {
    let signal = |code, sender| {
        lines(What::Signal(Signal {
            number: 34,
            code,
            sender,
            gone: sender == 9,
            ..Signal::default()
        }))
    };
    for (code, sender, text) in [
        (128, 0, "signal 34 from the terminal or the kernel"),
        (-1, 1, "signal 34, sender unsure: it claims to be pid 1"),
        (0, 0, "signal 34 from outside this container"),
        (
            0,
            9,
            "signal 34 from pid 9, uid 0, which had ended already\n",
        ),
        (-6, 8, "signal 34 from pid 8, uid 0\n"),
    ] {
        assert!(signal(code, sender).contains(text), "{text}");
    }
}

#[test]
fn what_was_seen_of_a_sender_is_below_it() {
    let told = lines(What::Signal(Signal {
        number: 15,
        sender: 9,
        to: Part::Keeper,
        comm: Some("kill".into()),
        exe: Some("/usr/bin/kill".into()),
        cmdline: vec!["kill".into(), "7".into()],
        ancestry: vec![samples::seen(8, "sh"), samples::seen(7, "claude")],
        relation: Some(mainstay_core::event::Relation::BelowClient),
        ..Signal::default()
    }));
    assert_eq!(
        told,
        "\
22:31:07.123  playwright  signal  SIGTERM to the keeper from pid 9 (seen as kill), uid 0, a descendant of the client
    file: /usr/bin/kill
    command: kill 7
    started by: sh (8), by claude (7)
"
    );
    let ignored = lines(What::Signal(Signal {
        number: 15,
        sender: 9,
        gone: true,
        ignored: Some(2),
        ..Signal::default()
    }));
    assert_eq!(
        ignored,
        "22:31:07.123  playwright  signal  SIGTERM from pid 9, uid 0, which had ended already; ignored, because the client did not ask (2 so far)\n"
    );
}
