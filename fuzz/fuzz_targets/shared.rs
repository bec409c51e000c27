//! One server for many clients: any bodies of clients, any lines of the server, in any order. Each answer goes to
//! the client that asked, once, and has that client's id, however the id is read.
//!
//! The input is a row of steps: what to do, how long, and that many bytes. In them `@0` to `@9` stand for the last ids of ours, as if
//! every client knew them.
#![no_main]

use std::cell::Cell;

use mainstay_fuzz::json::{Read, Value, What, read};
use mainstay_http_core::serve::posted::{self, Kind, Posted};
use mainstay_http_core::serve::relabel::{Relabel, Relabelled};
use mainstay_http_core::serve::shared_server::{SharedServer, To};

use libfuzzer_sys::fuzz_target;

thread_local! {
    static DRAWN: Cell<u128> = const { Cell::new(0) };
}

fn draw() -> u128 {
    DRAWN.set(DRAWN.get() + 1);
    DRAWN
        .get()
        .wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

fuzz_target!(|data: &[u8]| {
    many_clients(data);
    many_sessions(data);
});

/// A request that is not answered yet.
struct Open {
    key: u64,
    label: Vec<u8>,
    id: Vec<u8>,
}

fn steps(mut data: &[u8], mut each: impl FnMut(u8, &[u8])) {
    while let [what, len, rest @ ..] = data {
        let (bytes, after) = rest.split_at(rest.len().min(usize::from(*len)));
        each(*what, bytes);
        data = after;
    }
}

/// Puts ids of ours in their places.
fn filled(bytes: &[u8], labels: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes.iter();
    while let Some(&byte) = rest.next() {
        let place = rest.as_slice().first().filter(|_| byte == b'@');
        let place = place.and_then(|digit| usize::from(*digit).checked_sub(usize::from(b'0')));
        match place.and_then(|place| labels.iter().rev().nth(place)) {
            Some(label) => {
                out.extend_from_slice(label);
                rest.next();
            }
            None => out.push(byte),
        }
    }
    out
}

/// The one id of a line; none if there are several, or none.
fn only_id(line: &[u8]) -> Option<Vec<u8>> {
    match read(line) {
        Read::Json(value) => match value.all("id")[..] {
            [id] => Some(id.raw.to_vec()),
            _ => None,
        },
        Read::NotJson | Read::TooDeep => None,
    }
}

/// Whether every reader takes a line for the answer to this request.
fn answers(line: &[u8], label: &[u8]) -> bool {
    let Read::Json(value) = read(line) else {
        return false;
    };
    let one = |key: &str| value.all(key).len() == 1;
    let verb = one("result") && value.all("error").is_empty()
        || one("error") && value.all("result").is_empty() && !is_null(&value, "error");
    let half = |unit: &u16| (0xd800..0xe000).contains(unit);
    let odd = value.members().iter().any(|(key, _)| key.iter().any(half));
    verb && !odd
        && value.all("method").is_empty()
        && only_id(line).as_deref() == Some(label)
        && matches!(value.what, What::Object(_))
}

fn is_null(value: &Value<'_>, key: &str) -> bool {
    value.all(key).iter().any(|value| value.raw == b"null")
}

fn many_clients(data: &[u8]) {
    let mut shared = Relabel::new(draw);
    let mut labels: Vec<Vec<u8>> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    steps(data, |what, bytes| {
        let line = filled(bytes, &labels);
        match what % 3 {
            0 => {
                // As the front does: what it has read from a body goes on as one line.
                let Ok(line) = posted::line(&line) else {
                    return;
                };
                let Ok(posted) = Posted::read(&line) else {
                    return;
                };
                let Some((key, told)) = shared.asked(&posted, &line) else {
                    return;
                };
                let Kind::Request(id) = posted.kind else {
                    panic!("only a request is asked");
                };
                let label = only_id(&told).expect("the server sees one id");
                assert!(!labels.contains(&label) && label != id, "an id of its own");
                labels.push(label.clone());
                open.push(Open {
                    key,
                    label,
                    id: id.to_vec(),
                });
            }
            1 => {
                let awaited = open.iter().any(|one| answers(&line, &one.label));
                match shared.heard(&line) {
                    Relabelled::Last(key, answer) => {
                        let at = open.iter().position(|one| one.key == key);
                        let one = open.remove(at.expect("it is answered once"));
                        assert_eq!(only_id(&answer), Some(one.id), "it has its own id");
                        let label = String::from_utf8_lossy(&one.label).into_owned();
                        assert!(
                            String::from_utf8_lossy(&line).contains(&label),
                            "the line has named it"
                        );
                    }
                    Relabelled::On(key, _) => assert!(open.iter().any(|one| one.key == key)),
                    Relabelled::Ours(..) => panic!("nothing of ours was asked"),
                    Relabelled::NoRequest => assert!(!awaited, "an answer is lost"),
                }
            }
            _ => {
                let place = bytes.first().map_or(0, |byte| usize::from(*byte));
                if let Some(at) = place.checked_rem(open.len()) {
                    let one = open.remove(at);
                    assert!(shared.cancel(one.key).is_some());
                }
            }
        }
        assert_eq!(shared.len(), open.len());
    });
}

fn many_sessions(data: &[u8]) {
    let mut joint = SharedServer::new(draw);
    joint.open("1");
    joint.join(0);
    joint.join(1);
    let mut labels: Vec<Vec<u8>> = Vec::new();
    // The session, our id, and its id.
    let mut open: Vec<(u64, Vec<u8>, Vec<u8>)> = Vec::new();
    steps(data, |what, bytes| {
        let line = filled(bytes, &labels);
        let session = u64::from(what / 4 % 2);
        if what % 4 < 2 {
            let Ok(line) = posted::line(&line) else {
                return;
            };
            let Ok(posted) = Posted::read(&line) else {
                return;
            };
            let Kind::Request(id) = posted.kind else {
                joint.said(session, &posted, &line);
                return;
            };
            // The front refuses a second request with an id that waits already.
            if open.iter().any(|one| (one.0, &one.2[..]) == (session, id)) {
                return;
            }
            for to in joint.said(session, &posted, &line) {
                match to {
                    To::Server(told) => {
                        let label = only_id(told.trim_ascii()).expect("the server sees one id");
                        assert!(!labels.contains(&label), "an id of its own");
                        labels.push(label.clone());
                        open.push((session, label, id.to_vec()));
                    }
                    To::Session(to, answer) => {
                        assert_eq!((to, only_id(&answer)), (session, Some(id.to_vec())));
                    }
                }
            }
        } else {
            let named = String::from_utf8_lossy(&line).into_owned();
            for to in joint.heard(&line) {
                let To::Session(session, told) = to else {
                    continue;
                };
                let Read::Json(value) = read(&told) else {
                    continue;
                };
                if value.all("id").is_empty() || !value.all("method").is_empty() {
                    continue;
                }
                let id = only_id(&told).expect("an answer has one id");
                let of = |one: &(u64, Vec<u8>, Vec<u8>)| {
                    let label = String::from_utf8_lossy(&one.1);
                    one.0 == session && one.2 == id && named.contains(&*label)
                };
                let at = open.iter().position(of);
                open.remove(at.expect("this session has asked it, and the line has named it"));
            }
        }
    });
}
