//! guards: Every verdict has its sentence.

use mainstay_protocol::event::{
    Cause, Exit, Gone, Lost, OutOfMemory, Part, Relation, Seen, Signal, Start, Suspect, Suspicion,
    Teardown, Traced,
};
use mainstay_protocol::ids::Identity;

use super::*;
use crate::{samples, snapshot};

fn exit(change: impl FnOnce(&mut Exit)) -> What {
    let exit = samples::all().into_iter().find_map(|what| {
        if let What::Exit(exit) = what {
            return Some(exit);
        }
        None
    });
    let mut exit = exit.unwrap();
    change(&mut exit);
    What::Exit(exit)
}

fn teardown(cause: Cause) -> What {
    What::Teardown(Teardown {
        cause,
        rungs: Vec::new(),
        // All events of a story have one time here.
        ms: 0,
        ended: 1,
        left: Vec::new(),
    })
}

fn story(whats: Vec<What>, death: usize) -> Story {
    let events: Vec<Event> = whats.into_iter().map(samples::event).collect();
    Story::of(&events, death).unwrap()
}

/// The sentence on a signal to the shim.
fn by_signal(signal: Signal) -> String {
    let number = signal.number;
    let quiet = exit(|exit| exit.in_flight = 0);
    let cause = Cause::ShimSignal { number };
    let told = story(vec![What::Signal(signal), quiet, teardown(cause)], 1).told;
    let (first, _) = told.split_once(" 3.00 s after the handshake.").unwrap();
    first.into()
}

#[test]
fn every_kind_of_sender_has_its_sentence() {
    let signal = Signal {
        number: 15,
        sender: 9,
        uid: 1000,
        ..Signal::default()
    };
    let seen = Signal {
        comm: Some("kill".into()),
        start: Some(1),
        relation: Some(Relation::BelowClient),
        ..signal.clone()
    };
    for (signal, told) in [
        (
            seen.clone(),
            "by pid 9 (SIGTERM, certain; seen a moment later as kill, a descendant of the client)",
        ),
        (
            Signal {
                relation: Some(Relation::Client),
                ..seen.clone()
            },
            "by the client (SIGTERM, certain)",
        ),
        (
            Signal { code: -1, ..seen },
            "by a process that claims to be pid 9, kill (SIGTERM, probable)",
        ),
        (
            Signal {
                gone: true,
                ..signal.clone()
            },
            "by pid 9 of uid 1000, which had ended before it could be seen (SIGTERM, unknown)",
        ),
        (
            Signal {
                code: 128,
                number: 2,
                ..signal.clone()
            },
            "by the terminal (SIGINT, certain)",
        ),
        (
            Signal {
                sender: 0,
                ..signal
            },
            "by a process outside this container (SIGTERM, certain)",
        ),
    ] {
        assert_eq!(by_signal(signal), format!("playwright was ended {told}"));
    }
}

#[test]
fn crashes_memory_and_requests_in_flight() {
    let crash = story(vec![exit(|_| {})], 0);
    assert_eq!(
        crash.told,
        "playwright crashed (SIGSEGV (core dumped), certain) 3.00 s after the handshake. \
         The last answer was 800 ms old; of 2 requests in flight (tools/call) 1 went on to the next generation, the rest got an answer from mainstay."
    );
    let memory = exit(|exit| {
        exit.status = Status::Signal {
            number: 9,
            core: false,
        };
        exit.out_of_memory = Some(OutOfMemory::Machine);
        // An event of an older version.
        exit.standing = None;
        exit.kept = 0;
    });
    assert_eq!(
        story(vec![memory], 0).told,
        "playwright was killed by the kernel because memory had run out (SIGKILL, probable) 3.20 s after its start. \
         Stdin was still open; 2 requests in flight got an answer from mainstay."
    );
}

