//! Server-sent events, decoded from pieces of any size (WHATWG HTML, §9.2).
//!
//! Invariants: the result depends on the bytes only, never on how they were cut; memory is bounded by [`HELD_LINE_BYTES`]
//! (plus one piece); an event that is not ended by a blank line is never delivered. An id counts as soon as its event
//! ends, even if that event has no data: this is how servers prime a client for a resumption.

use alloc::string::String;
use alloc::vec::Vec;

use mainstay_protocol::limits::HELD_LINE_BYTES;
use memchr::memchr2;

/// The longest id that is kept.
pub const EVENT_ID_BYTES: usize = 1_024;

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name; empty means `message`.
    pub name: String,
    /// Its id, if one was set with it.
    pub id: Option<Vec<u8>>,
    /// How long to wait before a reconnect, if it was said with it.
    pub retry_ms: Option<u64>,
    /// Its data, lines joined by a newline.
    pub data: Vec<u8>,
}

/// A line or an event is longer than we hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// The decoder of one stream.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// The line that has begun.
    line: Vec<u8>,
    /// The last byte was a carriage return: a newline right behind it ends no second line.
    after_cr: bool,
    /// A first line has been seen, so that no byte order mark can come any more.
    begun: bool,
    name: String,
    id: Option<Vec<u8>>,
    retry_ms: Option<u64>,
    data: Vec<u8>,
    has_data: bool,
}

impl Decoder {
    /// At the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a piece, and shows the events that it completes.
    pub fn push(&mut self, piece: &[u8], mut show: impl FnMut(Event)) -> Result<(), TooLong> {
        let mut rest = piece;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            self.hold(&rest[..end])?;
            let ended_by = rest[end];
            rest = &rest[end + 1..];
            if ended_by == b'\r' {
                match rest.split_first() {
                    Some((b'\n', after)) => rest = after,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(&mut show)?;
        }
        self.hold(rest)
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() + self.data.len() > HELD_LINE_BYTES {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, show: &mut impl FnMut(Event)) -> Result<(), TooLong> {
        let mut line = core::mem::take(&mut self.line);
        if !self.begun {
            self.begun = true;
            if line.starts_with(b"\xef\xbb\xbf") {
                line.drain(..3);
            }
        }
        if line.is_empty() {
            self.dispatch(show);
        } else {
            let (field, value) = match memchr::memchr(b':', &line) {
                Some(colon) => {
                    let value = &line[colon + 1..];
                    (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
                }
                None => (&line[..], &b""[..]),
            };
            self.field(field, value)?;
        }
        // The room is used again; a huge line gives it back.
        line.clear();
        line.shrink_to(4_096);
        self.line = line;
        Ok(())
    }

    fn field(&mut self, field: &[u8], value: &[u8]) -> Result<(), TooLong> {
        match field {
            b"data" => {
                if self.data.len() + value.len() + 1 > HELD_LINE_BYTES {
                    return Err(TooLong);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"id" if !value.contains(&0) && value.len() <= EVENT_ID_BYTES => {
                self.id = Some(value.to_vec());
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry_ms = core::str::from_utf8(value)
                    .ok()
                    .and_then(|digits| digits.parse().ok());
            }
            // A comment has an empty field name; what is unknown is ignored.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, show: &mut impl FnMut(Event)) {
        let event = Event {
            name: core::mem::take(&mut self.name),
            id: self.id.take(),
            retry_ms: self.retry_ms.take(),
            data: core::mem::take(&mut self.data),
        };
        let has_data = core::mem::take(&mut self.has_data);
        if has_data || event.id.is_some() || event.retry_ms.is_some() {
            show(event);
        }
    }
}

/// The slow reading of a whole stream, which the decoder is checked against: lines first, then fields, then events.
#[cfg(any(test, feature = "oracle"))]
pub fn slowly(bytes: &[u8]) -> Vec<Event> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut line = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\r' | b'\n' => {
                if bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n') {
                    at += 1;
                }
                lines.push(core::mem::take(&mut line));
            }
            byte => line.push(byte),
        }
        at += 1;
    }
    let mut events = Vec::new();
    for fields in lines.split_inclusive(Vec::is_empty) {
        if fields.last().is_none_or(|line| !line.is_empty()) {
            continue;
        }
        let parts: Vec<(&[u8], &[u8])> = fields
            .iter()
            .filter(|line| !line.is_empty())
            .map(|line| match line.iter().position(|&byte| byte == b':') {
                Some(colon) if line.get(colon + 1) == Some(&b' ') => {
                    (&line[..colon], &line[colon + 2..])
                }
                Some(colon) => (&line[..colon], &line[colon + 1..]),
                None => (&line[..], &[][..]),
            })
            .collect();
        let of = |name: &[u8]| -> Vec<&[u8]> {
            parts
                .iter()
                .filter(|(field, _)| *field == name)
                .map(|(_, value)| *value)
                .collect()
        };
        let data = of(b"data");
        let event = Event {
            name: of(b"event")
                .last()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .unwrap_or_default(),
            id: of(b"id")
                .into_iter()
                .rfind(|id| !id.contains(&0) && id.len() <= EVENT_ID_BYTES)
                .map(<[u8]>::to_vec),
            retry_ms: of(b"retry")
                .into_iter()
                .rfind(|value| !value.is_empty() && value.iter().all(u8::is_ascii_digit))
                .and_then(|value| core::str::from_utf8(value).ok()?.parse().ok()),
            data: data.join(&b'\n'),
        };
        if !data.is_empty() || event.id.is_some() || event.retry_ms.is_some() {
            events.push(event);
        }
    }
    events
}

/// An event's id, if it can be sent back to resume after it.
pub(super) fn resumable(id: &[u8]) -> Option<String> {
    let id = core::str::from_utf8(id).ok()?;
    let sendable = !id.is_empty() && !id.chars().any(|c| c.is_control() && c != '\t');
    sendable.then(|| id.into())
}

#[cfg(test)]
mod tests {
    //! guards: Events are decoded as the standard says, wherever the stream is cut.

    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn decode(bytes: &[u8], cuts: &[usize]) -> Vec<Event> {
        let mut decoder = Decoder::new();
        let mut events = Vec::new();
        let mut at = 0;
        for cut in cuts {
            let next = (at + cut).min(bytes.len());
            decoder
                .push(&bytes[at..next], |event| events.push(event))
                .unwrap();
            at = next;
        }
        decoder
            .push(&bytes[at..], |event| events.push(event))
            .unwrap();
        events
    }

