//! Server-sent events: a message as one event, an event that only has an id, a comment.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Keeps a silent stream alive, and finds out whether the client is gone.
pub const COMMENT: &[u8] = b": still there\n\n";

/// The name of an event: which stream of the session, and the how-manieth event on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The stream.
    pub stream: u64,
    /// Counts from 1; 0 is the event that only has an id.
    pub number: u64,
}

impl EventId {
    /// Reads `Last-Event-ID`.
    pub fn parse(text: &str) -> Option<Self> {
        let (stream, number) = text.trim().split_once('-')?;
        Some(Self {
            stream: stream.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.stream, self.number)
    }
}

/// A message as an event. White space that would end the event's line is made harmless.
pub fn event(id: Option<EventId>, message: &[u8]) -> Vec<u8> {
    let head = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    let message = message.trim_ascii();
    let mut event = Vec::with_capacity(head.len() + message.len() + 24);
    event.extend_from_slice(head.as_bytes());
    event.extend_from_slice(b"event: message\ndata: ");
    event.extend(message.iter().map(|&byte| match byte {
        b'\n' | b'\r' => b' ',
        other => other,
    }));
    event.extend_from_slice(b"\n\n");
    event
}

/// The event that only gives a client something to come back with.
pub fn priming(id: EventId, retry_ms: u64) -> Vec<u8> {
    format!("id: {id}\nretry: {retry_ms}\ndata: \n\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_block_whatever_the_message_has() {
        let id = EventId {
            stream: 3,
            number: 17,
        };
        assert_eq!(
            event(Some(id), b"{\"a\":\r\n1}\r\n"),
            b"id: 3-17\nevent: message\ndata: {\"a\":  1}\n\n"
        );
        assert_eq!(event(None, b"{}"), b"event: message\ndata: {}\n\n");
        assert_eq!(priming(id, 500), b"id: 3-17\nretry: 500\ndata: \n\n");
    }

    #[test]
    fn an_id_is_read_as_it_was_written_and_nothing_else_is() {
        let id = EventId {
            stream: 0,
            number: u64::MAX,
        };
        assert_eq!(EventId::parse(&format!("{id}")), Some(id));
        for text in ["", "-", "1", "1-", "-1", "a-1", "1-2-3", "1_2"] {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
    }
}
