//! Answers of a name server: any bytes, and answers that are written here from any bytes. Every address that is found belongs to
//! the name that was asked for, by a reader that knows names as rows of labels.
#![no_main]

use std::net::IpAddr;

use mainstay_http_core::dns::{Answer, Kind, answer, question};

use libfuzzer_sys::fuzz_target;

const NAME: &str = "a.example";
const ID: u16 = 7;

fuzz_target!(|data: &[u8]| {
    let Some((&mode, rest)) = data.split_first() else {
        return;
    };
    let kind = if mode & 1 == 0 { Kind::A } else { Kind::Aaaa };
    if mode & 2 == 0 {
        any(rest, kind);
        // The same behind a question that is ours, so that more than the first bytes matter.
        let mut packet = question(ID, NAME, kind).expect("a name");
        packet[2..4].copy_from_slice(&[0x81, 0x80]);
        packet[7] = rest.first().copied().unwrap_or(0);
        packet.extend_from_slice(rest);
        any(&packet, kind);
    } else {
        written(rest, kind);
    }
});

type Name = Vec<Vec<u8>>;

fn any(packet: &[u8], kind: Kind) {
    let Answer::Addresses(found) = answer(packet, ID, NAME, kind) else {
        return;
    };
    let expected = slowly(packet, kind).expect("it can be read");
    assert_eq!(found, expected);
}

/// Names from the question on: an alias leads from one to the next.
fn written(data: &[u8], kind: Kind) {
    let mut packet = question(ID, NAME, kind).expect("a name");
    packet[2..4].copy_from_slice(&[0x81, 0x80]);
    let mut count = 0_u8;
    let mut owner = vec![0xc0, 12];
    let mut expected: Vec<IpAddr> = Vec::new();
    for (place, chunk) in data.chunks(5).take(12).enumerate() {
        let [what, value @ ..] = chunk else {
            continue;
        };
        let mut record = |owner: &[u8], number: u16, class: u16, data: &[u8]| {
            packet.extend_from_slice(owner);
            packet.extend_from_slice(&number.to_be_bytes());
            packet.extend_from_slice(&class.to_be_bytes());
            packet.extend_from_slice(&[0, 0, 0, 60]);
            packet.extend_from_slice(&(data.len() as u16).to_be_bytes());
            packet.extend_from_slice(data);
            count += 1;
        };
        let mut bytes = vec![0; if kind == Kind::A { 4 } else { 16 }];
        bytes[..value.len()].copy_from_slice(value);
        let number = if kind == Kind::A { 1 } else { 28 };
        match what % 4 {
            0 => {
                record(&owner, number, 1, &bytes);
                expected.push(match kind {
                    Kind::A => <[u8; 4]>::try_from(&bytes[..]).expect("four").into(),
                    Kind::Aaaa => <[u8; 16]>::try_from(&bytes[..]).expect("sixteen").into(),
                });
            }
            // Of another name, and of another class.
            1 => record(b"\x05other\x00", number, 1, &bytes),
            2 => record(&owner, number, 3, &bytes),
            _ => {
                let alias = [
                    b"\x04n".as_slice(),
                    format!("{place:03}").as_bytes(),
                    b"\x00",
                ]
                .concat();
                record(&owner, 5, 1, &alias);
                owner = alias;
                // What the alias hides does not belong to the name.
                expected.clear();
            }
        }
    }
    packet[7] = count;
    assert_eq!(answer(&packet, ID, NAME, kind), Answer::Addresses(expected));
}

/// Reads an answer without limits but its own length.
fn slowly(packet: &[u8], kind: Kind) -> Option<Vec<IpAddr>> {
    let word = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    let number = if kind == Kind::A { 1 } else { 28 };
    (word(0)? == ID && packet[2] & 0x80 != 0 && word(4)? == 1).then_some(())?;
    let (asked, mut at) = name(packet, 12)?;
    let ours: Name = NAME
        .split('.')
        .map(|label| label.as_bytes().to_vec())
        .collect();
    (asked == ours && word(at)? == number && word(at + 2)? == 1).then_some(())?;
    at += 4;
    let mut records: Vec<(Name, u16, usize, &[u8])> = Vec::new();
    for _ in 0..word(6)? {
        let (owner, after) = name(packet, at)?;
        let len = usize::from(word(after + 8)?);
        let data = packet.get(after + 10..after + 10 + len)?;
        if word(after + 2)? == 1 {
            records.push((owner, word(after)?, after + 10, data));
        }
        at = after + 10 + len;
    }
    let mut wanted = ours;
    for _ in 0..16 {
        let alias = records.iter().find(|one| one.1 == 5 && one.0 == wanted);
        let Some((_, _, data, _)) = alias else {
            break;
        };
        wanted = name(packet, *data)?.0;
    }
    let own = records
        .iter()
        .filter(|one| one.1 == number && one.0 == wanted);
    let addresses = own.filter_map(|(_, _, _, data)| match kind {
        Kind::A => <[u8; 4]>::try_from(*data).ok().map(IpAddr::from),
        Kind::Aaaa => <[u8; 16]>::try_from(*data).ok().map(IpAddr::from),
    });
    Some(addresses.collect())
}

/// The labels of a name, in lower case, and the place behind it.
fn name(packet: &[u8], at: usize) -> Option<(Name, usize)> {
    let mut labels = Name::new();
    let mut here = at;
    let mut behind = None;
    let mut jumps = 0;
    loop {
        match *packet.get(here)? {
            0 => return Some((labels, behind.unwrap_or(here + 1))),
            len @ 1..=63 => {
                let label = packet.get(here + 1..here + 1 + usize::from(len))?;
                labels.push(label.to_ascii_lowercase());
                here += 1 + usize::from(len);
            }
            high @ 0xc0.. => {
                jumps += 1;
                (jumps < packet.len()).then_some(())?;
                behind = behind.or(Some(here + 2));
                here = usize::from(u16::from_be_bytes([high & 0x3f, *packet.get(here + 1)?]));
            }
            64..=0xbf => return None,
        }
    }
}
