//! The requests of a client that came back, told apart from those of an earlier one.
//!
//! Nothing here is done for the first client of a generation. Each request of a later one goes under a label of ours and
//! its answer comes back under its own id; progress likewise.

use alloc::vec::Vec;

use super::{Link, Output, Route};
use crate::clock::Moment;
use crate::message::envelope::{self, cancelled_id};
use crate::message::frame::{Frame, Id, Kind};
use crate::message::{batch, token};

impl Link<'_> {
    /// A request of the client's on its way to the server: as it is, or under labels.
    pub(super) fn told_apart(&mut self, id: &[u8], line: &[u8]) -> Route {
        if self.orphans.is_empty() {
            return Route::Forward;
        }
        let label = self.orphans.label(id);
        let Some(mut told) = envelope::with_id(line, &label) else {
            // Two ids, or none that can be found: it would be taken for another.
            self.orphans.close(&label);
            return self.not_understood(id);
        };
        if let Some(token) = envelope::progress_token(line) {
            let label = self.orphans.progress_label(token);
            told = envelope::with_progress_token(&told, &label).unwrap_or(told);
        }
        self.push(Output::ToServer(told));
        Route::Instead
    }

    /// A request that cannot be told apart from an orphan is answered by us.
    fn not_understood(&mut self, id: &[u8]) -> Route {
        if let Some(entry) = self.inflight.get(id) {
            self.answer(id, entry.method, &super::state::Because::Lost);
            return Route::Instead;
        }
        Route::Drop
    }

    /// The client takes a request back: under the name that the server knows.
    pub(super) fn cancels(&mut self, now: Moment, line: &[u8]) -> Route {
        let label = cancelled_id(line).and_then(|id| self.orphans.unlabel(id));
        if self.client_cancels(now, line) {
            return Route::Drop;
        }
        if self.orphans.is_empty() {
            return Route::Forward;
        }
        // Without a label its own is answered already, and an orphan is not its to take back.
        match label.and_then(|label| envelope::with_request_id(line, &label)) {
            Some(line) => {
                self.push(Output::ToServer(line));
                Route::Instead
            }
            None => Route::Drop,
        }
    }

    /// The answer to a request that went under a label.
    pub(super) fn answered_label(
        &mut self,
        now: Moment,
        frame: &Frame<'_>,
        own: &[u8],
        line: &[u8],
    ) -> Route {
        let Some(line) = envelope::with_id(line, own) else {
            // Not to be mended: the request is answered by us.
            return self.not_understood(own);
        };
        let frame = Frame {
            id: Id::Token(own),
            ..frame.clone()
        };
        match self.answered_own(now, &frame, &line) {
            Route::Forward | Route::Hold => {
                self.inflight.goes_with_ours(own);
                self.push(Output::ToClient(line));
                Route::Instead
            }
            route @ (Route::Drop | Route::Instead | Route::Gather) => route,
        }
    }

    /// Progress while orphans may report some: only what is under a label is this client's.
    pub(super) fn progress_apart(&mut self, line: &[u8]) -> Route {
        let Some(token) = envelope::reported_token(line) else {
            return Route::Forward;
        };
        let own = self.orphans.progress(token);
        match own.and_then(|own| envelope::with_progress(line, own)) {
            Some(line) if self.resend.may_progress(&line) => {
                self.push(Output::ToClient(line));
                Route::Instead
            }
            Some(_) | None => Route::Drop,
        }
    }

    /// News for a listening request while there are orphans: this client's get its own id back, and an orphan's reach nobody.
    /// `None`: they belong to no such request.
    pub(super) fn news_apart(&mut self, frame: &Frame<'_>, line: &[u8]) -> Option<Route> {
        if self.orphans.is_empty() {
            return None;
        }
        let subscription = envelope::subscription(line)?;
        let Some(own) = self.orphans.own(subscription) else {
            return Some(Route::Drop);
        };
        let line = envelope::with_subscription(line, own)?;
        Some(match self.notified_own(frame, &line) {
            Route::Forward | Route::Hold => {
                self.push(Output::ToClient(line));
                Route::Instead
            }
            route @ (Route::Drop | Route::Instead | Route::Gather) => route,
        })
    }

    /// A line that the server has not read, as the client wrote it, with the client's own id.
    pub(super) fn own_words(&self, frame: &Frame<'_>, line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return None;
        };
        let own = self.orphans.own(id)?.to_vec();
        let line = envelope::with_id(line, &own)?;
        let token = envelope::progress_token(&line).and_then(|token| self.orphans.progress(token));
        let told = token.and_then(|token| envelope::with_progress_token(&line, token));
        Some((own, told.unwrap_or(line)))
    }

    /// The members of a batch of the client's go on one by one.
    pub(super) fn split_client_batch(&mut self, now: Moment, line: &[u8]) -> Route {
        for (frame, line) in members(line) {
            let frame = frame.borrowed();
            match self.track(now, &frame, &line) {
                Route::Forward | Route::Hold => self.push(Output::ToServer(line)),
                Route::Drop | Route::Instead | Route::Gather => {}
            }
        }
        Route::Instead
    }

    /// Whether a batch of the server's holds what the client must not see: an orphan's answer, one to a request that we have
    /// answered ourselves, one to a request of our own; or a question, which is known by itself and may need a label.
    pub(super) fn told_one_by_one(&self, line: &[u8]) -> bool {
        let mut apart = !self.orphans.is_empty() || !self.long_ids.is_empty();
        if !apart {
            batch::each_member(line, |member| {
                apart |= member.kind == Kind::Request;
                if let (Kind::Response | Kind::Error, Id::Token(id)) = (member.kind, member.id) {
                    let instant = self.instant_id.as_ref();
                    apart |= self.own.is(id)
                        || self.inflight.is_settled(id)
                        || instant.is_some_and(|own| token::same(own, id));
                }
            });
        }
        apart
    }

    /// The members of such a batch are judged one by one.
    pub(super) fn split_server_batch(&mut self, now: Moment, line: &[u8]) -> Route {
        for (frame, line) in members(line) {
            let frame = frame.borrowed();
            let route = match frame.kind {
                Kind::Request => self.server_asks(&frame, &line),
                Kind::Notification => self.notified(&frame, &line),
                Kind::Response | Kind::Error => self.answered(now, &frame, &line),
                Kind::Batch | Kind::Blank | Kind::Junk => Route::Drop,
            };
            match route {
                Route::Forward | Route::Hold => {
                    if let Id::Token(id) = frame.id {
                        self.inflight.goes_with_ours(id);
                    }
                    self.push(Output::ToClient(line));
                }
                Route::Drop | Route::Instead | Route::Gather => {}
            }
        }
        Route::Instead
    }
}

/// What is known of a member, apart from the batch that it came in.
struct Known {
    kind: Kind,
    id: Option<Vec<u8>>,
    method: Option<alloc::string::String>,
}

impl Known {
    fn borrowed(&self) -> Frame<'_> {
        Frame {
            kind: self.kind,
            id: self.id.as_deref().map_or(Id::Absent, Id::Token),
            method: self.method.as_deref().map(Into::into),
            bytes: 0,
        }
    }
}

/// The members of a batch, each as a line of its own.
fn members(line: &[u8]) -> Vec<(Known, Vec<u8>)> {
    let mut all = Vec::new();
    batch::each_member_line(line, |frame, line| {
        let id = match frame.id {
            Id::Token(id) => Some(id.to_vec()),
            Id::Absent | Id::Null | Id::TooLong => None,
        };
        let known = Known {
            kind: frame.kind,
            id,
            method: frame.method.as_deref().map(Into::into),
        };
        all.push((known, line.to_vec()));
    });
    all
}
