//! `mainstay watch`: reports MCP servers that start and end, whether or not mainstay started them.
//!
//! The kernel wakes us: a pidfd when a watched process ends, the proc connector when a process calls `exec`. A slow scan of
//! the process table finds what both have missed. Without the connector, a quick list of the pids replaces it. `watch` never
//! sends a signal.

pub mod client;
pub mod groups;
pub mod inspect;
pub mod launcher;
pub mod line;
pub mod pending_end;
mod schedule;
pub mod selection;
pub mod view;
pub mod wakeups;

use std::collections::{HashMap, HashSet};
use std::io;

use mainstay_os::connector::ProcessEvent;
use mainstay_os::identity::Handle;
use mainstay_os::{census, clock};
use mainstay_protocol::event::Status;
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::{WATCH_LEFT_MS as LEFT_MS, WATCH_LIST_MS as LIST_MS};
use mainstay_protocol::time;
use mainstay_report::{Exit, Report, plain, talk};
use mainstay_store::paths::Paths;

use crate::trace::home::Home;
use client::WatchedClient;
use groups::{Change, Groups};
use inspect::{Candidate, Found, Inspector};
use line::{Happened, WatchLine};
use mainstay_report::printer::{Printer, Reader};
use pending_end::{EndEvidence, PendingEnd};
use schedule::{Schedule, Survey};
use selection::Selection;
use view::Style;
use wakeups::{Wakeup, Wakeups};

/// Exit statuses from the connector that are kept.
const EXITS_MAX: usize = 8_192;

/// The options of `mainstay watch`.
#[derive(Debug)]
pub struct Wanted {
    pub selection: Selection,
    pub until: Until,
    /// Whether the proc connector may be used.
    pub connector: bool,
    /// Print one JSON object per line.
    pub json: bool,
    /// Print at the end how much processor time `watch` has used.
    pub stats: bool,
}

/// When `watch` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After one pass over the processes.
    Once,
    /// After this many milliseconds.
    After(u64),
    /// When it is interrupted, or when the client process that it was given has ended.
    Stopped,
}

/// Runs `mainstay watch`.
pub fn watch(wanted: &Wanted) -> Result<Exit, Report> {
    let mut watch = Watcher::begin(wanted)?;
    let exit = watch.run()?;
    if wanted.stats {
        watch.print_stats();
    }
    Ok(exit)
}

struct Watcher<'a> {
    wanted: &'a Wanted,
    paths: Paths,
    output: Output,
    wakeups: Wakeups,
    groups: Groups,
    client: WatchedClient,
    ending: Vec<PendingEnd>,
    /// Exit statuses by pid, from the connector.
    exits: HashMap<i32, Status>,
    schedule: Schedule,
    stats: Stats,
    /// Servers still ran a while after their client had ended.
    left: bool,
}

struct Output {
    printer: Printer,
    form: Form,
    lines: u64,
    reader: Reader,
    /// The servers that are found first have run before.
    first: bool,
}

/// How lines are printed.
enum Form {
    Json,
    /// One table at the end.
    Table(Vec<WatchLine>),
    /// A row for each change, below these titles.
    Rows {
        titled: bool,
    },
}

/// How much work `watch` has done.
struct Stats {
    begun_ms: u64,
    looks: u64,
    scans: u64,
    /// Processor time of the start and the first pass.
    first_us: u64,
}

impl Output {
    fn new(wanted: &Wanted) -> Self {
        let form = match (wanted.json, wanted.until) {
            (true, _) => Form::Json,
            (false, Until::Once) => Form::Table(Vec::new()),
            (false, Until::After(_) | Until::Stopped) => Form::Rows { titled: false },
        };
        Self {
            printer: Printer::new(),
            form,
            lines: 0,
            reader: Reader::There,
            first: true,
        }
    }

    fn style(&self) -> Style {
        Style {
            columns: self.printer.columns(),
            colour: self.printer.colour(),
            zone: clock::local_offset_s,
        }
    }

