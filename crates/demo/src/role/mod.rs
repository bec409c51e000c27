//! The roles of the demo's processes: this program, started again with `--role`.
//!
//! Every process announces itself and ends by itself after a minute, so that nothing stays even if the demo is killed.

pub mod client;
pub mod helpers;
pub mod http;
pub mod server;

use std::io;

use clap::ValueEnum;
use mainstay_os::clock;
use mainstay_protocol::clock::Moment;
use mainstay_report::Exit;
use mainstay_report::talk;

use super::waiter::{DemoError, Waiter};
use super::{announcements, commands};

/// The longest life of a process of the demo.
const LIFE_MS: u64 = 60_000;

/// A role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// A client that starts three servers without mainstay.
    BareClient,
    /// A client that starts the same servers through `mainstay run`.
    MainstayClient,
    /// A server that ends at EOF on its stdin, as it should.
    Server,
    /// A server that ignores EOF.
    DeafServer,
    /// A server that ignores EOF and has started no other process.
    LoneServer,
    /// A server that ends at the first request with an error message on stderr.
    BrokenServer,
    /// A streamable-HTTP server.
    HttpServer,
    /// A child of the server, which starts a child of its own.
    Child,
    /// The child of that child.
    Grandchild,
    /// A daemon in a session of its own.
    Daemon,
    /// Starts the orphan and exits.
    Forker,
    /// A daemon without its parent and with an empty environment.
    Orphan,
}

impl Role {
    /// The name of the role on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::BareClient => "bare-client",
            Self::MainstayClient => "mainstay-client",
            Self::Server => "server",
            Self::DeafServer => "deaf-server",
            Self::LoneServer => "lone-server",
            Self::BrokenServer => "broken-server",
            Self::HttpServer => "http-server",
            Self::Child => "child",
            Self::Grandchild => "grandchild",
            Self::Daemon => "daemon",
            Self::Forker => "forker",
            Self::Orphan => "orphan",
        }
    }

    /// Runs this process in the role.
    pub fn run(self, group: &str) -> Exit {
        let end = clock::now().after_ms(LIFE_MS);
        let outcome = match self {
            Self::BareClient | Self::MainstayClient => client::run(self, group, end),
            Self::Server | Self::DeafServer | Self::LoneServer => server::run(self, group, end),
            Self::BrokenServer => server::give_up(end),
            Self::HttpServer => http::run(group, end),
            Self::Child | Self::Grandchild | Self::Daemon | Self::Forker | Self::Orphan => {
                helpers::run(self, group, end)
            }
        };
        match outcome {
            Ok(()) => Exit::Ok,
            Err(DemoError::Failed(problem)) => {
                talk(&format!("Error: {problem}\n"));
                Exit::Unhealthy
            }
            Err(DemoError::Interrupted(_)) => Exit::Unhealthy,
        }
    }
}

/// Starts a process of the same group, and does not wait for it.
fn start(role: Role, group: &str) -> io::Result<()> {
    commands::command(&commands::role_args(role, group)?).spawn()?;
    Ok(())
}

/// Does nothing until the time is up.
fn linger(end: Moment) -> Result<(), DemoError> {
    Waiter::without_signals().wait(&[], end)?;
    Ok(())
}
