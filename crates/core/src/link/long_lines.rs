//! Long lines that must be seen whole, gathered piece by piece: one from each side may be on its way at a time.
//!
//! Invariant: no more of a line is kept than what shows that it is too long.

use alloc::vec::Vec;

use crate::limits::HELD_LINE_BYTES;
use crate::message::inflight::Token;

#[derive(Debug, Default)]
pub(super) struct LongLines {
    from_client: Option<Vec<u8>>,
    from_server: Option<Vec<u8>>,
    /// The request in the table whose long line is on its way, and of which no server has seen anything.
    unsent: Option<Token>,
}

impl LongLines {
    /// A line from the client is gathered from now on.
    pub fn begin_from_client(&mut self) {
        self.from_client = Some(Vec::new());
    }

    /// A line from the server is gathered from now on.
    pub fn begin_from_server(&mut self) {
        self.from_server = Some(Vec::new());
    }

    pub fn client_piece(&mut self, piece: &[u8]) {
        append(&mut self.from_client, piece);
    }

    pub fn server_piece(&mut self, piece: &[u8]) {
        append(&mut self.from_server, piece);
    }

    /// The line from the client is at its end.
    pub fn end_from_client(&mut self) -> Gathered {
        Gathered::of(self.from_client.take())
    }

    /// The line from the server is at its end.
    pub fn end_from_server(&mut self) -> Gathered {
        Gathered::of(self.from_server.take())
    }

    /// The line that has just been cut belongs to this request, if the table has it.
    pub fn set_unsent(&mut self, request: Option<Token>) {
        self.unsent = request;
    }

    /// The line is at its end: the request that it belongs to, if the table had it at the cut.
    pub fn take_unsent(&mut self) -> Option<Token> {
        self.unsent.take()
    }

    /// The client is gone, and the rest of its line with it.
    pub fn client_gone(&mut self) {
        self.from_client = None;
        self.unsent = None;
    }
}

/// What was gathered of a line.
pub(super) enum Gathered {
    /// All of it.
    Whole(Vec<u8>),
    /// Its beginning: it is longer than can be held.
    TooLong(Vec<u8>),
}

impl Gathered {
    fn of(gathered: Option<Vec<u8>>) -> Self {
        debug_assert!(gathered.is_some(), "only a line that was begun ends");
        let line = gathered.unwrap_or_default();
        if line.len() > HELD_LINE_BYTES {
            Self::TooLong(line)
        } else {
            Self::Whole(line)
        }
    }
}

fn append(gathered: &mut Option<Vec<u8>>, piece: &[u8]) {
    if let Some(line) = gathered
        && line.len() <= HELD_LINE_BYTES
    {
        line.extend_from_slice(piece);
    }
}