    fn write(&mut self, line: WatchLine) -> Result<(), Report> {
        self.lines += 1;
        let style = self.style();
        self.reader = match &mut self.form {
            Form::Json => self.printer.json_line(&line)?,
            Form::Table(lines) => {
                lines.push(line);
                return Ok(());
            }
            Form::Rows { titled } => {
                let mut text = String::new();
                if !std::mem::replace(titled, true) {
                    text += &view::titles(style);
                }
                text += &view::row(&line, self.first, style);
                self.printer.text(&text)?
            }
        };
        Ok(())
    }

    /// Prints the table.
    fn finish(&mut self) -> Result<(), Report> {
        let style = self.style();
        if let Form::Table(lines) = &self.form
            && !lines.is_empty()
        {
            self.reader = self.printer.text(&view::table(lines, style))?;
        }
        Ok(())
    }
}

impl<'a> Watcher<'a> {
    fn begin(wanted: &'a Wanted) -> Result<Self, Report> {
        let wakeups = Wakeups::open(wanted.connector).map_err(failed)?;
        if let Some(why) = wakeups.no_connector.as_ref().filter(|_| wanted.connector) {
            talk(&format!(
                "note: the kernel does not report new processes ({why}): listing all processes every {} s instead\n",
                LIST_MS / 1_000
            ));
        }
        let now = now_ms();
        let mut watch = Self {
            wanted,
            // Under `sudo` these are the user's paths, because `trace-signals` writes there.
            paths: Home::named()?.paths,
            output: Output::new(wanted),
            wakeups,
            groups: Groups::default(),
            client: WatchedClient::default(),
            ending: Vec::new(),
            exits: HashMap::new(),
            schedule: Schedule::new(now),
            stats: Stats {
                begun_ms: now,
                looks: 0,
                scans: 0,
                first_us: 0,
            },
            left: false,
        };
        if wanted.until != Until::Once {
            talk(&format!(
                "watching {}; Ctrl-C ends it\n",
                wanted.selection.described()
            ));
        }
        watch.wakeups.watch_reader(&watch.output.printer);
        if let Selection::Process(client) = &wanted.selection {
            watch.client.watch(*client, &mut watch.wakeups);
        }
        Ok(watch)
    }

    fn run(&mut self) -> Result<Exit, Report> {
        let (once, end) = match self.wanted.until {
            Until::Once => (true, None),
            Until::After(ms) => (false, Some(self.stats.begun_ms + ms)),
            Until::Stopped => (false, None),
        };
        loop {
            let now = now_ms();
            self.work(now).map_err(failed)?;
            self.report_due(now, once)?;
            self.report_ended(now)?;
            self.output.first = false;
            if self.stats.scans == 1 && self.stats.first_us == 0 {
                self.stats.first_us = clock::used_us();
            }
            let over = once || end.is_some_and(|end| now >= end) || self.done(now)?;
            if once && matches!(self.wanted.selection, Selection::All) {
                self.tell_orphans()?;
            }
            if once && self.output.lines == 0 {
                talk(&self.wanted.selection.none_found());
            }
            if once {
                self.output.finish()?;
            }
            if over || self.output.reader == Reader::Gone {
                return Ok(if self.left { Exit::Unhealthy } else { Exit::Ok });
            }
            let wakeups_due = self.wakeups.wait(self.next(end).saturating_sub(now_ms()));
            for wakeup in wakeups_due.map_err(failed)? {
                match wakeup {
                    Wakeup::Stop | Wakeup::ReaderGone => return Ok(Exit::Ok),
                    Wakeup::Connector(messages) => self.note_messages(&messages),
                    Wakeup::Ended(who) => self.ended(who)?,
                    Wakeup::ClientEnded(who) => self.client_ended(who)?,
                }
            }
        }
    }

    /// Servers without a client: no scan that begins at a client finds them.
    fn tell_orphans(&mut self) -> Result<(), Report> {
        for server in crate::reap::orphans()? {
            self.output.write(server.line(now_text()))?;
        }
        Ok(())
    }

