//! Following.
