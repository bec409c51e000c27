//! An event as people read it: one line, and details below it only where they help.

use mainstay_core::event::{Event, Seen, What};

use super::measure::{count, fine, memory, one_line};
use super::paint::Tone;

mod life;
mod session;
mod signal;
pub use signal::suspect;

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

/// Good or bad news, the line, and what is below it.
type Told = (Tone, String, Vec<String>);

fn told(what: &What) -> Told {
    let (tone, text) = match what {
        What::Start(start) => return life::start(start),
        What::StartFailed(failed) => return life::start_failed(failed),
        What::Exit(exit) => return life::exit(exit),
        What::Teardown(teardown) => return life::teardown(teardown),
        What::Sweep(sweep) => return life::sweep(sweep),
        What::Signal(signal) => return signal::signal(signal),
        What::SignalTraced(traced) => return signal::traced(traced),
        What::Suspects(suspects) => return signal::suspects(suspects),
        What::Gone(gone) => {
            let status = gone
                .status
                .map_or_else(|| "how is not known".into(), |status| status.to_string());
            let text = format!("the {} ended: pid {}, {status}", gone.part, gone.who);
            (Tone::Warn, text)
        }
        What::GuardLost(lost) => (Tone::Bad, life::lost(lost, "side guard")),
        What::KeeperLost(lost) => (Tone::Bad, life::lost(lost, "new keeper")),
        What::ClientMoved(moved) => {
            let status = moved
                .status
                .map_or_else(String::new, |status| format!(" ({status})"));
            let (from, to) = (moved.from, seen(&moved.to));
            let text = format!("pid {from} is gone{status}, {to} holds the client's end");
            (Tone::Plain, text)
        }
        What::Junk(junk) => {
            let (lines, first) = (count(junk.lines, "line"), one_line(&junk.sample, 60));
            let text = format!("{lines} on stdout so far that are no messages, the first: {first}");
            (Tone::Warn, text)
        }
        What::StderrDropped(dropped) => {
            let bytes = match dropped.bytes {
                bytes @ 0..1024 => format!("{bytes} bytes"),
                bytes => memory(bytes / 1024),
            };
            let text = format!("{bytes} so far, because the client does not read it");
            (Tone::Warn, text)
        }
        What::OpeningSilent(silent) => {
            let ms = fine(silent.ms);
            let text =
                format!("no answer to the opening request for {ms}; the server is left running");
            (Tone::Warn, text)
        }
        What::Renewal(renewal) => (Tone::Plain, life::renewal(renewal)),
        What::Replayed(replayed) => (Tone::Good, life::replayed(replayed)),
        What::Differs(differs) => {
            let text = format!("generation {}: {}", differs.generation, differs.what);
            (Tone::Warn, text)
        }
        What::Abandoned(abandoned) => (Tone::Bad, life::abandoned(abandoned)),
        What::ListChanged(changed) => {
            let lists = changed.lists.join(", ");
            let text = format!("the client was told that its {lists} have changed");
            (Tone::Plain, text)
        }
        What::Instant(instant) => {
            let (method, ms) = (&instant.method, fine(instant.ms));
            let text = format!("{method} was answered from the record after {ms}");
            (Tone::Plain, text)
        }
        What::ProbesUnanswered(probes) => {
            let lost = count(probes.lost, "question");
            let text = format!(
                "{lost} unanswered; the server does not know them and is not asked any more"
            );
            (Tone::Warn, text)
        }
        What::CallDeadline(deadline) => {
            let (request, ms) = (&deadline.request, fine(deadline.ms));
            let text = format!("{request} was answered with an error after {ms}");
            (Tone::Warn, text)
        }
        What::LeaseOpened(opened) => (Tone::Plain, session::lease(opened)),
        What::LeaseEnded(ended) => (Tone::Plain, one_line(&ended.to_string(), DETAIL_CHARS)),
        What::PipeEnd(end) => (Tone::Plain, end.pipe.to_string()),
        What::RecordingHurt(hurt) => {
            let path = one_line(&hurt.path, DETAIL_CHARS);
            let why = one_line(&hurt.why, DETAIL_CHARS);
            let lost = count(hurt.lost, "frame");
            (
                Tone::Warn,
                format!("{path} is not whole: {why}, {lost} lost so far"),
            )
        }
        What::ServeStarted(started) => {
            let servers = started.servers.join(", ");
            let text = format!("listens on {} for {servers}", started.listen);
            (Tone::Good, text)
        }
        What::ServeStopped(stopped) => session::stopped(stopped),
        What::SessionBegan(began) => (Tone::Plain, format!("session {}", began.session)),
        What::SessionOver(over) => (Tone::Plain, session::over(over)),
        What::SessionOpened(opened) => {
            let url = one_line(&opened.url, DETAIL_CHARS);
            (Tone::Plain, format!("at {url}, and written down as a debt"))
        }
        What::SessionClosed(closed) => (Tone::Good, session::closed(closed)),
        What::DebtPaid(paid) => (Tone::Good, session::paid(paid)),
        What::DebtGivenUp(given_up) => (Tone::Bad, session::given_up(given_up)),
        What::Lingering(lingering) => {
            let unanswered = unanswered(lingering.in_flight);
            let (cause, ms) = (&lingering.cause, fine(lingering.ms));
            let text = format!("{cause} while the client lives: kept for {ms}{unanswered}");
            (Tone::Warn, text)
        }
        What::Reattached(back) => {
            let (after, dropped) = (fine(back.after_ms), dropped(back.dropped));
            let fresh = match &back.replaced {
                Some(why) => format!("; it gets a fresh server: {why}"),
                None => String::new(),
            };
            (
                Tone::Good,
                format!("the client came back after {after}{dropped}{fresh}"),
            )
        }
        What::LingerEnded(ended) => {
            let (after, dropped) = (fine(ended.after_ms), dropped(ended.dropped));
            (Tone::Plain, format!("{} after {after}{dropped}", ended.why))
        }
    };
    (tone, text, Vec::new())
}

fn unanswered(requests: u32) -> String {
    match requests {
        0 => String::new(),
        number => format!(", {} unanswered", count(number, "request")),
    }
}

fn dropped(answers: u32) -> String {
    match answers {
        0 => String::new(),
        number => format!(", {} dropped meanwhile", count(number, "answer")),
    }
}

/// `claude (4711)`, `container 4f5e6d7c8b9a`.
pub fn seen(process: &Seen) -> String {
    let name = one_line(&process.comm, 40);
    if process.is_container() {
        return name;
    }
    format!("{name} ({})", process.who)
}

fn detail(name: &str, text: &str) -> String {
    format!("{name}: {}", one_line(text, DETAIL_CHARS))
}

#[cfg(test)]
mod tests;
