//! Who sends which signal to whom, as it happens: what `mainstay trace-signals` does.
//!
//! The kernel's trace is read as it grows; sender and victim are looked up at once, because both may be gone in the next
//! instant. A signal to a process of a link becomes an event of that link, so that `mainstay why` can name its sender;
//! every ending signal goes onto the [`sheet`] for `mainstay watch`. What is written in a user's home is written with
//! that user's rights.

pub mod home;
pub mod known;
pub mod row;
pub mod sheet;

use std::os::fd::AsFd;

use mainstay_core::event::{Event, VERSION, What};
use mainstay_os::clock;
use mainstay_os::signals::Signals;
use mainstay_os::tracefs::{Heard, NoTrace, Sent, Tracer};
use rustix::event::{PollFd, PollFlags, poll};

use crate::exit::Exit;
use crate::ledger::Ledger;
use crate::report::{Report, plain, talk};
use crate::view::printer::{Printer, Reader};
use home::Home;
use known::{Known, Person};
use row::Row;
use sheet::Sheet;

/// What is to be traced.
#[derive(Debug)]
pub struct Wanted {
    /// Whom the signals are for: a pid, a server's name, a link's id or a process's short name; everybody if none.
    pub to: Option<String>,
    /// Which signals.
    pub signals: Vec<i32>,
    /// For how long, in milliseconds; until it is interrupted if none.
    pub for_ms: Option<u64>,
    /// One JSON object per line.
    pub json: bool,
}

/// Traces until it is interrupted, its time is up, or nobody reads what it says.
pub fn trace(wanted: &Wanted) -> Result<Exit, Report> {
    // Blocked before the remover is forked, so that no signal to us ends it.
    let signals = Signals::open(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM]).map_err(failed)?;
    mainstay_os::signals::ignore_pipe();
    let mut tracer = Tracer::open(&wanted.signals).map_err(refused)?;
    let home = Home::find()?;
    let mut desk = Desk {
        known: home.user.with(|| Known::open(&home)).map_err(failed)?,
        ledger: Ledger::beside(&home.paths),
        sheet: Sheet::open(&home),
        printer: Printer::new(),
        home,
    };
    talk(&format!(
        "tracing {}; ^C ends it\n",
        row::signal_list(&wanted.signals)
    ));
    let end = wanted.for_ms.map(|ms| clock::now().0 + ms * 1_000_000);
    let mut heard = Vec::new();
    loop {
        let left = end.map(|end| end.saturating_sub(clock::now().0));
        if left == Some(0) {
            return Ok(Exit::Ok);
        }
        let within = if tracer.has_heard() { Some(0) } else { left };
        let wake = wait(&signals, &tracer, &desk, within).map_err(failed)?;
        if wake.ended {
            return Ok(Exit::Ok);
        }
        // Cards first: a signal is for whoever they named when it was sent.
        let home = &desk.home;
        home.user.with(|| desk.known.refresh(home, wake.cards));
        tracer.read(&mut heard).map_err(failed)?;
        for heard in heard.drain(..) {
            if desk.take(heard, &mut tracer, wanted)? == Reader::Gone {
                return Ok(Exit::Ok);
            }
        }
    }
}

struct Wake {
    ended: bool,
    cards: bool,
}

fn wait(
    signals: &Signals,
    tracer: &Tracer,
    desk: &Desk,
    left_ns: Option<u64>,
) -> std::io::Result<Wake> {
    let within = left_ns.map(|ns| rustix::event::Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let mut fds = [
        PollFd::new(signals, PollFlags::IN),
        // No event is asked of the output: that its reader is gone is told all the same.
        PollFd::from_borrowed_fd(desk.printer.as_fd(), PollFlags::empty()),
        PollFd::new(tracer, PollFlags::IN),
        PollFd::new(&desk.known, PollFlags::IN),
    ];
    match poll(&mut fds, within.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::ERR | PollFlags::NVAL;
    Ok(Wake {
        ended: !fds[0].revents().is_empty() || fds[1].revents().intersects(gone),
        cards: !fds[3].revents().is_empty(),
    })
}

/// Everything that a signal is held against and written to.
struct Desk {
    home: Home,
    known: Known,
    ledger: Ledger,
    sheet: Sheet,
    printer: Printer,
}

impl Desk {
    fn take(
        &mut self,
        heard: Heard,
        tracer: &mut Tracer,
        wanted: &Wanted,
    ) -> Result<Reader, Report> {
        let sent = match heard {
            Heard::Sent(sent) => sent,
            Heard::Lost(count) => {
                talk(&format!(
                    "note: {count} signals were lost: they came faster than they could be read\n"
                ));
                return Ok(Reader::There);
            }
        };
        let row = self.row(&sent, tracer);
        self.sheet.append(&row);
        let home = &self.home;
        for person in &row.people {
            let event = Event {
                v: VERSION,
                at: row.at.clone(),
                id: person.id,
                server: person.server.clone(),
                what: What::SignalTraced(row.for_person(person)),
            };
            home.user.with(|| self.ledger.append(&event));
        }
        if let Some(trouble) = self.ledger.trouble() {
            talk(&format!("note: {trouble}\n"));
        }
        if !row.wanted(wanted.to.as_deref()) {
            return Ok(Reader::There);
        }
        if wanted.json {
            return self.printer.json_line(&row);
        }
        let colour = self.printer.colour();
        self.printer.text(&row.render(colour))
    }

    fn row(&mut self, sent: &Sent, tracer: &mut Tracer) -> Row {
        let mut row = Row::of(sent, || tracer.name_of(sent));
        let people: Vec<Person> = self.known.find(row.victim.pid, row.victim.start);
        if row.victim.start.is_none() {
            row.victim.start = people.first().map(|person| person.who.start);
        }
        row.people = people;
        row
    }
}

/// Why there is no trace, and what can be done about it.
fn refused(why: NoTrace) -> Report {
    let report = |text: &str| Report::new(Exit::Failed, format!("cannot trace signals: {text}"));
    match why {
        NoTrace::NotRoot => report("only root can see who sends a signal to another process")
            .hint("run it as `sudo mainstay trace-signals`; its findings go to your own events"),
        NoTrace::Container => {
            report("this is a container, and the kernel tells pids and times of the machine outside")
                .hint("run it on the machine itself")
        }
        NoTrace::NotThere => report("the kernel has no tracepoint `signal_generate`")
            .hint("it takes a kernel with CONFIG_TRACING and CONFIG_FTRACE; without one, `mainstay why` names suspects"),
        NoTrace::NotMounted(error) => report("the trace file system is not mounted and cannot be")
            .because(plain(&error))
            .hint("mount it with `sudo mount -t tracefs tracefs /sys/kernel/tracing`"),
        NoTrace::Refused { step, error } => report(&format!("could not {step}"))
            .because(plain(&error))
            .hint("a kernel in lockdown mode, or a container without CAP_SYS_ADMIN, refuses it"),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is used as a function of errors"
)]
fn failed(error: std::io::Error) -> Report {
    Report::new(Exit::Failed, "cannot trace signals").because(plain(&error))
}
