//! Lines that are too long to be held: may they go on as they come, or must we see them whole?

use super::route::each_request;
use super::state::{Because, Life, Stage};
use super::{Link, Output, Route};
use crate::clock::Moment;
use crate::limits::HELD_LINE_BYTES;
use crate::message::frame::{Frame, Id, Kind};
use crate::message::inflight::{Opened, Token, Tracked};
use crate::message::{batch, settle, token};
use alloc::vec::Vec;

impl Link<'_> {
    /// May a line from the client that is too long to be held go on? Not all of it may be known yet.
    pub fn client_cut(&mut self, now: Moment, frame: Option<&Frame<'_>>) -> Route {
        let route = self.cut_route(frame);
        let abandoned = matches!(self.life, Life::Abandoned(_));
        self.cut = match (route, frame) {
            (Route::Gather, Some(frame)) => self.open_at_cut(now, frame),
            (Route::Drop, Some(frame)) if abandoned => self.open_at_cut(now, frame),
            (Route::Forward | Route::Drop | Route::Instead | Route::Gather | Route::Hold, _) => {
                None
            }
        };
        route
    }

    /// The beginning of a request is gone while no server has seen any of it: a keeper that is killed before its end is
    /// followed by one that answers it.
    fn open_at_cut(&mut self, now: Moment, frame: &Frame<'_>) -> Option<Token> {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return None;
        };
        let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
        match self.inflight.hold(id, tracked, now) {
            Opened::New | Opened::Again => Token::new(id),
            Opened::Full | Opened::Untracked => None,
        }
    }

    /// The long line is at its end: whether it has had its answer meanwhile.
    pub(super) fn answered_since_cut(&mut self) -> bool {
        let cut = self.cut.take();
        cut.is_some_and(|id| self.inflight.get(&id).is_none())
    }

    fn cut_route(&mut self, frame: Option<&Frame<'_>>) -> Route {
        if self.away() {
            return Route::Drop;
        }
        match &self.life {
            Life::Up(up) => match up.stage {
                Stage::Serving if up.giving_way.is_none() => {
                    let labelled = self.head.generation > 1 && self.asked.pending() > 0;
                    let answer = frame
                        .is_none_or(|frame| matches!(frame.kind, Kind::Response | Kind::Error));
                    let request = frame.is_none_or(|frame| frame.kind == Kind::Request);
                    if (request || is_batch(frame)) && self.inflight.room() == 0 {
                        // Once its beginning is gone it could not wait for a place any more.
                        Route::Hold
                    } else if labelled && answer
                        || request && !self.orphans.is_empty()
                        || is_batch(frame)
                        || has_long_id(frame)
                    {
                        self.gather_from_client()
                    } else {
                        Route::Forward
                    }
                }
                // The server waits for it before it goes on.
                Stage::Greeting { .. } | Stage::Replaying { .. } | Stage::Instant
                    if is_answer(frame) && self.asked.pending() > 0 =>
                {
                    self.gather_from_client()
                }
                Stage::Greeting { .. }
                | Stage::Replaying { .. }
                | Stage::Instant
                | Stage::Serving => Route::Hold,
            },
            Life::Absent { .. } | Life::Waiting { .. } | Life::Swapping(_) => Route::Hold,
            Life::Resting => {
                self.spawn(None);
                Route::Hold
            }
            Life::Abandoned(_) if self.inflight.room() == 0 && is_request(frame) => Route::Hold,
            Life::Abandoned(_) | Life::Closing(_) if is_batch(frame) || has_long_id(frame) => {
                self.gather_from_client()
            }
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished => Route::Drop,
        }
    }

    /// Learns what is known of a long line from the server before it is forwarded: may it go on?
    pub fn server_known(&mut self, frame: Option<&Frame<'_>>) -> Route {
        match &self.life {
            Life::Up(_) => {}
            Life::Swapping(swapping) if !swapping.is_over() => {}
            Life::Closing(closing) if !closing.is_over() => {}
            Life::Closing(_)
            | Life::Swapping(_)
            | Life::Absent { .. }
            | Life::Waiting { .. }
            | Life::Resting
            | Life::Abandoned(_)
            | Life::Finished => return Route::Drop,
        }
        if self.away() {
            // What is ours is short.
            return Route::Drop;
        }
        match frame {
            Some(frame) if matches!(frame.kind, Kind::Response | Kind::Error) => match frame.id {
                Id::Token(id)
                    if self.own.is(id)
                        || self.orphans.own(id).is_some()
                        || self.long_ids.id_of(id).is_some() =>
                {
                    self.gather_from_server()
                }
                Id::Token(_) if !self.orphans.is_empty() => Route::Drop,
                Id::Token(id) if self.inflight.is_settled(id) => Route::Drop,
                Id::Token(id) if self.must_see(id) => self.gather_from_server(),
                // Whose it is comes at its end.
                Id::Absent if self.must_see_an_answer() => self.gather_from_server(),
                Id::Absent | Id::Null | Id::Token(_) | Id::TooLong => Route::Forward,
            },
            Some(frame) if frame.kind == Kind::Request && self.head.generation > 1 => {
                self.gather_from_server()
            }
            Some(frame) if !self.orphans.is_empty() && told_apart(frame) => {
                self.gather_from_server()
            }
            // What its members are is known when all of it is there.
            Some(frame) if frame.kind == Kind::Batch => self.gather_from_server(),
            None if self.must_see_any() => self.gather_from_server(),
            Some(_) | None => Route::Forward,
        }
    }

    /// The next piece of a long line from the client that is gathered.
    pub fn client_piece(&mut self, piece: &[u8]) {
        gather_piece(&mut self.client_gathered, piece);
    }

    /// The same from the server.
    pub fn server_piece(&mut self, piece: &[u8]) {
        gather_piece(&mut self.server_gathered, piece);
    }

    /// The end of a long line from the server that was gathered.
    pub fn gathered_from_server(&mut self, now: Moment, frame: &Frame<'_>) {
        let line = self.server_gathered.take().unwrap_or_default();
        if line.len() > HELD_LINE_BYTES {
            self.too_long(frame, &line);
            return;
        }
        match self.server_line(now, frame, &line) {
            Route::Forward | Route::Hold => {
                if let Id::Token(id) = frame.id {
                    self.inflight.goes_with_ours(id);
                }
                if frame.kind == Kind::Batch {
                    batch::each_member(&line, |member| {
                        if let Id::Token(id) = member.id {
                            self.inflight.goes_with_ours(id);
                        }
                    });
                }
                self.push(Output::ToClient(line));
            }
            Route::Drop | Route::Instead | Route::Gather => {}
        }
    }

    /// The end of a long line from the client that was gathered.
    pub fn gathered_from_client(&mut self, now: Moment, frame: &Frame<'_>) {
        let line = self.client_gathered.take().unwrap_or_default();
        if self.answered_since_cut() {
            return;
        }
        if line.len() > HELD_LINE_BYTES {
            self.client_too_long(now, frame);
            return;
        }
        match self.client_line(now, frame, &line) {
            Route::Forward => self.push(Output::ToServer(line)),
            Route::Hold => {
                if let Some(line) = self.short_to_hold(frame, line) {
                    self.hold_gathered(now, frame, line);
                }
            }
            Route::Drop | Route::Instead | Route::Gather => {}
        }
    }

    /// A gathered line that cannot go on now, and that cannot be shown again: it waits within us, or has its answer.
    fn hold_gathered(&mut self, now: Moment, frame: &Frame<'_>, line: Vec<u8>) {
        if !self.over() {
            each_request(&line, |id, tracked| {
                self.inflight.hold(id, tracked, now);
            });
            self.held_bytes += line.len();
            self.held.push_back(line);
            return;
        }
        if self.refuse(now, frame, &line) == Route::Hold {
            each_request(&line, |id, tracked| {
                self.answer(id, tracked, &Because::Lost);
            });
        }
    }

    /// Whether no server will see what the client says now.
    pub(super) fn over(&self) -> bool {
        match &self.life {
            Life::Abandoned(_) | Life::Closing(_) | Life::Finished => true,
            Life::Absent { .. }
            | Life::Up(_)
            | Life::Swapping(_)
            | Life::Waiting { .. }
            | Life::Resting => false,
        }
    }

    fn gather_from_client(&mut self) -> Route {
        self.client_gathered = Some(Vec::new());
        Route::Gather
    }

    fn gather_from_server(&mut self) -> Route {
        self.server_gathered = Some(Vec::new());
        Route::Gather
    }

    /// A line of the server's that we had to hold whole and could not: whoever waits for an answer to it, or in it, has ours.
    fn too_long(&mut self, frame: &Frame<'_>, begins: &[u8]) {
        match (frame.kind, frame.id) {
            (Kind::Response | Kind::Error, Id::Token(id)) => {
                let id = self.orphans.close(id).unwrap_or_else(|| id.to_vec());
                if let Some(entry) = self.inflight.get(&id) {
                    self.answer(&id, entry.method, &Because::TooLong);
                }
            }
            (Kind::Request, Id::Token(id)) => {
                self.push(Output::ToServer(settle::error(id, TOO_LONG, "{}")));
            }
            // Whom it answers is not known, so nobody is told the wrong thing.
            (Kind::Batch, _) => self.junk(begins),
            (
                Kind::Request
                | Kind::Response
                | Kind::Error
                | Kind::Notification
                | Kind::Blank
                | Kind::Junk,
                Id::Absent | Id::Null | Id::Token(_) | Id::TooLong,
            ) => {}
        }
    }

    /// The same for a line of the client's: a request is answered, a batch as a whole, anything else is nobody's loss.
    fn client_too_long(&mut self, now: Moment, frame: &Frame<'_>) {
        if frame.kind == Kind::Batch {
            self.push(Output::ToClient(settle::error(b"null", TOO_LONG, "{}")));
        } else if let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) {
            let tracked = Tracked::of(frame.method.as_deref().unwrap_or_default());
            self.inflight.open(id, tracked, self.head.generation, now);
            self.answer(id, tracked, &Because::TooLong);
        }
    }

    /// Whether the answer to this request is one that we learn from.
    pub(super) fn must_see(&self, id: &[u8]) -> bool {
        self.inflight
            .get(id)
            .is_some_and(|entry| entry.method.teaches())
            || self
                .instant_id
                .as_ref()
                .is_some_and(|own| token::same(own, id))
    }

    /// Whether a line that may be anything has to be seen whole: a question of a later generation's needs a label.
    fn must_see_any(&self) -> bool {
        self.head.generation > 1 || self.must_see_an_answer()
    }

    /// Whether any answer that may come is one that we learn from, or that the client must not see. What a probe brings is
    /// short: a long one is the client's if it waits for any.
    fn must_see_an_answer(&self) -> bool {
        let nobody_waits = self.inflight.is_empty();
        self.own.wants_more()
            || nobody_waits && !self.own.is_empty()
            || self.instant_id.is_some()
            || self.inflight.settled() > 0
            || !self.orphans.is_empty()
            || !self.long_ids.is_empty()
            || self
                .inflight
                .iter()
                .any(|(_, entry)| entry.method.teaches())
    }
}

/// Why a line is not passed on.
const TOO_LONG: &str = "the message is longer than can be held (16 MiB)";

fn is_request(frame: Option<&Frame<'_>>) -> bool {
    frame.is_some_and(|frame| frame.kind == Kind::Request)
}

fn is_batch(frame: Option<&Frame<'_>>) -> bool {
    frame.is_some_and(|frame| frame.kind == Kind::Batch)
}

fn has_long_id(frame: Option<&Frame<'_>>) -> bool {
    frame.is_some_and(|frame| (frame.kind, frame.id) == (Kind::Request, Id::TooLong))
}

fn is_answer(frame: Option<&Frame<'_>>) -> bool {
    frame.is_some_and(|frame| matches!(frame.kind, Kind::Response | Kind::Error))
}

fn gather_piece(gathered: &mut Option<Vec<u8>>, piece: &[u8]) {
    if let Some(gathered) = gathered
        && gathered.len() <= HELD_LINE_BYTES
    {
        gathered.extend_from_slice(piece);
    }
}

/// Whether a line of the server's that is no answer has to be told apart from an orphan's.
fn told_apart(frame: &Frame<'_>) -> bool {
    frame.method.as_deref() == Some("notifications/progress")
}
