//! What the server asks the client: sampling, elicitation, roots, a ping of its own.
//!
//! A respawned server counts its ids from the beginning again, and the client must not see one id twice. So the ids of
//! the first generation pass as they are, and from the second on the client sees a label of ours, which is mapped back to
//! the server's own bytes. When a generation dies, what it asked is to be cancelled at the client, and the answers that
//! come all the same are swallowed. This module knows ids, not messages.
//!
//! Invariants:
//! - A label is a string that no client takes for a number, and no label is given twice.
//! - An answer reaches only the generation that asked.
//! - At most [`PENDING_MAX`] wait and [`DEAD_MAX`] dead ones are remembered; the oldest dead one is forgotten first.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use super::token;
use crate::limits::ID_BYTES;

/// Requests of the server's that may wait at the client.
pub const PENDING_MAX: usize = 4_096;
/// Dead requests whose late answers are still recognized.
pub const DEAD_MAX: usize = 4_096;

/// How the client is to see a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// As it is.
    Same,
    /// With this id token.
    New(Vec<u8>),
    /// Not noted: too many wait, or its id is empty or longer than [`ID_BYTES`].
    Full,
}

/// What becomes of an answer of the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It goes to the server as it is.
    Forward,
    /// It goes to the server with its own id token.
    Relabel(Vec<u8>),
    /// It goes nowhere: the server that asked is dead, or has cancelled the question.
    Swallow,
    /// No known server asked.
    Unknown,
}

/// The requests that wait at the client.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// In the order of asking. Few wait, and an answer to none of them is recognised by its hash: no index is needed.
    pending: Vec<Question>,
    /// As the client knows them, oldest first.
    dead: VecDeque<Name>,
    /// Labels given so far.
    labels: u64,
}

#[derive(Clone, Debug)]
struct Question {
    /// As the server wrote it.
    own: Name,
    /// As the client knows it, if otherwise.
    label: Option<Name>,
}

impl Question {
    fn known_as(&self) -> &Name {
        self.label.as_ref().unwrap_or(&self.own)
    }
}

impl Asked {
    /// No question waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a request of the server's that goes to the client. Generations count from 1.
    pub fn open(&mut self, generation: u32, id: &[u8]) -> Label {
        if id.is_empty() || id.len() > ID_BYTES || self.pending.len() >= PENDING_MAX {
            return Label::Full;
        }
        let label = (generation > 1).then(|| self.next_label(generation));
        let told = match &label {
            Some(label) => Label::New(label.token.clone()),
            None => Label::Same,
        };
        self.pending.push(Question {
            own: Name::new(id),
            label,
        });
        debug_assert!(self.pending.len() <= PENDING_MAX, "within the limit");
        told
    }

    /// An answer of the client's has come. Each is expected once.
    pub fn answered(&mut self, id: &[u8]) -> Answered {
        let name = Name::new(id);
        let mut pending = self.pending.iter();
        if let Some(at) = pending.position(|question| question.known_as().is(&name)) {
            let question = self.pending.remove(at);
            return match question.label {
                Some(_) => Answered::Relabel(question.own.token),
                None => Answered::Forward,
            };
        }
        match self.dead.iter().position(|dead| dead.is(&name)) {
            Some(at) => {
                self.dead.remove(at);
                Answered::Swallow
            }
            None => Answered::Unknown,
        }
    }

    /// How the client knows a request of this generation's. Of two with one id, the later one.
    pub fn label(&self, id: &[u8]) -> Option<&[u8]> {
        let at = self.asked_as(id)?;
        Some(&self.pending[at].known_as().token)
    }

    /// The server cancels its own request: how the client knows it. It stops waiting, because a cancelled request is
    /// not answered; an answer that crossed the cancel is dropped.
    pub fn cancelled(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        let at = self.asked_as(id)?;
        let Question { own, label } = self.pending.remove(at);
        let name = label.unwrap_or(own);
        let token = name.token.clone();
        self.bury(name);
        Some(token)
    }

    /// The generation is gone: what it asked, as the client knows it, in the order of asking. All of these are to be
    /// cancelled at the client; a late answer to each is swallowed once.
    pub fn died(&mut self) -> Vec<Vec<u8>> {
        let mut tokens = Vec::with_capacity(self.pending.len());
        for Question { own, label } in core::mem::take(&mut self.pending) {
            let name = label.unwrap_or(own);
            tokens.push(name.token.clone());
            self.bury(name);
        }
        tokens
    }

