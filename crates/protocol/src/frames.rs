//! Frames: lines that pass between a client and its server, as they are shown and recorded.
//!
//! A frame is shown as one line of JSON, the same on a tap, in a saved file and in a recording: [`Line`]. This module
//! decides what a frame is, which side wrote it and which question an answer belongs to. It does not know the readers
//! or the files.
//!
//! Invariants: fields are only ever added, and a reader skips lines that it does not know; a body is never longer than
//! its limit, and one that is cut off says so; the true size is always given.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::LinkId;
use crate::message::frame::{self, Id};

mod glob;
mod owed;
mod recent;
pub use glob::matches;
pub use owed::{Owed, Question};
pub use recent::Recent;

/// The version in each head line.
pub const VERSION: u32 = 1;

/// One line of a tap or of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// What follows, and for which server: the first line, and again after each takeover.
    Head(Head),
    /// A frame.
    Frame(Box<Sight>),
    /// Frames that are missing here.
    Lost(Lost),
    /// Nothing follows, for this reason.
    End(End),
}

impl Line {
    /// As text, with its newline.
    pub fn text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Format version.
    pub v: u32,
    /// The link.
    pub link: LinkId,
    /// The server's name.
    pub server: String,
    /// When, by the wall clock.
    pub at: String,
    /// The same by the monotonic clock, in nanoseconds.
    pub ns: u64,
    /// The keeper that tells it.
    pub keeper: i32,
    /// The generation that is up.
    pub generation: u32,
    /// The longest body.
    pub body_bytes: u64,
    /// Whether secrets are hidden.
    pub redacted: bool,
}

/// Frames that are missing, because the reader was too slow or the disk refused them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The link.
    pub link: LinkId,
    /// How many.
    pub count: u64,
}

/// The end of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The link.
    pub link: LinkId,
    /// When, by the wall clock.
    pub at: String,
    /// Why.
    pub why: String,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Counts the frames of one keeper from 1, seen or not.
    pub n: u64,
    /// When, by the wall clock, with milliseconds.
    pub at: String,
    /// The same by the monotonic clock, in nanoseconds.
    pub ns: u64,
    /// The link.
    pub link: LinkId,
    /// The writer.
    pub from: Side,
    /// The receiver; mainstay itself if the line is not forwarded unchanged.
    pub to: Side,
    /// The generation of the server.
    pub generation: u32,
    /// What it is.
    pub kind: Kind,
    /// Its method; of an answer, its request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its id, the JSON token as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its true length, newline included.
    pub bytes: u64,
    /// Of an answer: since its request, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// What it is for, if mainstay wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Ours>,
    /// What it says, without its newline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The body is only its beginning.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub cut: bool,
}

/// The ends of a frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
    /// We.
    Mainstay,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Mainstay => "mainstay",
        })
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Its sender waits for an answer.
    Request,
    /// Its sender does not wait for an answer.
    Notification,
    /// An answer with a result.
    Response,
    /// An answer with an error.
    Error,
    /// Several at once.
    Batch,
    /// White space.
    Blank,
    /// No message.
    Junk,
}

impl Kind {
    /// Whether it answers a request.
    pub fn answers(self) -> bool {
        match self {
            Self::Response | Self::Error => true,
            Self::Request | Self::Notification | Self::Batch | Self::Blank | Self::Junk => false,
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Notification => "notification",
            Self::Response => "response",
            Self::Error => "error",
            Self::Batch => "batch",
            Self::Blank => "blank",
            Self::Junk => "junk",
        }
    }
}

impl From<frame::Kind> for Kind {
    fn from(kind: frame::Kind) -> Self {
        match kind {
            frame::Kind::Request => Self::Request,
            frame::Kind::Notification => Self::Notification,
            frame::Kind::Response => Self::Response,
            frame::Kind::Error => Self::Error,
            frame::Kind::Batch => Self::Batch,
            frame::Kind::Blank => Self::Blank,
            frame::Kind::Junk => Self::Junk,
        }
    }
}

/// What a frame that mainstay wrote is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ours {
    /// Is the server there?
    Probe,
    /// What the server must know, or what its predecessor has not answered.
    Replay,
    /// An answer that the server did not give.
    Answer,
    /// News for the client.
    Notice,
    /// A line of the other side, held whole or under another id.
    PassedOn,
}

impl fmt::Display for Ours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Probe => "probe",
            Self::Replay => "replay",
            Self::Answer => "answer",
            Self::Notice => "notice",
            Self::PassedOn => "passed on",
        })
    }
}

/// What a line of ours is for. `instead`: the side whose line has just been taken in its place.
pub fn ours(link: LinkId, to: Side, frame: &frame::Frame<'_>, instead: Option<Side>) -> Ours {
    let from = match to {
        Side::Client => Side::Server,
        Side::Server | Side::Mainstay => Side::Client,
    };
    let own = matches!(frame.id, Id::Token(id) if link.own_number(id).is_some());
    let answers = Kind::from(frame.kind).answers();
    match (to, frame.method.as_deref()) {
        _ if instead == Some(from) && !own => Ours::PassedOn,
        (Side::Server, Some("ping" | "server/discover")) if own => Ours::Probe,
        (Side::Server | Side::Mainstay, _) => Ours::Replay,
        (Side::Client, _) if answers => Ours::Answer,
        (Side::Client, _) => Ours::Notice,
    }
}

