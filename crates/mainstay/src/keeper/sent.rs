//! The last bytes that went into a server's stdin: as many as its pipe can hold.
//!
//! A server that dies leaves unread what it had not come to. The kernel knows how many bytes that are, and these are the
//! last ones that were sent: whole lines that nobody has seen, and that can be sent to the next generation whatever they ask.

use mainstay_os::memory;

/// A pipe's size, unless somebody changed it; a larger one only means that less is known.
const PIPE_BYTES: usize = 64 * 1024;

/// A ring of the bytes that were sent last.
pub struct Sent {
    ring: Box<[u8]>,
    /// Where the next byte goes.
    at: usize,
    /// How many are there.
    len: usize,
    /// Whether there were more.
    overwritten: bool,
}

impl Sent {
    /// Nothing was sent yet.
    pub fn new() -> Self {
        Self {
            ring: vec![0; PIPE_BYTES].into_boxed_slice(),
            at: 0,
            len: 0,
            overwritten: false,
        }
    }

    /// These were sent.
    pub fn add(&mut self, bytes: &[u8]) {
        let size = self.ring.len();
        self.overwritten |= bytes.len() > size;
        let bytes = &bytes[bytes.len().saturating_sub(size)..];
        let (first, rest) = bytes.split_at(bytes.len().min(size - self.at));
        self.ring[self.at..self.at + first.len()].copy_from_slice(first);
        self.ring[..rest.len()].copy_from_slice(rest);
        self.at = (self.at + bytes.len()) % size;
        self.overwritten |= self.len + bytes.len() > size;
        self.len = size.min(self.len + bytes.len());
    }

    /// The lines of which the last `unread` bytes are the end: a line that was read in part was not understood either.
    pub fn lines(&self, unread: usize) -> Vec<u8> {
        let unread = unread.min(self.len);
        if unread == 0 {
            return Vec::new();
        }
        let byte = |back: usize| self.ring[(self.at + self.ring.len() - back) % self.ring.len()];
        let mut from = unread;
        while from < self.len && byte(from + 1) != b'\n' {
            from += 1;
        }
        if from == self.len && self.overwritten {
            // Its beginning has been overwritten: on to the next line.
            while from > 0 && byte(from) != b'\n' {
                from -= 1;
            }
            from = from.saturating_sub(1);
        }
        (0..from).rev().map(|back| byte(back + 1)).collect()
    }

    /// A new generation has not been sent anything.
    pub fn clear(&mut self) {
        (self.at, self.len, self.overwritten) = (0, 0, false);
    }

    /// Nothing is on its way: the memory is given back until it is needed again.
    pub fn give_back(&mut self) {
        self.clear();
        memory::give_back(&mut self.ring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(bytes: &[&str]) -> Sent {
        let mut sent = Sent {
            ring: vec![0; 10].into_boxed_slice(),
            at: 0,
            len: 0,
            overwritten: false,
        };
        for part in bytes {
            sent.add(part.as_bytes());
        }
        sent
    }

    #[test]
    fn unread_bytes_make_whole_lines() {
        for (sent, unread, lines) in [
            (&["ab\n", "cd\n"][..], 0, ""),
            (&["ab\n", "cd\n"], 3, "cd\n"),
            (&["ab\n", "cd\n"], 1, "cd\n"),
            (&["ab\n", "cd\n"], 4, "ab\ncd\n"),
            (&["ab\n", "cd\n"], 99, "ab\ncd\n"),
            (&["ab\n", "c"], 1, "c"),
            // Overwritten beginnings are not made up.
            (&["0123456", "789\nab\n"], 10, "ab\n"),
            (&["0123456", "789\nab\n"], 2, "ab\n"),
            (&["0123456789abcdef"], 10, ""),
            (&["123456789\n"], 10, "123456789\n"),
        ] {
            let told = small(sent).lines(unread);
            assert_eq!(String::from_utf8_lossy(&told), lines, "{sent:?} {unread}");
        }
    }

    #[test]
    fn a_new_generation_has_read_nothing() {
        let mut sent = small(&["ab\n"]);
        sent.clear();
        assert_eq!(sent.lines(3), b"");
        sent.add(b"x\n");
        assert_eq!(sent.lines(2), b"x\n");
    }
}
