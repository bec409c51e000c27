//! What is said on a control socket: JSON lines, one request, one answer.
//!
//! Only types and their text live here. The keeper answers (it awaits), [`super::ask`] asks (it blocks).

use mainstay_protocol::event::Seen;
use mainstay_protocol::limits::FRAME_BODY_BYTES;
use serde::{Deserialize, Serialize};

use super::card::Card;

/// The longest request, its newline included.
pub const REQUEST_BYTES: usize = 64 * 1024;
/// The longest answer that a client reads.
pub const ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// Connections that a keeper holds at once; more are refused.
pub const CONNECTIONS: usize = 16;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// How are you?
    Status,
    /// End the tree and go; the answer comes when that is done.
    Stop,
    /// Put the next generation in the server's place; the answer comes when it is ready.
    Restart,
    /// Show frames from now on: what follows are the lines of [`mainstay_protocol::frames`].
    Tap {
        /// The longest body that is wanted.
        #[serde(default = "whole_bodies")]
        body_bytes: u64,
    },
}

fn whole_bodies() -> u64 {
    FRAME_BODY_BYTES as u64
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The card as it is now.
    Status(Box<Card>),
    /// The tree was ended.
    Stopped {
        /// How many processes were ended.
        ended: u32,
        /// The processes that are left; empty means "0 left".
        left: Vec<Seen>,
    },
    /// The next generation is ready.
    Restarted {
        /// Which one it is.
        generation: u32,
        /// Its process; none if it is not started before it is needed.
        pid: Option<i32>,
    },
    /// The request was not understood or not granted.
    Refused {
        /// Why.
        error: String,
    },
}

/// A line that is not what it should be, with the reason for the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbled(pub String);

impl Request {
    /// Reads a line, with or without its newline.
    pub fn parse(line: &[u8]) -> Result<Self, Garbled> {
        if line.len() > REQUEST_BYTES {
            return Err(Garbled(format!(
                "a request has {REQUEST_BYTES} bytes at most"
            )));
        }
        serde_json::from_slice(line).map_err(|error| Garbled(format!("not a request: {error}")))
    }

    /// The line, with its newline.
    pub fn line(&self) -> Vec<u8> {
        line(self)
    }
}

impl Answer {
    /// Reads a line, with or without its newline.
    pub fn parse(line: &[u8]) -> Result<Self, Garbled> {
        let wire: Wire = serde_json::from_slice(line)
            .map_err(|error| Garbled(format!("not an answer: {error}")))?;
        match wire {
            Wire {
                ok: false, error, ..
            } => Ok(Self::Refused {
                error: error.unwrap_or_else(|| "no reason given".into()),
            }),
            Wire {
                card: Some(card), ..
            } => Ok(Self::Status(card)),
            Wire {
                ended: Some(ended),
                left: Some(left),
                ..
            } => Ok(Self::Stopped { ended, left }),
            Wire {
                generation: Some(generation),
                pid,
                ..
            } => Ok(Self::Restarted { generation, pid }),
            Wire { .. } => Err(Garbled(
                "not an answer: neither a card, nor an end, nor a generation".into(),
            )),
        }
    }

    /// The line, with its newline.
    pub fn line(&self) -> Vec<u8> {
        let mut wire = Wire {
            ok: true,
            ..Wire::default()
        };
        match self.clone() {
            Self::Status(card) => wire.card = Some(card),
            Self::Stopped { ended, left } => {
                wire.ended = Some(ended);
                wire.left = Some(left);
            }
            Self::Restarted { generation, pid } => {
                wire.generation = Some(generation);
                wire.pid = pid;
            }
            Self::Refused { error } => {
                wire.ok = false;
                wire.error = Some(error);
            }
        }
        line(&wire)
    }
}

impl From<Garbled> for Answer {
    fn from(Garbled(error): Garbled) -> Self {
        Self::Refused { error }
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Wire {
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<Vec<Seen>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    card: Option<Box<Card>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
}

fn line<T: Serialize>(value: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::card::samples;
    use mainstay_protocol::ids::Identity;

    #[test]
    fn the_text_is_fixed() {
        assert_eq!(Request::Status.line(), b"{\"do\":\"status\"}\n");
        assert_eq!(Request::Stop.line(), b"{\"do\":\"stop\"}\n");
        assert_eq!(Request::Restart.line(), b"{\"do\":\"restart\"}\n");
        let tap = Request::Tap { body_bytes: 9 };
        assert_eq!(tap.line(), b"{\"do\":\"tap\",\"body_bytes\":9}\n");
        let tap = Request::parse(b"{\"do\":\"tap\"}");
        assert_eq!(tap, Ok(Request::Tap { body_bytes: 65_536 }));
        let restarted = Answer::Restarted {
            generation: 2,
            pid: Some(7),
        };
        assert_eq!(
            restarted.line(),
            b"{\"ok\":true,\"generation\":2,\"pid\":7}\n".to_vec()
        );
        let stopped = Answer::Stopped {
            ended: 3,
            left: Vec::new(),
        };
        assert_eq!(
            stopped.line(),
            b"{\"ok\":true,\"ended\":3,\"left\":[]}\n".to_vec()
        );
        let refused = Answer::Refused { error: "no".into() };
        assert_eq!(
            refused.line(),
            b"{\"ok\":false,\"error\":\"no\"}\n".to_vec()
        );
    }

    #[test]
    fn what_is_said_is_understood() {
        for request in [Request::Status, Request::Stop, Request::Restart] {
            assert_eq!(Request::parse(&request.line()), Ok(request));
        }
        let left = vec![Seen {
            who: Identity { pid: 4, start: 5 },
            comm: "node".into(),
        }];
        for answer in [
            Answer::Status(Box::new(samples::card(1, "demo"))),
            Answer::Stopped { ended: 0, left },
            Answer::Restarted {
                generation: 2,
                pid: None,
            },
            Answer::Refused {
                error: "busy".into(),
            },
        ] {
            assert_eq!(Answer::parse(&answer.line()), Ok(answer));
        }
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        for text in [&b""[..], b"stop", b"{}", b"{\"do\":\"fly\"}", b"\xff\xfe"] {
            let Garbled(reason) = Request::parse(text).unwrap_err();
            assert!(reason.starts_with("not a request: "), "{reason}");
        }
        assert!(Request::parse(&vec![b' '; REQUEST_BYTES + 1]).is_err());
        for text in [&b""[..], b"{\"ok\":true}", b"[]"] {
            assert!(Answer::parse(text).is_err());
        }
    }
}
