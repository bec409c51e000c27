//! An event as people read it: one line, and details below it only where they help.

use mainstay_core::event::{
    Detached, Event, Exit, Junk, Lost, Origin, Part, Renewing, Replayed, Seen, ServeStopped,
    Signal, Start, StartFailed, Status, Sweep, Teardown, What, signal_word,
};

use super::measure::{fine, memory, one_line};
use super::paint::Tone;

/// Lines of stderr that are shown below an exit.
const STDERR_LINES: usize = 5;
/// The longest detail.
const DETAIL_CHARS: usize = 200;

/// What is shown of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// `22:31:07.123`.
    pub clock: String,
    /// `2026-11-15`.
    pub date: String,
    /// The server's name.
    pub server: String,
    /// The kind in one word.
    pub word: &'static str,
    /// Whether it is good or bad news.
    pub tone: Tone,
    /// The rest of the line.
    pub text: String,
    /// Lines below it.
    pub details: Vec<String>,
}

impl Happening {
    /// Puts an event into words.
    pub fn of(event: &Event) -> Self {
        let (date, clock) = event.at.split_once('T').unwrap_or(("", &event.at));
        let (tone, text, details) = told(&event.what);
        Self {
            clock: one_line(clock.trim_end_matches('Z'), 20),
            date: one_line(date, 20),
            server: one_line(&event.server, 64),
            word: event.what.word(),
            tone,
            text,
            details,
        }
    }

    /// The lines, each with its end.
    pub fn render(&self, colour: bool) -> String {
        let mut out = format!(
            "{}  {}  {}  {}\n",
            Tone::Faint.paint(&self.clock, colour),
            Tone::Strong.paint(&self.server, colour),
            self.tone.paint(self.word, colour),
            self.text
        );
        for detail in &self.details {
            out.push_str("    ");
            out.push_str(&Tone::Faint.paint(detail, colour));
            out.push('\n');
        }
        out
    }
}

type Told = (Tone, String, Vec<String>);

fn told(what: &What) -> Told {
    match what {
        What::Start(start) => told_start(start),
        What::StartFailed(failed) => told_start_failed(failed),
        What::Exit(exit) => told_exit(exit),
        What::Teardown(teardown) => told_teardown(teardown),
        What::Sweep(sweep) => told_sweep(sweep),
        What::Signal(signal) => told_signal(signal),
        What::Gone(gone) => {
            let status = gone
                .status
                .map_or_else(|| "how is not known".into(), |status| status.to_string());
            let text = format!("the {} ended: pid {}, {status}", gone.part, gone.who);
            (Tone::Warn, text, Vec::new())
        }
        What::GuardLost(lost) => (Tone::Bad, told_lost(lost, "side guard"), Vec::new()),
        What::KeeperLost(lost) => (Tone::Bad, told_lost(lost, "new keeper"), Vec::new()),
        What::ClientMoved(moved) => (
            Tone::Plain,
            format!(
                "pid {} is gone{}, {} holds the client's end",
                moved.from,
                in_brackets(moved.status),
                seen(&moved.to)
            ),
            Vec::new(),
        ),
        What::Junk(junk) => (Tone::Warn, told_junk(junk), Vec::new()),
        What::StderrDropped(dropped) => (
            Tone::Warn,
            format!(
                "{} so far, because the client does not read it",
                memory_bytes(dropped.bytes)
            ),
            Vec::new(),
        ),
        What::OpeningSilent(silent) => (
            Tone::Warn,
            format!(
                "no answer to the opening request for {}; the server is left running",
                fine(silent.ms)
            ),
            Vec::new(),
        ),
        What::Renewal(_)
        | What::Replayed(_)
        | What::Differs(_)
        | What::Abandoned(_)
        | What::ListChanged(_)
        | What::Instant(_)
        | What::ProbesUnanswered(_)
        | What::CallDeadline(_) => told_of_life(what),
        What::ServeStarted(started) => {
            let servers = started.servers.join(", ");
            let text = format!("listens on {} for {servers}", started.listen);
            (Tone::Good, text, Vec::new())
        }
        What::ServeStopped(stopped) => told_stopped(stopped),
        What::SessionBegan(opened) => {
            let text = format!("session {}", opened.session);
            (Tone::Plain, text, Vec::new())
        }
        What::SessionOver(over) => {
            let requests = u32::try_from(over.requests).unwrap_or(u32::MAX);
            let text = format!(
                "session {} after {} and {}: {}",
                over.session,
                fine(over.ms),
                count(requests, "request"),
                over.why
            );
            (Tone::Plain, text, Vec::new())
        }
        What::SessionOpened(_)
        | What::SessionClosed(_)
        | What::DebtPaid(_)
        | What::DebtGivenUp(_) => told_of_sessions(what),
    }
}

