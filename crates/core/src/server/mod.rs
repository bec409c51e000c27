//! The life of one server process.

pub mod backoff;
pub mod health;
pub mod oom;
pub mod stop;
