//! guards: Every kind of event has its sentence, which names a sender only if it is certain.

use mainstay_protocol::event::{Part, Signal, Teardown};

use super::*;
use crate::{samples, snapshot};
use mainstay_protocol::time;

fn lines(what: What) -> String {
    rows(vec![what], 1_000, true)
}

fn rows(whats: Vec<What>, columns: usize, verbose: bool) -> String {
    let happenings: Vec<Happening> = whats
        .into_iter()
        .map(|what| Happening::of(&samples::event(what), time::utc))
        .collect();
    let mut layout = Layout {
        columns,
        verbose,
        ..Layout::default()
    };
    for happening in &happenings {
        layout.make_room(happening);
    }
    happenings.iter().map(|it| it.render(&layout)).collect()
}

#[test]
fn every_kind_has_its_sentence_and_fits_the_width() {
    for columns in [80, 120] {
        let shown = rows(samples::all(), columns, false);
        snapshot::check(&format!("events-{columns}"), &shown);
    }
    snapshot::check("events-verbose", &rows(samples::all(), 1_000, true));
    for columns in 60..200 {
        let shown = rows(samples::all(), columns, columns % 2 == 0);
        for line in shown.lines() {
            assert!(width(line) <= columns, "{columns}: {line}");
        }
    }
}

#[test]
fn times_are_those_of_the_zone() {
    let happening = Happening::of(&samples::event(samples::all().remove(0)), |_| 7_200);
    assert_eq!(happening.date, "2026-11-16 (UTC+02:00)");
    assert_eq!(
        (happening.clock.as_str(), happening.millis.as_str()),
        ("00:31:07", ".123")
    );
}

#[test]
fn leftovers_are_named() {
    let teardown = What::Teardown(Teardown {
        cause: mainstay_protocol::event::Cause::Asked,
        rungs: Vec::new(),
        ms: 9_000,
        ended: 1,
        left: vec![samples::seen(77, "stuck\nname")],
    });
    assert_eq!(
        lines(teardown),
        "22:31:07.123  playwright 3f2a  cleaned up  1 left after 9.00 s, mainstay stop, 1 ended\n          left: stuck name (77)\n"
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
fn facts_about_a_sender_are_below_its_line() {
    let told = lines(What::Signal(Signal {
        number: 15,
        sender: 9,
        to: Part::Keeper,
        comm: Some("kill".into()),
        exe: Some("/usr/bin/kill".into()),
        cmdline: vec!["kill".into(), "7".into()],
        ancestry: vec![samples::seen(8, "sh"), samples::seen(7, "claude")],
        relation: Some(mainstay_protocol::event::Relation::BelowClient),
        ..Signal::default()
    }));
    assert_eq!(
        told,
        "\
22:31:07.123  playwright 3f2a  signal  SIGTERM to the keeper from pid 9 (seen as kill), uid 0, a descendant of the client
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
        "22:31:07.123  playwright 3f2a  signal  SIGTERM from pid 9, uid 0, which had ended already; ignored, because the client did not ask (2 so far)\n"
    );
}