fn told_stopped(stopped: &ServeStopped) -> Told {
    let signal = signal_word(stopped.number).unwrap_or("a signal");
    let sessions = u32::try_from(stopped.sessions).unwrap_or(u32::MAX);
    let sessions = count(sessions, "session");
    let (tone, left) = match stopped.left {
        0 => (Tone::Plain, "0 left".into()),
        left => {
            let left = count(left, "server");
            (Tone::Bad, format!("{left} had not ended in time"))
        }
    };
    let text = format!("by {signal}, after {sessions}: {left}");
    (tone, text, Vec::new())
}

/// What happens between one generation and the next.
fn told_of_life(what: &What) -> Told {
    let (tone, text) = match what {
        What::Renewal(renewal) => {
            let rest = if let Renewing::Idle { .. } = renewal.why {
                "put to rest"
            } else {
                "to be replaced"
            };
            let unanswered = match renewal.in_flight {
                0 => String::new(),
                number => format!(", {} may still be answered", count(number, "request")),
            };
            let (generation, why) = (renewal.generation, &renewal.why);
            let text = format!("generation {generation} {rest}: {why}{unanswered}");
            (Tone::Plain, text)
        }
        What::Replayed(replayed) => (Tone::Good, told_replayed(replayed)),
        What::Differs(differs) => (
            Tone::Warn,
            format!("generation {}: {}", differs.generation, differs.what),
        ),
        What::Abandoned(abandoned) => {
            let again = match abandoned.probe_ms {
                0 => String::new(),
                ms => format!(", tried again every {}", fine(ms)),
            };
            let deaths = count(abandoned.deaths, "death");
            let window = fine(abandoned.window_ms);
            let last = one_line(&abandoned.last, DETAIL_CHARS);
            let text = match &abandoned.changed {
                Some(path) => format!(
                    "{} has changed and does not start: {last}; waits for the next change{again}",
                    one_line(path, DETAIL_CHARS)
                ),
                None => format!("{deaths} within {window}, last: {last}{again}"),
            };
            (Tone::Bad, text)
        }
        What::ListChanged(changed) => (
            Tone::Plain,
            format!(
                "the client was told that its {} have changed",
                changed.lists.join(", ")
            ),
        ),
        What::Instant(instant) => (
            Tone::Plain,
            format!(
                "{} was answered from the record after {}",
                instant.method,
                fine(instant.ms)
            ),
        ),
        What::ProbesUnanswered(probes) => (
            Tone::Warn,
            format!(
                "{} unanswered; the server does not know them and is not asked any more",
                count(probes.lost, "question")
            ),
        ),
        What::CallDeadline(deadline) => (
            Tone::Warn,
            format!(
                "{} was answered with an error after {}",
                deadline.request,
                fine(deadline.ms)
            ),
        ),
        What::Start(_)
        | What::StartFailed(_)
        | What::Exit(_)
        | What::Teardown(_)
        | What::Sweep(_)
        | What::Signal(_)
        | What::Gone(_)
        | What::GuardLost(_)
        | What::KeeperLost(_)
        | What::ClientMoved(_)
        | What::Junk(_)
        | What::StderrDropped(_)
        | What::OpeningSilent(_)
        | What::ServeStarted(_)
        | What::ServeStopped(_)
        | What::SessionBegan(_)
        | What::SessionOver(_)
        | What::SessionOpened(_)
        | What::SessionClosed(_)
        | What::DebtPaid(_)
        | What::DebtGivenUp(_) => (Tone::Plain, String::new()),
    };
    (tone, text, Vec::new())
}

