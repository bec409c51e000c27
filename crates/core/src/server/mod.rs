//! The life of one server process.
