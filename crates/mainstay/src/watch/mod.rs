//! Servers that come and go, whoever started them: what `mainstay watch` does.
//!
//! The kernel wakes us: a pidfd when a server that we know has ended, the proc connector when somebody runs a new
//! program. A slow scan of the process table is the truth behind both; where the connector is not to be had, a quick
//! look at the list of pids takes its place. Nobody is ever signalled.

pub mod book;
pub mod clients;
pub mod end;
pub mod launcher;
pub mod line;
pub mod look;
pub mod wake;
pub mod whom;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use mainstay_core::event::Status;
use mainstay_core::ids::Identity;
use mainstay_core::limits::{
    WATCH_LEFT_MS as LEFT_MS, WATCH_LIST_MS as LIST_MS, WATCH_LOOK_MS as LOOK_MS,
    WATCH_SCAN_MS as SCAN_MS,
};
use mainstay_os::connector::Told;
use mainstay_os::identity::Handle;
use mainstay_os::{census, clock};

use crate::exit::Exit;
use crate::ledger::time;
use crate::paths::Paths;
use crate::report::{Report, plain, talk};
use crate::trace::home::Home;
use crate::view::printer::{Printer, Reader};
use book::{Book, Tell};
use clients::Clients;
use end::{Known, Leaving};
use line::{Happened, Line};
use look::{Candidate, Found, Look};
use wake::{Alarm, Wakes};
use whom::Whom;

/// A fork that has not run its program yet is looked at again this often, so many times.
const FORK_TRIES: u32 = 40;
/// Ends by the connector's word that are remembered.
const EXITS_KEPT: usize = 8_192;

/// What is to be watched.
#[derive(Debug)]
pub struct Wanted {
    /// Whose servers.
    pub whom: Whom,
    /// For how long.
    pub until: Until,
    /// Whether the connector may be used.
    pub connector: bool,
    /// One JSON object per line.
    pub json: bool,
    /// Tell at the end what the watching itself has cost.
    pub stats: bool,
}

/// How long is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Only who is there now.
    Once,
    /// So many milliseconds.
    After(u64),
    /// Until it is interrupted, or the one client has ended.
    Stopped,
}

/// Watches.
pub fn watch(wanted: &Wanted) -> Result<Exit, Report> {
    let mut watch = Watch::begin(wanted)?;
    let exit = watch.run()?;
    if wanted.stats {
        watch.tell_stats();
    }
    Ok(exit)
}

struct Watch<'a> {
    wanted: &'a Wanted,
    paths: Paths,
    printer: Printer,
    wakes: Wakes,
    book: Book,
    clients: Clients,
    leaving: Vec<Leaving>,
    /// How others ended, by the connector's word.
    exits: HashMap<i32, Status>,
    /// Who is to be looked at next.
    due: BTreeSet<i32>,
    /// Forks that have not run their program yet, and how often they were looked at.
    forks: BTreeMap<i32, u32>,
    /// Pids of the last list.
    listed: HashSet<i32>,
    scan_at: u64,
    scanned_ms: u64,
    list_at: u64,
    look_at: u64,
    begun_ms: u64,
    looks: u64,
    scans: u64,
    /// What start and first look have cost.
    first_us: u64,
    left: bool,
    /// Lines so far.
    told: u64,
    reader: Reader,
}

impl<'a> Watch<'a> {
    fn begin(wanted: &'a Wanted) -> Result<Self, Report> {
        let wakes = Wakes::open(wanted.connector).map_err(failed)?;
        if let Some(why) = wakes.no_connector.as_ref().filter(|_| wanted.connector) {
            talk(&format!(
                "note: the kernel does not tell us of new processes ({why}): looking every {} s instead\n",
                LIST_MS / 1_000
            ));
        }
        let now = now_ms();
        let mut watch = Self {
            wanted,
            // Through `sudo` too: a tracer writes where that user's links are.
            paths: Home::named()?.paths,
            printer: Printer::new(),
            wakes,
            book: Book::default(),
            clients: Clients::default(),
            leaving: Vec::new(),
            exits: HashMap::new(),
            due: BTreeSet::new(),
            forks: BTreeMap::new(),
            listed: HashSet::new(),
            scan_at: now,
            scanned_ms: now,
            list_at: now,
            look_at: now,
            begun_ms: now,
            looks: 0,
            scans: 0,
            first_us: 0,
            left: false,
            told: 0,
            reader: Reader::There,
        };
        watch.wakes.hear_reader(&watch.printer);
        if let Whom::Process(client) = &wanted.whom {
            watch.clients.watch(*client, &mut watch.wakes);
        }
        Ok(watch)
    }

