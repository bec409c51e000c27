//! The last frames of a link, without their bodies, for the event that reports a death.
//!
//! Every line is noted here, so it costs a copy of some bytes and no allocation; the memory is fixed.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Kind, Side};
use crate::clock::Moment;
use crate::copy;
use crate::event::Brief;
use crate::limits::RECENT_FRAMES;
use crate::message::frame::{Frame, Id};

/// The longest method that is kept.
const METHOD_BYTES: usize = 38;
/// The longest id that is kept.
const ID_BYTES: usize = 22;

/// The frames.
#[derive(Clone, Debug)]
pub struct Recent {
    notes: [Note; RECENT_FRAMES],
    /// How many there were so far.
    count: u64,
    answer: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    at: Moment,
    bytes: u64,
    from: Side,
    to: Side,
    kind: Kind,
    method: Short<METHOD_BYTES>,
    id: Short<ID_BYTES>,
}

impl Default for Recent {
    fn default() -> Self {
        let none = Note {
            at: Moment(0),
            bytes: 0,
            from: Side::Client,
            to: Side::Client,
            kind: Kind::Blank,
            method: Short::NONE,
            id: Short::NONE,
        };
        Self {
            notes: [none; RECENT_FRAMES],
            count: 0,
            answer: None,
        }
    }
}

impl Recent {
    /// A line passed.
    #[inline]
    pub fn note(&mut self, now: Moment, from: Side, to: Side, frame: &Frame<'_>) {
        let kind = Kind::from(frame.kind);
        let note = &mut self.notes[self.count as usize % RECENT_FRAMES];
        self.count += 1;
        note.at = now;
        note.bytes = frame.bytes;
        note.from = from;
        note.to = to;
        note.kind = kind;
        note.method
            .set(frame.method.as_deref().unwrap_or_default().as_bytes());
        note.id.set(match frame.id {
            Id::Token(token) => token,
            Id::Null => b"null",
            Id::Absent | Id::TooLong => b"",
        });
        if from == Side::Server && to == Side::Client && kind.answers() {
            self.answer = Some(now);
        }
    }

    /// When the server last answered the client.
    pub fn last_answer(&self) -> Option<Moment> {
        self.answer
    }

    /// How many there were so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last ones, oldest first. An answer whose request is among them has its method and latency.
    pub fn briefs(&self, now: Moment) -> Vec<Brief> {
        let first = self.count.saturating_sub(RECENT_FRAMES as u64);
        let noted = |n: u64| &self.notes[n as usize % RECENT_FRAMES];
        let request = |n: u64| {
            let answer = noted(n);
            let asked = |m: &u64| {
                let asked = noted(*m);
                asked.kind == Kind::Request
                    && asked.from == answer.to
                    && asked.id.get() == answer.id.get()
            };
            (first..n).rev().find(asked).map(noted)
        };
        let brief = |n: u64| {
            let note = noted(n);
            let asked = note.kind.answers().then(|| request(n)).flatten();
            let method = asked.map_or(&note.method, |asked| &asked.method);
            Brief {
                ago_ms: (now - note.at).div_ceil(1_000_000),
                from: note.from,
                to: note.to,
                kind: note.kind,
                method: method.text(),
                id: note.id.text(),
                bytes: note.bytes,
                latency_ms: asked.map(|asked| note.at.ms_since(asked.at)),
            }
        };
        (first..self.count).map(brief).collect()
    }
}

/// A short text in place.
#[derive(Clone, Copy, Debug)]
struct Short<const N: usize> {
    bytes: [u8; N],
    len: u8,
    /// There was more.
    cut: bool,
}

impl<const N: usize> Short<N> {
    const NONE: Self = Self {
        bytes: [0; N],
        len: 0,
        cut: false,
    };

    #[inline]
    fn set(&mut self, text: &[u8]) {
        let len = copy::short(&mut self.bytes, text);
        self.len = len as u8;
        self.cut = len < text.len();
    }

    fn get(&self) -> (&[u8], bool) {
        (&self.bytes[..usize::from(self.len)], self.cut)
    }

    fn text(&self) -> Option<String> {
        let (bytes, cut) = self.get();
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        if cut {
            text.push('…');
        }
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::frame::Scanner;

    fn note(recent: &mut Recent, at_ms: u64, from: Side, to: Side, line: &str) {
        let mut scanner = Scanner::new();
        scanner.feed(line.as_bytes());
        recent.note(Moment(0).after_ms(at_ms), from, to, &scanner.frame());
    }

    #[test]
    fn the_last_ones_in_order_with_what_they_answer() {
        use Side::{Client, Server};
        let mut recent = Recent::default();
        assert!(recent.briefs(Moment(0)).is_empty() && recent.last_answer().is_none());
        for n in 0..40 {
            let line = alloc::format!("{{\"method\":\"n/{n}\"}}\n");
            note(&mut recent, n, Client, Server, &line);
        }
        note(
            &mut recent,
            100,
            Client,
            Server,
            "{\"id\":7,\"method\":\"tools/call\"}\n",
        );
        note(
            &mut recent,
            105,
            Server,
            Client,
            "{\"id\":7,\"method\":\"roots/list\"}\n",
        );
        note(
            &mut recent,
            130,
            Server,
            Client,
            "{\"result\":{},\"id\":7}\n",
        );
        note(
            &mut recent,
            140,
            Client,
            Server,
            "{\"result\":{},\"id\":7}\n",
        );
        note(
            &mut recent,
            150,
            Server,
            Client,
            "{\"result\":{},\"id\":8}\n",
        );
        let briefs = recent.briefs(Moment(0).after_ms(200));
        assert_eq!(briefs.len(), RECENT_FRAMES);
        assert_eq!(
            (recent.count(), briefs[0].method.as_deref()),
            (45, Some("n/29"))
        );
        let tail: Vec<_> = briefs[RECENT_FRAMES - 3..]
            .iter()
            .map(|brief| (brief.method.as_deref(), brief.latency_ms, brief.ago_ms))
            .collect();
        assert_eq!(
            tail,
            [
                (Some("tools/call"), Some(30), 70),
                (Some("roots/list"), Some(35), 60),
                (None, None, 50)
            ]
        );
        assert_eq!(recent.last_answer(), Some(Moment(0).after_ms(150)));
    }

    #[test]
    fn long_names_are_cut_and_the_memory_is_small() {
        let mut recent = Recent::default();
        let line = alloc::format!("{{\"id\":\"{0}\",\"method\":\"{0}\"}}\n", "x".repeat(90));
        note(&mut recent, 1, Side::Client, Side::Server, &line);
        let brief = recent.briefs(Moment(0).after_ms(1)).remove(0);
        assert_eq!(brief.method.unwrap(), "x".repeat(METHOD_BYTES) + "…");
        assert_eq!(brief.id.unwrap().chars().count(), ID_BYTES + 1);
        assert!(size_of::<Recent>() <= 2 * 1024, "{}", size_of::<Recent>());
    }
}
