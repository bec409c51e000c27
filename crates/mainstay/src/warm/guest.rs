//! The newcomer's side: is there a warm server for our client, and does the client's first line want it?
//!
//! Nothing was started yet and no signal is caught: whoever ends this process ends nothing else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mainstay_core::clock::Moment;
use mainstay_core::ids::{Identity, LinkId};
use mainstay_core::limits::{HANDOVER_MS, WHOLE_LINE_BYTES};
use mainstay_core::message::envelope::{self, Era};
use mainstay_core::message::frame::{Fed, Kind, Scanner};
use mainstay_os::channel::{Channel, Heard, Word};
use mainstay_os::door::{Said, Visit};
use mainstay_os::record::Region;
use mainstay_os::{clock, role};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::word::{Hello, PACKET_BYTES, Request, read_answer};
use crate::keeper::plan::Plan;
use crate::profile::Owner;
use crate::registry::ask::same_user;
use crate::state::Directory;

/// What came of it.
#[derive(Debug)]
pub enum Meeting {
    /// Nobody lingers for us: a server is to be started, and these bytes of the client's were read already.
    Nobody(Vec<u8>),
    /// A warm server is ours.
    Warm(Welcome),
    /// The client has left before it wanted anything.
    Over,
}

/// All that the next shim of a link needs.
#[derive(Debug)]
pub struct Welcome {
    /// The link.
    pub link: LinkId,
    /// Its record.
    pub region: Region,
    /// From the keeper.
    pub channel: Channel,
    /// Guard and keeper.
    pub pair: (Identity, Identity),
}

/// Looks for a warm server of this configuration and this client.
pub fn meet(plan: &Plan) -> Meeting {
    match plan.paths.warm().open() {
        Ok(directory) => meet_in(&directory, plan),
        Err(_) => Meeting::Nobody(Vec::new()),
    }
}

/// Somebody may linger. Never inlined: nearly nobody does, and the stack that it takes would be held by whoever goes on.
#[inline(never)]
fn meet_in(directory: &Directory, plan: &Plan) -> Meeting {
    let Some(owner) = Owner::among(&plan.above(), &role::standard(0)) else {
        return Meeting::Nobody(Vec::new());
    };
    let prefix = super::prefix(plan, owner.who);
    let hosts = hosts(directory, &prefix);
    let guest = Guest {
        hosts,
        read: Vec::new(),
    };
    guest.wait()
}

struct Guest {
    hosts: Vec<Host>,
    /// What the client has said so far.
    read: Vec<u8>,
}

/// Somebody who lingers.
struct Host {
    visit: Visit,
    hello: Hello,
    region: Region,
}

/// What the first line is.
enum First {
    /// It is not whole yet.
    Part,
    /// There is nothing in it.
    Blank(usize),
    /// A probe, which opens nothing.
    Discover(usize),
    /// The session begins, in this era.
    Opening { modern: bool },
    /// Anything else.
    Other,
}

impl Guest {
    fn wait(mut self) -> Meeting {
        let mut ended = false;
        loop {
            if self.hosts.is_empty() {
                return Meeting::Nobody(self.read);
            }
            match first(&self.read) {
                First::Blank(len) => drop(self.read.drain(..len)),
                First::Discover(len) => {
                    if !self.probe(len) {
                        return Meeting::Nobody(self.read);
                    }
                }
                First::Opening { modern } => return self.enter(modern),
                First::Other => return Meeting::Nobody(self.read),
                First::Part if ended && self.read.is_empty() => return Meeting::Over,
                First::Part if ended || self.read.len() >= WHOLE_LINE_BYTES => {
                    return Meeting::Nobody(self.read);
                }
                First::Part => ended = self.listen(),
            }
        }
    }

    /// Waits for the client, or for a host that leaves; whether the client has closed.
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
        // A host has nothing to say now but that it leaves.
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