    fn event(name: &str, id: Option<&str>, retry_ms: Option<u64>, data: &str) -> Event {
        Event {
            name: name.into(),
            id: id.map(|id| id.as_bytes().to_vec()),
            retry_ms,
            data: data.as_bytes().to_vec(),
        }
    }

    #[test]
    fn what_the_standard_shows() {
        for (text, expected) in [
            (": hello\n\n", vec![]),
            (
                "data: a\ndata:b\ndata\n\n",
                vec![event("", None, None, "a\nb\n")],
            ),
            (
                "event: endpoint\r\ndata: /x\r\n\r\n",
                vec![event("endpoint", None, None, "/x")],
            ),
            ("id: 1\ndata:\n\n", vec![event("", Some("1"), None, "")]),
            (
                "id: 1\n\nretry: 50\n\n",
                vec![
                    event("", Some("1"), None, ""),
                    event("", None, Some(50), ""),
                ],
            ),
            (
                "retry: 5x\nid: a\0b\ndata: x\n\n",
                vec![event("", None, None, "x")],
            ),
            (
                "\u{feff}data: x\r\rdata:  y\n\n",
                vec![event("", None, None, "x"), event("", None, None, " y")],
            ),
            ("data: never ended\n", vec![]),
            (
                "event: nothing\n\ndata: x\n\n",
                vec![event("", None, None, "x")],
            ),
        ] {
            assert_eq!(decode(text.as_bytes(), &[]), expected, "{text:?}");
            assert_eq!(slowly(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn an_endless_line_is_refused_in_bounded_memory() {
        let mut decoder = Decoder::new();
        let piece = vec![b'x'; 1 << 20];
        decoder.push(b"data: ", |_| ()).unwrap();
        let refused = (0..64).position(|_| decoder.push(&piece, |_| ()).is_err());
        assert_eq!(refused, Some(HELD_LINE_BYTES >> 20).map(|n| n - 1));
        let mut decoder = Decoder::new();
        let mut line = b"data: ".to_vec();
        line.extend_from_slice(&piece);
        line.push(b'\n');
        let refused = (0..64).position(|_| decoder.push(&line, |_| ()).is_err());
        assert!(
            refused.is_some_and(|n| n <= HELD_LINE_BYTES >> 20),
            "many lines: {refused:?}"
        );
    }

    proptest! {
        #[test]
        fn however_it_is_cut_it_is_what_the_slow_reading_says(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("data: x"), Just("data"), Just("id: 7"), Just("id"), Just("retry: 9"), Just("event: e"),
                    Just(":c"), Just("\n"), Just("\r\n"), Just("\r"), Just("\n\n"), Just("\u{feff}"), Just("ä:"), Just("\0"),
                ],
                0..60,
            ),
            cuts in proptest::collection::vec(0..9usize, 0..60),
        ) {
            let text: String = words.concat();
            prop_assert_eq!(decode(text.as_bytes(), &cuts), slowly(text.as_bytes()));
        }

        #[test]
        fn any_bytes_are_read_alike(bytes in proptest::collection::vec(any::<u8>(), 0..300), cuts in proptest::collection::vec(0..9usize, 0..60)) {
            prop_assert_eq!(decode(&bytes, &cuts), slowly(&bytes));
        }
    }
}
