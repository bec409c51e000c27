//! The life of one server process.

pub mod health;
pub mod stop;