    fn run(&mut self) -> Result<Exit, Report> {
        let (once, end) = match self.wanted.until {
            Until::Once => (true, None),
            Until::After(ms) => (false, Some(self.begun_ms + ms)),
            Until::Stopped => (false, None),
        };
        loop {
            let now = now_ms();
            self.work(now).map_err(failed)?;
            self.tell_due(now, once)?;
            self.settle_leaving(now)?;
            if self.scans == 1 && self.first_us == 0 {
                self.first_us = clock::used_us();
            }
            let over = once || end.is_some_and(|end| now >= end) || self.done(now)?;
            if once && self.told == 0 {
                talk(&self.wanted.whom.nobody());
            }
            if over || self.reader == Reader::Gone {
                return Ok(if self.left { Exit::Unhealthy } else { Exit::Ok });
            }
            let alarms = self.wakes.wait(self.next(end).saturating_sub(now_ms()));
            for alarm in alarms.map_err(failed)? {
                match alarm {
                    Alarm::Stop | Alarm::ReaderGone => return Ok(Exit::Ok),
                    Alarm::Told(told) => self.hear(&told),
                    Alarm::Ended(who) => self.ended(who)?,
                    Alarm::ClientEnded(who) => self.client_ended(who)?,
                }
            }
        }
    }

    /// When there is something to do without anybody's word.
    fn next(&self, end: Option<u64>) -> u64 {
        let mut next = self.scan_at;
        if self.wakes.no_connector.is_some() {
            next = next.min(self.list_at);
        }
        if !self.due.is_empty() || !self.forks.is_empty() {
            next = next.min(self.look_at);
        }
        let others = [
            end,
            self.book.wake_ms(),
            self.leaving.iter().map(|leaving| leaving.again_ms).min(),
            self.clients.left_at(LEFT_MS),
        ];
        others.into_iter().flatten().fold(next, u64::min)
    }

    fn hear(&mut self, told: &[Told]) {
        for told in told {
            match *told {
                Told::Exec(pid) => {
                    self.exits.remove(&pid);
                    self.due.insert(pid);
                }
                Told::Exit { pid, status } => {
                    if self.exits.len() >= EXITS_KEPT {
                        self.exits.clear();
                    }
                    self.exits.insert(pid, status);
                    self.due.remove(&pid);
                    self.forks.remove(&pid);
                }
                // Not at every one of a storm: a scan costs what it costs.
                Told::Overrun => self.scan_at = self.scan_at.min(self.scanned_ms + LIST_MS),
            }
        }
    }

    /// Looks at whoever is to be looked at by now.
    fn work(&mut self, now: u64) -> io::Result<()> {
        let mut all = false;
        if now >= self.scan_at || (self.wakes.no_connector.is_some() && now >= self.list_at) {
            let pids = census::pids()?;
            all = now >= self.scan_at;
            if all {
                self.scans += 1;
                self.scan_at = now + SCAN_MS;
                self.scanned_ms = now;
                // Those whose end we shall hear are who they were.
                let known = self.wakes.watched_pids();
                let others = pids.iter().filter(|pid| !known.contains(pid));
                self.due.extend(others.copied());
                self.due.extend(self.book.unclear().map(|who| who.pid));
            } else {
                let new = pids.iter().filter(|pid| !self.listed.contains(pid));
                self.due.extend(new.copied());
                // Whoever is not clear yet may have run another program meanwhile.
                self.due.extend(self.book.unclear().map(|who| who.pid));
            }
            self.list_at = now + LIST_MS;
            self.listed = pids.into_iter().collect();
            self.forget_unheard();
        }
        if !all && now < self.look_at {
            return Ok(());
        }
        if self.due.is_empty() && self.forks.is_empty() {
            return Ok(());
        }
        self.look_at = now + LOOK_MS;
        self.look(now);
        Ok(())
    }

    /// Servers without a pidfd are missed by the list alone.
    fn forget_unheard(&mut self) {
        let gone: Vec<Identity> = self
            .book
            .everybody()
            .filter(|who| !self.wakes.hears(*who) && !self.listed.contains(&who.pid))
            .collect();
        for who in gone {
            self.leave(who, None);
        }
    }

