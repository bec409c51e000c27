//! Requests that may be sent once more if the server dies: their lines, and how far their progress has come.
//!
//! It does not know which requests are safe to repeat; the caller has decided that. Lines that a killed keeper kept are
//! lost: its successor answers instead of sending again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::envelope;
use super::retry::SENT_MOST;
use super::token;

/// Lines that a debug build adds up after every change.
const CHECKED_MOST: usize = 64;

/// The kept lines.
#[derive(Debug)]
pub struct Resend {
    lines: BTreeMap<Vec<u8>, KeptRequest>,
    bytes: usize,
    bytes_most: usize,
    /// Lines kept so far.
    count: u64,
}

#[derive(Debug)]
struct KeptRequest {
    /// None if it is not sent again: only its progress counts.
    line: Option<Vec<u8>>,
    /// Its place in the order of asking.
    nth: u64,
    sent: u8,
    progress: Option<Progress>,
}

impl KeptRequest {
    fn bytes(&self) -> usize {
        self.line.as_ref().map_or(0, Vec::len)
    }
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

impl Resend {
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
            && kept.line.as_ref().map_or(room, |known| known == line)
        {
            if kept.line.is_none() {
                self.bytes += line.len();
                kept.line = Some(line.to_vec());
            }
            kept.sent = kept.sent.saturating_add(1);
            self.check();
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
        let kept = KeptRequest {
            line: Some(line.to_vec()),
            nth: self.count,
            sent: 1,
            progress,
        };
        self.lines.insert(token::plain(id).into_owned(), kept);
        self.check();
    }

