//! mainstay: an MCP server lives exactly as long as somebody needs it.
//!
//! The shell around the decisions of `mainstay-core` and the hands of `mainstay-os`: command line, config, ledger,
//! registry, views. In `run`, stdout is the wire and nothing here writes to it; elsewhere stdout is data and goes
//! through [`view::printer`].
#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod container;
pub mod demo;
pub mod exit;
pub mod keeper;
pub mod ledger;
pub mod paths;
pub mod profile;
pub mod recollection;
pub mod registry;
pub mod report;
pub mod sweeper;
pub mod view;
pub mod warm;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod scratch;
