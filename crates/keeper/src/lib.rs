//! One link: the keeper holds a server for its client, and this crate is everything that holds and ends servers.
//!
//! `keeper` is the loop of the process; the parts that it is made of have a module each. [`lease`] binds servers to a session of
//! a host, [`warm`] hands a server to a client that comes back, [`container`] knows servers that run in a container engine, and
//! [`leftovers`] ends what killed keepers left.
//!
//! The keeper has one thread and no runtime, and it knows nothing of HTTP: what is to be done there comes with its [`plan`].
#![forbid(unsafe_code)]

mod card;
mod client;
mod code_changes;
mod connection;
pub mod container;
pub mod control;
pub mod default_name;
mod events;
mod frames;
mod guard;
mod keeper;
pub mod lease;
pub mod leftovers;
mod listing;
mod log;
mod maintenance;
mod newcomers;
pub mod notify;
mod own_lease;
mod pipes;
pub mod plan;
mod port;
mod ready;
pub mod recording;
mod sender;
mod server;
pub mod session;
mod shim;
mod signals;
mod standing;
mod stderr;
mod suspects;
pub mod warm;
mod watched;