    fn look(&mut self, now: u64) {
        self.looks += 1;
        let mut due = std::mem::take(&mut self.due);
        let forks = std::mem::take(&mut self.forks);
        due.extend(forks.keys().copied());
        due.remove(&(std::process::id() as i32));
        let wanted = self.wanted;
        let paths = self.paths.clone();
        let mut look = Look::new(&wanted.whom, &paths);
        for pid in due {
            match look.at(pid) {
                Found::Server(seen) => self.see(*seen, now),
                Found::Later => {
                    let tries = forks.get(&pid).copied().unwrap_or(0) + 1;
                    if tries < FORK_TRIES {
                        self.forks.insert(pid, tries);
                    }
                }
                Found::Nobody => {}
            }
        }
    }

    fn see(&mut self, seen: Candidate, now: u64) {
        let who = seen.who;
        if self.book.knows(who) || self.leaving.iter().any(|leaving| leaving.gone.who == who) {
            if self.book.knows(who) {
                self.book.see(seen, now);
            }
            return;
        }
        match Handle::open(who) {
            Ok(handle) => {
                // Without room for one more descriptor its end is seen by the scan.
                self.wakes.watch(who, handle.into_fd());
                self.book.see(seen, now);
            }
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                self.book.see(seen, now);
            }
            // It has ended between the look and now; that it was there is told all the same.
            Err(_) if launcher::launches(&seen.argv) || seen.forked_only => {}
            Err(_) => {
                self.book.see(seen, now);
                self.leave(who, Some("it ended before it could be watched"));
            }
        }
    }

    /// Tells what has become clear.
    fn tell_due(&mut self, now: u64, at_once: bool) -> Result<(), Report> {
        let tells = self.book.decide(now, at_once);
        self.tell(tells)
    }

    fn tell(&mut self, tells: Vec<Tell>) -> Result<(), Report> {
        let mut lines = Vec::new();
        for tell in tells {
            let (what, who, from) = match tell {
                Tell::New(who) => (Happened::New, who, None),
                Tell::Moved { from, to } => (Happened::Moved, to, Some(from)),
                Tell::Gone(..) => continue,
            };
            let Some((seen, launchers)) = self.book.find(who) else {
                continue;
            };
            let age = age_ms(who);
            let mut line = Line::of(what, now_text(), seen, &launchers, age);
            line.from = from;
            lines.push(line);
        }
        // Several at once are told in the order in which they were started.
        lines.sort_by_key(|line| (line.who.start, line.who.pid));
        for line in lines {
            self.say(&line)?;
        }
        Ok(())
    }

    fn say(&mut self, line: &Line) -> Result<(), Report> {
        self.told += 1;
        let reader = if self.wanted.json {
            self.printer.json_line(line)?
        } else {
            let colour = self.printer.colour();
            self.printer.text(&line.render(colour))?
        };
        self.reader = reader;
        Ok(())
    }

    fn ended(&mut self, who: Identity) -> Result<(), Report> {
        // Whoever has come and gone within one moment is told to have come first.
        self.tell_due(now_ms(), false)?;
        self.leave(who, None);
        Ok(())
    }

    /// Somebody of the book has ended: how, and by whom, may take a moment to be known.
    fn leave(&mut self, who: Identity, unwatched: Option<&'static str>) {
        // It must be told to have come before it is told to be gone.
        let come = self.book.insist(who);
        self.tell(come.into_iter().collect()).ok();
        let fd = self.wakes.forget(who);
        for tell in self.book.ended(who) {
            match tell {
                Tell::Gone(gone, launchers) => {
                    let exit = self.exits.get(&who.pid).copied();
                    let known = Known {
                        fd: fd.as_ref().and_then(|fd| fd.try_clone().ok()),
                        exit,
                        unwatched,
                    };
                    self.leaving
                        .push(Leaving::new(gone, launchers, known, now_ms()));
                }
                Tell::New(_) | Tell::Moved { .. } => {
                    self.tell(vec![tell]).ok();
                }
            }
        }
    }

    /// Tells of those who have gone as soon as it is known how.
    fn settle_leaving(&mut self, now: u64) -> Result<(), Report> {
        let mut waiting = Vec::new();
        let mut lines = Vec::new();
        for mut leaving in std::mem::take(&mut self.leaving) {
            match leaving.settle(&self.paths, &self.exits, now) {
                Some(line) => lines.push(line),
                None => waiting.push(leaving),
            }
        }
        self.leaving = waiting;
        lines.sort_by_key(|line| (line.who.start, line.who.pid));
        for line in lines {
            self.say(&line)?;
        }
        Ok(())
    }

    fn client_ended(&mut self, who: Identity) -> Result<(), Report> {
        if let Some(line) = self.clients.ended(who, &mut self.wakes) {
            self.say(&line)?;
        }
        Ok(())
    }

    /// Whether the one client is gone and there is nothing more to wait for.
    fn done(&mut self, now: u64) -> Result<bool, Report> {
        let Some(left_at) = self.clients.left_at(LEFT_MS) else {
            return Ok(false);
        };
        let left: Vec<Identity> = self.book.told().collect();
        if left.is_empty() {
            return Ok(self.leaving.is_empty());
        }
        if now < left_at {
            return Ok(false);
        }
        for who in left {
            if let Some((seen, launchers)) = self.book.find(who) {
                let line = Line::of(Happened::Left, now_text(), seen, &launchers, age_ms(who));
                self.say(&line)?;
            }
        }
        self.left = true;
        Ok(true)
    }

    fn tell_stats(&self) {
        let ran = now_ms().saturating_sub(self.begun_ms).max(1);
        let first = self.first_us;
        let cpu = clock::used_us().saturating_sub(first);
        let connector = match &self.wakes.no_connector {
            None => "connector".into(),
            Some(why) => format!("no connector ({why})"),
        };
        talk(&format!(
            "stats: {first} us of processor time for the first look, {cpu} us in {ran} ms since then ({}.{:02} % of a core), {} processes on the machine, {} watched, {} looks, {} scans, {connector}\n",
            cpu / ran / 10,
            cpu * 10 / ran % 100,
            self.listed.len(),
            self.book.everybody().count(),
            self.looks,
            self.scans,
        ));
    }
}

