//! The newcomer: looks for a warm server for its client, and takes it over if the first line of the client is a handshake.
//!
//! Nothing was started yet and no signal is caught, so a signal that ends this process ends nothing else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mainstay_clients::behaviour::Owner;
use mainstay_os::channel::{Channel, Heard, Word};
use mainstay_os::packet_socket::{PacketConnection, Received};
use mainstay_os::record::Region;
use mainstay_os::{clock, role};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::ids::{Identity, LinkId};
use mainstay_protocol::limits::{HANDOVER_MS, WHOLE_LINE_BYTES};
use mainstay_protocol::message::envelope::{self, Era};
use mainstay_protocol::message::frame::{Fed, Kind, Scanner};
use mainstay_store::registry::ask::same_user;
use mainstay_store::state::Directory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::packets::{Hello, PACKET_BYTES, Request, read_answer};
use crate::plan::Plan;

/// What the search for a warm server found.
#[derive(Debug)]
pub enum Search {
    /// No warm server: one must be started. These bytes of the client were read already.
    NotFound(Vec<u8>),
    /// A warm server was taken over.
    Attached(AttachedLink),
    /// The client closed its pipe before it sent a handshake.
    ClientLeft,
}

/// What the next shim of a link needs.
#[derive(Debug)]
pub struct AttachedLink {
    /// The link.
    pub link: LinkId,
    /// Its shared memory.
    pub region: Region,
    /// The channel to its keeper.
    pub channel: Channel,
    /// Guard and keeper.
    pub pair: (Identity, Identity),
}

/// Looks for a warm server of this configuration and this client.
pub fn find_warm_server(plan: &Plan) -> Search {
    match plan.paths.warm().open() {
        Ok(directory) => search_in(&directory, plan),
        Err(_) => Search::NotFound(Vec::new()),
    }
}

/// Never inlined: this is rare, and its stack would stay reserved for the whole life of the shim.
#[inline(never)]
fn search_in(directory: &Directory, plan: &Plan) -> Search {
    let Some(owner) = Owner::among(&plan.above(), &role::standard(0)) else {
        return Search::NotFound(Vec::new());
    };
    let prefix = super::prefix(plan, owner.who);
    let hosts = warm_keepers(directory, &prefix);
    let guest = Newcomer {
        hosts,
        read: Vec::new(),
    };
    guest.wait()
}

struct Newcomer {
    hosts: Vec<WarmKeeper>,
    /// What was read from the client so far.
    read: Vec<u8>,
}

/// The keeper of a warm server.
struct WarmKeeper {
    visit: PacketConnection,
    hello: Hello,
    region: Region,
}

/// The first line of the client.
enum FirstLine {
    /// Not complete yet.
    Part,
    /// Empty.
    Blank(usize),
    /// A probe, which opens no session.
    Discover(usize),
    /// A handshake, in this era.
    Opening { modern: bool },
    /// Anything else.
    Other,
}

impl Newcomer {
    fn wait(mut self) -> Search {
        let mut ended = false;
        loop {
            if self.hosts.is_empty() {
                return Search::NotFound(self.read);
            }
            match first(&self.read) {
                FirstLine::Blank(len) => drop(self.read.drain(..len)),
                FirstLine::Discover(len) => {
                    if !self.probe(len) {
                        return Search::NotFound(self.read);
                    }
                }
                FirstLine::Opening { modern } => return self.enter(modern),
                FirstLine::Other => return Search::NotFound(self.read),
                FirstLine::Part if ended && self.read.is_empty() => return Search::ClientLeft,
                FirstLine::Part if ended || self.read.len() >= WHOLE_LINE_BYTES => {
                    return Search::NotFound(self.read);
                }
                FirstLine::Part => ended = self.listen(),
            }
        }
    }

