//! The roles of this program when the measurement starts it again: a server, or a client that can be killed.

mod crowd;
mod holder;
pub mod plain;
mod prelude;
mod responder;
mod visitor;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::talk::Writing;
use prelude::Prelude;

/// The word for a tiny and fast server.
pub const SERVE: &str = "serve";
/// The word for writing each answer by itself.
pub const ONE_BY_ONE: &str = "--one-by-one";
/// The word for a server with an unruly tree.
pub const GROW: &str = "grow";
/// The word for a client.
pub const HOLD: &str = "hold";

/// The word for many idle processes.
pub const CROWD: &str = "crowd";

/// The word for a server that parses its requests.
pub const PLAIN: &str = "plain";
/// The word for a client over HTTP.
pub const VISIT: &str = "visit";

/// A role, with its arguments.
pub enum Role<'a> {
    /// A server that answers.
    Serve(&'a [OsString]),
    /// The testkit's unruly server.
    Grow(&'a [OsString]),
    /// A client that starts a command, opens the session, reports that it is ready, and waits to be killed.
    Hold(&'a [OsString]),
    /// Many idle processes.
    Crowd(&'a [OsString]),
    /// A server that parses its requests.
    Plain,
    /// A client that opens sessions over HTTP, reports that it is ready, and waits to be killed.
    Visit(&'a [OsString]),
}

/// The role that the first word names, if it names one.
pub fn of(words: &[OsString]) -> Option<Role<'_>> {
    let (first, rest) = words.split_first()?;
    match first.to_str()? {
        SERVE => Some(Role::Serve(rest)),
        GROW => Some(Role::Grow(rest)),
        HOLD => Some(Role::Hold(rest)),
        CROWD => Some(Role::Crowd(rest)),
        PLAIN => Some(Role::Plain),
        VISIT => Some(Role::Visit(rest)),
        _ => None,
    }
}

impl Role<'_> {
    /// Plays the role to its end.
    pub fn play(self) -> ExitCode {
        let outcome = match self {
            Self::Serve(words) => Prelude::play(words).and_then(|rest| {
                let one_by_one = rest.iter().any(|word| word == ONE_BY_ONE);
                responder::serve(if one_by_one {
                    Writing::OneByOne
                } else {
                    Writing::InBulk
                })
            }),
            Self::Grow(words) => match Prelude::play(words) {
                // All processes that the unruly server makes inherit the open descriptors.
                Ok(rest) => return mainstay_testkit::unruly::run(rest),
                Err(error) => Err(error),
            },
            Self::Hold(words) => holder::hold(words),
            Self::Crowd(words) => crowd::gather(words),
            Self::Plain => plain::serve(),
            Self::Visit(words) => visitor::visit(words),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                drop(writeln!(io::stderr(), "mainstay-bench: {error}"));
                ExitCode::FAILURE
            }
        }
    }
}
