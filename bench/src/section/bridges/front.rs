//! A stdio server behind HTTP.

use std::io::{self, BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

use mainstay_os::clock;
use mainstay_testkit::wait::{Deadline, idle};

use super::client::{Client, OverHttp};
use super::crew::Crew;
use super::peer::Peer;
use crate::http::{Connection, Endpoint, Session, call};
use crate::place::Place;
use crate::role;

/// How long it may take until the first answer.
const UP_WITHIN: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(1);

/// A bridge that listens, with the small server behind it.
pub struct Front {
    pub peer: Peer,
    pub crew: Crew,
    child: Child,
    endpoint: Endpoint,
}

impl Front {
    /// Starts it, with this idle limit of sessions if it has one. Does not wait until it listens.
    pub fn spawn(
        place: &Place<'_>,
        peer: Peer,
        what: &str,
        idle_ms: Option<u64>,
    ) -> io::Result<Self> {
        let crew = Crew::new(peer, what);
        let endpoint = Endpoint {
            // The port was free a moment ago. Most bridges need a fixed number.
            address: TcpListener::bind("127.0.0.1:0")?.local_addr()?,
            path: peer.path().into(),
        };
        let port = endpoint.address.port();
        let words = peer.front(port, &crew.server(place), idle_ms, &place.path(""));
        let words = words.ok_or(io::ErrorKind::Unsupported)?;
        let child = crew.command(place, words)?.stdout(Stdio::null()).spawn()?;
        Ok(Self {
            peer,
            crew,
            child,
            endpoint,
        })
    }

    /// Starts it and makes a call. Returns a client, and the nanoseconds until its first answer.
    pub fn start(
        place: &Place<'_>,
        peer: Peer,
        what: &str,
    ) -> io::Result<(Self, Box<dyn Client>, u64)> {
        let start = clock::now();
        let mut front = Self::spawn(place, peer, what, None)?;
        let client = front.wait(|front| {
            let mut client = OverHttp::open(&front.endpoint, peer.tool())?;
            client.ask(0)?;
            Ok(client)
        });
        match client {
            Ok(client) => Ok((front, Box::new(client), clock::now() - start)),
            Err(error) => {
                front.end(place)?;
                Err(error)
            }
        }
    }

    /// Waits until it listens.
    pub fn listens(&mut self) -> io::Result<()> {
        self.wait(|front| Connection::to(&front.endpoint).map(drop))
    }

    fn wait<T>(&mut self, mut attempt: impl FnMut(&Self) -> io::Result<T>) -> io::Result<T> {
        let end = Deadline::after(UP_WITHIN);
        loop {
            match attempt(self) {
                Ok(there) => return Ok(there),
                Err(error) if end.passed() => return Err(error),
                Err(_) => {}
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("it ended with {status}")));
            }
            idle(LOOK);
        }
    }

    /// A client in its own process opens this many sessions and is killed. Returns the sessions.
    pub fn forsaken(&self, place: &Place<'_>, count: usize) -> io::Result<Vec<Session>> {
        let Endpoint { address, path } = &self.endpoint;
        let words = [
            role::VISIT.into(),
            address.to_string(),
            path.clone(),
            self.peer.tool().into(),
            count.to_string(),
        ];
        let mut client = place
            .command(&place.ours(words))?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = client.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut line)?;
        client.kill()?;
        client.wait()?;
        let sessions: Vec<Session> = line
            .trim_end()
            .split('\t')
            .filter_map(Session::heard)
            .collect();
        if sessions.len() == count {
            return Ok(sessions);
        }
        Err(io::Error::other("a client could not open its sessions"))
    }

    /// In how many of the sessions it still answers. Asking counts as use.
    pub fn answers(&self, sessions: &[Session]) -> io::Result<usize> {
        let mut open = 0;
        for session in sessions {
            let mut connection = Connection::to(&self.endpoint)?;
            connection.post(Some(session), &call(self.peer.tool(), 1))?;
            open += usize::from(connection.answer()?.result().is_ok());
        }
        Ok(open)
    }

    pub fn end(self, place: &Place<'_>) -> io::Result<()> {
        self.crew.end(place, self.child)
    }
}
