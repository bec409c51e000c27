//! `mainstay trace-signals`: shows which process sends which signal to which process.
//!
//! Sender and victim are looked up as soon as the kernel's trace names them, because both may end in the next instant. A
//! signal to a process of a link becomes an event of that link, so that `mainstay why` can name its sender. Every traced
//! signal is also kept in a file of [`recent`] signals for `mainstay watch`. Files in a user's home are written with that
//! user's rights.

pub mod home;
pub mod link_processes;
pub mod recent;
pub mod row;
mod servers;

use std::os::fd::AsFd;

use mainstay_os::clock;
use mainstay_os::signals::Signals;
use mainstay_os::tracefs::{NoTrace, Sent, TraceRecord, Tracer};
use mainstay_protocol::event::{Event, Target, VERSION, What};
use mainstay_report::{Exit, Report, plain, talk};
use mainstay_store::ledger::Ledger;
use rustix::event::{PollFd, PollFlags, poll};

use crate::watch::view::Style;
use home::Home;
use link_processes::{LinkProcess, LinkProcesses};
use mainstay_report::printer::{Printer, Reader};
use recent::RecentSignals;
use row::Row;
use servers::KnownServers;

/// The options of `mainstay trace-signals`.
#[derive(Debug)]
pub struct Wanted {
    /// Show only signals to this target: a pid, a server's name, a link's id or a process's short name.
    pub to: Option<String>,
    /// Also signals between processes that are no servers and have none.
    pub all: bool,
    pub signals: Vec<i32>,
    /// End after this time; none means until it is interrupted.
    pub for_ms: Option<u64>,
    /// Print one JSON object per line.
    pub json: bool,
}

