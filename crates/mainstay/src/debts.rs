//! Debts: HTTP sessions that were opened and must be closed, written down so that no death of ours forgets one.
//!
//! One file per debt. Whoever opened the session holds the file's lock while it lives, so that a debt whose lock is free
//! is owed by a dead one, whatever its pid is now; whoever pays takes the lock, so that at most one DELETE is under way.
//!
//! Invariants: files are 0600 in a directory that is 0700; a debt is on the disk, fsynced, before anybody is told of its
//! session; no value of a header, no password and no query of a URL is ever in a file, only where it came from and a seal
//! by which it is known again; a file that cannot be read is shown, and never taken for paid; a value goes only to the
//! server that it is for; what a server says to somebody else strikes nothing out.

pub mod list;
pub mod note;
pub mod pay;
pub mod seal;
pub mod secret;

pub use list::{Standing, is_due, list};
pub use note::{Held, Note};
pub use secret::{Keyring, Source};

#[cfg(test)]
mod tests;
