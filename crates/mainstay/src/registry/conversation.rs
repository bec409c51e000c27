//! One connection to a control socket, as far as it can be told from the bytes that came: a request is heard once, whole,
//! and within its limit.
//!
//! It knows neither sockets nor time. Invariants: never more than one request is heard; what is kept is bounded, whatever
//! is said; nothing panics.

use mainstay_core::message::lines::{Line, Lines};

use super::control::{REQUEST_BYTES, Request};

/// What a connection has said so far.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    said: Said,
}

#[derive(Clone, Debug)]
enum Said {
    /// A part of its request.
    Part(Lines),
    /// Its request, and so many bytes beyond it, which nobody hears.
    All { beyond: usize },
}

impl Default for Said {
    fn default() -> Self {
        // Its newline counts.
        Self::Part(Lines::new(REQUEST_BYTES - 1))
    }
}

/// What follows from what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing yet, or nothing any more.
    Nothing,
    /// It wants this.
    Request(Request),
    /// It is to be told this, and let go.
    Refuse(String),
    /// It talks on and on behind its request: it is let go without a word.
    Babble,
}

impl Conversation {
    /// It says something.
    pub fn hear(&mut self, bytes: &[u8]) -> Heard {
        match &mut self.said {
            Said::Part(lines) => {
                let mut rest = bytes;
                let heard = match lines.next(&mut rest) {
                    Some(Line::Whole(line)) => match Request::parse(&line) {
                        Ok(request) => Heard::Request(request),
                        Err(garbled) => Heard::Refuse(garbled.0),
                    },
                    None if !lines.is_too_long() => return Heard::Nothing,
                    Some(Line::TooLong(_)) | None => {
                        Heard::Refuse(format!("a request has {REQUEST_BYTES} bytes at most"))
                    }
                };
                self.said = Said::All { beyond: rest.len() };
                heard
            }
            Said::All { beyond } => {
                *beyond += bytes.len();
                if *beyond > REQUEST_BYTES {
                    Heard::Babble
                } else {
                    Heard::Nothing
                }
            }
        }
    }

    /// Whether its request is still to come.
    pub fn asking(&self) -> bool {
        matches!(self.said, Said::Part(_))
    }

    /// Any bytes, cut in any way, keep every promise; whoever fuzzes calls this.
    ///
    /// # Panics
    /// If a promise is broken.
    pub fn check(bytes: &[u8], mut cut: impl FnMut() -> usize) {
        let mut conversation = Self::default();
        let (mut rest, mut heard, mut all) = (bytes, 0, Vec::new());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(cut().clamp(1, rest.len()));
            rest = behind;
            match conversation.hear(piece) {
                Heard::Nothing => {}
                said @ (Heard::Request(_) | Heard::Refuse(_)) => {
                    heard += 1;
                    assert!(!conversation.asking(), "what was heard is over");
                    all.push(said);
                }
                Heard::Babble => assert!(!conversation.asking(), "only behind a request"),
            }
            if let Said::Part(lines) = &conversation.said {
                assert!(!lines.is_too_long(), "what is kept is bounded");
            }
        }
        assert!(heard <= 1, "one request, or one refusal");
        // In one piece it says the same.
        let mut whole = Self::default();
        let at_once = whole.hear(bytes);
        if let Some(said) = all.pop() {
            assert_eq!(said, at_once);
        } else {
            assert!(bytes.is_empty() || at_once == Heard::Nothing);
        }
        if let Heard::Request(request) = at_once {
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
        assert_eq!(conversation.hear(b"{\"do\":\"st"), Heard::Nothing);
        assert_eq!(
            conversation.hear(b"op\"}\n{\"do\":\"restart\"}\n"),
            Heard::Request(Request::Stop)
        );
        assert_eq!(conversation.hear(b"{\"do\":\"restart\"}\n"), Heard::Nothing);
    }

    #[test]
    fn an_endless_line_is_refused_and_endless_talk_is_ended() {
        Conversation::check(&vec![b'x'; 3 * REQUEST_BYTES], || 4_096);
        let mut conversation = Conversation::default();
        let piece = [b' '; 4_096];
        let mut pieces = 0;
        while conversation.hear(&piece) == Heard::Nothing {
            pieces += 1;
        }
        assert_eq!(pieces, REQUEST_BYTES / piece.len() - 1);
        let mut conversation = Conversation::default();
        conversation.hear(&Request::Stop.line());
        let mut pieces = 0;
        while conversation.hear(&piece) == Heard::Nothing {
            pieces += 1;
        }
        assert_eq!(pieces, REQUEST_BYTES / piece.len());
    }
}
