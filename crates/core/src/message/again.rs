//! Requests that may be sent once more if the server dies: their lines, and how far their progress has come.
//!
//! It does not know which requests are safe to repeat; whoever keeps one here has decided that. What a killed keeper kept
//! is lost: its successor answers instead of sending again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::envelope;
use super::token;

/// How often one request is sent: a second death is not put down to chance.
const SENT_MOST: u8 = 2;

/// The kept lines.
#[derive(Debug)]
pub struct Again {
    lines: BTreeMap<Vec<u8>, Kept>,
    bytes: usize,
    bytes_most: usize,
    /// Lines kept so far.
    count: u64,
}

#[derive(Debug)]
struct Kept {
    /// Empty if it is not sent again.
    line: Vec<u8>,
    /// Its place in the order of asking.
    nth: u64,
    sent: u8,
    progress: Option<Progress>,
}

#[derive(Debug)]
struct Progress {
    token: Vec<u8>,
    last: f64,
}

/// What becomes of a request at a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is sent to the next generation.
    Resend,
    /// Two generations have died with it.
    Poisoned,
    /// It was not kept.
    NotKept,
}

impl Again {
    /// Nothing is kept; at most this many bytes of lines will be.
    pub fn new(bytes_most: usize) -> Self {
        Self {
            lines: BTreeMap::new(),
            bytes: 0,
            bytes_most,
            count: 0,
        }
    }

    /// Keeps a request that is sent; not if there is no room. One that waited to be sent again is known already.
    pub fn keep(&mut self, id: &[u8], line: &[u8]) {
        let room = self.bytes + line.len() <= self.bytes_most;
        if let Some(kept) = self.lines.get_mut(&*token::plain(id))
            && (kept.line == line || kept.line.is_empty() && room)
        {
            if kept.line.is_empty() {
                self.bytes += line.len();
                kept.line = line.to_vec();
            }
            kept.sent = kept.sent.saturating_add(1);
            return;
        }
        self.forget(id);
        if self.bytes + line.len() > self.bytes_most {
            return;
        }
        let progress = envelope::progress_token(line).map(|token| Progress {
            token: token.to_vec(),
            last: f64::NEG_INFINITY,
        });
        self.bytes += line.len();
        self.count += 1;
        let kept = Kept {
            line: line.to_vec(),
            nth: self.count,
            sent: 1,
            progress,
        };
        self.lines.insert(token::plain(id).into_owned(), kept);
    }

    /// It has its answer, or needs none.
    #[inline]
    pub fn forget(&mut self, id: &[u8]) {
        if !self.lines.is_empty() {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: &[u8]) {
        if let Some(kept) = self.lines.remove(&*token::plain(id)) {
            self.bytes -= kept.line.len();
        }
    }

    /// It is not sent again. How far its progress has come still counts: it may have been sent before.
    pub fn give_up(&mut self, id: &[u8]) {
        let id = token::plain(id);
        if let Some(kept) = self.lines.get_mut(&*id) {
            self.bytes -= core::mem::take(&mut kept.line).len();
            if kept.progress.is_none() {
                self.lines.remove(&*id);
            }
        }
    }

    /// Nobody waits for any of them.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
    }

    /// What this request asked for has been granted and lasts: older ones that wish for the `same` count no more, in whatever
    /// order the answers come, and no later server may hear of them.
    pub fn supersede(&mut self, id: &[u8], same: impl Fn(&[u8]) -> bool) {
        let Some(nth) = self.lines.get(&*token::plain(id)).map(|kept| kept.nth) else {
            return;
        };
        let bytes = &mut self.bytes;
        self.lines.retain(|_, kept| {
            let over = kept.nth < nth && same(&kept.line);
            if over {
                *bytes -= kept.line.len();
            }
            !over
        });
    }

    /// The server that it was sent to has not read it.
    pub fn unread(&mut self, id: &[u8]) {
        if let Some(kept) = self.lines.get_mut(&*token::plain(id)) {
            kept.sent = kept.sent.saturating_sub(1);
        }
    }

    /// Whether a server may have read it.
    pub fn was_sent(&self, id: &[u8]) -> bool {
        let kept = self.lines.get(&*token::plain(id));
        kept.is_some_and(|kept| kept.sent > 0)
    }

    /// What becomes of it if the server is dead.
    pub fn fate(&self, id: &[u8]) -> Fate {
        match self.lines.get(&*token::plain(id)) {
            Some(kept) if kept.line.is_empty() => Fate::NotKept,
            Some(kept) if kept.sent < SENT_MOST => Fate::Resend,
            Some(_) => Fate::Poisoned,
            None => Fate::NotKept,
        }
    }