    /// The request has its answer, or needs none.
    #[inline]
    pub fn forget(&mut self, id: &[u8]) {
        if !self.lines.is_empty() {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: &[u8]) {
        if let Some(kept) = self.lines.remove(&*token::plain(id)) {
            self.bytes -= kept.bytes();
        }
        self.check();
    }

    /// It is not sent again. How far its progress has come still counts: it may have been sent before.
    pub fn give_up(&mut self, id: &[u8]) {
        let id = token::plain(id);
        if let Some(kept) = self.lines.get_mut(&*id) {
            self.bytes -= kept.bytes();
            kept.line = None;
            if kept.progress.is_none() {
                self.lines.remove(&*id);
            }
        }
        self.check();
    }

    /// No client waits for any of them.
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
            let over = kept.nth < nth && kept.line.as_deref().is_some_and(&same);
            if over {
                *bytes -= kept.bytes();
            }
            !over
        });
        self.check();
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
            Some(kept) if kept.line.is_none() => Fate::NotKept,
            Some(kept) if kept.sent < SENT_MOST => Fate::Resend,
            Some(_) => Fate::Poisoned,
            None => Fate::NotKept,
        }
    }

    /// Its line, to be sent again.
    pub fn resend(&mut self, id: &[u8]) -> Option<Vec<u8>> {
        let kept = self.lines.get_mut(&*token::plain(id))?;
        let line = kept.line.clone()?;
        kept.sent += 1;
        debug_assert!(
            kept.sent <= SENT_MOST,
            "a second death is not put down to chance"
        );
        Some(line)
    }

    /// The line of a kept request.
    pub fn line(&self, id: &[u8]) -> Option<&[u8]> {
        self.lines.get(&*token::plain(id))?.line.as_deref()
    }

    /// The count of the bytes is right, and within its limit. Not looked at where many lines are kept: it walks them all.
    fn check(&self) {
        debug_assert!(self.bytes <= self.bytes_most, "the kept lines fit");
        debug_assert!(
            self.lines.len() > CHECKED_MOST
                || self.bytes == self.lines.values().map(KeptRequest::bytes).sum::<usize>(),
            "the kept bytes are those of the kept lines"
        );
        debug_assert!(
            self.lines.len() > CHECKED_MOST
                || self
                    .lines
                    .values()
                    .all(|kept| kept.line.is_some() || kept.progress.is_some()),
            "what is kept is of use"
        );
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
    //! guards: A request is sent at most twice.

    use super::*;

    #[test]
    fn a_request_is_sent_twice_at_most() {
        let mut resend = Resend::new(100);
        assert_eq!(resend.fate(b"1"), Fate::NotKept);
        resend.keep(b"1", b"{}\n");
        assert_eq!(resend.fate(b"1.0"), Fate::Resend);
        assert_eq!(resend.resend(b"1").as_deref(), Some(&b"{}\n"[..]));
        assert_eq!(resend.fate(b"1"), Fate::Poisoned);
        resend.unread(b"1");
        assert_eq!(resend.fate(b"1"), Fate::Resend);
        resend.keep(b"1", b"{}\n");
        assert_eq!(resend.fate(b"1"), Fate::Poisoned);
        resend.forget(b"1.0");
        assert_eq!(
            (resend.fate(b"1"), resend.resend(b"1")),
            (Fate::NotKept, None)
        );
    }

    #[test]
    fn an_older_wish_for_the_same_is_forgotten() {
        let mut resend = Resend::new(100);
        for (id, line) in [(b"1", b"a"), (b"2", b"b"), (b"3", b"a"), (b"4", b"a")] {
            resend.keep(id, line);
        }
        // Sent again, it is as old as before.
        resend.keep(b"1", b"a");
        resend.supersede(b"3", |line| line == b"a");
        assert_eq!((resend.line(b"1"), resend.bytes), (None, 3));
        assert!(
            [b"2", b"3", b"4"]
                .map(|id| resend.line(id))
                .iter()
                .all(Option::is_some)
        );
    }

    #[test]
    fn there_is_a_limit() {
        let mut resend = Resend::new(5);
        resend.keep(b"1", b"1234\n");
        resend.keep(b"2", b"\n");
        assert_eq!(
            (resend.fate(b"1"), resend.fate(b"2")),
            (Fate::Resend, Fate::NotKept)
        );
        resend.keep(b"1", b"\n");
        resend.keep(b"2", b"\n");
        assert_eq!(resend.fate(b"2"), Fate::Resend);
    }

    #[test]
    fn progress_only_rises() {
        let note = |token: &str, value: &str| {
            alloc::format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":{value}}}}}"#
            )
        };
        let mut resend = Resend::new(1_000);
        assert!(resend.may_progress(note("1", "5").as_bytes()));
        resend.keep(b"1", br#"{"id":1,"params":{"_meta":{"progressToken":7}}}"#);
        for (token, value, passes) in [
            ("7", "1", true),
            ("7", "2.5", true),
            ("7", "2.5", false),
            ("7", "1", false),
            ("8", "1", true),
            ("7", "3", true),
        ] {
            assert_eq!(
                resend.may_progress(note(token, value).as_bytes()),
                passes,
                "{token} {value}"
            );
        }
        resend.forget(b"1");
        assert!(resend.may_progress(note("7", "0").as_bytes()));
    }

    #[test]
    fn a_request_that_is_given_up_is_not_resent_and_its_progress_still_rises() {
        let note =
            br#"{"method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        let line = br#"{"id":1,"params":{"_meta":{"progressToken":7}}}"#;
        let mut resend = Resend::new(100);
        resend.keep(b"1", line);
        resend.keep(b"2", b"{}");
        assert!(resend.may_progress(note));
        resend.resend(b"1");
        for id in [b"1", b"2"] {
            resend.give_up(id);
            let known = (resend.fate(id), resend.resend(id), resend.line(id));
            assert_eq!(known, (Fate::NotKept, None, None));
        }
        assert!(!resend.may_progress(note));
        assert_eq!((resend.bytes, resend.lines.len()), (0, 1));
        // The last server has not read it: it is sent after all.
        resend.unread(b"1");
        resend.keep(b"1", line);
        assert!(!resend.may_progress(note));
        assert_eq!(
            (resend.fate(b"1"), resend.bytes),
            (Fate::Poisoned, line.len())
        );
    }

    #[test]
    fn a_request_that_no_server_has_read_counts_as_unsent() {
        let mut resend = Resend::new(100);
        assert!(!resend.was_sent(b"1"));
        resend.keep(b"1", b"{}\n");
        assert!(resend.was_sent(b"1"));
        resend.unread(b"1");
        assert!(!resend.was_sent(b"1"));
        resend.keep(b"1", b"{}\n");
        resend.clear();
        assert!(!resend.was_sent(b"1"));
        assert_eq!((resend.fate(b"1"), resend.bytes), (Fate::NotKept, 0));
    }

    #[test]
    fn a_request_that_was_given_up_is_kept_again_only_if_there_is_room() {
        let note =
            br#"{"method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        let line = br#"{"id":1,"params":{"_meta":{"progressToken":7}}}"#;
        for (most, fate) in [
            (line.len() + 3, Fate::Resend),
            (line.len() + 2, Fate::NotKept),
        ] {
            let mut resend = Resend::new(most);
            resend.keep(b"1", line);
            assert!(resend.may_progress(note));
            resend.give_up(b"1");
            resend.unread(b"1");
            resend.keep(b"2", b"{}\n");
            resend.keep(b"1", line);
            assert_eq!((resend.fate(b"1"), resend.fate(b"2")), (fate, Fate::Resend));
            // How far it has come is known as long as it is kept.
            assert_eq!(resend.may_progress(note), fate == Fate::NotKept);
        }
    }
}
