//! The descriptors as the relay sees them, and the calls into it.

use std::io;
use std::task::Poll;

use mainstay_core::clock::Moment;
use mainstay_core::event::{Cause, Pipe, PipeEnd, What};
use mainstay_core::frames::Side;
use mainstay_core::limits::{self, WHOLE_LINE_BYTES};
use mainstay_core::link::Input;
use mainstay_core::message::frame::Frame;
use mainstay_core::relay::{Read, Relay, Shell, Sight, Wrote};
use mainstay_os::identity;

use super::Keeper;
use super::introduce::Introduction;
use super::port::Port;
use super::server::Running;
use super::tap::Frames;

/// The pipes of client and server, and what watches the messages in them.
pub(super) struct Pipes<'k> {
    client_in: Option<&'k Port>,
    client_out: Option<&'k Port>,
    server: Option<&'k mut Running>,
    frames: &'k mut Frames,
    /// What is remembered was read: it may answer the client's lines, so it comes before them.
    recalled: bool,
    /// The server has said something, or the client has got something.
    moved: bool,
}

impl Keeper<'_> {
    /// Moves every byte that can move; true if more may move at once.
    pub(super) fn move_bytes(&mut self) -> bool {
        let (again, moved) = self.with_relay(|relay, now, pipes| {
            let again = relay.turn(now, pipes);
            (again, pipes.moved)
        });
        if moved && self.note_at.is_none() {
            self.note_at = Some(self.noted_at.after_ms(limits::NOTE_AGAIN_MS));
        }
        again
    }

    pub(super) fn handle(&mut self, input: Input) {
        self.with_relay(|relay, now, pipes| relay.handle(now, input, pipes));
    }

    pub(super) fn with_relay<T>(
        &mut self,
        call: impl FnOnce(&mut Relay<'static>, Moment, &mut Pipes<'_>) -> T,
    ) -> T {
        let mut pipes = Pipes {
            client_in: self.client_in.as_ref(),
            client_out: self.client_out.as_ref(),
            server: self.server.as_mut(),
            frames: &mut self.frames,
            recalled: self
                .introduction
                .as_ref()
                .is_none_or(Introduction::has_recalled),
            moved: false,
        };
        call(&mut self.relay, self.now, &mut pipes)
    }

    /// The client's lines have ended: it has closed its pipe, or it is gone.
    pub(super) fn client_ended(&mut self) {
        self.client_in = None;
        self.tell_pipe_end(Pipe::ClientStdin);
        let gone = self.client.is_some_and(|client| !identity::alive(client));
        self.handle(if gone {
            Input::Stop(Cause::ClientGone)
        } else {
            Input::ClientEof
        });
    }

    /// The server's stdin has no reader: the server has ended, or it is stopped.
    pub(super) fn server_deaf(&mut self) {
        self.tell_pipe_end(Pipe::ServerStdin);
        self.reap();
        let ended = |server: &Running| server.exit.is_some();
        if !self.server.as_ref().is_some_and(ended) || self.relay.exit_told() {
            self.handle(Input::Stop(Cause::ServerExit));
        }
    }

    pub(super) fn tell_pipe_end(&mut self, pipe: Pipe) {
        let generation = self.relay.link().generation();
        self.tell(What::PipeEnd(PipeEnd { pipe, generation }));
    }
}

impl Shell for Pipes<'_> {
    fn read_client(&mut self, into: &mut [u8]) -> Read {
        read(self.client_in, into)
    }

    fn read_server(&mut self, into: &mut [u8]) -> Read {
        let stdout = self.server.as_ref().and_then(|it| it.stdout.as_ref());
        let read = read(stdout, into);
        self.moved |= read != Read::Nothing;
        read
    }

    fn write_client(&mut self, bytes: &[u8]) -> Wrote {
        let wrote = write(self.client_out, bytes);
        self.moved |= wrote != Wrote::Full;
        wrote
    }

    fn write_server(&mut self, bytes: &[u8]) -> Wrote {
        let stdin = self.server.as_ref().and_then(|it| it.stdin.as_ref());
        write(stdin, bytes)
    }

    fn client_may_speak(&self) -> bool {
        self.recalled
    }

    fn client_hung_up(&self) -> bool {
        self.client_in.is_some_and(Port::hung_up)
    }

    fn server_left_unread(&self) -> bool {
        let stdin = self.server.as_ref().and_then(|it| it.stdin.as_ref());
        stdin.is_some_and(Port::left_unread)
    }

    fn take_unread(&mut self) -> Option<Vec<u8>> {
        self.server.as_mut()?.take_unread()
    }

    fn watched(&self) -> bool {
        self.frames.watched()
    }

    #[inline]
    fn passed(&mut self, now: Moment, from: Side, frame: &Frame<'_>) {
        self.frames.passed(now, from, frame);
    }

    #[inline]
    fn saw(&mut self, now: Moment, generation: u32, sight: Sight<'_>) {
        let frames = &mut *self.frames;
        match sight {
            Sight::Line {
                from,
                frame,
                bytes,
                route,
            } => frames.line(now, from, frame, bytes, route, generation),
            Sight::LongBegins { from, bytes, .. } => frames.long_begins(from, bytes),
            Sight::LongEnds {
                from,
                frame,
                passed,
            } => frames.long_ends(now, from, frame, passed, generation),
            Sight::Ours { to, line } => frames.ours(now, to, line, generation),
            Sight::Settled => frames.settled(),
            Sight::Unread(_)
            | Sight::Releasing
            | Sight::TornAtServer
            | Sight::Delivered
            | Sight::OursDelivered => {}
        }
    }
}

/// A pipe that cannot be read has ended.
fn read(from: Option<&Port>, into: &mut [u8]) -> Read {
    let Some(from) = from else {
        return Read::End;
    };
    match from.poll_read(into) {
        Poll::Pending => Read::Nothing,
        Poll::Ready(Ok(0) | Err(_)) => Read::End,
        Poll::Ready(Ok(len)) => {
            if len >= WHOLE_LINE_BYTES {
                from.widen();
            }
            Read::Bytes(len)
        }
    }
}

fn write(to: Option<&Port>, bytes: &[u8]) -> Wrote {
    let wrote: Poll<io::Result<usize>> = match to {
        Some(to) => to.poll_write(bytes),
        None => return Wrote::Broken,
    };
    match wrote {
        Poll::Pending => Wrote::Full,
        Poll::Ready(Ok(len)) => Wrote::Took(len),
        Poll::Ready(Err(_)) => Wrote::Broken,
    }
}
