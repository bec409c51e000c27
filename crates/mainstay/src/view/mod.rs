//! What people see: tables, lines and colours, and the one way to stdout.
//!
//! A view is a struct first: `--json` prints the struct, the table shows it. Nothing here reads a file or a process.

pub mod frames;
pub mod happening;
pub mod measure;
pub mod paint;
pub mod printer;
pub mod safe;
pub mod story;
pub mod table;
pub mod timeline;
