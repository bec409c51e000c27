//! mainstay over HTTP: [`bridge`] is the server of `run --url`, [`serve`] the HTTP front, and [`unclosed`] closes the sessions that
//! either has opened and could not close itself.
//!
//! [`client`] sends a request and streams the answer, with [`resolve`], [`proxy`] and [`tls`] below it. Which requests are sent,
//! and what an answer means, is decided in `http-core`.
#![forbid(unsafe_code)]

pub mod bridge;
pub mod client;
mod descriptor;
pub mod proxy;
pub mod resolve;
pub mod serve;
pub mod tls;
pub mod unclosed;