    /// Waits for bytes of the client, or for a keeper that leaves. True if the client has closed its pipe.
    fn listen(&mut self) -> bool {
        let stdin = role::standard(0);
        let mut fds = vec![PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        let hosts = self.hosts.iter();
        fds.extend(hosts.map(|host| PollFd::from_borrowed_fd(host.visit.as_fd(), PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        // A keeper sends nothing now; it can only leave.
        let mut rest = ready[1..].iter();
        self.hosts
            .retain(|_| !rest.next().copied().unwrap_or_default());
        if !ready[0] {
            return false;
        }
        let mut chunk = [0; 16 * 1024];
        let room = chunk.len().min(WHOLE_LINE_BYTES - self.read.len());
        match rustix::io::read(stdin, &mut chunk[..room]) {
            Ok(0) => true,
            Ok(len) => {
                self.read.extend_from_slice(&chunk[..len]);
                false
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// Answers a probe for the warm server, without taking it over. False if no keeper knows the answer.
    fn probe(&mut self, len: usize) -> bool {
        let Some(host) = self.hosts.first() else {
            return true;
        };
        let asked = host
            .visit
            .send(&Request::Probe(&self.read[..len]).packet(), &[]);
        let mut packet = vec![0; PACKET_BYTES + 1];
        let answer = asked
            .and_then(|()| hear(&host.visit, &mut packet, &mut Vec::new()))
            .and_then(|len| read_answer(&packet[..len]));
        match answer {
            Ok(Some(line)) => {
                self.read.drain(..len);
                write_to_client(line)
            }
            Ok(None) => false,
            Err(_) => {
                // This keeper has left. The next one may know.
                self.hosts.remove(0);
                true
            }
        }
    }

    /// Hands our pipes over to the first keeper that takes them.
    fn enter(self, modern: bool) -> Search {
        let fits = |host: &WarmKeeper| host.hello.modern == modern;
        for host in self.hosts.into_iter().filter(fits) {
            if let Some(welcome) = hand_over(host, &self.read) {
                return Search::Attached(welcome);
            }
        }
        Search::NotFound(self.read)
    }
}

fn hand_over(host: WarmKeeper, read: &[u8]) -> Option<AttachedLink> {
    let (channel, theirs) = Channel::pair().ok()?;
    let packet = Request::Take(read).packet();
    let [stdin, stdout, stderr] = [0, 1, 2].map(role::standard);
    host.visit
        .send(&packet, &[stdin, stdout, stderr, theirs.as_fd()])
        .ok()?;
    // From now on only the keeper has the other end. If it did not take us, the channel is closed.
    drop(theirs);
    let mut pair = wait_for_keeper(&channel, HANDOVER_MS);
    if pair.is_none() {
        // A stopped keeper that goes on later must not find us waiting.
        drop(host.visit);
        pair = wait_for_keeper(&channel, 0);
    }
    Some(AttachedLink {
        link: host.hello.link,
        region: host.region,
        pair: pair?,
        channel,
    })
}

/// Guard and keeper of the link; none if the keeper does not answer in time.
fn wait_for_keeper(channel: &Channel, ms: u64) -> Option<(Identity, Identity)> {
    let until = clock::now().after_ms(ms);
    loop {
        match channel.hear() {
            Heard::Word(Word::Here { guard, keeper }) => return Some((guard, keeper)),
            Heard::Word(
                Word::Finished { .. }
                | Word::GaveUp
                | Word::Signalled(_)
                | Word::Leave
                | Word::Stay
                | Word::Release
                | Word::Attach
                | Word::Client(_)
                | Word::Ask
                | Word::Answer
                | Word::Spawned,
            ) => {}
            Heard::Closed => return None,
            Heard::Nothing => {
                if !readable(channel, until) {
                    return None;
                }
            }
        }
    }
}

/// The keepers with a warm server for our client, of our version.
fn warm_keepers(directory: &Directory, prefix: &str) -> Vec<WarmKeeper> {
    let mut names = directory.names().unwrap_or_default();
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    let host = |name: &String| greet(PacketConnection::connect(directory.as_fd(), name).ok()?);
    names.iter().filter_map(host).collect()
}

fn greet(visit: PacketConnection) -> Option<WarmKeeper> {
    if !same_user(&visit) {
        return None;
    }
    let (mut packet, mut lent) = (vec![0; 256], Vec::new());
    let len = hear(&visit, &mut packet, &mut lent).ok()?;
    let hello = Hello::read(&packet[..len])?;
    let [region] = <[OwnedFd; 1]>::try_from(lent).ok()?;
    Some(WarmKeeper {
        visit,
        hello,
        region: Region::lent(region).ok()?,
    })
}

/// Waits for one packet, for a limited time.
fn hear(visit: &PacketConnection, packet: &mut [u8], lent: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let until = clock::now().after_ms(HANDOVER_MS);
    loop {
        match visit.receive(packet, lent) {
            Received::Bytes(len) => return Ok(len),
            Received::Gone => return Err(io::ErrorKind::ConnectionReset.into()),
            Received::Nothing => {
                if !readable(visit, until) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

/// Waits for input. False if none came in time.
fn readable(from: &impl AsFd, until: Moment) -> bool {
    let left = until.0.saturating_sub(clock::now().0);
    let wait = Timespec {
        tv_sec: (left / 1_000_000_000) as i64,
        tv_nsec: (left % 1_000_000_000) as i64,
    };
    let mut fds = [PollFd::new(from, PollFlags::IN)];
    match poll(&mut fds, Some(&wait)) {
        Ok(0) => false,
        Ok(_) | Err(rustix::io::Errno::INTR) => true,
        Err(_) => false,
    }
}

fn first(read: &[u8]) -> FirstLine {
    let mut scanner = Scanner::new();
    let Fed::Line { used } = scanner.feed(read) else {
        return FirstLine::Part;
    };
    let frame = scanner.frame();
    match (frame.kind, frame.method.as_deref()) {
        (Kind::Blank, _) => FirstLine::Blank(used),
        (Kind::Request, Some("server/discover")) => FirstLine::Discover(used),
        (Kind::Request, Some("initialize")) => FirstLine::Opening { modern: false },
        (Kind::Request, _) if envelope::era(&read[..used]) == Era::Modern => {
            FirstLine::Opening { modern: true }
        }
        (
            Kind::Request
            | Kind::Notification
            | Kind::Response
            | Kind::Error
            | Kind::Batch
            | Kind::Junk,
            _,
        ) => FirstLine::Other,
    }
}

/// Writes our own answer to the client. False if it cannot be written.
pub fn write_to_client(mut line: &[u8]) -> bool {
    let stdout = role::standard(1);
    while !line.is_empty() {
        match rustix::io::write(stdout, line) {
            Ok(len) => line = &line[len..],
            Err(rustix::io::Errno::AGAIN) => {
                let mut fds = [PollFd::from_borrowed_fd(stdout, PollFlags::OUT)];
                if poll(&mut fds, None).is_err() {
                    return false;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(read: &str) -> &'static str {
        match first(read.as_bytes()) {
            FirstLine::Part => "part",
            FirstLine::Blank(_) => "blank",
            FirstLine::Discover(_) => "discover",
            FirstLine::Opening { modern: false } => "legacy",
            FirstLine::Opening { modern: true } => "modern",
            FirstLine::Other => "other",
        }
    }

    #[test]
    fn the_first_line_says_what_the_client_wants() {
        let meta = r#""params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        for (read, wanted) in [
            (String::new(), "part"),
            (r#"{"id":1,"method":"initialize""#.into(), "part"),
            ("\r\n{}".into(), "blank"),
            ("{\"id\":1,\"method\":\"initialize\"}\n{".into(), "legacy"),
            (
                format!("{{\"id\":1,\"method\":\"server/discover\",{meta}}}\n"),
                "discover",
            ),
            (
                format!("{{\"id\":1,\"method\":\"tools/list\",{meta}}}\n"),
                "modern",
            ),
            ("{\"id\":1,\"method\":\"tools/list\"}\n".into(), "other"),
            (
                "{\"method\":\"notifications/initialized\"}\n".into(),
                "other",
            ),
            ("junk\n".into(), "other"),
        ] {
            assert_eq!(word(&read), wanted, "{read}");
        }
    }
}
