//! The way of one message, in travel order.
//!
//! [`lines`] puts lines together where they are wanted whole, [`frame`] finds lines and what they are in passing;
//! [`batch`] and [`envelope`] look into the few lines that we act on; [`inflight`] knows who waits for an answer, [`asked`]
//! what the server asks the client, [`retry`] what may be sent twice, [`resend`] keeps those lines, [`orphans`] knows whose
//! client is gone; [`lists`] knows what the client has seen, [`tasks`] what goes on after an answer; [`settle`] writes the
//! answers that we give ourselves; [`remembered`] holds those that an earlier session saw. Nothing here re-serializes a
//! message: bytes go on as they came, a rewrite replaces the span of one value.

pub mod asked;
pub mod batch;
mod digest;
pub mod envelope;
pub mod frame;
pub mod inflight;
pub mod lines;
pub mod lists;
pub(crate) mod long_ids;
#[cfg(any(test, feature = "oracle"))]
#[doc(hidden)]
pub mod oracle;
pub mod orphans;
pub mod remembered;
pub mod resend;
pub mod retry;
pub mod settle;
pub mod slot;
pub mod tasks;
pub mod token;
mod unique;