/// What happens to HTTP sessions.
fn told_of_sessions(what: &What) -> Told {
    let (tone, text) = if let What::SessionOpened(opened) = what {
        let url = one_line(&opened.url, DETAIL_CHARS);
        (Tone::Plain, format!("at {url}, and written down as a debt"))
    } else if let What::SessionClosed(closed) = what {
        let url = one_line(&closed.url, DETAIL_CHARS);
        let by = match closed.status {
            Some(status) => format!("by our DELETE (HTTP {status})"),
            None => "by the server itself".into(),
        };
        (Tone::Good, format!("at {url}, {by}"))
    } else if let What::DebtPaid(paid) = what {
        let url = one_line(&paid.url, DETAIL_CHARS);
        let tries = count(paid.attempts, "attempt");
        let (since, status) = (&paid.since, paid.status);
        (
            Tone::Good,
            format!(
                "the session at {url}, open since {since}, was closed (HTTP {status}, {tries})"
            ),
        )
    } else if let What::DebtGivenUp(given_up) = what {
        let url = one_line(&given_up.url, DETAIL_CHARS);
        let tries = count(given_up.attempts, "attempt");
        let why = one_line(&given_up.why, DETAIL_CHARS);
        let since = &given_up.since;
        (
            Tone::Bad,
            format!("the session at {url}, open since {since}, was never closed ({tries}): {why}"),
        )
    } else {
        (Tone::Plain, String::new())
    };
    (tone, text, Vec::new())
}

fn told_replayed(replayed: &Replayed) -> String {
    let mut parts = Vec::new();
    if replayed.level {
        parts.push("log level".to_string());
    }
    for (number, noun) in [
        (replayed.subscriptions, "subscription"),
        (replayed.listens, "listening request"),
        (replayed.resent, "request"),
    ] {
        if number > 0 {
            parts.push(count(number, noun));
        }
    }
    let what = if parts.is_empty() {
        String::new()
    } else {
        format!(" with {}", parts.join(", "))
    };
    let ms = fine(replayed.ms);
    format!(
        "generation {} is ready after {ms}{what}",
        replayed.generation
    )
}

fn told_start(start: &Start) -> Told {
    let mut text = format!(
        "pid {}, generation {}, tier {}",
        start.pid, start.generation, start.tier
    );
    if let Some(client) = &start.client {
        text.push_str(", for ");
        text.push_str(&seen(client));
    }
    let details = match &start.detached {
        Detached::Yes => Vec::new(),
        Detached::No { why } => vec![detail("not detached from the client", why)],
    };
    (Tone::Good, text, details)
}

fn told_start_failed(failed: &StartFailed) -> Told {
    let mut details = vec![detail("command", &failed.argv.join(" "))];
    if !failed.hint.is_empty() {
        details.push(detail("hint", &failed.hint));
    }
    (Tone::Bad, one_line(&failed.problem, DETAIL_CHARS), details)
}

fn told_exit(exit: &Exit) -> Told {
    let unanswered = match exit.in_flight {
        0 => String::new(),
        number => format!(", {} unanswered", count(number, "request")),
    };
    let text = format!(
        "pid {}, {} after {}{unanswered}",
        exit.pid,
        exit.status,
        fine(exit.uptime_ms)
    );
    if exit.status.success() {
        return (Tone::Plain, text, Vec::new());
    }
    let memory = exit.out_of_memory.iter();
    let memory = memory.map(|whose| detail("cause", &whose.to_string()));
    let skip = exit.stderr_tail.len().saturating_sub(STDERR_LINES);
    let details = exit
        .stderr_tail
        .iter()
        .skip(skip)
        .map(|line| detail("stderr", line));
    let details = memory.chain(details).collect();
    (Tone::Bad, text, details)
}

fn told_teardown(teardown: &Teardown) -> Told {
    let rungs: Vec<String> = teardown.rungs.iter().map(ToString::to_string).collect();
    let rungs = if rungs.is_empty() {
        String::new()
    } else {
        format!(" ({})", rungs.join(", "))
    };
    let text = format!(
        "{} left after {}{rungs}, {}, {} ended",
        teardown.left.len(),
        fine(teardown.ms),
        teardown.cause,
        teardown.ended
    );
    let tone = if teardown.left.is_empty() {
        Tone::Plain
    } else {
        Tone::Bad
    };
    (tone, text, left(&teardown.left))
}

fn told_sweep(sweep: &Sweep) -> Told {
    let text = format!(
        "{} of link {} ended, whose keeper {} is dead (found by {})",
        sweep.ended.len(),
        sweep.of,
        sweep.owner,
        one_line(&sweep.by.join(", "), 40)
    );
    let tone = if sweep.left.is_empty() {
        Tone::Warn
    } else {
        Tone::Bad
    };
    (tone, text, left(&sweep.left))
}

