//! A client that costs as little as possible: it makes its requests beforehand and only counts the answers.

use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;

use mainstay_os::clock;
use rustix::io::Errno;

/// The first id. All ids have seven digits, so that all requests have one size.
const FIRST_ID: usize = 1_000_000;

/// How many messages one write carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// As many as there are: the least that a relay can cost.
    InBulk,
    /// One, as MCP clients and servers do.
    OneByOne,
}

/// Requests of one size, made beforehand.
pub struct Requests {
    bytes: Vec<u8>,
    each: usize,
    count: usize,
}

impl Requests {
    /// This many calls of `size` bytes each, newline included, that ask for answers of `answer` bytes.
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

    /// This many pings. They can be sent again, so a death does not answer them with an error.
    pub fn pings(count: usize) -> Self {
        Self::made(count, |text, number, _| {
            writeln!(text, r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#).ok();
        })
    }

    /// This many subscriptions, each to its own resource.
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

    pub fn count(&self) -> usize {
        self.count
    }

    /// One of them. After the last, it starts again with the first.
    fn one(&self, number: usize) -> &[u8] {
        self.some(number % self.count, 1)
    }

    fn some(&self, first: usize, count: usize) -> &[u8] {
        &self.bytes[first * self.each..(first + count) * self.each]
    }
}

/// The client's ends, and a buffer for an answer.
pub struct Talk {
    to: OwnedFd,
    from: OwnedFd,
    room: Vec<u8>,
    asked: usize,
}

impl Talk {
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

    /// The first half: `initialize` and its answer.
    pub fn greet(&mut self) -> io::Result<()> {
        let hello = concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
            "\n"
        );
        self.send(hello.as_bytes())?;
        self.hear(1)
    }

    /// The second half, and the usual first request of a client: the list of tools.
    pub fn list(&mut self) -> io::Result<()> {
        self.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        self.send(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n")?;
        self.hear(1)
    }

    /// One request and its answer. Returns nanoseconds.
    pub fn ask(&mut self, requests: &Requests) -> io::Result<u64> {
        let request = requests.one(self.asked);
        self.asked += 1;
        let start = clock::now();
        send(&self.to, request)?;
        self.hear(1)?;
        Ok(clock::now() - start)
    }

    /// All requests, with at most `window` unanswered at a time. Returns nanoseconds.
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

    /// Waits for this many lines.
    fn hear(&mut self, mut lines: usize) -> io::Result<()> {
        while lines > 0 {
            lines = lines.saturating_sub(self.lines()?);
        }
        Ok(())
    }

    /// Reads once and returns how many lines ended in it.
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
