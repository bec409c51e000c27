//! What the server asks the client, in both directions, and what of it a successor must take back.
//!
//! Invariant: a request of the server's that waits at the client is in the record until the client has answered it, or
//! has been told that it is taken back.

use alloc::vec::Vec;

use mainstay_protocol::message::asked::{Answered, Asked, Label};
use mainstay_protocol::message::settle;

use super::outbox::Outbox;
use super::session::Session;

#[derive(Debug, Default)]
pub(super) struct ServerRequests {
    asked: Asked,
    /// Asked by a dead generation; that they are taken back is on its way to the client.
    taken_back: Vec<(Vec<u8>, u64)>,
}

impl ServerRequests {
    /// How many wait at the client.
    pub fn pending(&self) -> usize {
        self.asked.pending()
    }

    /// The server asks the client; the label under which the client is to see it.
    pub fn asks(&mut self, id: &[u8], session: &mut Session<'_>) -> Label {
        let label = self.asked.open(session.generation(), id);
        match &label {
            Label::Same => session.note_asked(id),
            Label::New(label) => session.note_asked(label),
            Label::Full => {}
        }
        label
    }

    /// The client answers.
    pub fn answers(&mut self, id: &[u8], session: &mut Session<'_>) -> Answered {
        session.forget_asked(id);
        self.asked.answered(id)
    }

    /// The server takes its own request back: how the client knows it.
    pub fn cancels(&mut self, id: &[u8], session: &mut Session<'_>) -> Option<Vec<u8>> {
        let label = self.asked.cancelled(id)?;
        session.forget_asked(&label);
        Some(label)
    }

    /// The generation is gone: what it asked is taken back.
    pub fn server_gone(&mut self, outbox: &mut Outbox) {
        for id in self.asked.died() {
            self.take_back(id, outbox);
        }
        debug_assert_eq!(
            self.asked.pending(),
            0,
            "no dead server waits for an answer"
        );
    }

    /// A killed keeper's successor: what its dead server had asked is taken back.
    pub fn restore(&mut self, session: &Session<'_>, outbox: &mut Outbox) {
        for id in session.all_asked() {
            self.asked.restore_dead(&id);
            self.take_back(id, outbox);
        }
    }

    /// The client is gone: what waits there, as the server knows it.
    pub fn client_gone(&mut self) -> Vec<Vec<u8>> {
        self.taken_back.clear();
        self.asked.abandon()
    }

    /// Our lines up to this one have reached the client.
    pub fn written_to(&mut self, line: u64, session: &mut Session<'_>) {
        self.taken_back.retain(|(id, at)| {
            let there = *at <= line;
            if there {
                session.forget_asked(id);
            }
            !there
        });
    }

    /// A successor takes it back once more, unless that has been written.
    fn take_back(&mut self, id: Vec<u8>, outbox: &mut Outbox) {
        let line = outbox.next_for_client();
        outbox.send_client(settle::cancel(&id, GONE));
        self.taken_back.push((id, line));
    }
}

/// Why a request of the server's is taken back.
const GONE: &str = "the server that asked is gone";
