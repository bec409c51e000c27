//! Long lines that must be seen whole, gathered piece by piece: one from each side may be on its way at a time.
//!
//! Invariant: no more of a line is kept than what shows that it is too long.

use alloc::vec::Vec;

use mainstay_protocol::limits::HELD_LINE_BYTES;
use mainstay_protocol::message::frame::{Begun, Frame, Id, Kind};
use mainstay_protocol::message::inflight::Token;
use mainstay_protocol::message::token;

#[derive(Debug, Default)]
pub(super) struct LongLines {
    from_client: Option<Vec<u8>>,
    from_server: Option<Vec<u8>>,
    /// The request in the table whose long line is on its way, and of which no server has seen anything.
    unsent: Option<Token>,
    /// The long answer of the server's that is on its way to the client as it comes.
    answer: Option<LongAnswer>,
    /// The rest of a line that a killed keeper had begun is still to come.
    rest: Option<Rest>,
}

/// The rest of a line whose beginning is lost with a killed keeper.
#[derive(Debug)]
pub(super) struct Rest {
    begun: Begun,
    /// The requests that were answered before it came: if it names one of them, that one has its answer.
    answered: Vec<Token>,
}

impl Rest {
    /// True if the line may be an answer of the client's.
    pub fn may_answer(&self) -> bool {
        match self.begun {
            Begun::Unknown | Begun::Answers => true,
            Begun::Asks => false,
        }
    }

    /// True if this request was answered before the rest of its line came.
    pub fn is_answered(&self, id: &[u8]) -> bool {
        self.answered.iter().any(|request| token::same(request, id))
    }
}

/// A long answer of which the client has, or is about to have, the beginning: its request is not answered by us as well.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LongAnswer {
    /// To this request.
    To(Token),
    /// Its id has not come yet: it may be the answer to any request.
    ToAny,
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

    /// The next line from the client is the rest of one that a killed keeper had begun.
    pub fn await_rest(&mut self, begun: Begun) {
        self.rest = Some(Rest {
            begun,
            answered: Vec::new(),
        });
    }

    /// A request that the killed keeper left in the table is answered now.
    pub fn answered_at_take_over(&mut self, request: &Token) {
        if let Some(rest) = &mut self.rest {
            rest.answered.push(*request);
        }
    }

    /// A line from the client that went nowhere is at its end: what is known of it if a killed keeper had begun it.
    pub fn take_rest(&mut self) -> Option<Rest> {
        self.rest.take()
    }

    /// A long line from the server begins to pass. Not all of it may be known yet.
    pub fn passes_from_server(&mut self, frame: Option<&Frame<'_>>) {
        let (kind, id) = frame.map_or((Kind::Response, Id::Absent), |f| (f.kind, f.id));
        let answer = match (kind, id) {
            (Kind::Response | Kind::Error, Id::Token(id)) => {
                Token::new(id).map_or(LongAnswer::ToAny, LongAnswer::To)
            }
            (Kind::Response | Kind::Error, Id::Absent) => LongAnswer::ToAny,
            (
                Kind::Request
                | Kind::Response
                | Kind::Error
                | Kind::Notification
                | Kind::Batch
                | Kind::Blank
                | Kind::Junk,
                _,
            ) => return,
        };
        self.answer = Some(answer);
    }

    /// The answer that passes, if one does.
    pub fn answer(&self) -> Option<&LongAnswer> {
        self.answer.as_ref()
    }

    /// It is at its end, or its rest will never come.
    pub fn answer_ends(&mut self) {
        self.answer = None;
    }

    /// The client is gone, and the rest of its line with it.
    pub fn client_gone(&mut self) {
        self.from_client = None;
        self.unsent = None;
        self.answer = None;
        self.rest = None;
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