    /// The client is gone: the questions that waited for it, as the server knows them, in the order of asking. They
    /// will not be answered.
    pub fn abandon(&mut self) -> Vec<Vec<u8>> {
        self.dead.clear();
        let all = core::mem::take(&mut self.pending);
        all.into_iter().map(|question| question.own.token).collect()
    }

    /// Asked under a keeper that was killed, and known to the client by this token: its late answer is swallowed.
    pub fn restore_dead(&mut self, token: &[u8]) {
        if !token.is_empty() && token.len() <= ID_BYTES {
            self.bury(Name::new(token));
        }
    }

    /// How many wait at the client.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn asked_as(&self, id: &[u8]) -> Option<usize> {
        let name = Name::new(id);
        self.pending
            .iter()
            .rposition(|question| question.own.is(&name))
    }

    fn bury(&mut self, name: Name) {
        if self.dead.len() >= DEAD_MAX {
            self.dead.pop_front();
        }
        self.dead.push_back(name);
        debug_assert!(self.dead.len() <= DEAD_MAX, "the oldest dead one goes");
    }

    fn next_label(&mut self, generation: u32) -> Name {
        loop {
            self.labels += 1;
            let label = format!("\"ms:{generation}:{}\"", self.labels);
            let name = Name::new(label.as_bytes());
            // A server that is itself behind a mainstay may have asked under just this name.
            if !self.dead.iter().any(|dead| dead.is(&name)) {
                debug_assert!(
                    !self.pending.iter().any(|asked| asked.known_as().is(&name)),
                    "no label is given twice"
                );
                return name;
            }
        }
    }
}

/// An id token with its hash.
#[derive(Clone, Debug)]
struct Name {
    hash: u64,
    token: Vec<u8>,
}

