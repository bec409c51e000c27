//! One path from a client to the server and back: direct, through two `cat`s, or through mainstay.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use mainstay_testkit::card::Card;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::place::Place;
use crate::role;
use crate::talk::{Talk, Writing};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The client's pipes are the server's.
    Direct,
    /// `cat | server | cat`.
    Cat,
    /// `mainstay run -- server`.
    Mainstay,
    /// The same, by another build of mainstay.
    Old,
}

impl Kind {
    /// The kinds that always exist, in the order of the page.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Cat, Self::Mainstay];

    pub fn words(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Cat => "cat \\| server \\| cat",
            Self::Mainstay => "mainstay run",
            Self::Old => "mainstay run, old",
        }
    }
}

/// A path with a server at its end.
pub struct Lane {
    /// The client's side.
    pub talk: Talk,
    /// The processes that pass the data on: the `cat`s, or shim, guard and keeper.
    pub relays: Vec<i32>,
    children: Vec<Child>,
}

impl Lane {
    /// Starts one with the tiny server and opens the session.
    pub fn start(place: &Place<'_>, kind: Kind) -> io::Result<Self> {
        Self::start_writing(place, kind, Writing::InBulk)
    }

    /// Like `start`, with a server that writes in this way.
    pub fn start_writing(place: &Place<'_>, kind: Kind, writing: Writing) -> io::Result<Self> {
        let mut lane = Self::start_silent(place, kind, writing)?;
        lane.talk.open()?;
        if matches!(kind, Kind::Mainstay | Kind::Old) {
            let card = lane.card(place);
            lane.relays = pids(&card);
        }
        Ok(lane)
    }

    /// Like `start_writing`, without sending a line.
    pub fn start_silent(place: &Place<'_>, kind: Kind, writing: Writing) -> io::Result<Self> {
        let server = match writing {
            Writing::InBulk => place.ours([role::SERVE]),
            Writing::OneByOne => place.ours([role::SERVE, role::ONE_BY_ONE]),
        };
        match kind {
            Kind::Direct => Self::of(place, &server),
            Kind::Cat => Self::between_cats(place, &server),
            Kind::Mainstay => Self::of(place, &place.kept(&[], server)),
            Kind::Old => {
                let argv = place.kept_by_old(&[], server);
                Self::of(place, &argv.ok_or(io::ErrorKind::NotFound)?)
            }
        }
    }

    /// Starts this command without sending a line.
    pub fn of(place: &Place<'_>, argv: &[OsString]) -> io::Result<Self> {
        let (their_in, to) = pipe()?;
        let (from, their_out) = pipe()?;
        let child = place
            .command(argv)?
            .stdin(Stdio::from(their_in))
            .stdout(Stdio::from(their_out))
            .spawn()?;
        Ok(Self {
            talk: Talk::new(to, from),
            relays: Vec::new(),
            children: vec![child],
        })
    }

    fn between_cats(place: &Place<'_>, server: &[OsString]) -> io::Result<Self> {
        let cat = [OsString::from("cat")];
        let (first_in, to) = pipe()?;
        let (server_in, first_out) = pipe()?;
        let (last_in, server_out) = pipe()?;
        let (from, last_out) = pipe()?;
        let mut children = Vec::new();
        for (argv, stdin, stdout) in [
            (&cat[..], first_in, first_out),
            (server, server_in, server_out),
            (&cat[..], last_in, last_out),
        ] {
            let mut command = place.command(argv)?;
            children.push(
                command
                    .stdin(Stdio::from(stdin))
                    .stdout(Stdio::from(stdout))
                    .spawn()?,
            );
        }
        Ok(Self {
            talk: Talk::new(to, from),
            relays: vec![children[0].id() as i32, children[2].id() as i32],
            children,
        })
    }

    /// Waits for the card of a lane through mainstay.
    pub fn card(&self, place: &Place<'_>) -> Card {
        let shim = self.children[0].id() as i32;
        place.card("names this lane's shim", |card| {
            card.shim.is_some_and(|who| who.pid == shim)
        })
    }

    /// Closes our end and waits until every process that we started has ended.
    pub fn end(self) -> io::Result<()> {
        let Self { talk, children, .. } = self;
        talk.close()?;
        for mut child in children {
            let status = child.wait()?;
            if !status.success() {
                return Err(io::Error::other(format!(
                    "a relay or server ended with {status}"
                )));
            }
        }
        Ok(())
    }
}

pub fn pids(card: &Card) -> Vec<i32> {
    [card.shim, card.guard, card.keeper]
        .into_iter()
        .flatten()
        .map(|who| who.pid)
        .collect()
}

/// Read end and write end. Both close on exec, so no process inherits them by accident.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}
