//! Unclosed sessions: HTTP sessions that mainstay opened and must still close with DELETE. Each has a note on disk, so that
//! it is closed even if every process of ours is killed.
//!
//! There is one file per session. The process that opened the session holds the lock of the file for as long as it lives.
//! A free lock therefore means that the owner is dead, even if another process has its pid now. A process that closes the
//! session takes the lock first, so that only one DELETE is under way at a time.
//!
//! Notes are written to `sessions/`. Earlier versions wrote them to `debts/`, in the same format. That directory is still
//! read: its notes are listed and closed like all others. They are not moved, because a process of the old version may
//! still hold their locks and remove them by their old path.
//!
//! Invariants:
//! - Files are 0600 in a directory that is 0700.
//! - A note is on the disk, fsynced, before the client or the user sees the session id.
//! - A note contains no header value, no password and no query of a URL. It says where they came from, and has a salted
//!   digest to recognise them.
//! - A file that cannot be read is listed. It never counts as a closed session.
//! - A secret is sent only to the server that it belongs to.
//! - "No such session" closes a note only if the DELETE was sent with the credentials that opened the session.

pub mod background;
pub mod close;
pub mod credentials;
pub mod fingerprint;
pub mod list;
pub mod note;

pub use credentials::{Keyring, Source};
pub use list::{ListedNote, is_due, list};
pub use note::{LockedNote, Note};

#[cfg(test)]
mod tests;
