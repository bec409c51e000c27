//! The modern era: one [`ModernServer`] for all clients of a path, and the way of a request to it.
//!
//! A request waits until the server has said what it speaks, until the tool list is there that its headers are compared with,
//! and until the link takes another line. A server that turns out to be of the legacy era is ended again, and its clients are
//! told so.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;

use super::exchanges::{Source, State};
use super::headers;
use super::limits::LEGACY_KNOWN_MS;
use super::links::Role;
use super::modern_server::{Fresh, Listed, ModernLine, ModernServer, Said, Speaks};
use super::outputs::Count;
use super::paths::Paths;
use super::posted::{Kind, LEGACY};
use super::requests::{Post, Refused, Step};
use super::traffic::{Next, Progress, Traffic};
use crate::headers::text;

/// How many servers may turn out not to be of the modern era before a client is told so.
const TRIES: u8 = 2;

/// What a request of the modern era waits for before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// It waits for a server.
    Server,
    /// It waits until this server has said what it speaks.
    Versions(u64),
    /// It waits for the tool list of this server.
    ToolList(u64, Fresh),
    /// It waits until this server takes another line.
    Room(u64),
}

/// The servers of the modern era, by their links.
#[derive(Debug, Default)]
pub(super) struct ModernEra {
    servers: BTreeMap<u64, ModernServer>,
    /// The server that new requests of a path go to.
    of_path: BTreeMap<u64, u64>,
    /// When the server of a path said that it is of the legacy era.
    legacy_since: BTreeMap<u64, Moment>,
}

/// What clients ask.
impl ModernEra {
    /// A request of the modern era has come.
    pub fn admit(post: &Post<'_>, paths: &Paths) -> Next {
        if !matches!(post.posted.kind, Kind::Request(_)) {
            // The modern era has no notification of a client over HTTP, and no answer.
            return Ok(Progress::Is(Step::Accepted));
        }
        let version = post.posted.version().ok_or(Refused::VersionMissing)?;
        headers::standard(post.posted, &version, post.header).map_err(Refused::Mismatch)?;
        paths.check_open(post.path)?;
        Ok(becomes(Waits::Server))
    }

