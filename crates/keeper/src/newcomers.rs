//! Newcomers: shims that a client started again while its server was kept, and that ask for that server.
//!
//! While no client is attached, a socket is open for them. Only processes of our own user are let in, and one of them gets the
//! server. What becomes of the server is decided by the link.
//!
//! A hand-over cannot be torn: the record is written first, then the guard gets the new pipes, then the newcomer gets the answer.
//! If the keeper is killed before the guard has the pipes, the keeper's copies are closed with it; the newcomer sees its channel
//! closed and still has its own. After that the next keeper of the guard continues with them.

use std::os::fd::{BorrowedFd, OwnedFd};

use mainstay_core::link::Link;
use mainstay_os::channel::Channel;
use mainstay_os::identity;
use mainstay_os::packet_socket::{PacketConnection, PacketListener, Received};
use mainstay_protocol::ids::Identity;
use mainstay_protocol::limits::DOOR_PEERS;
use mainstay_protocol::message::frame::{Fed, Id, Scanner};
use mainstay_store::registry::ask::same_user;

use super::plan::Plan;
use super::watched::Watched;
use crate::warm::{self, ANSWER_BYTES, Hello, PACKET_BYTES, Request};

/// The socket for newcomers, while it is open, and its connections.
#[derive(Default)]
pub struct Newcomers {
    socket: Option<Watched<PacketListener>>,
    peers: Vec<Newcomer>,
}

struct Newcomer {
    connection: Watched<PacketConnection>,
    /// What it has handed over, while the server is tested.
    offer: Option<Offer>,
}

/// What a newcomer hands over.
pub struct Offer {
    /// What it has read from the client.
    read: Vec<u8>,
    /// The client's pipes, and a channel to the newcomer.
    lent: Vec<OwnedFd>,
}

/// What a newcomer wants. The index names it in the other verbs.
pub enum Wish {
    /// It has left, or makes no sense.
    Leave,
    /// It asks for the answer to a client's probe.
    Probe(Vec<u8>),
    /// It has handed over its pipes; the server is to be tested.
    Test,
    /// The server was tested, and is fit for it or not.
    Join { offer: Offer, fit: bool },
}

/// A newcomer's pipes, once they may be used.
pub struct Handover {
    /// The newcomer, which is the shim from now on.
    pub shim: Identity,
    /// What it has read from the client.
    pub read: Vec<u8>,
    /// The channel to it.
    pub channel: Channel,
    /// The client's stdin, stdout and stderr.
    pub pipes: [OwnedFd; 3],
}

impl Newcomers {
    /// Opens the socket for newcomers of this client.
    pub fn open(&mut self, plan: &Plan, client: Identity) {
        self.peers.clear();
        // Without a socket no newcomer comes: then the time passes, and the server ends.
        self.socket = warm::open(plan, client).and_then(Watched::new).ok();
    }

    /// Closes the socket and all connections.
    pub fn close(&mut self, plan: &Plan) {
        self.socket = None;
        self.peers.clear();
        warm::close(&plan.paths, plan.id);
    }

    pub fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Lets in the processes that have connected; true if there were any. Each is lent the record.
    pub fn admit(&mut self, hello: Hello, record: Option<BorrowedFd<'_>>) -> bool {
        let mut any = false;
        let Some(socket) = &mut self.socket else {
            return any;
        };
        while socket.poll_ready() {
            match socket.get().accept() {
                Ok(Some(visit)) => {
                    any = true;
                    let record = record.filter(|_| same_user(&visit));
                    let welcome = self.peers.len() < DOOR_PEERS
                        && record
                            .is_some_and(|record| visit.send(&hello.packet(), &[record]).is_ok());
                    if let (true, Ok(connection)) = (welcome, Watched::new(visit)) {
                        self.peers.push(Newcomer {
                            connection,
                            offer: None,
                        });
                    }
                }
                Ok(None) | Err(_) => socket.clear(),
            }
        }
        any
    }

    /// The next wish of the newcomer at `index`, or of one behind it, which `index` names then. `fit`: what the test of the server
    /// has brought, if it is over.
    pub fn next_wish(&mut self, index: &mut usize, fit: Option<bool>) -> Option<Wish> {
        while let Some(newcomer) = self.peers.get_mut(*index) {
            if let Some(wish) = newcomer.wish(fit) {
                return Some(wish);
            }
            *index += 1;
        }
        None
    }

    /// Answers a newcomer; false if it has left.
    pub fn reply(&self, index: usize, packet: &[u8]) -> bool {
        let newcomer = self.peers.get(index);
        newcomer.is_some_and(|newcomer| newcomer.connection.get().send(packet, &[]).is_ok())
    }

    /// Sends a newcomer away; it still has its pipes.
    pub fn dismiss(&mut self, index: usize) {
        if index < self.peers.len() {
            self.peers.remove(index);
        }
    }

    /// The pipes of a newcomer that still waits. None: it cannot be taken in.
    pub fn accept(&self, index: usize, offer: Offer) -> Option<Handover> {
        let [stdin, stdout, stderr, channel] = <[OwnedFd; 4]>::try_from(offer.lent).ok()?;
        let connection = self.peers.get(index)?.connection.get();
        let (pid, _) = connection.peer().ok()?;
        let shim = identity::of(pid).ok()?;
        // A newcomer that has given up waiting has closed its connection.
        if connection.receive(&mut [0; 1], &mut Vec::new()) != Received::Nothing {
            return None;
        }
        Some(Handover {
            shim,
            read: offer.read,
            channel: Channel::of(channel),
            pipes: [stdin, stdout, stderr],
        })
    }
}

impl Newcomer {
    fn wish(&mut self, fit: Option<bool>) -> Option<Wish> {
        if !self.connection.poll_ready() {
            return self.join(fit);
        }
        // One byte more than there may be, so that a packet that is too long is seen to be.
        let (mut packet, mut lent) = (vec![0; PACKET_BYTES + 1], Vec::new());
        match self.connection.get().receive(&mut packet, &mut lent) {
            Received::Nothing => {
                self.connection.clear();
                self.join(fit)
            }
            Received::Gone => Some(Wish::Leave),
            Received::Bytes(len) if len > PACKET_BYTES => Some(Wish::Leave),
            Received::Bytes(len) => Some(match Request::read(&packet[..len]) {
                Some(Request::Probe(line)) => Wish::Probe(line.to_vec()),
                Some(Request::Take(read)) => {
                    let read = read.to_vec();
                    self.offer = Some(Offer { read, lent });
                    Wish::Test
                }
                None => Wish::Leave,
            }),
        }
    }

    /// Once the server was tested, a newcomer that has made its offer joins.
    fn join(&mut self, fit: Option<bool>) -> Option<Wish> {
        let fit = fit?;
        let offer = self.offer.take()?;
        Some(Wish::Join { offer, fit })
    }
}

/// The answer to a client's probe, as a packet.
pub fn probed(link: &Link<'_>, line: &[u8]) -> Vec<u8> {
    let mut scanner = Scanner::new();
    let answer = match (scanner.feed(line), scanner.frame().id) {
        (Fed::Line { .. }, Id::Token(id)) => link.discovered(id),
        (Fed::Line { .. } | Fed::Partial, _) => None,
    };
    match answer.filter(|answer| answer.len() <= ANSWER_BYTES) {
        Some(answer) => warm::answer(&answer),
        None => warm::no_answer(),
    }
}
