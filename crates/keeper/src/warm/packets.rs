//! The packets between a newcomer and the keeper of a warm server. The first byte is the kind.

use std::io;

use mainstay_core::record;
use mainstay_os::record::Region;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::WHOLE_LINE_BYTES;

/// The longest packet: what a newcomer has read, and its letter.
pub const PACKET_BYTES: usize = WHOLE_LINE_BYTES + 1;
/// The longest answer to a probe.
pub const ANSWER_BYTES: usize = WHOLE_LINE_BYTES;

const HELLO: u8 = b'H';
const PROBE: u8 = b'P';
const TAKE: u8 = b'T';
const ANSWER: u8 = b'A';
const NO_ANSWER: u8 = b'N';

/// The first packet of the keeper. The descriptor of the link's shared memory comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The link.
    pub link: LinkId,
    /// Whether its server speaks the modern era.
    pub modern: bool,
}

impl Hello {
    /// The bytes of the packet.
    pub fn packet(self) -> Vec<u8> {
        let mut packet = vec![HELLO, u8::from(self.modern)];
        packet.extend(self.link.0.to_le_bytes());
        packet.extend(kin().into_bytes());
        packet
    }

    /// None if the keeper is of another version, because then its shared memory has another layout.
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

/// Two programs can share the memory only if they are of one version.
fn kin() -> String {
    format!(
        "{} {} {}",
        env!("CARGO_PKG_VERSION"),
        Region::BYTES,
        record::LAYOUT
    )
}

/// What a newcomer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// How would the server answer this `server/discover`?
    Probe(&'a [u8]),
    /// Here are stdin, stdout, stderr, the channel to the shim, and what was read: go on.
    Take(&'a [u8]),
}

impl<'a> Request<'a> {
    /// The bytes of the packet.
    pub fn packet(self) -> Vec<u8> {
        let (letter, bytes) = match self {
            Self::Probe(line) => (PROBE, line),
            Self::Take(bytes) => (TAKE, bytes),
        };
        [&[letter], bytes].concat()
    }

    /// None if the packet is not valid.
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        match packet.split_first()? {
            (&PROBE, line) => Some(Self::Probe(line)),
            (&TAKE, bytes) => Some(Self::Take(bytes)),
            (_, _) => None,
        }
    }
}

/// The packet with the answer to a probe.
pub fn answer(line: &[u8]) -> Vec<u8> {
    [&[ANSWER], line].concat()
}

/// The packet that says that there is no answer.
pub fn no_answer() -> Vec<u8> {
    vec![NO_ANSWER]
}

/// Reads the answer to a probe.
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
    fn every_packet_is_read_back() {
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
    fn a_packet_of_another_version_is_refused() {
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
