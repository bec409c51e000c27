//! A server's helpers, of the kinds that escape an ordinary clean-up.

use mainstay_core::clock::Moment;
use mainstay_os::role;

use super::{Act, door, linger, roll, start};
use crate::demo::watch::Trouble;

/// How many processes a server is, with all its helpers.
pub const SIZE: usize = 5;

/// Starts them.
pub fn start_all(party: &str) -> std::io::Result<()> {
    for act in [Act::Child, Act::Daemon, Act::Forker] {
        start(act, party)?;
    }
    Ok(())
}

/// Plays one of them.
pub fn play(act: Act, party: &str, end: Moment) -> Result<(), Trouble> {
    match act {
        Act::Child => start(Act::Grandchild, party)?,
        Act::Daemon => role::own_session(),
        Act::Forker => {
            role::own_session();
            door::command(&door::words(Act::Orphan, party)?)
                .env_clear()
                .spawn()?;
            return Ok(());
        }
        Act::Grandchild
        | Act::Orphan
        | Act::HttpServer
        | Act::BareClient
        | Act::KeptClient
        | Act::Server
        | Act::DeafServer
        | Act::BrokenServer => {}
    }
    roll::present(party, act.word())?;
    linger(end)
}
