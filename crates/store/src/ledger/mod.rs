//! The ledger: what happened, one event per line, kept for a fortnight.
//!
//! Every keeper and guard appends to the same daily file, each event with one `write(2)`; readers take the lines as
//! they come. A torn tail is normal (a full disk, a power cut): the next writer starts a new line, readers count and
//! skip. Nothing here decides what is worth an event.

pub mod append;
pub mod backwards;
pub mod cut;
pub mod files;
pub mod follow;
pub mod read;
pub mod retain;

pub use append::Ledger;
