//! Everything that wakes us, behind one epoll: a signal, the connector, the ends of those we know, a reader that left.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mainstay_core::ids::Identity;
use mainstay_core::limits::WATCH_LOOK_MS;
use mainstay_os::connector::{Connector, Told};
use mainstay_os::signals::{Signals, ignore_pipe};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::now_ms;
use crate::report::plain;

const STOP: u64 = 0;
const CONNECTOR: u64 = 1;
const READER: u64 = 2;
const CLIENT: u64 = 3;
const FIRST: u64 = 16;
/// Ends that are taken from the kernel at once.
const EVENTS: usize = 256;

const SIP: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// Why we were woken.
#[derive(Debug)]
pub enum Alarm {
    /// A signal asks us to end.
    Stop,
    /// Nobody reads our output any more.
    ReaderGone,
    /// The connector's word.
    Told(Vec<Told>),
    /// Somebody who is watched has ended.
    Ended(Identity),
    /// The client has ended.
    ClientEnded(Identity),
}

/// Everything that wakes us.
#[derive(Debug)]
pub struct Wakes {
    /// Why the connector is not used, if it is not.
    pub no_connector: Option<String>,
    epoll: OwnedFd,
    connector: Option<Connector>,
    /// While this lasts the connector is not listened to: a storm of programs is taken in a few sips.
    deaf_until_ms: Option<u64>,
    client: Option<(Identity, OwnedFd)>,
    watched: HashMap<Identity, (u64, OwnedFd)>,
    tokens: HashMap<u64, Identity>,
    next: u64,
    _signals: Signals,
}

impl Wakes {
    /// Opens everything but the ends of others.
    pub fn open(with_connector: bool) -> io::Result<Self> {
        let signals = Signals::open(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM])?;
        ignore_pipe();
        raise_files();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signals, EventData::new_u64(STOP), EventFlags::IN)?;
        let mut wakes = Self {
            no_connector: Some("as asked for".into()),
            epoll,
            connector: None,
            deaf_until_ms: None,
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
                    epoll::add(&wakes.epoll, &connector, data, SIP)?;
                    wakes.connector = Some(connector);
                    wakes.no_connector = None;
                }
                Err(error) => wakes.no_connector = Some(plain(&error)),
            }
        }
        Ok(wakes)
    }

    /// Notices when the reader of our output leaves, if it is one that can.
    pub fn hear_reader(&mut self, output: &impl AsFd) {
        // A file cannot be waited for, and nobody leaves it either.
        epoll::add(
            &self.epoll,
            output,
            EventData::new_u64(READER),
            EventFlags::empty(),
        )
        .ok();
    }

    /// Waits for somebody's end; without room for that its end is not heard.
    pub fn watch(&mut self, who: Identity, fd: OwnedFd) {
        let token = self.next;
        self.next += 1;
        let data = EventData::new_u64(token);
        if epoll::add(&self.epoll, &fd, data, EventFlags::IN).is_ok() {
            self.tokens.insert(token, who);
            self.watched.insert(who, (token, fd));
        }
    }

    /// Whether somebody's end will be heard.
    pub fn hears(&self, who: Identity) -> bool {
        self.watched.contains_key(&who)
    }

    /// Does not wait for somebody's end any more; the pidfd.
    pub fn forget(&mut self, who: Identity) -> Option<OwnedFd> {
        let (token, fd) = self.watched.remove(&who)?;
        self.tokens.remove(&token);
        epoll::delete(&self.epoll, &fd).ok();
        Some(fd)
    }

    /// Waits for the client's end.
    pub fn watch_client(&mut self, who: Identity, fd: OwnedFd) {
        let data = EventData::new_u64(CLIENT);
        epoll::add(&self.epoll, &fd, data, EventFlags::IN).ok();
        self.client = Some((who, fd));
    }

    /// Does not wait for the client's end any more; the pidfd.
    pub fn forget_client(&mut self) -> Option<OwnedFd> {
        let (_, fd) = self.client.take()?;
        epoll::delete(&self.epoll, &fd).ok();
        Some(fd)
    }

    /// Waits, but not longer than this.
    pub fn wait(&mut self, within_ms: u64) -> io::Result<Vec<Alarm>> {
        let within_ms = self
            .listen_again()?
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
        let mut alarms = Vec::with_capacity(events.len());
        for event in &events {
            let event: &epoll::Event = event;
            let token = event.data.u64();
            alarms.extend(match token {
                STOP => Some(Alarm::Stop),
                READER => Some(Alarm::ReaderGone),
                CONNECTOR => self.told()?,
                CLIENT => self
                    .client
                    .as_ref()
                    .map(|(who, _)| Alarm::ClientEnded(*who)),
                token => self.tokens.get(&token).map(|who| Alarm::Ended(*who)),
            });
        }
        // Who has come is to be known before who has gone.
        alarms.sort_by_key(|alarm| !matches!(alarm, Alarm::Told(_)));
        Ok(alarms)
    }

    /// Whether somebody's end will be heard, by pid.
    pub fn watched_pids(&self) -> HashSet<i32> {
        self.watched.keys().map(|who| who.pid).collect()
    }

    /// Listens to the connector again when it is time; how long it is until then.
    fn listen_again(&mut self) -> io::Result<Option<u64>> {
        let (Some(until), Some(connector)) = (self.deaf_until_ms, &self.connector) else {
            return Ok(None);
        };
        let left = until.saturating_sub(now_ms());
        if left > 0 {
            return Ok(Some(left));
        }
        let data = EventData::new_u64(CONNECTOR);
        epoll::modify(&self.epoll, connector, data, SIP)?;
        self.deaf_until_ms = None;
        Ok(None)
    }

    fn told(&mut self) -> io::Result<Option<Alarm>> {
        self.deaf_until_ms = Some(now_ms() + WATCH_LOOK_MS);
        let Some(connector) = &self.connector else {
            return Ok(None);
        };
        let mut told = Vec::new();
        connector.read(&mut told)?;
        Ok(Some(Alarm::Told(told)))
    }
}

/// One descriptor for each server: as many as we may have.
fn raise_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused nowhere; with fewer, the scan sees the ends of the rest.
    setrlimit(Resource::Nofile, raised).ok();
}
