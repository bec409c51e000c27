//! A client that costs as little as possible: requests are made beforehand, answers are only counted.

use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;

use mainstay_os::clock;
use rustix::io::Errno;

/// The first id: all ids have seven digits, so that all requests have one size.
const FIRST_ID: usize = 1_000_000;

/// How many messages one write carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// As many as there are: the least that a relay can cost.
    InBulk,
    /// One, as MCP clients and servers do it.
    OneByOne,
}

/// Requests of one size, made beforehand.
pub struct Requests {
    bytes: Vec<u8>,
    each: usize,
    count: usize,
}

impl Requests {
    /// So many calls of `size` bytes each, newline included, that ask for answers of `answer` bytes.
    pub fn new(count: usize, size: usize, answer: usize) -> Self {
        let head = format!(
            r#""method":"tools/call","params":{{"name":"fill","arguments":{{"size":{answer},"pad":""#
        );
        Self::made(count, |text, number, start| {
            write!(text, r#"{{"jsonrpc":"2.0","id":{number},{head}"#).ok();
            let pad = size.saturating_sub(text.len() - start + "\"}}}\n".len());
            text.extend(std::iter::repeat_n('x', pad));
            text.push_str("\"}}}\n");
        })
    }

    /// So many pings: requests that a death does not answer, because they can be sent again.
    pub fn pings(count: usize) -> Self {
        Self::made(count, |text, number, _| {
            writeln!(text, r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#).ok();
        })
    }

    /// So many subscriptions, each to a resource of its own.
    pub fn subscriptions(count: usize) -> Self {
        Self::made(count, |text, number, _| {
            writeln!(
                text,
                r#"{{"jsonrpc":"2.0","id":{number},"method":"resources/subscribe","params":{{"uri":"note://bench/{number}"}}}}"#
            )
            .ok();
        })
    }

    fn made(count: usize, one: impl Fn(&mut String, usize, usize)) -> Self {
        let mut text = String::new();
        for number in 0..count {
            let start = text.len();
            one(&mut text, FIRST_ID + number, start);
        }
        Self {
            each: text.len() / count.max(1),
            bytes: text.into_bytes(),
            count,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// One of them; beyond the last the first comes again.
    fn one(&self, number: usize) -> &[u8] {
        self.some(number % self.count, 1)
    }

    fn some(&self, first: usize, count: usize) -> &[u8] {
        &self.bytes[first * self.each..(first + count) * self.each]
    }
}

/// The client's ends, and room for an answer.
pub struct Talk {
    to: OwnedFd,
    from: OwnedFd,
    room: Vec<u8>,
    asked: usize,
}

impl Talk {
    /// Over these.
    pub fn new(to: OwnedFd, from: OwnedFd) -> Self {
        Self {
            to,
            from,
            room: vec![0; 256 * 1024],
            asked: 0,
        }
    }

    /// The opening exchange of the legacy era.
    pub fn open(&mut self) -> io::Result<()> {
        self.greet()?;
        self.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")
    }

    /// Its first half: `initialize` and the answer to it.
    pub fn greet(&mut self) -> io::Result<()> {
        let hello = concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
            "\n"
        );
        self.send(hello.as_bytes())?;
        self.hear(1)
    }

    /// Its second half, and the first thing that a client asks for then: the list of tools.
    pub fn list(&mut self) -> io::Result<()> {
        self.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        self.send(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n")?;
        self.hear(1)
    }

    /// One request and its answer; nanoseconds.
    pub fn ask(&mut self, requests: &Requests) -> io::Result<u64> {
        let request = requests.one(self.asked);
        self.asked += 1;
        let start = clock::now();
        send(&self.to, request)?;
        self.hear(1)?;
        Ok(clock::now() - start)
    }

    /// All of them, with at most `window` unanswered at a time; nanoseconds.
    pub fn pipeline(
        &mut self,
        requests: &Requests,
        window: usize,
        writing: Writing,
    ) -> io::Result<u64> {
        let start = clock::now();
        let (mut sent, mut heard) = (0, 0);
        while heard < requests.count {
            let left = requests.count - sent;
            let room = window - (sent - heard);
            if left > 0 && room >= (window / 2).min(left) {
                let batch = room.min(left);
                match writing {
                    Writing::InBulk => send(&self.to, requests.some(sent, batch))?,
                    Writing::OneByOne => {
                        for number in sent..sent + batch {
                            send(&self.to, requests.some(number, 1))?;
                        }
                    }
                }
                sent += batch;
            }
            heard += self.lines()?;
        }
        Ok(clock::now() - start)
    }

    /// Waits for so many lines.
    fn hear(&mut self, mut lines: usize) -> io::Result<()> {
        while lines > 0 {
            lines = lines.saturating_sub(self.lines()?);
        }
        Ok(())
    }

    /// Reads once; how many lines ended in it.
    fn lines(&mut self) -> io::Result<usize> {
        let len = read(&self.from, &mut self.room)?;
        if len == 0 {
            return Err(io::Error::other("the server's answers ended too early"));
        }
        Ok(memchr::memchr_iter(b'\n', &self.room[..len]).count())
    }

    /// Reads the first line, which must come at once and alone.
    pub fn first_line(&mut self) -> io::Result<&[u8]> {
        let len = read(&self.from, &mut self.room)?;
        Ok(&self.room[..len])
    }

    /// Closes our end and waits until the other side has closed its own.
    pub fn close(self) -> io::Result<()> {
        let Self {
            to, from, mut room, ..
        } = self;
        drop(to);
        while read(&from, &mut room)? > 0 {}
        Ok(())
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        send(&self.to, bytes)
    }
}

fn send(to: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn read(from: &OwnedFd, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(from, &mut *room) {
            Ok(len) => return Ok(len),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_messages_of_the_size_asked_for() {
        for size in [200, 10_000] {
            let requests = Requests::new(3, size, 77);
            for number in 0..4 {
                let line = requests.one(number);
                assert_eq!(line.len(), size);
                assert_eq!(memchr::memchr(b'\n', line), Some(size - 1));
            }
            assert_ne!(requests.one(0), requests.one(1));
            assert_eq!(requests.one(0), requests.one(3));
        }
        for requests in [Requests::pings(3), Requests::subscriptions(3)] {
            for number in 0..3 {
                assert!(requests.one(number).ends_with(b"}\n"));
                assert!(requests.one(number).starts_with(b"{"));
            }
        }
    }
}
