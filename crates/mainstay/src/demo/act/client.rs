//! A client that opens a session with each of its servers, and then only lives: until somebody kills it.

use mainstay_core::clock::Moment;

use super::{Act, door, linger, roll};
use crate::demo::watch::{Trouble, Watch};
use crate::demo::wire::Wire;

/// A server in a client's configuration.
#[derive(Debug)]
pub struct Configured {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub act: Act,
}

/// The configuration of both clients.
pub const SERVERS: [Configured; 3] = [
    Configured {
        name: "files",
        act: Act::Server,
    },
    Configured {
        name: "browser",
        act: Act::Server,
    },
    Configured {
        name: "deaf",
        act: Act::DeafServer,
    },
];

/// The party of a client's server.
pub fn party_of(client: &str, server: &str) -> String {
    format!("{client}/{server}")
}

/// Starts the servers, talks to each of them once, says that it is ready, and lives.
pub fn play(act: Act, party: &str, end: Moment) -> Result<(), Trouble> {
    let watch = Watch::blind();
    let mut held = Vec::new();
    for Configured { name, act: server } in SERVERS {
        let bare = door::words(server, &party_of(party, name))?;
        let words = if act == Act::KeptClient {
            door::through_mainstay(name, bare)?
        } else {
            bare
        };
        let mut child = door::serve(&mut door::command(&words))?;
        let mut wire = Wire::of(&mut child)?;
        wire.open(&watch, end)?;
        let id = wire.call("whoami")?;
        wire.answer(&watch, id, end)?;
        held.push((child, wire));
    }
    roll::present(party, act.word())?;
    linger(end)?;
    drop(held);
    Ok(())
}
