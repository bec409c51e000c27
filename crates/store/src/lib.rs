//! mainstay's files on disk: the config file, the ledger, the logs, the registry and the cache of openings.
//!
//! [`state`] is the one way to what is below the state directory: it checks owner, kind and size of everything that it opens.
//! [`paths`] says where that directory is. The rest is one module for each kind of file. Nothing here starts or ends a process.
#![forbid(unsafe_code)]

pub mod cache;
pub mod config;
pub mod ledger;
pub mod logs;
pub mod paths;
pub mod registry;
pub mod since;
pub mod state;

#[cfg(any(test, feature = "samples"))]
#[doc(hidden)]
pub mod scratch;
