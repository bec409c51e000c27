//! The parts that processes play: this program, started again with `--act`.
//!
//! Every part says on the roll that it is there, and ends by itself after a minute: even a demo whose every process
//! but these was killed leaves nobody for long.

pub mod client;
pub mod family;
pub mod http;
pub mod server;

use std::io;

use clap::ValueEnum;
use mainstay_core::clock::Moment;
use mainstay_os::clock;

use super::watch::{Trouble, Watch};
use super::{door, roll};
use crate::exit::Exit;
use crate::report::talk;

/// Nobody in a part lives longer.
const LIFE_MS: u64 = 60_000;

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Act {
    /// A client that starts three servers bare.
    BareClient,
    /// A client that starts the same servers through `mainstay run`.
    KeptClient,
    /// A server that ends when its input ends, as it should.
    Server,
    /// A server that does not.
    DeafServer,
    /// A server that says at the first request why it cannot work, and ends.
    BrokenServer,
    /// A streamable-HTTP server.
    HttpServer,
    /// A server's child, with a child.
    Child,
    /// That one's child.
    Grandchild,
    /// A daemon with a session of its own.
    Daemon,
    /// Starts the next one and leaves it.
    Forker,
    /// A daemon whose parent is gone and whose environment is empty.
    Orphan,
}

impl Act {
    /// How it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::BareClient => "bare-client",
            Self::KeptClient => "kept-client",
            Self::Server => "server",
            Self::DeafServer => "deaf-server",
            Self::BrokenServer => "broken-server",
            Self::HttpServer => "http-server",
            Self::Child => "child",
            Self::Grandchild => "grandchild",
            Self::Daemon => "daemon",
            Self::Forker => "forker",
            Self::Orphan => "orphan",
        }
    }

    /// Plays it.
    pub fn play(self, party: &str) -> Exit {
        let end = clock::now().after_ms(LIFE_MS);
        let played = match self {
            Self::BareClient | Self::KeptClient => client::play(self, party, end),
            Self::Server | Self::DeafServer => server::play(self, party, end),
            Self::BrokenServer => server::give_up(end),
            Self::HttpServer => http::play(party, end),
            Self::Child | Self::Grandchild | Self::Daemon | Self::Forker | Self::Orphan => {
                family::play(self, party, end)
            }
        };
        match played {
            Ok(()) => Exit::Ok,
            Err(Trouble::Failed(problem)) => {
                talk(&format!("Error: {problem}\n"));
                Exit::Unhealthy
            }
            Err(Trouble::Interrupted(_)) => Exit::Unhealthy,
        }
    }
}

/// Starts a part of the same party; nobody waits for it.
fn start(act: Act, party: &str) -> io::Result<()> {
    door::command(&door::words(act, party)?).spawn()?;
    Ok(())
}

/// Lives, doing nothing.
fn linger(end: Moment) -> Result<(), Trouble> {
    Watch::blind().wait(&[], end)?;
    Ok(())
}
