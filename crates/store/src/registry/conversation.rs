//! Reads the request of one connection to a control socket: one request, complete, and within its size limit.
//!
//! It knows neither sockets nor time. Invariants: at most one request is read; memory is bounded for any input; no input
//! causes a panic.

use mainstay_protocol::message::lines::{Line, Lines};

use super::control::{REQUEST_BYTES, Request};

/// What was read from a connection so far.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    said: ReadState,
}

#[derive(Clone, Debug)]
enum ReadState {
    /// A part of the request.
    Part(Lines),
    /// The request was read, and this number of bytes after it, which are ignored.
    All { beyond: usize },
}

impl Default for ReadState {
    fn default() -> Self {
        // Its newline counts.
        Self::Part(Lines::new(REQUEST_BYTES - 1))
    }
}

/// What to do after a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing: the request is not complete, or was read before.
    Nothing,
    /// The request is complete.
    Request(Request),
    /// Send this answer and close.
    Refuse(String),
    /// Close without an answer: the peer sends too much after its request.
    Babble,
}

impl Conversation {
    /// Adds bytes that were read.
    pub fn hear(&mut self, bytes: &[u8]) -> Received {
        match &mut self.said {
            ReadState::Part(lines) => {
                let mut rest = bytes;
                let heard = match lines.next(&mut rest) {
                    Some(Line::Whole(line)) => match Request::parse(&line) {
                        Ok(request) => Received::Request(request),
                        Err(garbled) => Received::Refuse(garbled.0),
                    },
                    None if !lines.is_too_long() => return Received::Nothing,
                    Some(Line::TooLong(_)) | None => {
                        Received::Refuse(format!("a request has {REQUEST_BYTES} bytes at most"))
                    }
                };
                self.said = ReadState::All { beyond: rest.len() };
                heard
            }
            ReadState::All { beyond } => {
                *beyond += bytes.len();
                if *beyond > REQUEST_BYTES {
                    Received::Babble
                } else {
                    Received::Nothing
                }
            }
        }
    }

    /// True until the request is complete.
    pub fn asking(&self) -> bool {
        matches!(self.said, ReadState::Part(_))
    }

    /// Checks the invariants for any bytes, cut in any way. For fuzzing.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check(bytes: &[u8], mut cut: impl FnMut() -> usize) {
        let mut conversation = Self::default();
        let (mut rest, mut heard, mut all) = (bytes, 0, Vec::new());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(cut().clamp(1, rest.len()));
            rest = behind;
            match conversation.hear(piece) {
                Received::Nothing => {}
                said @ (Received::Request(_) | Received::Refuse(_)) => {
                    heard += 1;
                    assert!(!conversation.asking(), "what was heard is over");
                    all.push(said);
                }
                Received::Babble => assert!(!conversation.asking(), "only behind a request"),
            }
            if let ReadState::Part(lines) = &conversation.said {
                assert!(!lines.is_too_long(), "what is kept is bounded");
            }
        }
        assert!(heard <= 1, "one request, or one refusal");
        // All bytes in one piece give the same result.
        let mut whole = Self::default();
        let at_once = whole.hear(bytes);
        if let Some(said) = all.pop() {
            assert_eq!(said, at_once);
        } else {
            assert!(bytes.is_empty() || at_once == Received::Nothing);
        }
        if let Received::Request(request) = at_once {
            assert_eq!(Request::parse(&request.line()), Ok(request));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_any_pieces() {
        for cut in [1, 2, 7, 1_000] {
            for line in [
                &b"{\"do\":\"stop\"}\n"[..],
                b"{\"do\":\"tap\",\"body_bytes\":5}\nmore",
                b"garbage\n{\"do\":\"stop\"}\n",
                b"\n",
                b"\xff\xfe\n",
                b"no end",
            ] {
                Conversation::check(line, || cut);
            }
        }
        let mut conversation = Conversation::default();
        assert_eq!(conversation.hear(b"{\"do\":\"st"), Received::Nothing);
        assert_eq!(
            conversation.hear(b"op\"}\n{\"do\":\"restart\"}\n"),
            Received::Request(Request::Stop)
        );
        assert_eq!(
            conversation.hear(b"{\"do\":\"restart\"}\n"),
            Received::Nothing
        );
    }

    #[test]
    fn an_endless_line_is_refused_and_endless_talk_is_ended() {
        Conversation::check(&vec![b'x'; 3 * REQUEST_BYTES], || 4_096);
        let mut conversation = Conversation::default();
        let piece = [b' '; 4_096];
        let mut pieces = 0;
        while conversation.hear(&piece) == Received::Nothing {
            pieces += 1;
        }
        assert_eq!(pieces, REQUEST_BYTES / piece.len() - 1);
        let mut conversation = Conversation::default();
        conversation.hear(&Request::Stop.line());
        let mut pieces = 0;
        while conversation.hear(&piece) == Received::Nothing {
            pieces += 1;
        }
        assert_eq!(pieces, REQUEST_BYTES / piece.len());
    }
}
