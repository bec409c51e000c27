//! Leases on disk: one directory per lease, no daemon.
//!
//! ```text
//! lease/NAME/term.json     what was agreed; replaced whole when it is renewed
//! lease/NAME/ended.json    it is over, and why; made once, by whoever is first, and never taken back
//! lease/NAME/<link id>     one per server: made by its keeper before the server is started, and locked by that keeper
//! ```
//!
//! Every keeper is the warden of its own lease: it watches owner, time and directory, and ends its server by the one stop
//! ladder. Whoever closes a lease only marks it, waits, and looks after what killed keepers left.
//!
//! Invariants: a lease is over from the moment `ended.json` is there, whatever becomes of whoever made it. A keeper shows its
//! file first and looks for that mark then; whoever closes marks first and looks for files then: so one of the two sees
//! the other. Nothing is synced to disk: a lease does not outlive the boot that it was opened in.

pub mod close;
pub mod member;
pub mod open;
pub mod place;
pub mod tidy;

#[cfg(test)]
mod tests;

use mainstay_core::event::Seen;
use mainstay_os::census;

use crate::view::measure::one_line;

pub use close::{Closed, EndedServer, Was, close};
pub use open::{Opened, Wish, open, renew};
pub use place::{Place, State, names};

/// Characters of a process's name that are kept; the kernel has fewer.
const NAME_CHARS: usize = 40;

/// Who has started us: whoever calls a command of ours is more worth knowing than the command.
pub fn caller() -> Option<Seen> {
    let parent = rustix::process::getppid()?;
    process(parent.as_raw_nonzero().get())
}

/// A process as it is now.
pub fn process(pid: i32) -> Option<Seen> {
    let stat = census::stat(pid).ok().filter(|stat| !stat.dead())?;
    Some(Seen {
        who: stat.who(),
        // A process may call itself anything, and this goes to terminals.
        comm: one_line(&stat.comm, NAME_CHARS),
    })
}
