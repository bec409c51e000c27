//! The client: which process it is, and our ends of its three pipes.
//!
//! What the bytes mean is the relay's concern, and what the client's end means is the link's.

use std::io;
use std::os::fd::BorrowedFd;

use mainstay_clients::behaviour::Owner;
use mainstay_os::{census, holder, identity};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::event::Seen;
use mainstay_protocol::ids::Identity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::log::Log;
use super::port::{Direction, Port};
use super::stderr::Stderr;
use super::watched::{Death, DeathWatch};

/// The client of one link.
pub struct Client {
    /// The process that started the shim, or that holds the client's end by now.
    who: Option<Identity>,
    /// The processes above the client when the shim started, nearest first.
    ancestors: Vec<Identity>,
    /// None once the client has closed it, or is gone.
    stdin: Option<Port>,
    /// None once the client has closed it, or is gone.
    stdout: Option<Port>,
    stderr: Stderr,
    death: DeathWatch,
}

/// Our ends of a client's pipes.
pub struct ClientPorts {
    stdin: Port,
    stdout: Port,
    /// A client may have closed it.
    stderr: Option<Port>,
}

impl ClientPorts {
    /// Opens our ends of stdin, stdout and stderr; the originals stay as they are.
    pub fn open([stdin, stdout, stderr]: [BorrowedFd<'_>; 3]) -> io::Result<Self> {
        Ok(Self {
            stdin: Port::of_client(stdin, Direction::In)?,
            stdout: Port::of_client(stdout, Direction::Out)?,
            stderr: Port::of_client(stderr, Direction::Out).ok(),
        })
    }
}

impl Client {
    /// `tail` limits what is remembered of the server's stderr: lines and bytes.
    pub fn new(
        who: Option<Identity>,
        ancestors: Vec<Identity>,
        ports: ClientPorts,
        tail: (u64, u64),
        log: Log,
    ) -> Self {
        Self {
            who,
            ancestors,
            stdin: Some(ports.stdin),
            stdout: Some(ports.stdout),
            stderr: Stderr::new(ports.stderr, tail, log),
            death: who.map_or(DeathWatch::Off, DeathWatch::Later),
        }
    }

    pub fn who(&self) -> Option<Identity> {
        self.who
    }

    pub fn ancestors(&self) -> &[Identity] {
        &self.ancestors
    }

    pub fn stdin(&self) -> Option<&Port> {
        self.stdin.as_ref()
    }

    pub fn stdout(&self) -> Option<&Port> {
        self.stdout.as_ref()
    }

    /// The server's stderr on its way to the client.
    pub fn stderr(&mut self) -> &mut Stderr {
        &mut self.stderr
    }

    /// When the log has something to write.
    pub fn log_due(&self) -> Option<Moment> {
        self.stderr.log_due()
    }

    /// True if the process that we know as the client has ended.
    pub fn is_dead(&self) -> bool {
        self.who.is_some_and(|who| !identity::alive(who))
    }

    /// True if a process still holds the other end of stdin, even if there are bytes to read.
    pub fn holds_stdin(&self) -> bool {
        let Some(stdin) = &self.stdin else {
            return false;
        };
        let mut fds = [PollFd::new(stdin, PollFlags::IN | PollFlags::RDHUP)];
        let ended = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(_) => !fds[0].revents().intersects(ended),
            Err(_) => true,
        }
    }

    /// Reads stdin at the next turn, even if no event has told of bytes.
    pub fn look_again(&self) {
        if let Some(stdin) = &self.stdin {
            stdin.look_again();
        }
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Closes our ends of all three pipes. The server's stderr is still drained.
    pub fn release(&mut self) {
        self.stdin = None;
        self.stdout = None;
        self.stderr.release();
        mainstay_os::role::release_stdio();
    }

    /// The same client has come back with other pipes.
    pub fn attach(&mut self, ports: ClientPorts) {
        self.stdin = Some(ports.stdin);
        self.stdout = Some(ports.stdout);
        self.stderr.pass_to(ports.stderr);
        self.ancestors = processes_above(self.who);
    }

    /// Another process is the client now.
    pub fn change(&mut self, who: Identity) {
        self.who = Some(who);
        self.death = DeathWatch::on(who);
    }

    /// The client's end, once.
    pub fn poll_death(&mut self) -> Option<(Identity, Death)> {
        self.who.zip(self.death.poll())
    }

    /// As [`Self::poll_death`], but asks the kernel itself: the last chance to learn of it.
    pub fn last_look(&mut self) -> Option<(Identity, Death)> {
        self.who.zip(self.death.look())
    }

    /// The older process that still holds the client's end of stdin, now that the client has ended.
    pub fn next_holder(&self) -> Option<Seen> {
        holder::next_holder(self.stdin.as_ref()?, self.who?, &self.ancestors)
    }

    /// The process that would start the shim again, if there is one.
    pub fn owner(&self) -> Option<Owner> {
        let above: Vec<_> = self.who.iter().chain(&self.ancestors).copied().collect();
        Owner::among(&above, self.stdin.as_ref()?)
    }
}

/// The processes above this one, nearest first.
pub fn processes_above(who: Option<Identity>) -> Vec<Identity> {
    let stat = who.and_then(|who| census::stat(who.pid).ok());
    stat.as_ref().map(census::ancestors).unwrap_or_default()
}
