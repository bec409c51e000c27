//! An event as people read it: one line in aligned columns, and details below it only where they help.

use mainstay_protocol::event::{Event, Seen, What};
use mainstay_protocol::time::{Zone, ZonedTime};

use crate::measure::{count, fine, memory};
use crate::paint::Tone;
use crate::safe::one_line;
use crate::wrap::{width, wrap};

mod life;
mod session;
mod signal;
mod words;
pub use signal::{suspect, suspect_briefly};

/// The longest detail.
const DETAIL_CHARS: usize = 200;
/// Details begin in this column, below the server's name.
const DETAIL_COLUMN: usize = 10;
/// A text with less room than this goes on in the column of the details.
const TEXT_COLUMNS: usize = 24;

/// What is shown of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// `22:31:07`.
    pub clock: String,
    /// The milliseconds, `.123`.
    pub millis: String,
    /// `2026-11-15 (UTC+01:00)`.
    pub date: String,
    /// The server's name.
    pub server: String,
    /// The first digits of the link's id.
    pub id: String,
    /// The kind of event, in the words of users.
    pub word: &'static str,
    /// Whether it is good or bad news.
    pub tone: Tone,
    /// The rest of the line.
    pub text: String,
    /// Lines below it.
    pub details: Vec<String>,
    /// Lines below those, about the machine and not about the server.
    pub machine: Vec<String>,
}

/// How wide the columns are, and what is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// How wide a line may be.
    pub columns: usize,
    /// The width of the column of names; grows with the names that it has [room for](Self::make_room).
    pub server: usize,
    /// The same for the kinds of events.
    pub word: usize,
    /// Milliseconds, facts about the machine and minor events are shown too.
    pub verbose: bool,
    /// Colours are used.
    pub colour: bool,
}

impl Layout {
    /// Makes room for another row. A name takes a quarter of the line at most.
    pub fn make_room(&mut self, happening: &Happening) {
        let most = (self.columns / 4).max(12);
        self.server = self.server.max(width(&happening.server).min(most));
        self.word = self.word.max(width(happening.word));
    }
}

impl Happening {
    /// Writes the sentence for an event, with its time in this zone.
    pub fn of(event: &Event, zone: Zone) -> Self {
        let at = ZonedTime::of_text(&event.at, zone);
        let (tone, text, details) = told(&event.what);
        let machine = if let What::Start(start) = &event.what {
            life::machine(start)
        } else {
            Vec::new()
        };
        Self {
            clock: at.map_or_else(|| "--:--:--".into(), |at| at.clock()),
            millis: at.map_or_else(String::new, |at| at.clock_ms()[8..].into()),
            date: at.map_or_else(String::new, |at| format!("{} ({})", at.date(), at.zone())),
            server: one_line(&event.server, 64),
            id: event.id.short(),
            word: words::of(&event.what),
            tone,
            text,
            details,
            machine,
        }
    }

    /// The lines, each with its end.
    pub fn render(&self, layout: &Layout) -> String {
        let Layout {
            server,
            word,
            verbose,
            colour,
            ..
        } = *layout;
        let millis = if verbose { self.millis.as_str() } else { "" };
        let name = one_line(&self.server, server);
        let pad = |text: &str, wide: usize| " ".repeat(wide.saturating_sub(width(text)));
        let mut lead = format!(
            "{}  {}{} {}  {}{}  ",
            Tone::Faint.paint(&format!("{}{millis}", self.clock), colour),
            Tone::Strong.paint(&name, colour),
            pad(&name, server),
            Tone::Faint.paint(&self.id, colour),
            self.tone.paint(self.word, colour),
            pad(self.word, word),
        );
        let used = self.clock.len() + millis.len() + 2 + server + 1 + 4 + 2 + word + 2;
        let mut out = String::new();
        let room = layout.columns.saturating_sub(used);
        if room >= TEXT_COLUMNS {
            for (at, line) in wrap(&self.text, room).iter().enumerate() {
                if at > 0 {
                    lead = " ".repeat(used);
                }
                out += format!("{lead}{line}").trim_end();
                out.push('\n');
            }
        } else {
            out += lead.trim_end();
            out.push('\n');
            out += &below(&self.text, layout.columns, Tone::Plain, colour);
        }
        let machine = self.machine.iter().filter(|_| verbose);
        for detail in self.details.iter().chain(machine) {
            out += &below(detail, layout.columns, Tone::Faint, colour);
        }
        out
    }
}

/// A text below a row.
fn below(text: &str, columns: usize, tone: Tone, colour: bool) -> String {
    let room = columns.saturating_sub(DETAIL_COLUMN).max(TEXT_COLUMNS);
    let mut out = String::new();
    for line in wrap(text, room) {
        out.push_str(&" ".repeat(DETAIL_COLUMN));
        out.push_str(&tone.paint(&line, colour));
        out.push('\n');
    }
    out
}

/// Good or bad news, the line, and what is below it.
type Told = (Tone, String, Vec<String>);

fn told(what: &What) -> Told {
    let (tone, text) = match what {
        What::Start(start) => return life::start(start),
        What::StartFailed(failed) => return life::start_failed(failed),
        What::ConfigMistake(mistake) => return life::config_mistake(mistake),
        What::Exit(exit) => return life::exit(exit),
        What::Teardown(teardown) => return life::teardown(teardown),
        What::LeftoversEnded(leftovers) => return life::leftovers_ended(leftovers),
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
            let text = format!("{lines} on stdout dropped so far, the first: {first}");
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
        What::Restarting(restarting) => (Tone::Plain, life::restarting(restarting)),
        What::Ready(ready) => (Tone::Good, life::ready(ready)),
        What::ServerChanged(changed) => {
            let text = format!("#{}: {}", changed.generation, changed.what);
            (Tone::Warn, text)
        }
        What::Abandoned(abandoned) => (Tone::Bad, life::abandoned(abandoned)),
        What::ListChanged(changed) => {
            let lists = changed.lists.join(", ");
            let text = format!("the client was told that its {lists} have changed");
            (Tone::Plain, text)
        }
        What::FromCache(answer) => {
            let (method, ms) = (&answer.method, fine(answer.ms));
            let text = format!("{method}, after {ms}, because the server is still starting");
            (Tone::Plain, text)
        }
        What::ProbesUnanswered(probes) => {
            let lost = count(probes.lost, "question");
            let text =
                format!("{lost} unanswered; the server does not know them, so no more are sent");
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
        What::RecordingIncomplete(recording) => {
            let path = one_line(&recording.path, DETAIL_CHARS);
            let why = one_line(&recording.why, DETAIL_CHARS);
            let lost = count(recording.lost, "frame");
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
        What::ClientSessionOpened(opened) => (Tone::Plain, format!("session {}", opened.session)),
        What::ClientSessionClosed(closed) => (Tone::Plain, session::client_closed(closed)),
        What::SessionOpened(opened) => {
            let url = one_line(&opened.url, DETAIL_CHARS);
            (Tone::Plain, format!("at {url}; mainstay must close it"))
        }
        What::SessionClosed(closed) => (Tone::Good, session::closed(closed)),
        What::SessionClosedLate(closed) => (Tone::Good, session::closed_late(closed)),
        What::SessionGivenUp(given_up) => (Tone::Bad, session::given_up(given_up)),
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
