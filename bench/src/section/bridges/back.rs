//! An HTTP server behind stdio.

use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use mainstay_os::clock;

use super::client::{Client, OverStdio};
use super::crew::{Crew, argv};
use super::peer::Peer;
use super::web::Web;
use crate::place::Place;
use crate::role;

/// A bridge that a client has started.
pub struct Back {
    pub crew: Crew,
    child: Child,
}

impl Back {
    /// Starts it and makes a call. Returns a client, and the nanoseconds until its first answer.
    pub fn start(
        place: &Place<'_>,
        peer: Peer,
        web: &Web,
        what: &str,
    ) -> io::Result<(Self, OverStdio, u64)> {
        let crew = Crew::new(peer, what);
        let words = peer.back(&web.url()).ok_or(io::ErrorKind::Unsupported)?;
        let (to, their_in) = UnixStream::pair()?;
        let (from, their_out) = UnixStream::pair()?;
        let start = clock::now();
        let child = crew
            .command(place, words)?
            .stdin(Stdio::from(OwnedFd::from(their_in)))
            .stdout(Stdio::from(OwnedFd::from(their_out)))
            .spawn()?;
        let back = Self { crew, child };
        let mut client = OverStdio::new(to, from)?;
        match client.open().and_then(|()| client.ask(0)) {
            Ok(()) => Ok((back, client, clock::now() - start)),
            Err(error) => {
                back.crew.end(place, back.child)?;
                Err(error)
            }
        }
    }

    pub fn end(self, place: &Place<'_>) -> io::Result<()> {
        self.crew.end(place, self.child)
    }
}

/// This many clients start a bridge each, open the session, and are killed at once. Does not wait for the end of the bridges.
pub fn forsake(
    place: &Place<'_>,
    crew: &Crew,
    peer: Peer,
    web: &Web,
    count: usize,
) -> io::Result<()> {
    let words = peer.back(&web.url()).ok_or(io::ErrorKind::Unsupported)?;
    let mut held = place.ours([role::HOLD]);
    held.extend(argv(place, peer, words)?);
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(crew.marked(place, &held)?.stdout(Stdio::piped()).spawn()?);
    }
    let mut ready = 0;
    for client in &mut clients {
        let stdout = client.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ready += usize::from(line == "ready\n");
    }
    for client in &mut clients {
        client.kill()?;
        client.wait()?;
    }
    if ready == count {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{ready} of {count} clients could open"
    )))
}
