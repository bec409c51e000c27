//! As much of DNS as finding the addresses of one host takes (RFC 1035, RFC 3596).
//!
//! A static program cannot ask the C library: its resolver loads plug-ins. Questions are written and answers read
//! here; who is asked, and when again, is not known. Foreign bytes never panic and never loop: a name is followed
//! through a bounded number of pointers, an answer through its own length.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Aliases that are followed within one answer.
const ALIASES_MOST: usize = 16;
/// Jumps within one name.
const JUMPS_MOST: usize = 32;
/// The longest name.
const NAME_BYTES: usize = 253;
/// The longest part of a name.
const LABEL_BYTES: usize = 63;
const CLASS_IN: u16 = 1;
const CNAME: u16 = 5;

/// Which kind of address is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
}

impl Kind {
    fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The addresses; none if the host has none of this kind.
    Addresses(Vec<IpAddr>),
    /// There is no such host.
    NoSuchHost,
    /// It did not fit: ask again over TCP.
    Truncated,
    /// The name server cannot say; its code.
    Refused(u8),
    /// It is no answer to this question.
    NotOurs,
}

/// A question; none if the name cannot be a host's.
pub fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > NAME_BYTES {
        return None;
    }
    let mut packet = Vec::with_capacity(name.len() + 18);
    packet.extend_from_slice(&id.to_be_bytes());
    // A standard query, recursion desired; one question and nothing else.
    packet.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        if label.is_empty() || label.len() > LABEL_BYTES || !label.is_ascii() {
            return None;
        }
        packet.push(label.len() as u8);
        packet.extend_from_slice(label.as_bytes());
    }
    packet.push(0);
    packet.extend_from_slice(&kind.number().to_be_bytes());
    packet.extend_from_slice(&CLASS_IN.to_be_bytes());
    Some(packet)
}

/// Reads an answer to [`question`].
pub fn answer(packet: &[u8], id: u16, name: &str, kind: Kind) -> Answer {
    read(packet, id, name, kind).unwrap_or(Answer::NotOurs)
}

fn read(packet: &[u8], id: u16, name: &str, kind: Kind) -> Option<Answer> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let flags = (*packet.get(2)?, *packet.get(3)?);
    if word(packet, 0)? != id || flags.0 & 0x80 == 0 || word(packet, 4)? != 1 {
        return None;
    }
    let (asked, mut at) = name_at(packet, 12)?;
    if asked != name || word(packet, at)? != kind.number() || word(packet, at + 2)? != CLASS_IN {
        return None;
    }
    at += 4;
    if flags.0 & 0x02 != 0 {
        return Some(Answer::Truncated);
    }
    match flags.1 & 0x0f {
        0 => {}
        3 => return Some(Answer::NoSuchHost),
        code => return Some(Answer::Refused(code)),
    }
    let mut records = Vec::new();
    for _ in 0..word(packet, 6)? {
        let (owner, after) = name_at(packet, at)?;
        let length = usize::from(word(packet, after + 8)?);
        let data = after + 10;
        let bytes = packet.get(data..data + length)?;
        if word(packet, after + 2)? == CLASS_IN {
            records.push((owner, word(packet, after)?, data, bytes));
        }
        at = data + length;
    }
    let mut wanted = name;
    for _ in 0..ALIASES_MOST {
        let alias = records
            .iter()
            .find(|(owner, number, _, _)| *number == CNAME && *owner == wanted);
        match alias {
            Some((_, _, data, _)) => wanted = name_at(packet, *data)?.0,
            None => break,
        }
    }
    let addresses = records
        .iter()
        .filter(|(owner, number, _, _)| *number == kind.number() && *owner == wanted)
        .filter_map(|(_, _, _, bytes)| address(bytes, kind))
        .collect();
    Some(Answer::Addresses(addresses))
}

fn address(bytes: &[u8], kind: Kind) -> Option<IpAddr> {
    match kind {
        Kind::A => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        Kind::Aaaa => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
    }
}

