//! The keeper's side of the control socket: few connections, small requests, and no peer can stall the link.
//!
//! A connection is asking until its request is complete. One that takes too long loses its place to the next that comes, so
//! idle connections keep no other peer out, and no timer is needed. Then the peer is answered at once, or waits for an end or
//! a restart; all peers that wait for the same are answered together.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use mainstay_core::link::Link;
use mainstay_protocol::clock::Moment;
use mainstay_protocol::limits;
use mainstay_store::registry::ask::same_user;
use mainstay_store::registry::control::{Answer, CONNECTIONS, Request};
use mainstay_store::registry::conversation::{Conversation, Received};
use mainstay_store::registry::entry::Entry;

use super::watched::Watched;

/// What a connection wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    /// Nothing.
    Nothing,
    /// Something moved; ask again.
    Busy,
    /// This one asks for the card.
    Status(usize),
    /// A peer asks for the end; it is answered by [`Control::answer_stops`].
    Stop,
    /// A peer asks for the next generation; it is answered by [`Control::poll_restarts`].
    Restart,
    /// This one wants to see frames; [`Control::release`] hands its connection over.
    Tap {
        /// Which.
        who: usize,
        /// The longest body that it wants.
        body_bytes: u64,
    },
}

/// The listening socket and its connections.
#[derive(Default)]
pub struct Control {
    listener: Option<Watched<UnixListener>>,
    peers: Vec<Option<Peer>>,
    /// The generation that peers wait to see replaced.
    replacing: Option<u32>,
}

struct Peer {
    stream: Watched<UnixStream>,
    said: Conversation,
    state: State,
}

/// How far a connection is.
enum State {
    /// It sends its request.
    Asking { since: Moment },
    /// It waits for the end.
    WaitsForStop,
    /// It waits for the next generation.
    WaitsForRestart,
}

impl Control {
    /// Opens the socket; without one, the link works all the same.
    pub fn listen(&mut self, entry: &Entry) {
        self.listener = entry.listen().and_then(Watched::new).ok();
    }

    /// Whether it is open.
    pub fn listens(&self) -> bool {
        self.listener.is_some()
    }

    /// Takes one step.
    pub fn poll(&mut self, now: Moment) -> ControlRequest {
        // Requests that are there come before new connections, which might take their place.
        for index in 0..self.peers.len() {
            if let Some(outcome) = self.poll_peer(index) {
                return outcome;
            }
        }
        if let Some(listener) = &mut self.listener
            && listener.poll_ready()
        {
            match listener.get().accept() {
                Ok((stream, _)) => self.admit(now, stream),
                Err(_) => listener.clear(),
            }
            return ControlRequest::Busy;
        }
        ControlRequest::Nothing
    }

    /// Answers a peer and lets it go.
    pub fn answer(&mut self, who: usize, answer: &Answer) {
        if let Some(peer) = self.peers.get_mut(who).and_then(Option::take) {
            send(peer.stream.get(), answer);
        }
    }

    /// Hands a connection over to the caller.
    pub fn release(&mut self, who: usize) -> Option<Watched<UnixStream>> {
        let peer = self.peers.get_mut(who).and_then(Option::take)?;
        Some(peer.stream)
    }

    /// A peer waits until this generation is replaced.
    pub fn expect_replacement(&mut self, generation: u32) {
        self.replacing = Some(generation);
    }

    /// Answers the peers that wait for a restart as soon as the next server is there, or will not be.
    pub fn poll_restarts(&mut self, name: &str, link: &Link<'_>, server: Option<i32>) {
        let Some(replaced) = self.replacing else {
            return;
        };
        let generation = link.generation();
        let answer = match link.word() {
            "ready" | "opening" | "doubtful" if generation > replaced => Answer::Restarted {
                generation,
                pid: server,
            },
            "abandoned" => Answer::Refused {
                error: format!(
                    "the server does not stay up; `mainstay why {name}` tells how it ended"
                ),
            },
            "stopping" | "failed" | "gone" => Answer::Refused {
                error: "the link is ending".into(),
            },
            _ => return,
        };
        self.answer_restarts(&answer);
    }

    /// Answers all peers that asked for the next generation.
    fn answer_restarts(&mut self, answer: &Answer) {
        self.replacing = None;
        for slot in &mut self.peers {
            let waits = |peer: &mut Peer| matches!(peer.state, State::WaitsForRestart);
            if let Some(peer) = slot.take_if(waits) {
                send(peer.stream.get(), answer);
            }
        }
    }

