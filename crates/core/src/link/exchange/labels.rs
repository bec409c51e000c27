//! The labels under which the server knows the requests of a client that came back, in the lines of both sides.
//!
//! A server that has served another client before may still answer that one, so each request of the present client goes
//! under a label, and what the server says under a label gets the client's own bytes back. [`Orphans`] knows the tokens;
//! this machine knows where they stand in a line. While the first client is there, every line stays as it is.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use mainstay_protocol::message::envelope;
use mainstay_protocol::message::frame::{Frame, Id, Kind};
use mainstay_protocol::message::orphans::Orphans;

#[derive(Debug, Default)]
pub(super) struct Labels {
    orphans: Orphans,
}

/// A line of the server's, for the client that is attached.
pub(super) enum Unlabelled {
    /// It carries no label: it goes on as it is.
    AsItIs,
    /// With the client's own bytes.
    Line(Vec<u8>),
    /// It is for a client that is gone.
    Orphan,
}

impl Labels {
    /// Whether requests go under labels, because the server has served another client before.
    pub fn in_use(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// A request as the server is to see it; none if it has two ids, or none that can be found, so that its answer would be
    /// taken for another one.
    pub fn request(&mut self, id: &[u8], line: &[u8]) -> Option<Vec<u8>> {
        let label = self.orphans.label(id);
        let Some(told) = envelope::with_id(line, &label) else {
            self.orphans.close(&label);
            return None;
        };
        let Some(token) = envelope::progress_token(line) else {
            return Some(told);
        };
        let label = self.orphans.progress_label(token);
        Some(envelope::with_progress_token(&told, &label).unwrap_or(told))
    }

    /// A request that the server has not read, as the client wrote it, with the client's own id.
    pub fn original(&self, frame: &Frame<'_>, line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (Kind::Request, Id::Token(id)) = (frame.kind, frame.id) else {
            return None;
        };
        let own = self.orphans.own(id)?.to_vec();
        let line = envelope::with_id(line, &own)?;
        let token = envelope::progress_token(&line).and_then(|token| self.orphans.progress(token));
        let told = token.and_then(|token| envelope::with_progress_token(&line, token));
        Some((own, told.unwrap_or(line)))
    }

    /// The client waits no longer for this request: the label under which the server knows it.
    pub fn unlabel(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        self.orphans.unlabel(id)
    }

    /// The same, with the client's own id if it has no label.
    pub fn known_as<'i>(&mut self, id: &'i [u8]) -> Cow<'i, [u8]> {
        self.unlabel(id).map_or(Cow::Borrowed(id), Cow::Owned)
    }

    /// The client's own id of a request that the server knows by this one; none if a client that is gone asked it.
    pub fn own<'s>(&'s self, id: &'s [u8]) -> Option<&'s [u8]> {
        if self.in_use() {
            self.orphans.own(id)
        } else {
            Some(id)
        }
    }

    /// Whether this is the label of a request.
    pub fn is_label(&self, id: &[u8]) -> bool {
        self.orphans.own(id).is_some()
    }

    /// The request under this label has its answer, or is over: the client's own id.
    pub fn close(&mut self, label: &[u8]) -> Option<Vec<u8>> {
        self.orphans.close(label)
    }

    /// News for a listening request.
    pub fn news(&self, line: &[u8]) -> Unlabelled {
        if !self.in_use() {
            return Unlabelled::AsItIs;
        }
        let Some(subscription) = envelope::subscription(line) else {
            return Unlabelled::AsItIs;
        };
        let Some(own) = self.orphans.own(subscription) else {
            return Unlabelled::Orphan;
        };
        let line = envelope::with_subscription(line, own);
        line.map_or(Unlabelled::AsItIs, Unlabelled::Line)
    }

    /// Progress of a request.
    pub fn progress(&self, line: &[u8]) -> Unlabelled {
        if !self.in_use() {
            return Unlabelled::AsItIs;
        }
        let Some(token) = envelope::reported_token(line) else {
            return Unlabelled::AsItIs;
        };
        let own = self.orphans.progress(token);
        let line = own.and_then(|own| envelope::with_progress(line, own));
        line.map_or(Unlabelled::Orphan, Unlabelled::Line)
    }

    /// The client is gone: from now on requests go under labels.
    pub fn client_gone(&mut self) {
        self.orphans.client_gone();
    }

    /// The generation is gone, and with it all that it owed.
    pub fn server_gone(&mut self) {
        self.orphans.forget();
    }
}
