//! Lines on the server's stdout that are no messages: counted, and told now and then.

use alloc::string::{String, ToString};

use mainstay_protocol::event::Junk;

/// Lines on stdout that are no messages.
#[derive(Debug, Default)]
pub(super) struct JunkCount {
    lines: u64,
    told: u64,
    /// The beginning of the first one.
    sample: String,
}

impl JunkCount {
    /// One more; none if it was too long to be seen. Told once per power of ten: a server that logs to stdout must not fill the event files.
    pub fn count(&mut self, line: Option<&[u8]>) -> Option<Junk> {
        if self.lines == 0 {
            let line = line.unwrap_or(LONG);
            let sample = String::from_utf8_lossy(&line[..line.len().min(SAMPLE_BYTES)]);
            self.sample = sample.trim_end().to_string();
        }
        self.lines += 1;
        if power_of_ten(self.lines) {
            self.rest()
        } else {
            None
        }
    }

    /// The sum, if it was not told yet.
    pub fn rest(&mut self) -> Option<Junk> {
        let sample = self.sample.clone();
        let lines = self.lines;
        (core::mem::replace(&mut self.told, lines) < lines).then_some(Junk { lines, sample })
    }
}

/// Bytes of a line that are shown.
const SAMPLE_BYTES: usize = 120;
/// What is shown of a line that was too long to be seen.
const LONG: &[u8] = b"(a long line)";

fn power_of_ten(mut n: u64) -> bool {
    while n >= 10 && n.is_multiple_of(10) {
        n /= 10;
    }
    n == 1
}
