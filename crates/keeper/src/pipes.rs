//! The descriptors as the relay sees them.

use std::io;
use std::task::Poll;

use mainstay_core::relay::{Read, Shell, Sight, Wrote};
use mainstay_protocol::clock::Moment;
use mainstay_protocol::frames::Side;
use mainstay_protocol::limits::WHOLE_LINE_BYTES;
use mainstay_protocol::message::frame::Frame;

use super::client::Client;
use super::frames::Frames;
use super::port::Port;
use super::server::Running;

/// The pipes of client and server, and the frames part, which sees the messages in them.
pub(super) struct Pipes<'k> {
    client: &'k Client,
    server: Option<&'k mut Running>,
    frames: &'k mut Frames,
    client_may_speak: bool,
    moved: bool,
}

impl<'k> Pipes<'k> {
    /// `client_may_speak`: what earlier sessions saw is read. It may answer the client's lines, so it comes before them.
    pub(super) fn new(
        client: &'k Client,
        server: Option<&'k mut Running>,
        frames: &'k mut Frames,
        client_may_speak: bool,
    ) -> Self {
        Self {
            client,
            server,
            frames,
            client_may_speak,
            moved: false,
        }
    }

    /// Whether the server has said something, or the client has got something.
    pub(super) fn moved(&self) -> bool {
        self.moved
    }

    fn server_stdin(&self) -> Option<&Port> {
        self.server.as_deref().and_then(Running::stdin)
    }
}

impl Shell for Pipes<'_> {
    fn read_client(&mut self, into: &mut [u8]) -> Read {
        read(self.client.stdin(), into)
    }

    fn read_server(&mut self, into: &mut [u8]) -> Read {
        let stdout = self.server.as_deref().and_then(Running::stdout);
        let read = read(stdout, into);
        self.moved |= read != Read::Nothing;
        read
    }

    fn write_client(&mut self, bytes: &[u8]) -> Wrote {
        let wrote = write(self.client.stdout(), bytes);
        self.moved |= wrote != Wrote::Full;
        wrote
    }

    fn write_server(&mut self, bytes: &[u8]) -> Wrote {
        write(self.server_stdin(), bytes)
    }

    fn client_may_speak(&self) -> bool {
        self.client_may_speak
    }

    fn client_hung_up(&self) -> bool {
        self.client.stdin().is_some_and(Port::hung_up)
    }

    fn server_left_unread(&self) -> bool {
        self.server_stdin().is_some_and(Port::left_unread)
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
