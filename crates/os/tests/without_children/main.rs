//! Tests that only work if no test of this program starts a process: between its fork and its exec a child has copies
//! of all our descriptors, so that a descriptor that we have closed is still open there.

#![allow(clippy::unwrap_used, reason = "tests")]

mod file_changes;
mod socket_passes_bytes_and_descriptors;
