//! Which question an answer belongs to, for taps and recordings: the link itself does not keep methods.
//!
//! It is filled only while a tap or a recording is open, and bounded: of too many questions one is forgotten, and its
//! answer is shown without method and latency.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::Side;
use crate::clock::Moment;

/// Questions that are remembered.
const QUESTIONS: usize = 1_024;

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// By which method, if it is known.
    pub method: Option<String>,
    /// When.
    pub at: Moment,
}

/// Questions without an answer, by the side that asked.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    questions: BTreeMap<(Side, Vec<u8>), Question>,
}

impl Owed {
    /// A side asks.
    pub fn asks(&mut self, who: Side, id: &[u8], question: Question) {
        if self.questions.len() >= QUESTIONS {
            self.questions.pop_first();
        }
        self.questions.insert((who, id.to_vec()), question);
    }

    /// The question that this answer belongs to.
    pub fn answered(&mut self, who: Side, id: &[u8]) -> Option<Question> {
        self.questions.remove(&(who, id.to_vec()))
    }

    /// No tap or recording is left.
    pub fn clear(&mut self) {
        self.questions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_finds_its_question_once_and_in_its_direction() {
        let mut owed = Owed::default();
        let question = |at| Question {
            method: Some("tools/call".into()),
            at: Moment(at),
        };
        owed.asks(Side::Client, b"7", question(1));
        owed.asks(Side::Server, b"7", question(2));
        assert_eq!(owed.answered(Side::Client, b"7"), Some(question(1)));
        assert_eq!(owed.answered(Side::Client, b"7"), None);
        assert_eq!(owed.answered(Side::Server, b"7"), Some(question(2)));
        for n in 0..5_000u32 {
            owed.asks(Side::Client, &n.to_be_bytes(), question(3));
        }
        assert_eq!(owed.questions.len(), QUESTIONS);
        owed.clear();
        assert_eq!(owed.answered(Side::Client, &4_999u32.to_be_bytes()), None);
    }
}