/// Who sent it, by the table in which the kernel tells it; below it, what was seen of the sender.
fn told_signal(signal: &Signal) -> Told {
    let word = match signal_word(signal.number) {
        Some(word) => word.into(),
        None => format!("signal {}", signal.number),
    };
    let to = match signal.to {
        Part::Shim => String::new(),
        Part::Keeper | Part::Client => format!(" to the {}", signal.to),
    };
    let from = match signal.origin() {
        Origin::Kernel => " from the terminal or the kernel".into(),
        Origin::Claim => format!(", sender unsure: it claims to be {}", sender(signal)),
        Origin::Outside => " from outside this container".into(),
        Origin::Kill | Origin::Thread => format!(" from {}, uid {}", sender(signal), signal.uid),
    };
    let relation = signal
        .relation
        .map_or_else(String::new, |relation| format!(", {relation}"));
    let gone = if signal.gone {
        ", which had ended already"
    } else {
        ""
    };
    let text = format!("{word}{to}{from}{relation}{gone}");
    let mut details = Vec::new();
    if let Some(exe) = &signal.exe {
        details.push(detail("file", exe));
    }
    if !signal.cmdline.is_empty() {
        details.push(detail("command", &signal.cmdline.join(" ")));
    }
    if !signal.ancestry.is_empty() {
        let names: Vec<String> = signal.ancestry.iter().map(seen).collect();
        details.push(detail("started by", &names.join(", by ")));
    }
    (Tone::Warn, text, details)
}

/// `claude (4711)`, or the pid alone.
pub fn sender(signal: &Signal) -> String {
    match &signal.comm {
        Some(comm) => format!("{} ({})", one_line(comm, 40), signal.sender),
        None => format!("pid {}", signal.sender),
    }
}

fn told_lost(lost: &Lost, successor: &str) -> String {
    let mut parts = vec![format!("pid {}", lost.pid)];
    if let Some(status) = &lost.status {
        parts.push(status.to_string());
    }
    if lost.ended > 0 {
        parts.push(format!("{} of the tree ended", lost.ended));
    }
    if lost.settled > 0 {
        parts.push(format!(
            "{} answered with an error",
            count(lost.settled, "request")
        ));
    }
    parts.push(match lost.successor {
        Some(pid) => format!("{successor} {pid}"),
        None => format!("no {successor}"),
    });
    parts.join(", ")
}

fn in_brackets(status: Option<Status>) -> String {
    status.map_or_else(String::new, |status| format!(" ({status})"))
}

fn told_junk(junk: &Junk) -> String {
    format!(
        "{} on stdout so far that are no messages, the first: {}",
        match junk.lines {
            1 => "1 line".into(),
            lines => format!("{lines} lines"),
        },
        one_line(&junk.sample, 60)
    )
}

fn left(left: &[Seen]) -> Vec<String> {
    left.iter()
        .map(|process| detail("left", &seen(process)))
        .collect()
}

/// `claude (4711)`.
pub fn seen(process: &Seen) -> String {
    format!("{} ({})", one_line(&process.comm, 40), process.who)
}

fn detail(name: &str, text: &str) -> String {
    format!("{name}: {}", one_line(text, DETAIL_CHARS))
}

/// `1 request`, `2 requests`.
pub fn count(number: u32, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

fn memory_bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024.. => memory(bytes / 1024),
    }
}

#[cfg(test)]
mod tests {
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
22:31:07.123  playwright  serve_started  listens on 127.0.0.1:8808 for files, time
22:31:07.123  playwright  serve_stopped  by SIGTERM, after 12 sessions: 0 left
22:31:07.123  playwright  session_began  session 7
22:31:07.123  playwright  session_over  session 7 after 30m00s and 31 requests: nobody used it for its whole time
22:31:07.123  playwright  session_opened  at https://mcp.example/mcp, and written down as a debt
22:31:07.123  playwright  session_closed  at https://mcp.example/mcp, by our DELETE (HTTP 200)
22:31:07.123  playwright  debt_paid  the session at https://mcp.example/mcp, open since 2026-11-15T12:00:00.000Z, was closed (HTTP 404, 2 attempts)
22:31:07.123  playwright  debt_given_up  the session at https://mcp.example/mcp, open since 2026-11-14T12:00:00.000Z, was never closed (9 attempts): mcp.example: connection refused
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
22:31:07.123  playwright  signal  SIGTERM to the keeper from kill (9), uid 0, a descendant of the client
    file: /usr/bin/kill
    command: kill 7
    started by: sh (8), by claude (7)
"
        );
    }
}
