//! What this program is when the measurement starts it again: a server, or a client that can be killed.

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

/// The word that makes a tiny and fast server.
pub const SERVE: &str = "serve";
/// Makes it write each answer by itself.
pub const ONE_BY_ONE: &str = "--one-by-one";
/// The word that makes a server with an unruly tree.
pub const GROW: &str = "grow";
/// The word that makes a client.
pub const HOLD: &str = "hold";

/// The word that makes a server that parses what it is sent.
pub const PLAIN: &str = "plain";
/// The word that makes a client over HTTP.
pub const VISIT: &str = "visit";

/// A role, with its arguments.
pub enum Role<'a> {
    /// A server that answers.
    Serve(&'a [OsString]),
    /// The testkit's unruly server.
    Grow(&'a [OsString]),
    /// A client that starts a command, opens, says that it is ready, and waits to be killed.
    Hold(&'a [OsString]),
    /// A server that parses what it is sent.
    Plain,
    /// A client that opens sessions over HTTP, says that it is ready, and waits to be killed.
    Visit(&'a [OsString]),
}

/// The role that the first word names, if it names one.
pub fn of(words: &[OsString]) -> Option<Role<'_>> {
    let (first, rest) = words.split_first()?;
    match first.to_str()? {
        SERVE => Some(Role::Serve(rest)),
        GROW => Some(Role::Grow(rest)),
        HOLD => Some(Role::Hold(rest)),
        PLAIN => Some(Role::Plain),
        VISIT => Some(Role::Visit(rest)),
        _ => None,
    }
}

impl Role<'_> {
    /// Plays it to its end.
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
                // Everybody that the unruly server makes inherits what was opened.
                Ok(rest) => return mainstay_testkit::unruly::run(rest),
                Err(error) => Err(error),
            },
            Self::Hold(words) => holder::hold(words),
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
