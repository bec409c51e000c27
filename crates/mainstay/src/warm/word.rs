//! What a newcomer and a lingering keeper say to each other: one packet each, a letter first.

use std::io;

use mainstay_core::ids::LinkId;
use mainstay_core::limits::WHOLE_LINE_BYTES;
use mainstay_core::record;
use mainstay_os::record::Region;

/// The longest packet: what a newcomer has read, and its letter.
pub const PACKET_BYTES: usize = WHOLE_LINE_BYTES + 1;
/// The longest answer to a probe.
pub const ANSWER_BYTES: usize = WHOLE_LINE_BYTES;

const HELLO: u8 = b'H';
const PROBE: u8 = b'P';
const TAKE: u8 = b'T';
const ANSWER: u8 = b'A';
const NO_ANSWER: u8 = b'N';

/// The keeper's first word: who lingers here. With it comes the link's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The link.
    pub link: LinkId,
    /// Whether its server speaks the modern era.
    pub modern: bool,
}

impl Hello {
    /// As it is said.
    pub fn packet(self) -> Vec<u8> {
        let mut packet = vec![HELLO, u8::from(self.modern)];
        packet.extend(self.link.0.to_le_bytes());
        packet.extend(kin().into_bytes());
        packet
    }

    /// As it is heard; none if the other one is not of our kind: then its record means nothing to us.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let (&[HELLO, modern, a, b, c, d], rest) = packet.split_first_chunk::<6>()? else {
            return None;
        };
        (rest == kin().as_bytes()).then_some(Self {
            link: LinkId(u32::from_le_bytes([a, b, c, d])),
            modern: modern != 0,
        })
    }
}

/// Two programs can share a record only if they are of one version.
fn kin() -> String {
    format!(
        "{} {} {}",
        env!("CARGO_PKG_VERSION"),
        Region::BYTES,
        record::LAYOUT
    )
}

/// What a newcomer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// How would the server answer this `server/discover`?
    Probe(&'a [u8]),
    /// Here are stdin, stdout, stderr, the channel to the shim, and what was read: go on.
    Take(&'a [u8]),
}

impl<'a> Request<'a> {
    /// As it is said.
    pub fn packet(self) -> Vec<u8> {
        let (letter, bytes) = match self {
            Self::Probe(line) => (PROBE, line),
            Self::Take(bytes) => (TAKE, bytes),
        };
        [&[letter], bytes].concat()
    }

    /// As it is heard.
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        match packet.split_first()? {
            (&PROBE, line) => Some(Self::Probe(line)),
            (&TAKE, bytes) => Some(Self::Take(bytes)),
            (_, _) => None,
        }
    }
}

/// The answer to a probe, as it is said.
pub fn answer(line: &[u8]) -> Vec<u8> {
    [&[ANSWER], line].concat()
}

/// That there is none.
pub fn no_answer() -> Vec<u8> {
    vec![NO_ANSWER]
}

/// The answer to a probe, as it is heard.
pub fn read_answer(packet: &[u8]) -> io::Result<Option<&[u8]>> {
    match packet.split_first() {
        Some((&ANSWER, line)) => Ok(Some(line)),
        Some((&NO_ANSWER, _)) => Ok(None),
        Some(_) | None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_it_was_said() {
        let hello = Hello {
            link: LinkId(0x0102_0304),
            modern: true,
        };
        assert_eq!(Hello::read(&hello.packet()), Some(hello));
        for request in [Request::Probe(b"{}\n"), Request::Take(b"")] {
            assert_eq!(Request::read(&request.packet()), Some(request));
        }
        assert_eq!(read_answer(&answer(b"x")).unwrap(), Some(&b"x"[..]));
        assert_eq!(read_answer(&no_answer()).unwrap(), None);
    }

    #[test]
    fn another_kind_is_not_understood() {
        let hello = Hello {
            link: LinkId(1),
            modern: false,
        };
        let mut packet = hello.packet();
        packet.push(b'!');
        assert_eq!(Hello::read(&packet), None);
        for foreign in [&b""[..], b"X", b"H", b"junk"] {
            assert_eq!(Hello::read(foreign), None);
            assert_eq!(Request::read(foreign), None);
            assert!(read_answer(foreign).is_err());
        }
    }
}
