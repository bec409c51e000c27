//! What people read: sentences about events, deaths and messages, errors, exit codes, tables, and text that is safe for
//! terminals.
//!
//! A view is a struct first: `--json` prints the struct, the table shows it. Everything here is made of values that the caller
//! has: it reads no file and no process. Only [`printer`] writes to stdout, and `run` does not use it, because stdout is the wire
//! there.
#![forbid(unsafe_code)]

pub mod clock;
pub mod exit;
pub mod frames;
pub mod happening;
pub mod live;
pub mod measure;
pub mod paint;
pub mod printer;
mod report;
pub mod safe;
pub mod short_id;
pub mod states;
pub mod story;
pub mod table;
pub mod timeline;
pub mod width;
pub mod wrap;

#[cfg(any(test, feature = "samples"))]
#[doc(hidden)]
pub mod samples;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod snapshot;

pub use exit::Exit;
pub use report::{Report, plain, talk};
