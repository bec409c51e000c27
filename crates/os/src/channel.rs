//! The messages between shim, guard and keeper, over packet sockets that no child inherits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mainstay_protocol::ids::Identity;
use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair,
};

use crate::sender::LOOK_BYTES;
use crate::signals::Received;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the shim: this guard and this keeper work for you from now on.
    Here {
        /// The guard.
        guard: Identity,
        /// The keeper.
        keeper: Identity,
    },
    /// To the shim: the work is done, exit with this code.
    Finished {
        /// The exit code.
        code: u8,
    },
    /// To the shim: no keeper stays alive, and no process of the tree is left.
    GaveUp,
    /// To the keeper: the shim got this signal.
    Signalled(Received),
    /// To a shim that was signalled: exit, the keeper knows all that it can learn.
    Leave,
    /// To a shim that was signalled, once for each such signal: the client did not send it, so stay.
    Stay,
    /// To the guard: release the client's pipes.
    Release,
    /// To the guard: this process is the client now.
    Client(Identity),
    /// To the keeper: the client seems to be gone. Do you make progress?
    Ask,
    /// To the guard: yes, the keeper makes progress.
    Answer,
    /// To the guard: a client has come back. With the message come its stdin, stdout and stderr and the channel to
    /// its shim.
    Attach,
    /// To the guard: the server was spawned, or could not be. Work that was put off for the start may begin. With the
    /// message come the descriptors that hold the link's lock.
    Spawned,
}