    /// Answers a probe on the warm server's behalf, which must not be taken for it; `false` if nobody knows how.
    fn probe(&mut self, len: usize) -> bool {
        let Some(host) = self.hosts.first() else {
            return true;
        };
        let asked = host
            .visit
            .say(&Request::Probe(&self.read[..len]).packet(), &[]);
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
                // It has left: the next one may know.
                self.hosts.remove(0);
                true
            }
        }
    }

    /// Hands our pipes over to the first host that takes them.
    fn enter(self, modern: bool) -> Meeting {
        let fits = |host: &Host| host.hello.modern == modern;
        for host in self.hosts.into_iter().filter(fits) {
            if let Some(welcome) = hand_over(host, &self.read) {
                return Meeting::Warm(welcome);
            }
        }
        Meeting::Nobody(self.read)
    }
}

fn hand_over(host: Host, read: &[u8]) -> Option<Welcome> {
    let (channel, theirs) = Channel::pair().ok()?;
    let packet = Request::Take(read).packet();
    let [stdin, stdout, stderr] = [0, 1, 2].map(role::standard);
    host.visit
        .say(&packet, &[stdin, stdout, stderr, theirs.as_fd()])
        .ok()?;
    // From now on only who has taken us in holds the other end: it speaks, or it is closed and nobody has.
    drop(theirs);
    let mut pair = await_word(&channel, HANDOVER_MS);
    if pair.is_none() {
        // A keeper that stands still must not find us waiting when it goes on.
        drop(host.visit);
        pair = await_word(&channel, 0);
    }
    Some(Welcome {
        link: host.hello.link,
        region: host.region,
        pair: pair?,
        channel,
    })
}

/// Who looks after us from now on; none if nobody says so in time.
fn await_word(channel: &Channel, ms: u64) -> Option<(Identity, Identity)> {
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

/// Those who linger for us and are of our kind.
fn hosts(directory: &Directory, prefix: &str) -> Vec<Host> {
    let mut names = directory.names().unwrap_or_default();
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    let host = |name: &String| greet(Visit::at(directory.as_fd(), name).ok()?);
    names.iter().filter_map(host).collect()
}

fn greet(visit: Visit) -> Option<Host> {
    if !same_user(&visit) {
        return None;
    }
    let (mut packet, mut lent) = (vec![0; 256], Vec::new());
    let len = hear(&visit, &mut packet, &mut lent).ok()?;
    let hello = Hello::read(&packet[..len])?;
    let [region] = <[OwnedFd; 1]>::try_from(lent).ok()?;
    Some(Host {
        visit,
        hello,
        region: Region::lent(region).ok()?,
    })
}

/// Waits for one packet, but not for ever.
fn hear(visit: &Visit, packet: &mut [u8], lent: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let until = clock::now().after_ms(HANDOVER_MS);
    loop {
        match visit.hear(packet, lent) {
            Said::Bytes(len) => return Ok(len),
            Said::Gone => return Err(io::ErrorKind::ConnectionReset.into()),
            Said::Nothing => {
                if !readable(visit, until) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

/// Waits until there is something to be heard; `false` if there was nothing in time.
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

fn first(read: &[u8]) -> First {
    let mut scanner = Scanner::new();
    let Fed::Line { used } = scanner.feed(read) else {
        return First::Part;
    };
    let frame = scanner.frame();
    match (frame.kind, frame.method.as_deref()) {
        (Kind::Blank, _) => First::Blank(used),
        (Kind::Request, Some("server/discover")) => First::Discover(used),
        (Kind::Request, Some("initialize")) => First::Opening { modern: false },
        (Kind::Request, _) if envelope::era(&read[..used]) == Era::Modern => {
            First::Opening { modern: true }
        }
        (
            Kind::Request
            | Kind::Notification
            | Kind::Response
            | Kind::Error
            | Kind::Batch
            | Kind::Junk,
            _,
        ) => First::Other,
    }
}

/// Writes an answer of ours to the client; `false` if it does not want it.
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
            First::Part => "part",
            First::Blank(_) => "blank",
            First::Discover(_) => "discover",
            First::Opening { modern: false } => "legacy",
            First::Opening { modern: true } => "modern",
            First::Other => "other",
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
