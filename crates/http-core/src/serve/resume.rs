//! What a client may have missed: the last events of a session's streams, bounded in number and bytes.
//!
//! The oldest go first, whichever stream they belong to. A stream whose end was delivered is forgotten by its owner.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::sse::EventId;

/// The events of one session that are kept.
#[derive(Clone, Debug)]
pub struct Resume {
    kept: VecDeque<(EventId, Vec<u8>)>,
    bytes: usize,
    events_most: usize,
    bytes_most: usize,
}

impl Resume {
    /// Nothing yet.
    pub fn new(events_most: usize, bytes_most: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            bytes: 0,
            events_most,
            bytes_most,
        }
    }

    /// Keeps a message; the oldest make room. One that is larger than everything allowed is not kept.
    pub fn keep(&mut self, id: EventId, message: &[u8]) {
        if message.len() > self.bytes_most || self.events_most == 0 {
            return;
        }
        while self.kept.len() >= self.events_most || self.bytes + message.len() > self.bytes_most {
            match self.kept.pop_front() {
                Some((_, old)) => self.bytes -= old.len(),
                None => break,
            }
        }
        self.bytes += message.len();
        self.kept.push_back((id, message.to_vec()));
    }

    /// The messages of a stream after an event, in order.
    pub fn after(&self, last: EventId) -> impl Iterator<Item = (EventId, &[u8])> {
        self.kept
            .iter()
            .filter(move |(id, _)| id.stream == last.stream && id.number > last.number)
            .map(|(id, message)| (*id, message.as_slice()))
    }

    /// Forgets a stream.
    pub fn forget(&mut self, stream: u64) {
        self.kept.retain(|(id, _)| id.stream != stream);
        self.bytes = self.kept.iter().map(|(_, message)| message.len()).sum();
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(stream: u64, number: u64) -> EventId {
        EventId { stream, number }
    }

    #[test]
    fn a_stream_goes_on_after_the_last_event_that_arrived() {
        let mut resume = Resume::new(4, 100);
        for number in 1..=3 {
            resume.keep(id(1, number), b"a");
        }
        resume.keep(id(2, 1), b"b");
        let seen: Vec<_> = resume.after(id(1, 1)).map(|(id, _)| id.number).collect();
        assert_eq!(seen, [2, 3]);
        resume.forget(1);
        assert_eq!(resume.after(id(1, 0)).count(), 0);
        assert_eq!(resume.bytes(), 1);
    }

    proptest! {
        #[test]
        fn never_more_than_allowed_and_always_the_newest(sizes in proptest::collection::vec(0usize..40, 0..60)) {
            let mut resume = Resume::new(8, 100);
            for (number, size) in sizes.iter().enumerate() {
                resume.keep(id(7, number as u64 + 1), &alloc::vec![b'x'; *size]);
                prop_assert!(resume.bytes() <= 100);
                let kept: Vec<u64> = resume.after(id(7, 0)).map(|(id, _)| id.number).collect();
                prop_assert!(kept.len() <= 8);
                prop_assert!(kept.is_sorted());
                prop_assert_eq!(kept.last(), Some(&(number as u64 + 1)));
            }
        }
    }
}
