//! The registry: one directory per link, no daemon.
//!
//! `run/<id>/` holds `card.json` (who and what), `members.json` (the tree as last recorded), `control.sock` and
//! `lock`. The lock is one open file description that guard and keeper share by inheritance: it is free only when
//! all of them are dead. The next process that sees the directory of a dead link sweeps it.
//!
//! The registry reads and writes files and asks keepers; it ends no process.

pub mod ask;
pub mod card;
pub mod control;
pub mod conversation;
pub mod entry;
pub mod list;
pub mod sweep;
pub mod trees;

pub use card::Card;
pub use entry::Entry;
pub use list::{Listed, find_card, list};
pub use sweep::{Dead, sweep_dead};