/// The name at a place, in lower case, and the place behind it.
fn name_at(packet: &[u8], at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut here = at;
    let mut behind = None;
    for _ in 0..JUMPS_MOST + NAME_BYTES {
        let length = usize::from(*packet.get(here)?);
        if length & 0xc0 == 0xc0 {
            behind = behind.or(Some(here + 2));
            here = usize::from(word(packet, here)? & 0x3fff);
            continue;
        }
        if length == 0 {
            return Some((name, behind.unwrap_or(here + 1)));
        }
        if length > LABEL_BYTES || name.len() + length > NAME_BYTES {
            return None;
        }
        let label = packet.get(here + 1..here + 1 + length)?;
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| match byte {
            // A dot inside a label separates nothing, so such a name is not one that we asked for.
            b'.' => char::REPLACEMENT_CHARACTER,
            byte => char::from(byte.to_ascii_lowercase()),
        }));
        here += 1 + length;
    }
    None
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn reply(flags: [u8; 2], records: &[&[u8]]) -> Vec<u8> {
        let mut packet = question(7, "a.example", Kind::A).unwrap();
        packet[2..4].copy_from_slice(&flags);
        packet[7] = records.len() as u8;
        for record in records {
            packet.extend_from_slice(record);
        }
        packet
    }

    /// A record whose owner is the question's name (a pointer to byte 12).
    fn record(kind: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xc0, 12];
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn a_dot_inside_of_a_label_separates_nothing() {
        let mut foreign = vec![9];
        foreign.extend_from_slice(b"a.example\0\0\x01\0\x01\0\0\0\x3c\0\x04\x01\x02\x03\x04");
        let packet = reply([0x81, 0x80], &[&foreign]);
        let none = Answer::Addresses(Vec::new());
        assert_eq!(answer(&packet, 7, "a.example", Kind::A), none);
    }

    #[test]
    fn a_question_is_what_the_standard_says() {
        let packet = question(0x1234, "a.bc.", Kind::Aaaa).unwrap();
        let expected =
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x02bc\x00\x00\x1c\x00\x01";
        assert_eq!(packet, expected);
        for name in [
            "",
            ".",
            "a..b",
            "ä.example",
            &"x".repeat(64),
            &"x.".repeat(200),
        ] {
            assert_eq!(question(1, name, Kind::A), None, "{name}");
        }
    }

    #[test]
    fn answers_are_read_with_aliases() {
        let packet = reply(
            [0x81, 0x80],
            &[&record(1, &[192, 0, 2, 1]), &record(1, &[192, 0, 2, 2])],
        );
        let expected = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)].map(IpAddr::from);
        assert_eq!(
            answer(&packet, 7, "A.Example", Kind::A),
            Answer::Addresses(expected.into())
        );
        // The alias `b.example` is written as a label and a pointer to `example`.
        let alias = record(5, b"\x01b\xc0\x0e");
        let mut target = b"\x01b\xc0\x0e".to_vec();
        target.extend_from_slice(&record(1, &[192, 0, 2, 9])[2..]);
        let packet = reply([0x81, 0x80], &[&alias, &target]);
        let expected = vec![IpAddr::from([192, 0, 2, 9])];
        assert_eq!(
            answer(&packet, 7, "a.example", Kind::A),
            Answer::Addresses(expected)
        );
    }

    #[test]
    fn everything_else_is_told_apart() {
        assert_eq!(
            answer(&reply([0x81, 0x83], &[]), 7, "a.example", Kind::A),
            Answer::NoSuchHost
        );
        assert_eq!(
            answer(&reply([0x81, 0x82], &[]), 7, "a.example", Kind::A),
            Answer::Refused(2)
        );
        assert_eq!(
            answer(&reply([0x83, 0x80], &[]), 7, "a.example", Kind::A),
            Answer::Truncated
        );
        let good = reply([0x81, 0x80], &[&record(1, &[192, 0, 2, 1])]);
        for (id, name, kind) in [
            (8, "a.example", Kind::A),
            (7, "b.example", Kind::A),
            (7, "a.example", Kind::Aaaa),
        ] {
            assert_eq!(answer(&good, id, name, kind), Answer::NotOurs);
        }
        assert_eq!(
            answer(
                &question(7, "a.example", Kind::A).unwrap(),
                7,
                "a.example",
                Kind::A
            ),
            Answer::NotOurs
        );
    }

    #[test]
    fn a_name_that_points_at_itself_ends() {
        let mut packet = reply([0x81, 0x80], &[&record(1, &[192, 0, 2, 1])]);
        let at = packet.len() - 16;
        packet[at + 1] = at as u8;
        assert_eq!(answer(&packet, 7, "a.example", Kind::A), Answer::NotOurs);
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..600), cut in 0..60usize) {
            answer(&bytes, 7, "a.example", Kind::A);
            let mut packet = reply([0x81, 0x80], &[&bytes]);
            packet.truncate(packet.len().saturating_sub(cut));
            answer(&packet, 7, "a.example", Kind::A);
        }
    }
}
