//! The decisions of the HTTP front: which requests are allowed, which stream a message goes on, when a session is over.
//!
//! [`front`] is the machine that the shell drives. It composes smaller ones, each with private fields:
//!
//! - `exchanges` has HTTP requests and their answers, `links` the links to servers, `traffic` both of them and the outputs;
//! - `legacy_era` has sessions of the legacy era (`shared_servers` the servers that they share), `modern_era` servers of the
//!   modern era, [`upstream`] sessions of servers upstream, `paths` what clients call, [`lifetimes`] how long a session lives,
//!   `stop` how far the stop is;
//! - [`session`] is one legacy session, [`shared_server`] one server for many sessions, [`modern_server`] one for all clients of
//!   the modern era; [`relabel`] gives requests of many clients ids of our own, [`routes`] finds the stream for a line of a
//!   server that has one client;
//! - [`client_queues`] and [`server_queue`] are the queues, [`resume`] keeps what a client may have missed, [`sse`] writes events;
//! - [`access`] checks the head of a request, [`posted`] reads its body, [`headers`] compares both; [`requests`] and [`outputs`]
//!   are what goes in and out.
//!
//! Nothing here knows of sockets, processes or clocks.

pub mod access;
pub mod client_queues;
mod exchanges;
pub mod front;
pub mod headers;
mod legacy_era;
pub mod lifetimes;
pub mod limits;
mod links;
mod modern_era;
pub mod modern_server;
pub mod outputs;
mod paths;
pub mod posted;
pub mod relabel;
pub mod requests;
pub mod resume;
pub mod routes;
pub mod server_queue;
pub mod session;
pub mod shared_server;
mod shared_servers;
pub mod sse;
mod stop;
mod traffic;
pub mod upstream;
pub mod words;

use mainstay_protocol::message::frame::{Frame, Kind, Scanner};

/// What a whole line is, with or without its newline.
pub fn framed<'s>(scanner: &'s mut Scanner, line: &'s [u8]) -> Frame<'s> {
    scanner.feed(line);
    if !scanner.between_lines() {
        scanner.feed(b"\n");
    }
    scanner.frame().completed(line)
}

/// Whether a line is an answer with an error.
pub fn is_error(line: &[u8]) -> bool {
    framed(&mut Scanner::default(), line).kind == Kind::Error
}
