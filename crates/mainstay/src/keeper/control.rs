//! The keeper's side of the control socket: few connections, small requests, nobody can stall the link.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::task::Context;

use super::watch::Watched;
use crate::registry::ask::same_user;
use crate::registry::control::{Answer, CONNECTIONS, REQUEST_BYTES, Request};
use crate::registry::entry::Entry;

/// What a connection wants.
pub enum Outcome {
    /// Nothing.
    Nothing,
    /// Something moved; ask again.
    Busy,
    /// This one asks for the card.
    Status(usize),
    /// Somebody asks for the end.
    Stop,
}

/// The listening socket and its connections.
#[derive(Default)]
pub struct Control {
    listener: Option<Watched<UnixListener>>,
    peers: Vec<Option<Peer>>,
}

struct Peer {
    stream: Watched<UnixStream>,
    request: Vec<u8>,
    wants_stop: bool,
}

impl Control {
    /// Opens the socket; without one, the link works all the same.
    pub fn listen(&mut self, entry: &Entry) {
        self.listener = entry.listen().and_then(Watched::new).ok();
    }

    /// Takes one step.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Outcome {
        if let Some(listener) = &mut self.listener
            && listener.poll_ready(cx)
        {
            match listener.get().accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(_) => listener.clear(),
            }
            return Outcome::Busy;
        }
        for index in 0..self.peers.len() {
            if let Some(outcome) = self.poll_peer(index, cx) {
                return outcome;
            }
        }
        Outcome::Nothing
    }

    /// Answers a peer and lets it go.
    pub fn answer(&mut self, who: usize, answer: &Answer) {
        if let Some(peer) = self.peers.get_mut(who).and_then(Option::take) {
            send(peer.stream.get(), answer);
        }
    }

    /// Answers everybody who asked for the end.
    pub fn answer_stops(&mut self, answer: &Answer) {
        for peer in self
            .peers
            .drain(..)
            .flatten()
            .filter(|peer| peer.wants_stop)
        {
            send(peer.stream.get(), answer);
        }
    }

    fn admit(&mut self, stream: UnixStream) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if !same_user(&stream) {
            send(
                &stream,
                &Answer::Refused {
                    error: "only for the user who runs this server".into(),
                },
            );
            return;
        }
        let free = self.peers.iter().position(Option::is_none);
        if free.is_none() && self.peers.len() >= CONNECTIONS {
            send(
                &stream,
                &Answer::Refused {
                    error: format!("{CONNECTIONS} connections are open already"),
                },
            );
            return;
        }
        let Ok(stream) = Watched::new(stream) else {
            return;
        };
        let peer = Some(Peer {
            stream,
            request: Vec::new(),
            wants_stop: false,
        });
        match free {
            Some(index) => self.peers[index] = peer,
            None => self.peers.push(peer),
        }
    }

    fn poll_peer(&mut self, index: usize, cx: &mut Context<'_>) -> Option<Outcome> {
        let peer = self.peers[index].as_mut()?;
        if !peer.stream.poll_ready(cx) {
            return None;
        }
        let mut chunk = [0u8; 4096];
        match peer.stream.get().read(&mut chunk) {
            Ok(0) => {
                self.peers[index] = None;
                return Some(Outcome::Busy);
            }
            Ok(len) => peer.request.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                peer.stream.clear();
                return None;
            }
            Err(_) => {
                self.peers[index] = None;
                return Some(Outcome::Busy);
            }
        }
        let Some(end) = peer.request.iter().position(|&b| b == b'\n') else {
            if peer.request.len() >= REQUEST_BYTES {
                self.answer(
                    index,
                    &Answer::Refused {
                        error: format!("a request has {REQUEST_BYTES} bytes at most"),
                    },
                );
            }
            return Some(Outcome::Busy);
        };
        match Request::parse(&peer.request[..end]) {
            Ok(Request::Status) => Some(Outcome::Status(index)),
            Ok(Request::Stop) => {
                peer.wants_stop = true;
                peer.request.clear();
                Some(Outcome::Stop)
            }
            Err(garbled) => {
                self.answer(index, &Answer::Refused { error: garbled.0 });
                Some(Outcome::Busy)
            }
        }
    }
}

/// Best effort: a peer that does not read its answer does not get it.
fn send(mut stream: &UnixStream, answer: &Answer) {
    drop(stream.write_all(&answer.line()));
}
