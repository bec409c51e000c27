//! A client that opens a session with each of its servers, and then waits until it is killed.

use mainstay_protocol::clock::Moment;

use super::{Role, announcements, commands, linger};
use crate::connection::Connection;
use crate::waiter::{DemoError, Waiter};

/// A server in a client's configuration.
#[derive(Debug)]
pub struct Configured {
    /// The key in the configuration.
    pub name: &'static str,
    /// The role of the server process.
    pub role: Role,
}

/// The servers of both clients.
pub const SERVERS: [Configured; 3] = [
    Configured {
        name: "files",
        role: Role::Server,
    },
    Configured {
        name: "browser",
        role: Role::Server,
    },
    Configured {
        name: "deaf",
        role: Role::DeafServer,
    },
];

/// The group of a client's server.
pub fn group_of(client: &str, server: &str) -> String {
    format!("{client}/{server}")
}

/// Starts the servers, calls a tool of each, announces itself, and waits.
pub fn run(role: Role, group: &str, end: Moment) -> Result<(), DemoError> {
    let waiter = Waiter::without_signals();
    let mut held = Vec::new();
    for Configured { name, role: server } in SERVERS {
        let bare = commands::role_args(server, &group_of(group, name))?;
        let words = if role == Role::MainstayClient {
            commands::run_args(name, bare)?
        } else {
            bare
        };
        let mut child = commands::spawn_piped(&mut commands::command(&words))?;
        let mut connection = Connection::of(&mut child)?;
        connection.open(&waiter, end)?;
        let id = connection.call("whoami")?;
        connection.answer(&waiter, id, end)?;
        held.push((child, connection));
    }
    announcements::announce(group, role.word())?;
    linger(end)?;
    drop(held);
    Ok(())
}