    /// Answers all peers that asked for the end; it is the end for the others too.
    pub fn answer_stops(&mut self, answer: &Answer) {
        self.answer_restarts(&Answer::Refused {
            error: "the server was ended instead".into(),
        });
        for peer in self.peers.drain(..).flatten() {
            if matches!(peer.state, State::WaitsForStop) {
                send(peer.stream.get(), answer);
            }
        }
    }

    fn admit(&mut self, now: Moment, stream: UnixStream) {
        let refuse = |error: String| send(&stream, &Answer::Refused { error });
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if !same_user(&stream) {
            refuse("only for the user who runs this server".into());
            return;
        }
        let Some(index) = self.room(now) else {
            refuse(format!("{CONNECTIONS} connections are open already"));
            return;
        };
        let Ok(mut stream) = Watched::new(stream) else {
            return;
        };
        // A peer that has left again makes room before the next one comes.
        stream.look();
        self.peers[index] = Some(Peer {
            stream,
            said: Conversation::default(),
            state: State::Asking { since: now },
        });
    }

    /// A place for one more peer: a free one, or that of a peer that has been asking for too long, the oldest first.
    fn room(&mut self, now: Moment) -> Option<usize> {
        if let Some(free) = self.peers.iter().position(Option::is_none) {
            return Some(free);
        }
        if self.peers.len() < CONNECTIONS {
            self.peers.push(None);
            return Some(self.peers.len() - 1);
        }
        let asking = |(index, slot): (usize, &Option<Peer>)| match slot.as_ref()?.state {
            State::Asking { since } => Some((since, index)),
            State::WaitsForStop | State::WaitsForRestart => None,
        };
        let slots = self.peers.iter().enumerate();
        let (since, index) = slots.filter_map(asking).min()?;
        if now < since.after_ms(limits::CONTROL_ASKING_MS) {
            return None;
        }
        self.answer(
            index,
            &Answer::Refused {
                error: "no request came, and others wait".into(),
            },
        );
        Some(index)
    }

    fn poll_peer(&mut self, index: usize) -> Option<ControlRequest> {
        let peer = self.peers[index].as_mut()?;
        if !peer.stream.poll_ready() {
            return None;
        }
        let mut chunk = [0u8; 4096];
        let len = match peer.stream.get().read(&mut chunk) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                peer.stream.clear();
                return None;
            }
            Ok(0) | Err(_) => {
                self.peers[index] = None;
                return Some(ControlRequest::Busy);
            }
            Ok(len) => len,
        };
        match peer.said.hear(&chunk[..len]) {
            Received::Nothing => Some(ControlRequest::Busy),
            Received::Request(Request::Status) => Some(ControlRequest::Status(index)),
            Received::Request(Request::Stop) => {
                peer.state = State::WaitsForStop;
                Some(ControlRequest::Stop)
            }
            Received::Request(Request::Restart) => {
                peer.state = State::WaitsForRestart;
                Some(ControlRequest::Restart)
            }
            Received::Request(Request::Tap { body_bytes }) => Some(ControlRequest::Tap {
                who: index,
                body_bytes,
            }),
            Received::Refuse(error) => {
                self.answer(index, &Answer::Refused { error });
                Some(ControlRequest::Busy)
            }
            Received::Babble => {
                self.peers[index] = None;
                Some(ControlRequest::Busy)
            }
        }
    }
}