fn now_ms() -> u64 {
    clock::now().0 / 1_000_000
}

fn now_text() -> String {
    time::rfc3339(clock::wall_ms())
}

/// How long a process has lived, if it still does.
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
    use std::process::{Child, Command, Stdio};

    fn wanted() -> Wanted {
        Wanted {
            whom: Whom::Process(identity::me().unwrap()),
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
        let mut look = Look::new(&wanted.whom, &paths);
        let Found::Server(found) = look.at(pid) else {
            panic!("it looks like a server")
        };
        *found
    }

    /// Nobody has told of the new one, but that something was lost: the next scan finds it, and soon.
    #[test]
    fn lost_messages_bring_the_next_scan_forward() {
        let _alone = crate::scratch::Place::alone();
        let wanted = wanted();
        let mut watch = Watch::begin(&wanted).unwrap();
        let now = now_ms();
        watch.work(now).unwrap();
        let mut child = server();
        let who = identity::of(child.id() as i32).unwrap();
        assert!(watch.scan_at > now + LIST_MS);
        watch.hear(&[Told::Overrun]);
        assert!(watch.scan_at <= now + LIST_MS);
        watch.list_at = u64::MAX;
        watch.work(now + LIST_MS).unwrap();
        // A fork that has not run its program when the scan comes is looked at again.
        let mut later = now + LIST_MS;
        while !watch.book.knows(who) {
            later += LOOK_MS;
            watch.work(later).unwrap();
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// It has ended, been reaped, and its pid may be another's by now: told to have come and gone, how is not known.
    #[test]
    fn a_server_that_ends_before_it_can_be_watched_is_told_all_the_same() {
        let _alone = crate::scratch::Place::alone();
        let wanted = wanted();
        let mut watch = Watch::begin(&wanted).unwrap();
        let mut child = server();
        let pid = child.id() as i32;
        let mut seen = candidate(pid);
        while seen.forked_only {
            seen = candidate(pid);
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        watch.see(seen.clone(), now_ms());
        assert_eq!(watch.leaving.len(), 1);
        assert!(!watch.book.knows(seen.who));
        let exits = HashMap::new();
        let paths = Paths::nowhere();
        let line = watch.leaving[0].settle(&paths, &exits, u64::MAX).unwrap();
        assert_eq!(line.status, None);
        assert_eq!(line.unknown, Some("it ended before it could be watched"));
        // By the connector's word it is known.
        watch.hear(&[Told::Exit {
            pid,
            status: Status::Code(3),
        }]);
        watch.leaving.clear();
        watch.see(seen, now_ms());
        let line = watch.leaving[0]
            .settle(&paths, &watch.exits, u64::MAX)
            .unwrap();
        assert_eq!(line.status, Some(Status::Code(3)));
    }
}
