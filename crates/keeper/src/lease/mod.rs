//! Leases on disk: one directory per lease, no daemon.
//!
//! ```text
//! lease/NAME/term.json     its owner and its time; replaced as a whole when it is renewed
//! lease/NAME/ended.json    the mark: the lease is over, and why; made once by the first process that ends it, never removed alone
//! lease/NAME/<link id>     one per server: made by its keeper before the server is started, and locked by that keeper
//! ```
//!
//! Each keeper watches its own lease (owner, time, directory) and ends its server with the stop ladder. A process that closes
//! a lease only writes the mark, waits for the keepers, and ends what killed keepers left.
//!
//! Invariants:
//! - A lease is over as soon as `ended.json` exists, even if the process that made it dies.
//! - A keeper first makes its file, then looks for the mark. A closing process first makes the mark, then looks for files. So
//!   one of the two always sees the other.
//! - Nothing is synced to disk, because a lease ends with the boot in which it was opened.

pub mod close;
pub mod directory;
pub mod member;
pub mod open;
pub mod tidy;

#[cfg(test)]
mod tests;

use mainstay_os::census;
use mainstay_protocol::event::Seen;
use mainstay_report::safe::one_line;

pub use close::{Closed, EndedServer, Was, close};
pub use directory::{LeaseDirectory, State, names};
pub use open::{Opened, Wish, open, renew};

/// Characters of a process name that are kept. The kernel keeps fewer.
const NAME_CHARS: usize = 40;

/// The process that started us. It says more to a user than our own command.
pub fn caller() -> Option<Seen> {
    let parent = rustix::process::getppid()?;
    process(parent.as_raw_nonzero().get())
}

/// A process as it is now.
pub fn process(pid: i32) -> Option<Seen> {
    let stat = census::stat(pid).ok().filter(|stat| !stat.dead())?;
    Some(Seen {
        who: stat.who(),
        // A process can choose any name, and this is printed on terminals.
        comm: one_line(&stat.comm, NAME_CHARS),
    })
}