/// Traces until it is interrupted, its time is up, or the reader of its output has ended.
pub fn trace(wanted: &Wanted) -> Result<Exit, Report> {
    // Blocked before the tracer forks its cleanup process, so that a signal to our group does not end that process.
    let signals = Signals::open(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM]).map_err(failed)?;
    mainstay_os::signals::ignore_pipe();
    let mut tracer = Tracer::open(&wanted.signals).map_err(refused)?;
    let home = Home::find()?;
    let mut tracing = Tracing {
        processes: home
            .user
            .with(|| LinkProcesses::open(&home))
            .map_err(failed)?,
        servers: KnownServers::new(home.user.uid),
        ledger: Ledger::beside(&home.paths),
        recent: RecentSignals::open(&home),
        printer: Printer::new(),
        home,
    };
    let which = match (&wanted.to, wanted.all) {
        (Some(to), _) => format!("to {}", mainstay_report::safe::one_line(to, 64)),
        (None, true) => "between all processes".into(),
        (None, false) => "to and from MCP servers (--all: all processes)".into(),
    };
    // Servers of others are known only by looking at them while they live.
    let look = wanted.to.is_none() && !wanted.all;
    if look {
        tracing.look(true);
    }
    talk(&format!(
        "tracing {} {which}; Ctrl-C ends it\n",
        row::signal_list(&wanted.signals)
    ));
    let end = wanted.for_ms.map(|ms| clock::now().0 + ms * 1_000_000);
    let mut heard = Vec::new();
    loop {
        let left = end.map(|end| end.saturating_sub(clock::now().0));
        if left == Some(0) {
            return Ok(Exit::Ok);
        }
        let mut within = if tracer.has_heard() { Some(0) } else { left };
        if look {
            let next = tracing.servers.next().0.saturating_sub(clock::now().0);
            within = Some(within.map_or(next, |within| within.min(next)));
        }
        let wake = wait(&signals, &tracer, &tracing, within).map_err(failed)?;
        if wake.ended {
            return Ok(Exit::Ok);
        }
        // Cards first: they name the processes to which the signals were sent.
        let home = &tracing.home;
        home.user
            .with(|| tracing.processes.refresh(home, wake.cards));
        tracer.read(&mut heard).map_err(failed)?;
        for heard in heard.drain(..) {
            if tracing.record(heard, &mut tracer, wanted)? == Reader::Gone {
                return Ok(Exit::Ok);
            }
        }
        // Last, because senders may end while it takes its time.
        if look {
            tracing.look(false);
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
    tracing: &Tracing,
    left_ns: Option<u64>,
) -> std::io::Result<Wake> {
    let within = left_ns.map(|ns| rustix::event::Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let mut fds = [
        PollFd::new(signals, PollFlags::IN),
        // No flags are needed: poll always reports that the reader has closed the pipe.
        PollFd::from_borrowed_fd(tracing.printer.as_fd(), PollFlags::empty()),
        PollFd::new(tracer, PollFlags::IN),
        PollFd::new(&tracing.processes, PollFlags::IN),
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

/// What a traced signal is compared with, and where it is written.
struct Tracing {
    home: Home,
    processes: LinkProcesses,
    servers: KnownServers,
    ledger: Ledger,
    recent: RecentSignals,
    printer: Printer,
}

impl Tracing {
    fn record(
        &mut self,
        heard: TraceRecord,
        tracer: &mut Tracer,
        wanted: &Wanted,
    ) -> Result<Reader, Report> {
        let sent = match heard {
            TraceRecord::Sent(sent) => sent,
            TraceRecord::Lost(count) => {
                talk(&format!(
                    "note: {count} signals were lost, because they came faster than they could be read\n"
                ));
                return Ok(Reader::There);
            }
        };
        let row = self.row(&sent, tracer);
        self.recent.append(&row);
        let home = &self.home;
        for process in &row.links {
            let event = Event {
                v: VERSION,
                at: row.at.clone(),
                id: process.id,
                server: process.server.clone(),
                what: What::SignalTraced(row.event_for(process)),
            };
            home.user.with(|| self.ledger.append(&event));
        }
        if let Some(trouble) = self.ledger.trouble() {
            talk(&format!("note: {trouble}\n"));
        }
        let chosen = wanted.all || wanted.to.is_some() || row.about_a_server();
        if !chosen || !row.wanted(wanted.to.as_deref()) {
            return Ok(Reader::There);
        }
        if wanted.json {
            return self.printer.json_line(&row);
        }
        let style = Style {
            columns: self.printer.columns(),
            colour: self.printer.colour(),
            zone: clock::local_offset_s,
        };
        self.printer.text(&row.render(style))
    }

    /// Looks for servers of others, if it is time.
    fn look(&mut self, at_once: bool) {
        if at_once || clock::now() >= self.servers.next() {
            let home = &self.home;
            home.user.with(|| self.servers.refresh(&home.paths));
        }
    }

    fn row(&mut self, sent: &Sent, tracer: &mut Tracer) -> Row {
        let mut row = Row::of(sent, || tracer.name_of(sent));
        if let Some(comm) = tracer.earlier_name(row.sender.pid, sent.at) {
            row.sender_was(comm);
        }
        let links: Vec<LinkProcess> = self.processes.find(row.victim.pid, row.victim.start);
        if row.victim.start.is_none() {
            row.victim.start = links.first().map(|process| process.who.start);
        }
        row.links = links;
        row.sender_links = self.processes.find(row.sender.pid, row.sender.start);
        // A client sends many signals that have nothing to do with its servers.
        row.sender_links
            .retain(|process| process.to != Target::Client);
        if row.links.is_empty() {
            row.victim_server = self.servers.name(row.victim.pid, row.victim.start);
        }
        if row.sender_links.is_empty() {
            row.sender_server = self.servers.name(row.sender.pid, row.sender.start);
        }
        row
    }
}

/// The error for a trace that cannot be opened.
fn refused(why: NoTrace) -> Report {
    let report = |text: &str| Report::new(Exit::Failed, format!("cannot trace signals: {text}"));
    match why {
        NoTrace::NotRoot => report("only root can see who sends a signal to another process")
            .hint("run it as `sudo mainstay trace-signals`; it writes to your own events, not to root's"),
        NoTrace::Container => {
            report("this is a container, and the kernel reports pids and times of the host")
                .hint("run it on the host")
        }
        NoTrace::NotThere => report("the kernel has no tracepoint `signal_generate`")
            .hint("it needs a kernel with CONFIG_TRACING and CONFIG_FTRACE; without one, `mainstay why` names suspects"),
        NoTrace::NotMounted(error) => report("the trace file system (tracefs) cannot be mounted")
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