impl Name {
    fn new(token: &[u8]) -> Self {
        Self {
            hash: token::hash(token),
            token: token.into(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.hash == other.hash && token::same(&self.token, &other.token)
    }
}

#[cfg(test)]
mod tests {
    //! guards: Questions of a dead server are cancelled, and late answers to them are dropped.

    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec;
    use proptest::prelude::*;

    fn new_label(label: Label) -> Vec<u8> {
        match label {
            Label::New(token) => token,
            Label::Same | Label::Full => panic!("{label:?}"),
        }
    }

    #[test]
    fn the_first_generation_passes_as_it_is() {
        let mut asked = Asked::new();
        assert_eq!(asked.open(1, b"0"), Label::Same);
        assert_eq!(asked.open(1, br#""a/b""#), Label::Same);
        assert_eq!(asked.label(br#""a\/b""#), Some(&br#""a/b""#[..]));
        assert_eq!(asked.answered(br#""a\/b""#), Answered::Forward);
        assert_eq!(asked.answered(br#""a/b""#), Answered::Unknown);
        assert_eq!(asked.answered(b"0.0"), Answered::Forward);
        assert_eq!(asked.pending(), 0);
    }

    #[test]
    fn later_generations_get_labels_and_their_own_bytes_back() {
        let mut asked = Asked::new();
        let ids = ["0", "1.0", "1152921504606846976", r#""\u00fc""#];
        let labels: Vec<_> = ids
            .iter()
            .map(|id| new_label(asked.open(2, id.as_bytes())))
            .collect();
        assert_eq!(labels[0], br#""ms:2:1""#);
        for (id, label) in ids.iter().zip(&labels).rev() {
            assert_eq!(asked.label(id.as_bytes()), Some(&label[..]));
            assert_eq!(asked.answered(id.as_bytes()), Answered::Unknown);
            let own = id.as_bytes().to_vec();
            assert_eq!(asked.answered(label), Answered::Relabel(own));
            assert_eq!(asked.answered(label), Answered::Unknown);
        }
    }

    #[test]
    fn a_label_is_known_in_other_words_too() {
        let mut asked = Asked::new();
        new_label(asked.open(7, b"0"));
        let own = b"0".to_vec();
        assert_eq!(asked.answered(br#""\u006ds:7:1""#), Answered::Relabel(own));
    }

    #[test]
    fn a_death_cancels_all_and_swallows_each_once() {
        let mut asked = Asked::new();
        asked.open(1, b"0");
        asked.open(1, b"1");
        asked.answered(b"0");
        asked.open(1, b"2");
        assert_eq!(asked.died(), [b"1", b"2"]);
        assert_eq!((asked.pending(), asked.label(b"1")), (0, None));
        let label = new_label(asked.open(2, b"1"));
        assert_eq!(asked.answered(b"1"), Answered::Swallow);
        assert_eq!(asked.answered(b"1"), Answered::Unknown);
        assert_eq!(asked.answered(&label), Answered::Relabel(b"1".to_vec()));
        let label = new_label(asked.open(2, b"5"));
        assert_eq!(asked.died(), vec![label.clone()]);
        assert_eq!(asked.answered(&label), Answered::Swallow);
        assert_eq!(asked.answered(b"2"), Answered::Swallow);
    }

    #[test]
    fn a_question_that_the_server_cancels_stops_waiting() {
        let mut asked = Asked::new();
        let label = new_label(asked.open(2, b"1"));
        assert_eq!(asked.cancelled(b"1.0"), Some(label.clone()));
        assert_eq!((asked.cancelled(b"1"), asked.pending()), (None, 0));
        assert_eq!(asked.answered(&label), Answered::Swallow);
        for n in 0..2 * PENDING_MAX {
            assert_ne!(asked.open(2, b"1"), Label::Full, "{n}");
            asked.cancelled(b"1");
        }
    }

    #[test]
    fn answers_to_questions_of_a_killed_keeper_are_dropped_and_their_labels_not_reused() {
        let mut asked = Asked::new();
        asked.restore_dead(b"4");
        asked.restore_dead(br#""ms:3:1""#);
        for no_id in [&b""[..], &[b'1'; ID_BYTES + 1]] {
            asked.restore_dead(no_id);
            assert_eq!(asked.answered(no_id), Answered::Unknown);
        }
        asked.restore_dead(&[b'1'; ID_BYTES]);
        assert_eq!(asked.answered(&[b'1'; ID_BYTES]), Answered::Swallow);
        assert_eq!(new_label(asked.open(3, b"4")), br#""ms:3:2""#);
        assert_eq!(asked.answered(b"4"), Answered::Swallow);
        assert_eq!(asked.answered(br#""ms:3:1""#), Answered::Swallow);
        assert_eq!(asked.died().len(), 1);
    }

    #[test]
    fn limits() {
        let mut asked = Asked::new();
        assert_eq!(asked.open(1, b""), Label::Full);
        assert_eq!(asked.open(1, &[b'1'; ID_BYTES + 1]), Label::Full);
        assert_eq!(asked.open(1, &[b'1'; ID_BYTES]), Label::Same);
        assert_eq!(asked.answered(&[b'1'; ID_BYTES]), Answered::Forward);
        for n in 0..PENDING_MAX {
            assert_eq!(asked.open(1, n.to_string().as_bytes()), Label::Same);
        }
        assert_eq!(asked.open(1, b"-1"), Label::Full);
        assert_eq!(asked.died().len(), PENDING_MAX);
        asked.restore_dead(b"-2");
        assert_eq!(asked.answered(b"0"), Answered::Unknown);
        assert_eq!(asked.answered(b"1"), Answered::Swallow);
        assert_eq!(asked.answered(b"-2"), Answered::Swallow);
    }

    proptest! {
        #[test]
        fn any_tokens_keep_the_promises(
            steps in prop::collection::vec((0..4u8, prop_oneof![r#""[\\a/]{0,3}""#, "[0-3](\\.0)?", ".{0,3}"]), 0..60),
        ) {
            let mut asked = Asked::new();
            let mut generation = 1;
            let mut given: Vec<String> = Vec::new();
            for (step, id) in steps {
                match step {
                    0 => match asked.open(generation, id.as_bytes()) {
                        Label::New(token) => {
                            let token = String::from_utf8(token).unwrap();
                            prop_assert!(!given.contains(&token));
                            given.push(token);
                        }
                        Label::Same => prop_assert_eq!(generation, 1),
                        Label::Full => prop_assert!(id.is_empty()),
                    },
                    1 => {
                        let before = asked.pending();
                        match asked.answered(id.as_bytes()) {
                            Answered::Forward | Answered::Relabel(_) => {
                                prop_assert_eq!(asked.pending(), before - 1);
                            }
                            Answered::Swallow | Answered::Unknown => {
                                prop_assert_eq!(asked.pending(), before);
                            }
                        }
                    }
                    2 => {
                        asked.cancelled(id.as_bytes());
                        prop_assert_eq!(asked.pending() == 0, asked.clone().died().is_empty());
                    }
                    _ => {
                        let before = asked.pending();
                        for token in asked.died() {
                            prop_assert_eq!(asked.clone().answered(&token), Answered::Swallow);
                        }
                        prop_assert_eq!(before, asked.dead.len().min(before));
                        generation += 1;
                    }
                }
            }
        }
    }
}