/// One end of a packet socket.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Two connected ends, non-blocking and close-on-exec.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// An end that another process has sent us. Its maker has made it non-blocking.
    pub fn of(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends a message. A peer that is gone or does not read is no error here: its death is noticed elsewhere.
    pub fn say(&self, word: Word) {
        let bytes = encode(word);
        // Best effort by contract. NOSIGNAL, because a dead peer must not end us.
        send(&self.0, &bytes, SendFlags::NOSIGNAL).ok();
    }

    /// Sends a message and copies of at most [`LENT_MAX`] descriptors.
    pub fn say_with(&self, word: Word, lent: &[BorrowedFd<'_>]) {
        let bytes = encode(word);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(LENT_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if lent.is_empty() || !control.push(SendAncillaryMessage::ScmRights(lent)) {
            return self.say(word);
        }
        // Best effort, as for a message alone.
        sendmsg(
            &self.0,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
        .ok();
    }

    /// Receives a message and appends the descriptors that came with it to `lent`.
    pub fn hear_with(&self, lent: &mut Vec<OwnedFd>) -> Heard {
        let mut bytes = [0u8; PACKET];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(LENT_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
        .map(|message| message.bytes);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                lent.extend(fds);
            }
        }
        heard(got, &bytes)
    }

    /// Passes a signal on, followed by what [`crate::sender::look`] saw of its sender.
    pub fn say_signalled(&self, received: Received, seen: &[u8]) {
        let bytes = encode(Word::Signalled(received));
        let parts = [IoSlice::new(&bytes), IoSlice::new(seen)];
        // Best effort, as for a message alone.
        sendmsg(
            &self.0,
            &parts,
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        )
        .ok();
    }

    /// Receives a message; `behind` gets the bytes that followed it.
    pub fn hear_behind(&self, behind: &mut Vec<u8>) -> Heard {
        let mut bytes = [0u8; PACKET + LOOK_BYTES];
        let got = recv(&self.0, &mut bytes, RecvFlags::empty()).map(|(len, _)| len);
        let (word, rest) = bytes.split_at(PACKET);
        behind.clear();
        let more = got.unwrap_or(0).saturating_sub(PACKET);
        behind.extend_from_slice(&rest[..more]);
        word.try_into()
            .map_or(Heard::Nothing, |word| heard(got, word))
    }

    /// Receives a message and drops the bytes that followed it.
    pub fn hear(&self) -> Heard {
        let mut bytes = [0u8; PACKET];
        let got = recv(&self.0, &mut bytes, RecvFlags::empty()).map(|(_, len)| len);
        heard(got, &bytes)
    }

    /// Another descriptor of the same end.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for Channel {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Word(Word),
    /// No message has arrived yet.
    Nothing,
    /// The other end is closed.
    Closed,
}

const PACKET: usize = 32;
/// The most descriptors that come with one message.
pub const LENT_MAX: usize = 4;

fn heard(got: rustix::io::Result<usize>, bytes: &[u8; PACKET]) -> Heard {
    match got {
        Ok(0) => Heard::Closed,
        Ok(len) => decode(&bytes[..len.min(PACKET)]).map_or(Heard::Nothing, Heard::Word),
        Err(error) if error == rustix::io::Errno::AGAIN || error == rustix::io::Errno::INTR => {
            Heard::Nothing
        }
        Err(_) => Heard::Closed,
    }
}

fn encode(word: Word) -> [u8; PACKET] {
    let mut out = [0u8; PACKET];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    match word {
        Word::Here { guard, keeper } => {
            put(0, &[1]);
            put(4, &guard.pid.to_le_bytes());
            put(8, &guard.start.to_le_bytes());
            put(16, &keeper.pid.to_le_bytes());
            put(20, &keeper.start.to_le_bytes());
        }
        Word::Finished { code } => put(0, &[2, code]),
        Word::Signalled(Received {
            number,
            code,
            pid,
            uid,
        }) => {
            put(0, &[3]);
            put(4, &number.to_le_bytes());
            put(8, &code.to_le_bytes());
            put(12, &pid.to_le_bytes());
            put(16, &uid.to_le_bytes());
        }
        Word::Release => put(0, &[4]),
        Word::Spawned => put(0, &[5]),
        Word::Leave => put(0, &[6]),
        Word::Attach => put(0, &[7]),
        Word::GaveUp => put(0, &[8]),
        Word::Client(Identity { pid, start }) => {
            put(0, &[9]);
            put(4, &pid.to_le_bytes());
            put(8, &start.to_le_bytes());
        }
        Word::Ask => put(0, &[10]),
        Word::Answer => put(0, &[11]),
        Word::Stay => put(0, &[12]),
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Word> {
    let bytes: &[u8; PACKET] = bytes.try_into().ok()?;
    let i32_at =
        |at: usize| i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| u64::from(i32_at(at) as u32) | u64::from(i32_at(at + 4) as u32) << 32;
    match bytes[0] {
        1 => Some(Word::Here {
            guard: Identity {
                pid: i32_at(4),
                start: u64_at(8),
            },
            keeper: Identity {
                pid: i32_at(16),
                start: u64_at(20),
            },
        }),
        2 => Some(Word::Finished { code: bytes[1] }),
        3 => Some(Word::Signalled(Received {
            number: i32_at(4),
            code: i32_at(8),
            pid: i32_at(12),
            uid: i32_at(16) as u32,
        })),
        4 => Some(Word::Release),
        5 => Some(Word::Spawned),
        6 => Some(Word::Leave),
        7 => Some(Word::Attach),
        8 => Some(Word::GaveUp),
        9 => Some(Word::Client(Identity {
            pid: i32_at(4),
            start: u64_at(8),
        })),
        10 => Some(Word::Ask),
        11 => Some(Word::Answer),
        12 => Some(Word::Stay),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_unchanged() {
        let _lock = crate::child_lock::without_children();
        let (a, b) = Channel::pair().unwrap();
        let words = [
            Word::Here {
                guard: Identity {
                    pid: 7,
                    start: u64::MAX - 1,
                },
                keeper: Identity {
                    pid: i32::MAX,
                    start: 1 << 40,
                },
            },
            Word::Finished { code: 143 },
            Word::Signalled(Received {
                number: 15,
                code: -1,
                pid: 42,
                uid: u32::MAX,
            }),
            Word::Release,
            Word::Spawned,
            Word::Leave,
            Word::Attach,
            Word::GaveUp,
            Word::Client(Identity {
                pid: 7,
                start: u64::MAX - 1,
            }),
            Word::Ask,
            Word::Answer,
            Word::Stay,
        ];
        for word in words {
            a.say(word);
            assert_eq!(b.hear(), Heard::Word(word));
        }
        assert_eq!(b.hear(), Heard::Nothing);
        drop(a);
        assert_eq!(b.hear(), Heard::Closed);
        b.say(Word::Release);
    }

    #[test]
    fn descriptors_arrive_with_their_message() {
        let _lock = crate::child_lock::without_children();
        let (a, b) = Channel::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        a.say_with(Word::Spawned, &[read.as_fd(), write.as_fd()]);
        a.say_with(Word::Release, &[]);
        drop((read, write));
        let mut lent = Vec::new();
        assert_eq!(b.hear_with(&mut lent), Heard::Word(Word::Spawned));
        assert_eq!(b.hear_with(&mut lent), Heard::Word(Word::Release));
        assert_eq!(lent.len(), 2);
        rustix::io::write(&lent[1], b"!").unwrap();
        assert_eq!(rustix::io::read(&lent[0], &mut [0; 4]).unwrap(), 1);
        drop(a);
        assert_eq!(b.hear_with(&mut lent), Heard::Closed);
    }

    #[test]
    fn look_at_the_sender_follows_the_signal() {
        let _lock = crate::child_lock::without_children();
        let (a, b) = Channel::pair().unwrap();
        let received = Received {
            number: 15,
            code: 0,
            pid: 42,
            uid: 0,
        };
        let mut behind = vec![1];
        for seen in [&[][..], &[7; 3], &[7; LOOK_BYTES]] {
            a.say_signalled(received, seen);
            let heard = b.hear_behind(&mut behind);
            assert_eq!(heard, Heard::Word(Word::Signalled(received)));
            assert_eq!(behind, seen);
            a.say_signalled(received, seen);
            assert_eq!(b.hear(), Heard::Word(Word::Signalled(received)));
        }
        assert_eq!(b.hear_behind(&mut behind), Heard::Nothing);
        drop(a);
        assert_eq!(b.hear_behind(&mut behind), Heard::Closed);
    }

    #[test]
    fn foreign_packet_is_ignored() {
        assert_eq!(decode(b"hello"), None);
        assert_eq!(decode(&[99; PACKET]), None);
    }
}