    /// A request goes one step further on its way to the server.
    pub fn step(
        &mut self,
        now: Moment,
        number: u64,
        waits: Waits,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Next {
        match waits {
            Waits::Server => {
                let link = self.server_of(now, post, traffic)?;
                Ok(becomes(Waits::Versions(link)))
            }
            Waits::Versions(link) => self.check_version(now, number, link, post, traffic),
            Waits::ToolList(link, fresh) => self.compare(now, number, link, fresh, post, traffic),
            Waits::Room(link) => self.send(now, number, link, post, traffic),
        }
    }

    /// The server behind a path. The first request has it started.
    fn server_of(
        &mut self,
        now: Moment,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Result<u64, Refused> {
        if let Some(since) = self.legacy_since.get(&post.path)
            && now.ms_since(*since) < LEGACY_KNOWN_MS
        {
            return Err(legacy_only(post));
        }
        if let Some(link) = self.of_path.get(&post.path)
            && self.servers.get(link).is_some_and(ModernServer::is_open)
        {
            return Ok(*link);
        }
        let (server, line) = ModernServer::new(now, traffic.draw);
        let link = traffic.start_link(post.path, Role::Modern);
        self.servers.insert(link, server);
        self.of_path.insert(post.path, link);
        traffic.send(link, line);
        Ok(link)
    }

    fn check_version(
        &self,
        now: Moment,
        number: u64,
        link: u64,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Next {
        let versions = match self.servers.get(&link).map(ModernServer::speaks) {
            Some(Speaks::Asked(..)) => return Ok(Progress::WaitsFor(link)),
            Some(Speaks::Modern(versions)) => versions,
            Some(Speaks::Legacy(Said::Itself | Said::Nothing)) | None => {
                return try_next(number, post, traffic);
            }
        };
        let version = post.posted.version().ok_or(Refused::VersionMissing)?;
        if !versions.iter().any(|known| *known == version) {
            return Err(Refused::Version {
                supported: versions.clone(),
                requested: version.to_string(),
            });
        }
        if !post.posted.tells_capabilities() {
            return Err(Refused::CapabilitiesMissing);
        }
        // The server decides about any other method. This one could make it take us for a client of the legacy era.
        if post.posted.method == "initialize" {
            return Err(Refused::NoInitialize);
        }
        Ok(becomes(Waits::ToolList(link, Fresh::Recent(now))))
    }

    /// Compares a call with the headers that repeat its arguments.
    fn compare(
        &mut self,
        now: Moment,
        number: u64,
        link: u64,
        fresh: Fresh,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Next {
        let tool = (post.posted.method == "tools/call").then(|| post.posted.param("name"));
        let Some(tool) = tool.flatten() else {
            return Ok(becomes(Waits::Room(link)));
        };
        let Some(server) = self.servers.get_mut(&link) else {
            return try_next(number, post, traffic);
        };
        match server.tools(now, fresh) {
            Listed::Known(mirrors) => {
                let judged = mirrors.judge(&tool, post.posted.arguments(), post.header);
                match (judged, fresh) {
                    (Ok(()), _) => Ok(becomes(Waits::Room(link))),
                    (Err(mismatch), Fresh::Since(_)) => Err(Refused::Mismatch(mismatch)),
                    // An old list is good enough to let a call through, but not to refuse one.
                    (Err(_), Fresh::Recent(_)) => {
                        Ok(becomes(Waits::ToolList(link, Fresh::Since(now))))
                    }
                }
            }
            Listed::Unanswered => Ok(becomes(Waits::Room(link))),
            Listed::Wait => Ok(Progress::WaitsFor(link)),
            Listed::Ask(line) => {
                traffic.send(link, line);
                Ok(Progress::WaitsFor(link))
            }
        }
    }

    /// Sends a request as soon as its server takes another line.
    fn send(
        &mut self,
        now: Moment,
        number: u64,
        link: u64,
        post: &Post<'_>,
        traffic: &mut Traffic,
    ) -> Next {
        if traffic.links.is_full(link) {
            return Ok(Progress::WaitsFor(link));
        }
        let server = self.servers.get_mut(&link);
        let Some(server) = server.filter(|server| server.is_open()) else {
            return try_next(number, post, traffic);
        };
        if server.in_flight() as u64 >= traffic.limits.requests_max {
            return Err(Refused::Requests);
        }
        let asked = server.ask(now, post.posted, post.line, number);
        let (request, line) = asked.ok_or(Refused::Unreadable)?;
        traffic.expect_messages(now, number);
        traffic.send(link, line);
        traffic.out.count(Count::Modern);
        Ok(Progress::Becomes(State::Asked(Source::Modern {
            link,
            number: request,
        })))
    }

    /// The client of a request has left.
    pub fn left(&mut self, now: Moment, link: u64, request: u64, traffic: &mut Traffic) {
        if let Some(server) = self.servers.get_mut(&link)
            && let Some(line) = server.left(now, request)
        {
            traffic.send(link, line);
        }
        self.close_if_done(link, traffic);
    }

    /// Whether no client waits for an answer. Those that only listen never stop.
    pub fn is_idle(&self) -> bool {
        self.servers.values().all(ModernServer::is_idle)
    }
}

/// What servers say, and how they end.
impl ModernEra {
    /// A line of a server.
    pub fn hear(&mut self, now: Moment, link: u64, line: &[u8], traffic: &mut Traffic) {
        let Some(server) = self.servers.get_mut(&link) else {
            return;
        };
        match server.hear(now, line, traffic.exchanges.queues()) {
            ModernLine::Answered(ns) => {
                traffic.out.count(Count::Answered(ns));
                self.close_if_done(link, traffic);
            }
            ModernLine::Passed => {}
            ModernLine::Dropped => traffic.out.count(Count::Dropped),
            ModernLine::Unexpected => traffic.out.count(Count::Unexpected),
            ModernLine::Learned(line) => {
                if let Some(line) = line {
                    traffic.send(link, line);
                }
                traffic.wake_waiting(link);
                self.end_if_legacy(now, link, traffic);
            }
        }
    }

    /// When [`ModernEra::tick`] is due, if an unused server lives for this time.
    pub fn wake_at(&self, ttl_ms: u64) -> Option<Moment> {
        let all = self.servers.values().flat_map(|server| {
            let unused = server.unused_since().map(|since| since.after_ms(ttl_ms));
            unused.into_iter().chain(server.wake_at())
        });
        all.min()
    }

    /// Time has passed: questions that were not answered are given up, and servers that no client uses end.
    pub fn tick(&mut self, now: Moment, traffic: &mut Traffic) {
        let ttl_ms = traffic.limits.session_ttl_ms;
        for link in self.links() {
            let Some(server) = self.servers.get_mut(&link) else {
                continue;
            };
            if let Some(line) = server.tick(now) {
                traffic.send(link, line);
                traffic.wake_waiting(link);
                self.end_if_legacy(now, link, traffic);
            }
            let server = self.servers.get(&link);
            let unused = server.and_then(ModernServer::unused_since);
            if unused.is_some_and(|since| since.after_ms(ttl_ms) <= now) {
                self.end(link, "unused for a while", traffic);
            }
        }
    }

    /// The server of this path takes nothing new; what is in flight goes on.
    pub fn retire(&mut self, path: u64, traffic: &mut Traffic) {
        let Some(link) = self.of_path.remove(&path) else {
            return;
        };
        if let Some(server) = self.servers.get_mut(&link) {
            server.retire();
        }
        self.close_if_done(link, traffic);
        traffic.wake_waiting(link);
    }

    /// Ends all servers now.
    pub fn end_all(&mut self, why: &str, traffic: &mut Traffic) {
        for link in self.links() {
            self.end(link, why, traffic);
        }
    }

    /// The link is gone: what is in flight is answered here.
    pub fn remove(&mut self, link: u64, why: &str, traffic: &mut Traffic) {
        self.of_path.retain(|_, held| *held != link);
        if let Some(mut server) = self.servers.remove(&link) {
            let settled = server.settle(why, traffic.exchanges.queues());
            traffic.out.count_settled(settled);
        }
    }

    /// States what holds after each step.
    pub fn check(&self, traffic: &Traffic) {
        for (link, server) in &self.servers {
            debug_assert_eq!(
                traffic.links.role(*link),
                Some(Role::Modern),
                "the link of a modern server has another use"
            );
            server.check();
        }
        let links = traffic.links.roles();
        let modern = links.filter(|(_, role)| *role == Role::Modern);
        debug_assert_eq!(
            modern.count(),
            self.servers.len(),
            "a link of the modern era has a server"
        );
    }

    fn links(&self) -> Vec<u64> {
        self.servers.keys().copied().collect()
    }

    fn end(&mut self, link: u64, why: &str, traffic: &mut Traffic) {
        self.remove(link, why, traffic);
        traffic.close_link(link);
    }

    fn close_if_done(&mut self, link: u64, traffic: &mut Traffic) {
        if self.servers.get(&link).is_some_and(ModernServer::is_done) {
            self.end(link, "nothing is in flight", traffic);
        }
    }

    /// A server of the legacy era is ended again. The path counts as such for a while, if the server said so itself.
    fn end_if_legacy(&mut self, now: Moment, link: u64, traffic: &mut Traffic) {
        let said = match self.servers.get(&link).map(ModernServer::speaks) {
            Some(Speaks::Legacy(said)) => *said,
            Some(Speaks::Asked(..) | Speaks::Modern(_)) | None => return,
        };
        if let Some(path) = traffic.links.path(link) {
            match said {
                Said::Itself => self.legacy_since.insert(path, now),
                Said::Nothing => self.legacy_since.remove(&path),
            };
        }
        self.end(link, "the server is of the legacy era", traffic);
    }
}

fn becomes(waits: Waits) -> Progress {
    Progress::Becomes(State::Modern(waits))
}

/// The server was of no use: another one is tried, a few times.
fn try_next(number: u64, post: &Post<'_>, traffic: &mut Traffic) -> Next {
    if traffic.exchanges.count_server_tried(number) >= TRIES {
        return Err(legacy_only(post));
    }
    Ok(becomes(Waits::Server))
}

fn legacy_only(post: &Post<'_>) -> Refused {
    Refused::LegacyOnly {
        discover: post.posted.method == "server/discover",
    }
}

/// Whether a request is of the modern era: it says so in its body, or names a version that no legacy client knows.
pub(super) fn is_modern(post: &Post<'_>) -> bool {
    post.posted.version().is_some() || names_modern_version(post.version)
}

/// Whether a header names a version that no legacy client knows.
pub(super) fn names_modern_version(version: Option<&[u8]>) -> bool {
    let told = version.and_then(text);
    told.is_some_and(|told| !LEGACY.contains(&told))
}
