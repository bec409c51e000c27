//! One epoll for everything that wakes `mainstay watch`: a signal, the proc connector, the end of a watched process, and the
//! end of the program that reads our output.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mainstay_os::connector::{Connector, ProcessEvent};
use mainstay_os::signals::{Signals, ignore_pipe};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::WATCH_LOOK_MS;
use mainstay_report::plain;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::now_ms;

const STOP: u64 = 0;
const CONNECTOR: u64 = 1;
const READER: u64 = 2;
const CLIENT: u64 = 3;
const FIRST: u64 = 16;
/// Events that one call of `epoll_wait` returns at most.
const EVENTS: usize = 256;

const ONE_SHOT: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// A reason to wake up.
#[derive(Debug)]
pub enum Wakeup {
    /// SIGHUP, SIGINT or SIGTERM.
    Stop,
    /// The program that reads our output has ended.
    ReaderGone,
    /// Messages of the proc connector.
    Connector(Vec<ProcessEvent>),
    /// A watched process has ended.
    Ended(Identity),
    ClientEnded(Identity),
}

/// The epoll, with the descriptors that it waits for.
#[derive(Debug)]
pub struct Wakeups {
    /// The reason why the proc connector is not used.
    pub no_connector: Option<String>,
    epoll: OwnedFd,
    connector: Option<Connector>,
    /// Until then the connector is not read, so that many starts at once cause few wakeups.
    paused_until_ms: Option<u64>,
    client: Option<(Identity, OwnedFd)>,
    watched: HashMap<Identity, (u64, OwnedFd)>,
    tokens: HashMap<u64, Identity>,
    next: u64,
    _signals: Signals,
}

impl Wakeups {
    /// Opens everything except the pidfds, which [`Self::watch`] adds.
    pub fn open(with_connector: bool) -> io::Result<Self> {
        let signals = Signals::open(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM])?;
        ignore_pipe();
        raise_file_limit();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signals, EventData::new_u64(STOP), EventFlags::IN)?;
        let mut wakeups = Self {
            no_connector: Some("switched off".into()),
            epoll,
            connector: None,
            paused_until_ms: None,
            client: None,
            watched: HashMap::new(),
            tokens: HashMap::new(),
            next: FIRST,
            _signals: signals,
        };
        if with_connector {
            match Connector::open() {
                Ok(connector) => {
                    let data = EventData::new_u64(CONNECTOR);
                    epoll::add(&wakeups.epoll, &connector, data, ONE_SHOT)?;
                    wakeups.connector = Some(connector);
                    wakeups.no_connector = None;
                }
                Err(error) => wakeups.no_connector = Some(plain(&error)),
            }
        }
        Ok(wakeups)
    }

    /// Wakes when the program that reads our output ends.
    pub fn watch_reader(&mut self, output: &impl AsFd) {
        // A regular file cannot be added to an epoll, and has no reader that could end.
        epoll::add(
            &self.epoll,
            output,
            EventData::new_u64(READER),
            EventFlags::empty(),
        )
        .ok();
    }

    /// Wakes when this process ends. If epoll has no room, only the scan notices its end.
    pub fn watch(&mut self, who: Identity, fd: OwnedFd) {
        let token = self.next;
        self.next += 1;
        let data = EventData::new_u64(token);
        if epoll::add(&self.epoll, &fd, data, EventFlags::IN).is_ok() {
            self.tokens.insert(token, who);
            self.watched.insert(who, (token, fd));
        }
    }

    /// Whether the end of this process causes a wakeup.
    pub fn watches(&self, who: Identity) -> bool {
        self.watched.contains_key(&who)
    }

    /// Stops waiting for the end of this process, and returns its pidfd.
    pub fn unwatch(&mut self, who: Identity) -> Option<OwnedFd> {
        let (token, fd) = self.watched.remove(&who)?;
        self.tokens.remove(&token);
        epoll::delete(&self.epoll, &fd).ok();
        Some(fd)
    }

    /// Wakes when the client ends.
    pub fn watch_client(&mut self, who: Identity, fd: OwnedFd) {
        let data = EventData::new_u64(CLIENT);
        epoll::add(&self.epoll, &fd, data, EventFlags::IN).ok();
        self.client = Some((who, fd));
    }

    /// Stops waiting for the client, and returns its pidfd.
    pub fn unwatch_client(&mut self) -> Option<OwnedFd> {
        let (_, fd) = self.client.take()?;
        epoll::delete(&self.epoll, &fd).ok();
        Some(fd)
    }

    /// Waits for the next wakeups, at most this long.
    pub fn wait(&mut self, within_ms: u64) -> io::Result<Vec<Wakeup>> {
        let within_ms = self
            .resume_connector()?
            .map_or(within_ms, |ms| ms.min(within_ms));
        let within = Timespec {
            tv_sec: (within_ms / 1_000) as i64,
            tv_nsec: (within_ms % 1_000 * 1_000_000) as i64,
        };
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&within),
        ) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let mut wakeups_due = Vec::with_capacity(events.len());
        for event in &events {
            let event: &epoll::Event = event;
            let token = event.data.u64();
            wakeups_due.extend(match token {
                STOP => Some(Wakeup::Stop),
                READER => Some(Wakeup::ReaderGone),
                CONNECTOR => self.read_connector()?,
                CLIENT => self
                    .client
                    .as_ref()
                    .map(|(who, _)| Wakeup::ClientEnded(*who)),
                token => self.tokens.get(&token).map(|who| Wakeup::Ended(*who)),
            });
        }
        // Starts before ends: a process that started and ended must be known before its end is handled.
        wakeups_due.sort_by_key(|wakeup| !matches!(wakeup, Wakeup::Connector(_)));
        Ok(wakeups_due)
    }

    /// The pids whose end causes a wakeup.
    pub fn watched_pids(&self) -> HashSet<i32> {
        self.watched.keys().map(|who| who.pid).collect()
    }

    /// Reads the connector again when the pause is over; otherwise returns the rest of the pause.
    fn resume_connector(&mut self) -> io::Result<Option<u64>> {
        let (Some(until), Some(connector)) = (self.paused_until_ms, &self.connector) else {
            return Ok(None);
        };
        let left = until.saturating_sub(now_ms());
        if left > 0 {
            return Ok(Some(left));
        }
        let data = EventData::new_u64(CONNECTOR);
        epoll::modify(&self.epoll, connector, data, ONE_SHOT)?;
        self.paused_until_ms = None;
        Ok(None)
    }

    fn read_connector(&mut self) -> io::Result<Option<Wakeup>> {
        self.paused_until_ms = Some(now_ms() + WATCH_LOOK_MS);
        let Some(connector) = &self.connector else {
            return Ok(None);
        };
        let mut messages = Vec::new();
        connector.read(&mut messages)?;
        Ok(Some(Wakeup::Connector(messages)))
    }
}

/// Raises the limit of open files, because each watched process needs a descriptor.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // A failure is harmless: the scan notices the ends of processes without a descriptor.
    setrlimit(Resource::Nofile, raised).ok();
}
