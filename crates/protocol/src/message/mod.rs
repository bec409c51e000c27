//! The way of one message, in travel order.
//!
//! [`lines`] puts lines together where they are wanted whole, [`frame`] finds lines and what they are in passing;
//! [`batch`] and [`envelope`] look into the few lines that we act on; [`inflight`] is the table of requests that wait
//! for an answer, [`asked`] the questions of the server; [`retry`] decides what may be sent twice, [`resend`] keeps
//! those lines, [`orphans`] knows the requests whose client is gone; [`lists`] knows what the client has seen,
//! [`tasks`] what continues after an answer; [`settle`] writes the answers that we give ourselves; [`remembered`] holds
//! those that an earlier session saw. Nothing here re-serializes a message: bytes are forwarded unchanged, and a
//! rewrite replaces the span of one value.

pub mod asked;
pub mod batch;
mod digest;
pub mod envelope;
pub mod frame;
pub mod inflight;
pub mod lines;
pub mod lists;
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
