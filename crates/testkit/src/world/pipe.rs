//! A pipe: bytes in order, limited room, and two ends that may close.

use std::collections::VecDeque;

use mainstay_core::relay;

/// One pipe.
#[derive(Debug)]
pub struct Pipe {
    bytes: VecDeque<u8>,
    room: usize,
    /// No process writes.
    pub writer_gone: bool,
    /// No process reads.
    pub reader_gone: bool,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Something.
    Bytes(Vec<u8>),
    /// Nothing yet.
    Nothing,
    /// Nothing ever.
    End,
}

/// The reader is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl Pipe {
    /// An empty one with this much room.
    pub fn new(room: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            room,
            writer_gone: false,
            reader_gone: false,
        }
    }

    /// Writes as much as there is room for.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        if self.reader_gone {
            return Err(Broken);
        }
        let len = bytes.len().min(self.room - self.bytes.len());
        self.bytes.extend(&bytes[..len]);
        Ok(len)
    }

    /// Reads up to this many bytes.
    pub fn read(&mut self, most: usize) -> Read {
        if self.bytes.is_empty() {
            return if self.writer_gone {
                Read::End
            } else {
                Read::Nothing
            };
        }
        let mut bytes = vec![0; most.min(self.bytes.len())];
        self.take_into(&mut bytes);
        Read::Bytes(bytes)
    }

    /// Reads into a buffer of the keeper.
    pub fn give(&mut self, into: &mut [u8]) -> relay::Read {
        match self.take_into(into) {
            0 if self.writer_gone => relay::Read::End,
            0 => relay::Read::Nothing,
            len => relay::Read::Bytes(len),
        }
    }

    /// Takes what fits into a buffer, in whole pieces, because a byte at a time costs a fifth of a story.
    fn take_into(&mut self, into: &mut [u8]) -> usize {
        let (first, second) = self.bytes.as_slices();
        let len = into.len().min(first.len() + second.len());
        let of_first = len.min(first.len());
        into[..of_first].copy_from_slice(&first[..of_first]);
        into[of_first..len].copy_from_slice(&second[..len - of_first]);
        self.bytes.drain(..len);
        len
    }

    /// Writes bytes of the keeper.
    pub fn put(&mut self, bytes: &[u8]) -> relay::Wrote {
        match self.write(bytes) {
            Ok(0) => relay::Wrote::Full,
            Ok(len) => relay::Wrote::Took(len),
            Err(Broken) => relay::Wrote::Broken,
        }
    }

    /// Takes out all that is in it.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes).into()
    }

    /// How much is in it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// The beginning of a line.
    pub fn rest(&self) -> &[u8] {
        &self.0
    }

    /// The lines that these bytes complete, each with its newline.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.0.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                lines.push(std::mem::take(&mut self.0));
            }
        }
        lines
    }
}