    /// Its line, to be sent again.
    pub fn resend(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        let kept = self.lines.get_mut(&*token::plain(id))?;
        if kept.line.is_empty() {
            return None;
        }
        kept.sent += 1;
        Some(kept.line.clone())
    }

    /// The line of a kept request.
    pub fn line(&self, id: &[u8]) -> Option<&[u8]> {
        let kept = self.lines.get(&*token::plain(id))?;
        (!kept.line.is_empty()).then_some(&kept.line)
    }

    /// Whether a progress notification may pass: values must rise, and a request that was sent again begins anew.
    pub fn may_progress(&mut self, line: &[u8]) -> bool {
        if self.lines.values().all(|kept| kept.progress.is_none()) {
            return true;
        }
        let Some((token, value)) = envelope::progress(line) else {
            return true;
        };
        let mut all = self
            .lines
            .values_mut()
            .filter_map(|kept| kept.progress.as_mut());
        match all.find(|progress| token::same(&progress.token, token)) {
            Some(progress) if value > progress.last => {
                progress.last = value;
                true
            }
            Some(_) => false,
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_twice_at_most() {
        let mut again = Again::new(100);
        assert_eq!(again.fate(b"1"), Fate::NotKept);
        again.keep(b"1", b"{}\n");
        assert_eq!(again.fate(b"1.0"), Fate::Resend);
        assert_eq!(again.resend(b"1").as_deref(), Some(&b"{}\n"[..]));
        assert_eq!(again.fate(b"1"), Fate::Poisoned);
        again.unread(b"1");
        assert_eq!(again.fate(b"1"), Fate::Resend);
        again.keep(b"1", b"{}\n");
        assert_eq!(again.fate(b"1"), Fate::Poisoned);
        again.forget(b"1.0");
        assert_eq!(
            (again.fate(b"1"), again.resend(b"1")),
            (Fate::NotKept, None)
        );
    }

    #[test]
    fn an_older_wish_for_the_same_is_forgotten() {
        let mut again = Again::new(100);
        for (id, line) in [(b"1", b"a"), (b"2", b"b"), (b"3", b"a"), (b"4", b"a")] {
            again.keep(id, line);
        }
        // Sent again, it is as old as before.
        again.keep(b"1", b"a");
        again.supersede(b"3", |line| line == b"a");
        assert_eq!((again.line(b"1"), again.bytes), (None, 3));
        assert!(
            [b"2", b"3", b"4"]
                .map(|id| again.line(id))
                .iter()
                .all(Option::is_some)
        );
    }

    #[test]
    fn there_is_a_limit() {
        let mut again = Again::new(5);
        again.keep(b"1", b"1234\n");
        again.keep(b"2", b"\n");
        assert_eq!(
            (again.fate(b"1"), again.fate(b"2")),
            (Fate::Resend, Fate::NotKept)
        );
        again.keep(b"1", b"\n");
        again.keep(b"2", b"\n");
        assert_eq!(again.fate(b"2"), Fate::Resend);
    }

    #[test]
    fn progress_only_rises() {
        let note = |token: &str, value: &str| {
            alloc::format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":{value}}}}}"#
            )
        };
        let mut again = Again::new(1_000);
        assert!(again.may_progress(note("1", "5").as_bytes()));
        again.keep(b"1", br#"{"id":1,"params":{"_meta":{"progressToken":7}}}"#);
        for (token, value, passes) in [
            ("7", "1", true),
            ("7", "2.5", true),
            ("7", "2.5", false),
            ("7", "1", false),
            ("8", "1", true),
            ("7", "3", true),
        ] {
            assert_eq!(
                again.may_progress(note(token, value).as_bytes()),
                passes,
                "{token} {value}"
            );
        }
        again.forget(b"1");
        assert!(again.may_progress(note("7", "0").as_bytes()));
    }

    #[test]
    fn what_is_given_up_is_not_sent_again_and_goes_on_rising() {
        let note =
            br#"{"method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        let line = br#"{"id":1,"params":{"_meta":{"progressToken":7}}}"#;
        let mut again = Again::new(100);
        again.keep(b"1", line);
        again.keep(b"2", b"{}");
        assert!(again.may_progress(note));
        again.resend(b"1");
        for id in [b"1", b"2"] {
            again.give_up(id);
            let known = (again.fate(id), again.resend(id), again.line(id));
            assert_eq!(known, (Fate::NotKept, None, None));
        }
        assert!(!again.may_progress(note));
        assert_eq!((again.bytes, again.lines.len()), (0, 1));
        // The last server has not read it: it is sent after all.
        again.unread(b"1");
        again.keep(b"1", line);
        assert!(!again.may_progress(note));
        assert_eq!(
            (again.fate(b"1"), again.bytes),
            (Fate::Poisoned, line.len())
        );
    }
}