    /// Whether new processes are found by listing the pids, because there is no connector.
    fn lists(&self) -> bool {
        self.wakeups.no_connector.is_some()
    }

    /// The next time something is due, if the kernel does not wake us before.
    fn next(&self, end: Option<u64>) -> u64 {
        let next = self.schedule.next(self.lists());
        let others = [
            end,
            self.groups.wake_ms(),
            self.ending.iter().map(|ending| ending.again_ms).min(),
            self.client.left_at(LEFT_MS),
        ];
        others.into_iter().flatten().fold(next, u64::min)
    }

    fn note_messages(&mut self, messages: &[ProcessEvent]) {
        for message in messages {
            match *message {
                ProcessEvent::Exec(pid) => {
                    self.exits.remove(&pid);
                    self.schedule.ran(pid);
                }
                ProcessEvent::Exit { pid, status } => {
                    if self.exits.len() >= EXITS_MAX {
                        self.exits.clear();
                    }
                    self.exits.insert(pid, status);
                    self.schedule.ended(pid);
                }
                ProcessEvent::Overrun => self.schedule.overrun(),
            }
        }
    }

    /// Inspects the processes that are due by now.
    fn work(&mut self, now: u64) -> io::Result<()> {
        let survey = self.schedule.survey(now, self.lists());
        if let Some(survey) = survey {
            let pids = census::pids()?;
            let watched = match survey {
                Survey::Scan => self.wakeups.watched_pids(),
                Survey::List => HashSet::new(),
            };
            self.schedule.surveyed(now, survey, pids, &watched);
            // A launcher or a fork may have called `exec` meanwhile.
            for who in self.groups.unclear() {
                self.schedule.ran(who.pid);
            }
            self.stats.scans += u64::from(survey == Survey::Scan);
            self.note_missed_ends();
        }
        self.inspect_due(now, survey == Some(Survey::Scan));
        Ok(())
    }

    /// The end of a process without a pidfd is only noticed because the list of pids does not have it.
    fn note_missed_ends(&mut self) {
        let gone: Vec<Identity> = self
            .groups
            .all()
            .filter(|who| !self.wakeups.watches(*who) && !self.schedule.lists(who.pid))
            .collect();
        for who in gone {
            self.note_end(who, None);
        }
    }

    fn inspect_due(&mut self, now: u64, scanned: bool) {
        let Some(looks) = self.schedule.take(now, scanned) else {
            return;
        };
        self.stats.looks += 1;
        let wanted = self.wanted;
        let paths = self.paths.clone();
        let mut inspector = Inspector::new(&wanted.selection, &paths);
        for &pid in &looks.pids {
            match inspector.inspect(pid) {
                Found::Server(seen) => self.observe(*seen, now),
                Found::NotYet => self.schedule.look_again(pid, &looks),
                Found::NotAServer => {}
            }
        }
    }

