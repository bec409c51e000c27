//! Requests of our own at the server: their ids, their lines, and what each is for. The client never sees their answers.
//!
//! Invariant: every id is given once, so that an answer closes one request at most.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use mainstay_protocol::ids::LinkId;
use mainstay_protocol::message::envelope;
use mainstay_protocol::message::lists::{self, Which};

use super::outbox::Outbox;
use super::session::Session;

/// What a request of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The replayed opening.
    Opening,
    /// A part of the replay.
    Replay,
    /// What a client that is gone had asked for is undone.
    Undo,
    /// Has this list changed?
    List { which: Which, page: usize },
    /// Is it there?
    Probe { n: u64 },
    /// Can a newcomer go on with it?
    Fitness,
}

/// The ones that are unanswered.
#[derive(Debug)]
pub(super) struct Own {
    link: LinkId,
    count: u64,
    unanswered: BTreeMap<u64, Purpose>,
}

impl Own {
    pub fn of(link: LinkId) -> Self {
        Self {
            link,
            count: 0,
            unanswered: BTreeMap::new(),
        }
    }

    /// Opens a request; its id is a string that is not a number.
    pub fn open(&mut self, purpose: Purpose) -> Vec<u8> {
        self.count += 1;
        let before = self.unanswered.insert(self.count, purpose);
        debug_assert!(before.is_none(), "an id is given once");
        let id = self.link.own_request(self.count);
        debug_assert!(self.is(&id), "an id of ours is known as such");
        id
    }

    /// Replays the client's opening; false if it is not known.
    pub fn replay_opening(&mut self, session: &Session<'_>, outbox: &mut Outbox) -> bool {
        let Some(opening) = session.opening() else {
            return false;
        };
        let id = self.open(Purpose::Opening);
        let line = envelope::with_id(&envelope::without_progress(opening), &id);
        let Some(line) = line else {
            self.close(&id);
            return false;
        };
        outbox.send_server(line);
        true
    }

    /// Asks a server of the modern era that is on trial whether it serves.
    pub fn ask_on_trial(&mut self, meta: &[u8], outbox: &mut Outbox) {
        let id = self.open(Purpose::Opening);
        outbox.send_server(envelope::question("server/discover", &id, Some(meta)));
    }

    /// Replays log level and subscriptions; how many requests that takes.
    pub fn replay_wishes(&mut self, session: &Session<'_>, outbox: &mut Outbox) -> u32 {
        let mut sent = 0;
        for line in session.to_replay() {
            let id = self.open(Purpose::Replay);
            match envelope::with_id(&line, &id) {
                Some(line) => {
                    outbox.send_server(line);
                    sent += 1;
                }
                None => {
                    self.close(&id);
                }
            }
        }
        sent
    }

    /// Asks the server something that any living one answers at once.
    pub fn probe(&mut self, purpose: Purpose, session: &Session<'_>, outbox: &mut Outbox) {
        let id = self.open(purpose);
        let meta = session.modern_meta();
        let method = match meta {
            Some(_) => "server/discover",
            None => "ping",
        };
        outbox.send_server(envelope::question(method, &id, meta.as_deref()));
    }

    /// Asks for a page of a list.
    pub fn ask_list(
        &mut self,
        which: Which,
        page: usize,
        cursor: Option<&[u8]>,
        session: &Session<'_>,
        outbox: &mut Outbox,
    ) {
        let meta = session.modern_meta();
        let id = self.open(Purpose::List { which, page });
        outbox.send_server(lists::request(which, &id, cursor, meta.as_deref()));
    }

    /// Takes back that a client that is gone had subscribed to a resource.
    pub fn unsubscribe(&mut self, uri: &[u8], outbox: &mut Outbox) {
        let id = self.open(Purpose::Undo);
        outbox.send_server(envelope::unsubscribe(&id, uri));
    }

    /// Whether an id is one of ours, answered or not.
    pub fn is(&self, id: &[u8]) -> bool {
        self.link.own_number(id).is_some()
    }

    /// The answer to this request has come.
    pub fn close(&mut self, id: &[u8]) -> Option<Purpose> {
        self.unanswered.remove(&self.link.own_number(id)?)
    }

    /// The server that was asked is gone.
    pub fn forget(&mut self) {
        self.unanswered.clear();
    }

    /// Whether none is unanswered.
    pub fn is_empty(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// Whether an answer is awaited that says more than that the server is alive.
    pub fn wants_more(&self) -> bool {
        let mut all = self.unanswered.values();
        all.any(|purpose| match purpose {
            Purpose::Opening | Purpose::Replay | Purpose::List { .. } => true,
            Purpose::Probe { .. } | Purpose::Fitness | Purpose::Undo => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_closes_its_own_question_once() {
        let mut own = Own::of(LinkId(7));
        let a = own.open(Purpose::Opening);
        let b = own.open(Purpose::Probe { n: 3 });
        assert!(own.is(&a) && own.is(&b) && a != b && own.wants_more());
        assert_eq!(own.close(&b), Some(Purpose::Probe { n: 3 }));
        assert_eq!(own.close(&b), None);
        assert_eq!(own.close(b"\"ms:own:00000007:x\""), None);
        own.forget();
        own.open(Purpose::Probe { n: 4 });
        assert!(!own.wants_more() && !own.is_empty());
        own.forget();
        assert_eq!((own.close(&a), own.is_empty()), (None, true));
        assert!(!own.is(b"7"));
    }

    #[test]
    fn another_mainstays_question_is_none_of_ours() {
        let mut own = Own::of(LinkId(7));
        let ours = own.open(Purpose::Opening);
        assert_eq!(ours, b"\"ms:own:00000007:1\"");
        let theirs = Own::of(LinkId(8)).open(Purpose::Opening);
        for id in [
            &theirs[..],
            b"\"ms:own:1\"",
            b"\"ms:own:\"",
            b"\"ms:own:00000007:",
        ] {
            assert!(!own.is(id) && own.close(id).is_none());
        }
        assert!(own.is(&ours) && own.wants_more());
    }
}
