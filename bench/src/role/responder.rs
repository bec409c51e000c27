//! The server under measurement: it answers each request with a result of the size that the request asks for.
//!
//! It must cost next to nothing, so it understands only our own client: it searches for `"id":` and `"size":` and does not parse.

use std::io;

use crate::talk::Writing;
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};

/// The size of the read buffer.
const CHUNK: usize = 256 * 1024;
/// The size of an answer if none is asked for.
const SMALL: usize = 64;

/// Answers until stdin ends: with one write for all that one read brought, or with one for each answer.
pub fn serve(writing: Writing) -> io::Result<()> {
    let mut input = vec![0; CHUNK];
    let mut held = 0;
    let mut answers = Vec::with_capacity(CHUNK);
    loop {
        if held == input.len() {
            input.resize(2 * held, 0);
        }
        let len = match rustix::io::read(stdin(), &mut input[held..]) {
            Ok(0) => return Ok(()),
            Ok(len) => len,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let end = held + len;
        let mut start = 0;
        let mut from = held;
        while let Some(newline) = memchr::memchr(b'\n', &input[from..end]) {
            answer(&input[start..from + newline], &mut answers);
            if writing == Writing::OneByOne {
                write_all(&answers)?;
                answers.clear();
            }
            start = from + newline + 1;
            from = start;
        }
        input.copy_within(start..end, 0);
        held = end - start;
        write_all(&answers)?;
        answers.clear();
    }
}

/// Writes all of it, and goes on after an interruption.
pub(super) fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stdout(), bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn answer(line: &[u8], into: &mut Vec<u8>) {
    let Some(id) = value(line, b"\"id\":") else {
        return;
    };
    let size = value(line, b"\"size\":").map_or(SMALL, number);
    let start = into.len();
    into.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    into.extend_from_slice(id);
    if line.len() < 400 && value(line, b"\"method\":") == Some(b"\"initialize\"") {
        into.extend_from_slice(
            br#","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"#,
        );
        into.extend_from_slice(br#""serverInfo":{"name":"bench","version":"1"}}}"#);
        into.push(b'\n');
        return;
    }
    into.extend_from_slice(br#","result":{"content":[{"type":"text","text":""#);
    let tail = b"\"}]}}\n";
    let end = (start + size).saturating_sub(tail.len()).max(into.len());
    into.resize(end, b'x');
    into.extend_from_slice(tail);
}

/// The token after a key. Our client puts the keys that matter at the front.
fn value<'l>(line: &'l [u8], key: &[u8]) -> Option<&'l [u8]> {
    let front = &line[..line.len().min(160)];
    let at = front.windows(key.len()).position(|part| part == key)? + key.len();
    let rest = line.get(at..)?;
    let end = rest.iter().position(|b| matches!(b, b',' | b'}'))?;
    Some(&rest[..end])
}

fn number(digits: &[u8]) -> usize {
    digits
        .iter()
        .fold(0, |number, digit| number * 10 + usize::from(digit & 15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_id_and_the_size_asked_for() {
        let mut out = Vec::new();
        let asked = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"arguments":{"size":200,"pad":""}}}"#;
        answer(asked, &mut out);
        assert_eq!(out.len(), 200);
        assert!(out.starts_with(br#"{"jsonrpc":"2.0","id":7,"result""#));
        assert!(out.ends_with(b"\n"));
        out.clear();
        answer(
            br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            &mut out,
        );
        assert!(out.is_empty());
    }
}
