//! The life of one server process.

pub mod stop;