#[test]
fn a_signal_is_reported_with_the_state_of_the_link() {
    let signal = Signal {
        number: 15,
        sender: 1_480_540,
        comm: Some("claude".into()),
        start: Some(1),
        relation: Some(Relation::Client),
        standing: Some(Box::new(Standing {
            since_handshake_ms: Some(41_200),
            in_flight: 0,
            waiting: Vec::new(),
            ..samples::standing()
        })),
        ..Signal::default()
    };
    let Some(What::Start(start)) = samples::all().into_iter().next() else {
        panic!("the first sample is a start")
    };
    let client = Some(Seen {
        who: Identity {
            pid: 1_480_540,
            start: 1,
        },
        comm: "claude".into(),
    });
    let quiet = exit(|exit| exit.in_flight = 0);
    let cause = Cause::ShimSignal { number: 15 };
    let events = vec![
        What::Start(Start { client, ..start }),
        What::Signal(signal),
        quiet,
        teardown(cause),
    ];
    let told = story(events, 2);
    assert_eq!(
        told.told,
        "playwright was ended by claude (pid 1480540, SIGTERM, certain) 41.20 s after the handshake. \
         Stdin was still open; the last answer was 800 ms old; nothing was in flight."
    );
    let shown = told.full(1_000, time::utc, false);
    let frames = "last frames\n  841 ms before  c→s  request tools/call 7, 120 B\n";
    assert!(shown.contains(frames), "{shown}");
}

#[test]
fn suspects_are_named_where_no_sender_was_seen() {
    let killed = exit(|exit| {
        exit.status = Status::Signal {
            number: 9,
            core: false,
        };
    });
    let suspects = samples::all()
        .into_iter()
        .find(|what| matches!(what, What::Suspects(_)));
    let shown = story(vec![killed, suspects.unwrap()], 0).full(1_000, time::utc, false);
    let expected = "\
  it could be claude (4000), the client: claude
  it could be bash (4100), its command line speaks of ending processes: bash mcp-cleanup.sh
  it could be the server itself, or any other process of this user or of root
  `sudo mainstay trace-signals` shows the sender of each signal, from then on
";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn a_killed_keeper_and_what_followed() {
    let lost = What::KeeperLost(Lost {
        pid: 44,
        status: Some(Status::Signal {
            number: 9,
            core: false,
        }),
        ended: 3,
        settled: 1,
        successor: Some(49),
    });
    let start = samples::all().remove(0);
    let What::Start(start) = start else {
        panic!("the first sample is a start")
    };
    let next = What::Start(Start {
        generation: 2,
        ..start
    });
    let told = story(vec![lost, next], 0);
    assert_eq!(
        told.told,
        "playwright was ended because mainstay's keeper was killed (SIGKILL, sender unknown)."
    );
    assert_eq!(
        told.followed,
        [
            "1 request answered with an error",
            "a new keeper took over (pid 49)",
            "started again as generation 2 (pid 4711) after 0 ms"
        ]
    );
}

#[test]
fn a_traced_signal_has_its_sentence() {
    let killed = exit(|exit| {
        exit.status = Status::Signal {
            number: 9,
            core: false,
        };
        exit.in_flight = 0;
    });
    let obeyed = exit(|exit| {
        exit.status = Status::Code(0);
        exit.in_flight = 0;
    });
    let traced = Traced {
        number: 9,
        pid: 4711,
        sender: 77,
        comm: Some("pkill".into()),
        ..Traced::default()
    };
    for (traced, exit, told) in [
        (
            traced.clone(),
            killed.clone(),
            "killed by pkill (pid 77, SIGKILL, certain)",
        ),
        (
            Traced {
                comm: None,
                ..traced.clone()
            },
            killed.clone(),
            "killed by a process that the kernel has no name for (pid 77, SIGKILL, certain)",
        ),
        (
            Traced {
                code: 128,
                ..traced.clone()
            },
            killed,
            "killed by the kernel itself (SIGKILL, certain)",
        ),
        (
            Traced {
                number: 15,
                ..traced
            },
            obeyed,
            "ended by pkill (pid 77, SIGTERM, probable)",
        ),
    ] {
        let story = story(vec![What::SignalTraced(traced), exit], 1);
        assert_eq!(
            story.told,
            format!(
                "playwright was {told} 3.00 s after the handshake. Stdin was still open; the last answer was 800 ms old; nothing was in flight."
            )
        );
        assert_eq!(story.evidence.len(), 2);
    }
}

