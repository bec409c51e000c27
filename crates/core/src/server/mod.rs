//! The life of one server process.

pub mod backoff;
pub mod stop;
