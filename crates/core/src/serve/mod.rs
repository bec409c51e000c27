//! The decisions of the HTTP front: who is heard, which stream a message goes on, when a session is over.
//!
//! [`posted`] reads what a client sent; [`door`] says who may come in; [`sessions`] says how long a session lives;
//! [`front`] is the machine that composes them, [`session`] one session of the legacy era, [`modern`] one server for all clients
//! of the modern era, [`outlet`] and [`inlet`] the queues to clients and servers; [`routes`] finds the stream for each line of a server that has one client, [`shared`] and [`joint`] for one that has many;
//! [`headers`] compares headers with bodies; [`resume`] keeps what a client may have missed; [`sse`] writes events.
//! Nothing here knows of sockets, processes or clocks.

pub mod door;
pub mod front;
pub mod headers;
pub mod inlet;
pub mod joint;
pub mod limits;
pub mod modern;
pub mod outlet;
pub mod posted;
pub mod resume;
pub mod routes;
pub mod session;
pub mod sessions;
pub mod shared;
pub mod sse;
pub mod words;

use crate::message::frame::{Frame, Kind, Scanner};

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