/// Best effort: a peer that does not read its answer does not get it.
pub(super) fn send(mut stream: &UnixStream, answer: &Answer) {
    drop(stream.write_all(&answer.line()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready;
    use mainstay_protocol::ids::LinkId;
    use mainstay_store::registry::entry::socket_path;
    use mainstay_store::scratch::Scratch;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::{BufRead, BufReader};

    /// A control socket, driven by hand.
    struct Stand {
        _scratch: Scratch,
        entry: Entry,
        control: Control,
    }

    impl Stand {
        fn new() -> Self {
            let scratch = Scratch::new();
            let entry = Entry::create(&scratch.paths(), LinkId(1)).unwrap();
            ready::begin().unwrap();
            let mut control = Control::default();
            control.listen(&entry);
            Self {
                _scratch: scratch,
                entry,
                control,
            }
        }

        fn connect(&self) -> UnixStream {
            let directory = self.entry.path().open().unwrap();
            UnixStream::connect(socket_path(&directory)).unwrap()
        }

        fn asking(&self, request: &Request) -> UnixStream {
            let mut stream = self.connect();
            stream.write_all(&request.line()).unwrap();
            stream
        }

        /// Goes on until something is so.
        fn until(&mut self, now: Moment, so: impl Fn() -> bool) {
            loop {
                while self.control.poll(now) == ControlRequest::Busy {}
                if so() {
                    return;
                }
                ready::wait(Moment(0), None).unwrap();
            }
        }

        /// Waits until a peer wants something.
        fn want(&mut self, now: Moment) -> ControlRequest {
            loop {
                match self.control.poll(now) {
                    ControlRequest::Busy => {}
                    ControlRequest::Nothing => ready::wait(Moment(0), None).unwrap(),
                    wanted @ (ControlRequest::Status(_)
                    | ControlRequest::Stop
                    | ControlRequest::Restart
                    | ControlRequest::Tap { .. }) => {
                        return wanted;
                    }
                }
            }
        }
    }

    /// The one line that is answered. Behind it may be a reset, if we were refused before our request was read.
    fn answer(stream: UnixStream) -> Answer {
        let mut line = Vec::new();
        BufReader::new(stream).read_until(b'\n', &mut line).unwrap();
        Answer::parse(&line).unwrap()
    }

    /// Whether anything was answered yet.
    fn readable(stream: &UnixStream) -> bool {
        let mut fds = [PollFd::new(stream, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    fn refused(error: &str) -> Answer {
        Answer::Refused {
            error: error.into(),
        }
    }

    const START: Moment = Moment(1_000_000_000);

    #[test]
    fn all_who_wait_for_the_next_generation_are_answered_together() {
        let mut stand = Stand::new();
        let one = stand.asking(&Request::Restart);
        assert_eq!(stand.want(START), ControlRequest::Restart);
        let two = stand.asking(&Request::Restart);
        assert_eq!(stand.want(START), ControlRequest::Restart);
        let stop = stand.asking(&Request::Stop);
        assert_eq!(stand.want(START), ControlRequest::Stop);
        let ready = Answer::Restarted {
            generation: 2,
            pid: Some(7),
        };
        stand.control.answer_restarts(&ready);
        assert_eq!(answer(one), ready);
        assert_eq!(answer(two), ready);
        let late = stand.asking(&Request::Restart);
        assert_eq!(stand.want(START), ControlRequest::Restart);
        let ended = Answer::Stopped {
            ended: 1,
            left: Vec::new(),
        };
        stand.control.answer_stops(&ended);
        assert_eq!(answer(stop), ended);
        assert_eq!(answer(late), refused("the server was ended instead"));
    }

    #[test]
    fn a_silent_connection_blocks_no_other() {
        let mut stand = Stand::new();
        let mut idle: Vec<UnixStream> = (1..CONNECTIONS).map(|_| stand.connect()).collect();
        let stop = stand.asking(&Request::Stop);
        assert_eq!(stand.want(START), ControlRequest::Stop);
        // While all peers are young, one more gets an error and may try again.
        let early = stand.asking(&Request::Status);
        stand.until(START, || readable(&early));
        assert_eq!(answer(early), refused("16 connections are open already"));
        let late = START.after_ms(limits::CONTROL_ASKING_MS);
        let status = stand.asking(&Request::Status);
        assert_eq!(stand.want(late), ControlRequest::Status(0));
        stand.control.answer(0, &refused("no card"));
        assert_eq!(answer(status), refused("no card"));
        let oldest = idle.remove(0);
        assert_eq!(answer(oldest), refused("no request came, and others wait"));
        assert!(!idle.iter().any(readable), "only the oldest");
        assert!(!readable(&stop), "who waits is never sent away");
    }

    #[test]
    fn only_one_request_is_heard() {
        let mut stand = Stand::new();
        let mut one = stand.asking(&Request::Restart);
        assert_eq!(stand.want(START), ControlRequest::Restart);
        one.write_all(&Request::Stop.line()).unwrap();
        let two = stand.asking(&Request::Status);
        assert_eq!(stand.want(START), ControlRequest::Status(1));
        stand.control.answer(1, &refused("no card"));
        drop(two);
        stand.control.answer_restarts(&refused("no"));
        assert_eq!(answer(one), refused("no"));
    }
}