/// Deaths of several kinds, each with its suspects and with what followed.
fn stories() -> Vec<Story> {
    let all = samples::all;
    let start = |generation| {
        let Some(What::Start(start)) = all().into_iter().next() else {
            panic!("the first sample is a start")
        };
        What::Start(Start {
            generation,
            ..start
        })
    };
    let ready = all()
        .into_iter()
        .find(|what| matches!(what, What::Ready(_)))
        .unwrap();
    let suspects = all()
        .into_iter()
        .find(|what| matches!(what, What::Suspects(_)));
    let killed = exit(|exit| {
        exit.status = Status::Signal {
            number: 9,
            core: false,
        };
        exit.in_flight = 0;
        exit.stderr_tail = vec!["Starting default (STDIO) server...".into()];
    });
    let crashed = exit(|exit| {
        exit.status = Status::Code(1);
        exit.stderr_tail = vec![
            "Traceback (most recent call last):".into(),
            "  File \"/srv/mcp/server.py\", line 12, in <module>".into(),
            "ModuleNotFoundError: No module named 'a_module_with_quite_a_long_name_that_does_not_fit'".into(),
        ];
    });
    let failed = all()
        .into_iter()
        .find(|what| matches!(what, What::StartFailed(_)))
        .unwrap();
    let asked = exit(|exit| exit.in_flight = 0);
    let signal = What::Signal(Signal {
        number: 15,
        sender: 4000,
        relation: Some(Relation::Client),
        ..Signal::default()
    });
    let client_killed = What::Gone(Gone {
        part: Part::Client,
        who: samples::seen(4000, "claude").who,
        status: Some(Status::Signal {
            number: 9,
            core: false,
        }),
        standing: None,
    });
    let sample = |name: &str| all().into_iter().find(|what| what.name() == name).unwrap();
    let (kept, back) = (sample("lingering"), sample("reattached"));
    vec![
        story(vec![start(1), signal, kept, back], 2),
        story(
            vec![start(1), killed, suspects.unwrap(), start(2), ready.clone()],
            1,
        ),
        story(vec![start(1), crashed, start(2), ready], 1),
        story(vec![failed], 0),
        story(vec![start(1), asked.clone(), teardown(Cause::Asked)], 1),
        story(
            vec![start(1), client_killed, asked, teardown(Cause::ClientGone)],
            2,
        ),
    ]
}

#[test]
fn a_story_is_told_in_ten_lines() {
    for columns in [80, 120] {
        let told: Vec<String> = stories()
            .iter()
            .map(|story| story.brief(columns, time::utc, false))
            .collect();
        assert!(
            told.iter().all(|told| told.lines().count() <= 10),
            "{told:?}"
        );
        snapshot::check(&format!("why-{columns}"), &told.join("\n"));
        let full: Vec<String> = stories()
            .iter()
            .map(|story| story.full(columns, time::utc, false))
            .collect();
        snapshot::check(&format!("why-full-{columns}"), &full.join("\n"));
    }
    for columns in 60..200 {
        for story in stories() {
            let told =
                story.brief(columns, time::utc, false) + &story.full(columns, time::utc, false);
            for line in told.lines() {
                assert!(width(line) <= columns, "{columns}: {line}");
            }
        }
    }
}

#[test]
fn a_command_line_alone_is_a_weak_suspicion() {
    let named = |comm: &str, why| Suspect {
        seen: samples::seen(7, comm),
        cmdline: Vec::new(),
        why,
    };
    let mut story = stories().remove(1);
    story.verdict.suspects = vec![
        named("claude", Suspicion::Client),
        named("pkill", Suspicion::Name),
        named("timeout", Suspicion::Name),
        named("mcp-sweep", Suspicion::Mainstay),
        named("sh", Suspicion::BelowClient),
        named("node", Suspicion::BelowClient),
    ];
    let told = story.brief(200, time::utc, false);
    let row = "  suspects    claude 7 (the client); pkill 7 (its command line speaks of ending processes); sh 7 (started by the client shortly before); 3 weaker ones with --full\n";
    assert!(told.contains(row), "{told}");
}