    fn observe(&mut self, seen: Candidate, now: u64) {
        let who = seen.who;
        if self.groups.contains(who) || self.ending.iter().any(|ending| ending.gone.who == who) {
            if self.groups.contains(who) {
                self.groups.observe(seen, now);
            }
            return;
        }
        match Handle::open(who) {
            Ok(handle) => {
                // If epoll has no room for the descriptor, the scan notices the end.
                self.wakeups.watch(who, handle.into_fd());
                self.groups.observe(seen, now);
            }
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                self.groups.observe(seen, now);
            }
            // It ended after the inspection. A server is reported all the same; a launcher or a fork is not.
            Err(_) if launcher::launches(&seen.argv) || seen.forked_only => {}
            Err(_) => {
                self.groups.observe(seen, now);
                self.note_end(who, Some("it ended before it could be watched"));
            }
        }
    }

    /// Prints the changes that are due.
    fn report_due(&mut self, now: u64, at_once: bool) -> Result<(), Report> {
        let changes = self.groups.decide(now, at_once);
        self.report(changes)
    }

    fn report(&mut self, changes: Vec<Change>) -> Result<(), Report> {
        let mut lines = Vec::new();
        for change in changes {
            let (what, who, from) = match change {
                Change::New(who) => (Happened::New, who, None),
                Change::Moved { from, to } => (Happened::Moved, to, Some(from)),
                Change::Gone(..) => continue,
            };
            let Some((seen, launchers)) = self.groups.find(who) else {
                continue;
            };
            let age = age_ms(who);
            let mut line = WatchLine::of(what, now_text(), seen, &launchers, age);
            line.from = from;
            lines.push(line);
        }
        // Several servers at once are printed in the order in which they were started.
        lines.sort_by_key(|line| (line.who.start, line.who.pid));
        for line in lines {
            self.output.write(line)?;
        }
        Ok(())
    }

    fn ended(&mut self, who: Identity) -> Result<(), Report> {
        // If the process also started just now, its start is printed first.
        self.report_due(now_ms(), false)?;
        self.note_end(who, None);
        Ok(())
    }

    /// A watched process has ended. Its end is printed when its status and the sender of its signal are known.
    fn note_end(&mut self, who: Identity, why_unwatched: Option<&'static str>) {
        // Its start must be printed before its end.
        let start = self.groups.announce_last(who);
        self.report(start.into_iter().collect()).ok();
        let pidfd = self.wakeups.unwatch(who);
        for change in self.groups.ended(who) {
            match change {
                Change::Gone(gone, launchers) => {
                    let exit = self.exits.get(&who.pid).copied();
                    let evidence = EndEvidence {
                        pidfd: pidfd.as_ref().and_then(|fd| fd.try_clone().ok()),
                        exit,
                        why_unwatched,
                    };
                    self.ending
                        .push(PendingEnd::new(*gone, launchers, evidence, now_ms()));
                }
                Change::New(_) | Change::Moved { .. } => {
                    self.report(vec![change]).ok();
                }
            }
        }
    }

    /// Prints the ends whose status is known, or no longer waited for.
    fn report_ended(&mut self, now: u64) -> Result<(), Report> {
        let mut waiting = Vec::new();
        let mut lines = Vec::new();
        for mut ending in std::mem::take(&mut self.ending) {
            match ending.finish(&self.paths, &self.exits, now) {
                Some(line) => lines.push(line),
                None => waiting.push(ending),
            }
        }
        self.ending = waiting;
        lines.sort_by_key(|line| (line.who.start, line.who.pid));
        for line in lines {
            self.output.write(line)?;
        }
        Ok(())
    }

    fn client_ended(&mut self, who: Identity) -> Result<(), Report> {
        if let Some(line) = self.client.ended(who, &mut self.wakeups) {
            self.output.write(line)?;
        }
        Ok(())
    }

    /// Whether the client process has ended and there is nothing more to wait for.
    fn done(&mut self, now: u64) -> Result<bool, Report> {
        let Some(left_at) = self.client.left_at(LEFT_MS) else {
            return Ok(false);
        };
        let left: Vec<Identity> = self.groups.reported().collect();
        if left.is_empty() {
            return Ok(self.ending.is_empty());
        }
        if now < left_at {
            return Ok(false);
        }
        for who in left {
            if let Some((seen, launchers)) = self.groups.find(who) {
                let line = WatchLine::of(Happened::Left, now_text(), seen, &launchers, age_ms(who));
                self.output.write(line)?;
            }
        }
        self.left = true;
        Ok(true)
    }

    fn print_stats(&self) {
        let ran = now_ms().saturating_sub(self.stats.begun_ms).max(1);
        let first = self.stats.first_us;
        let cpu = clock::used_us().saturating_sub(first);
        let connector = match &self.wakeups.no_connector {
            None => "connector".into(),
            Some(why) => format!("no connector ({why})"),
        };
        talk(&format!(
            "stats: {first} us of processor time for the first look, {cpu} us in {ran} ms since then ({}.{:02} % of a core), {} processes on the machine, {} watched, {} looks, {} scans, {connector}\n",
            cpu / ran / 10,
            cpu * 10 / ran % 100,
            self.schedule.listed(),
            self.groups.all().count(),
            self.stats.looks,
            self.stats.scans,
        ));
    }
}