/// The id of a frame as text.
pub fn id_text(id: Id<'_>) -> Option<String> {
    match id {
        Id::Absent => None,
        Id::Null => Some("null".to_string()),
        Id::Token(token) => Some(String::from_utf8_lossy(token).into_owned()),
        Id::TooLong => Some("(too long)".to_string()),
    }
}

/// The beginning of a line as text, without its newline, and whether anything is missing of it.
pub fn body(line: &[u8], whole: u64, limit: usize) -> (Cow<'_, str>, bool) {
    let trimmed = line.strip_suffix(b"\n").unwrap_or(line);
    let trimmed = trimmed.strip_suffix(b"\r").unwrap_or(trimmed);
    let mut kept = trimmed.len().min(limit);
    // A character is not cut in two.
    while kept < trimmed.len() && kept > 0 && trimmed[kept] & 0xC0 == 0x80 {
        kept -= 1;
    }
    let cut = kept < trimmed.len() || (line.len() as u64) < whole;
    (String::from_utf8_lossy(&trimmed[..kept]), cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::frame::Scanner;

    fn scanned<T>(line: &[u8], look: impl Fn(&frame::Frame<'_>) -> T) -> T {
        let mut scanner = Scanner::new();
        scanner.feed(line);
        look(&scanner.frame())
    }

    #[test]
    fn each_line_of_ours_has_its_purpose() {
        use Side::{Client, Server};
        for (line, to, instead, expected) in [
            (
                &b"{\"id\":\"ms:own:00000007:1\",\"method\":\"ping\"}\n"[..],
                Server,
                None,
                Ours::Probe,
            ),
            (
                b"{\"id\":\"ms:own:00000007:1\",\"method\":\"initialize\"}\n",
                Server,
                Some(Client),
                Ours::Replay,
            ),
            (
                b"{\"method\":\"notifications/initialized\"}\n",
                Server,
                None,
                Ours::Replay,
            ),
            (
                b"{\"id\":7,\"method\":\"ping\"}\n",
                Server,
                Some(Client),
                Ours::PassedOn,
            ),
            (
                b"{\"id\":\"ms:own:00000008:1\",\"method\":\"ping\"}\n",
                Server,
                Some(Client),
                Ours::PassedOn,
            ),
            (b"{\"id\":7,\"result\":{}}\n", Client, None, Ours::Answer),
            (
                b"{\"id\":7,\"error\":{}}\n",
                Client,
                Some(Client),
                Ours::Answer,
            ),
            (
                b"{\"id\":7,\"result\":{}}\n",
                Client,
                Some(Server),
                Ours::PassedOn,
            ),
            (b"{\"method\":\"x\"}\n", Client, None, Ours::Notice),
        ] {
            let found = scanned(line, |frame| ours(LinkId(7), to, frame, instead));
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_body_is_its_beginning_and_says_so() {
        assert_eq!(body(b"abc\r\n", 5, 9), ("abc".into(), false));
        assert_eq!(body(b"abcdef\n", 7, 3), ("abc".into(), true));
        assert_eq!(body(b"abc", 900, 9), ("abc".into(), true));
        let (text, cut) = body("aé\n".as_bytes(), 4, 2);
        assert_eq!((text.as_ref(), cut), ("a", true));
        assert_eq!(body(b"\xff\n", 2, 9).0, "\u{fffd}");
        assert_eq!(body(b"", 0, 0), ("".into(), false));
    }

    #[test]
    fn a_line_comes_back_as_it_went_and_what_is_new_is_ignored() {
        let frame = Sight {
            n: 3,
            at: "2026-11-15T22:31:07.123Z".into(),
            ns: 12,
            link: LinkId(7),
            from: Side::Server,
            to: Side::Client,
            generation: 2,
            kind: Kind::Response,
            method: Some("tools/call".into()),
            id: Some("\"a\"".into()),
            bytes: 90,
            latency_us: Some(1_200),
            ours: None,
            body: Some("{}".into()),
            cut: true,
        };
        let line = Line::Frame(frame.into());
        let text = line.text();
        assert_eq!(
            String::from_utf8(text.clone()).unwrap(),
            "{\"line\":\"frame\",\"n\":3,\"at\":\"2026-11-15T22:31:07.123Z\",\"ns\":12,\"link\":\"00000007\",\
             \"from\":\"server\",\"to\":\"client\",\"generation\":2,\"kind\":\"response\",\"method\":\"tools/call\",\
             \"id\":\"\\\"a\\\"\",\"bytes\":90,\"latency_us\":1200,\"body\":\"{}\",\"cut\":true}\n"
        );
        assert_eq!(serde_json::from_slice::<Line>(&text).unwrap(), line);
        let newer = b"{\"line\":\"lost\",\"link\":\"00000007\",\"count\":2,\"new\":1}";
        let lost = Line::Lost(Lost {
            link: LinkId(7),
            count: 2,
        });
        assert_eq!(serde_json::from_slice::<Line>(newer).unwrap(), lost);
        assert!(serde_json::from_slice::<Line>(b"{\"line\":\"other\"}").is_err());
    }
}
