//! Requests whose ids are too long for the table: a short label on the way to the server, the client's own id on the way back.

use alloc::vec::Vec;

use super::{Link, Output, Route};
use crate::clock::Moment;
use crate::limits::{ID_BYTES, LONG_ID_BYTES};
use crate::message::envelope::{self, Members};
use crate::message::frame::{Frame, Id, Kind, Scanner};
use crate::message::{batch, settle};

/// What becomes of a line with long ids.
enum Short {
    /// It has none.
    AsItIs,
    /// The same line with labels in their places.
    Line(Vec<u8>),
    /// There is no room for another label until one is free.
    Full,
    /// An id is longer than any that is taken: it has its answer.
    Refused,
}

impl Link<'_> {
    /// Routes a whole line from the client.
    pub fn client_line(&mut self, now: Moment, frame: &Frame<'_>, line: &[u8]) -> Route {
        if self.away() {
            // Of a client that is not there any more.
            return Route::Drop;
        }
        match self.shortened(frame, line) {
            Short::AsItIs => self.routed(now, frame, line),
            Short::Full => Route::Hold,
            Short::Refused => Route::Instead,
            Short::Line(short) => {
                let mut scanner = Scanner::new();
                scanner.feed(&short);
                match self.routed(now, &scanner.frame(), &short) {
                    Route::Forward => {
                        self.push(Output::ToServer(short));
                        Route::Instead
                    }
                    route @ (Route::Drop | Route::Instead | Route::Gather | Route::Hold) => route,
                }
            }
        }
    }

    /// A line that waits within us and cannot be shown again, with labels for its long ids; none if it has its answer.
    pub(super) fn short_to_hold(&mut self, frame: &Frame<'_>, line: Vec<u8>) -> Option<Vec<u8>> {
        match self.shortened(frame, &line) {
            Short::AsItIs => Some(line),
            Short::Line(short) => Some(short),
            Short::Refused => None,
            Short::Full => {
                for id in long_ids(&line) {
                    self.push(Output::ToClient(settle::error(&id, NO_ROOM, "{}")));
                }
                None
            }
        }
    }

    fn shortened(&mut self, frame: &Frame<'_>, line: &[u8]) -> Short {
        match (frame.kind, frame.id) {
            (Kind::Request, Id::TooLong) => {}
            (Kind::Batch, _) if has_long_ids(line) => {}
            (Kind::Notification, _)
                if !self.long_ids.is_empty()
                    && frame.method.as_deref() == Some("notifications/cancelled") =>
            {
                let label = envelope::cancelled_id(line).and_then(|id| self.long_ids.label_of(id));
                let short = label.and_then(|label| envelope::with_request_id(line, label));
                return short.map_or(Short::AsItIs, Short::Line);
            }
            (
                Kind::Request
                | Kind::Notification
                | Kind::Response
                | Kind::Error
                | Kind::Batch
                | Kind::Blank
                | Kind::Junk,
                _,
            ) => return Short::AsItIs,
        }
        let ids = long_ids(line);
        let room = ids.iter().all(|id| id.len() <= LONG_ID_BYTES) && {
            self.forget_long_ids();
            let generation = self.head.generation;
            let mut fit = true;
            for id in &ids {
                let label = self.long_ids.label(id, generation, &mut self.keepsakes);
                fit &= label.is_some();
            }
            if !fit && !self.inflight.is_empty() {
                return Short::Full;
            }
            fit
        };
        if !room {
            for id in &ids {
                self.push(Output::ToClient(settle::error(id, NO_ROOM, "{}")));
            }
            return Short::Refused;
        }
        let short = |line: &[u8]| {
            let id = Members::of_line(line)?.get("id")?.get().as_bytes();
            envelope::with_id(line, self.long_ids.label_of(id)?)
        };
        if frame.kind != Kind::Batch {
            return short(line).map_or(Short::AsItIs, Short::Line);
        }
        let mut whole = Vec::new();
        batch::each_member_line(line, |_, member| {
            whole.push(if whole.is_empty() { b'[' } else { b',' });
            let new = short(member);
            whole.extend_from_slice(new.as_deref().unwrap_or(member).trim_ascii_end());
        });
        whole.extend_from_slice(b"]\n");
        Short::Line(whole)
    }

    /// A line for the client with its own ids in the places of our labels; none if it has no label.
    pub(super) fn lengthened(&self, line: &[u8]) -> Option<Vec<u8>> {
        if self.long_ids.is_empty() {
            return None;
        }
        let mut scanner = Scanner::new();
        scanner.feed(line);
        let frame = scanner.frame();
        let own = |label: &[u8]| self.long_ids.id_of(label);
        match (frame.kind, frame.id) {
            (Kind::Response | Kind::Error, Id::Token(label)) => {
                let line = envelope::with_id(line, own(label)?)?;
                let inside = envelope::ended_subscription(&line).and_then(own);
                let both = inside.and_then(|id| envelope::with_ended_subscription(&line, id));
                Some(both.unwrap_or(line))
            }
            (Kind::Notification, _) => match envelope::cancelled_id(line) {
                Some(label) => envelope::with_request_id(line, own(label)?),
                None => envelope::with_subscription(line, own(envelope::subscription(line)?)?),
            },
            (
                Kind::Request
                | Kind::Response
                | Kind::Error
                | Kind::Batch
                | Kind::Blank
                | Kind::Junk,
                _,
            ) => None,
        }
    }

    /// A line of the server's goes on, with the client's own ids.
    pub(super) fn forwarded(&mut self, frame: &Frame<'_>, line: &[u8]) -> Route {
        match (self.lengthened(line), frame.id) {
            (Some(own), Id::Token(label)) => {
                self.inflight.goes_with_ours(label);
                self.push(Output::ToClient(own));
                Route::Instead
            }
            (Some(own), Id::Absent | Id::Null | Id::TooLong) => {
                self.push(Output::ToClient(own));
                Route::Instead
            }
            // Its request was cancelled: the client knows of no such id.
            (None, Id::Token(id)) if self.long_ids.is_label(id) => Route::Drop,
            (None, _) => Route::Forward,
        }
    }

    /// Forgets the labels of requests that are over.
    pub(super) fn forget_long_ids(&mut self) {
        if !self.long_ids.is_empty() {
            let inflight = &self.inflight;
            self.long_ids
                .retain(|label| inflight.knows(label), &mut self.keepsakes);
        }
    }

    /// The labels under which requests of this line are known.
    pub(super) fn labels_in(&self, line: &[u8]) -> Vec<Vec<u8>> {
        if self.long_ids.is_empty() {
            return Vec::new();
        }
        let ids = long_ids(line);
        let labels = ids.iter().filter_map(|id| self.long_ids.label_of(id));
        labels.map(<[u8]>::to_vec).collect()
    }
}

const NO_ROOM: &str =
    "the id of the request is too long: at most 4 KiB each, and 64 KiB for all that wait";

/// The ids of requests in a line that are too long for the table.
fn long_ids(line: &[u8]) -> Vec<Vec<u8>> {
    let mut ids = Vec::new();
    let mut see = |line: &[u8]| {
        let message = Members::of_line(line)?;
        let id = message.get("id")?.get().as_bytes();
        if id.len() > ID_BYTES && message.get("method").is_some() {
            ids.push(id.to_vec());
        }
        Some(())
    };
    if see(line).is_none() {
        batch::each_member_line(line, |_, member| {
            see(member);
        });
    }
    ids
}

fn has_long_ids(line: &[u8]) -> bool {
    let mut found = false;
    batch::each_member(line, |member| {
        found |= (member.kind, member.id) == (Kind::Request, Id::TooLong);
    });
    found
}