fn now_ms() -> u64 {
    clock::now().0 / 1_000_000
}

fn now_text() -> String {
    time::rfc3339(clock::wall_ms())
}

/// The time since the process was started.
fn age_ms(who: Identity) -> u64 {
    clock::since_boot_ms().saturating_sub(clock::ticks_ms(who.start))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is used as a function of errors"
)]
fn failed(error: io::Error) -> Report {
    Report::new(Exit::Failed, "cannot watch processes").because(plain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_os::identity;
    use mainstay_protocol::limits::WATCH_LOOK_MS as LOOK_MS;
    use std::process::{Child, Command, Stdio};

    fn wanted() -> Wanted {
        Wanted {
            selection: Selection::Process(identity::me().unwrap()),
            until: Until::Stopped,
            connector: false,
            json: true,
            stats: false,
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a process that looks like a server"
    )]
    fn server() -> Child {
        let mut command = Command::new("cat");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    fn candidate(pid: i32) -> Candidate {
        let wanted = wanted();
        let paths = Paths::nowhere();
        let mut inspector = Inspector::new(&wanted.selection, &paths);
        let Found::Server(found) = inspector.inspect(pid) else {
            panic!("pid {pid} is not recognised as a server")
        };
        *found
    }

    /// The connector has lost the message about a new process: an early scan finds it.
    #[test]
    fn lost_connector_messages_cause_an_early_scan() {
        let _alone = mainstay_store::scratch::Place::alone();
        let wanted = wanted();
        let mut watch = Watcher::begin(&wanted).unwrap();
        let now = now_ms();
        watch.work(now).unwrap();
        let mut child = server();
        let who = identity::of(child.id() as i32).unwrap();
        assert!(watch.schedule.scan_at() > now + LIST_MS);
        watch.note_messages(&[ProcessEvent::Overrun]);
        assert!(watch.schedule.scan_at() <= now + LIST_MS);
        watch.schedule.never_list();
        watch.work(now + LIST_MS).unwrap();
        // A fork that has not called `exec` at the time of the scan is inspected again.
        let mut later = now + LIST_MS;
        while !watch.groups.contains(who) {
            later += LOOK_MS;
            watch.work(later).unwrap();
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// The process has ended and was reaped, and its pid may be reused: start and end are reported, the status is unknown.
    #[test]
    fn a_server_that_ends_before_it_can_be_watched_is_reported_all_the_same() {
        let _alone = mainstay_store::scratch::Place::alone();
        let wanted = wanted();
        let mut watch = Watcher::begin(&wanted).unwrap();
        let mut child = server();
        let pid = child.id() as i32;
        let mut seen = candidate(pid);
        while seen.forked_only {
            seen = candidate(pid);
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        watch.observe(seen.clone(), now_ms());
        assert_eq!(watch.ending.len(), 1);
        assert!(!watch.groups.contains(seen.who));
        let exits = HashMap::new();
        let paths = Paths::nowhere();
        let line = watch.ending[0].finish(&paths, &exits, u64::MAX).unwrap();
        assert_eq!(line.status, None);
        assert_eq!(line.unknown, Some("it ended before it could be watched"));
        // With a message of the connector, the status is known.
        watch.note_messages(&[ProcessEvent::Exit {
            pid,
            status: Status::Code(3),
        }]);
        watch.ending.clear();
        watch.observe(seen, now_ms());
        let line = watch.ending[0]
            .finish(&paths, &watch.exits, u64::MAX)
            .unwrap();
        assert_eq!(line.status, Some(Status::Code(3)));
    }
}
