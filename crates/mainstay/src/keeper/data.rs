//! The data itself: both directions, and our own lines between the others'.

use std::task::Poll;

use mainstay_core::clock::Moment;
use mainstay_core::event::{Cause, Pipe, PipeEnd, What};
use mainstay_core::frames::Side;
use mainstay_core::limits;
use mainstay_core::link::{Input, Link, Route};
use mainstay_os::identity;

use super::port::Port;
use super::pump::{Show, Way};
use super::server::Running;
use super::tap::Frames;
use super::{Keeper, STEPS, TO_CLIENT_BYTES};

impl Keeper<'_> {
    /// Server → client, and our own lines between, until nothing moves; whether there is news for the link.
    pub(super) fn pump_down(&mut self) -> bool {
        let mut moved = false;
        let mut step = true;
        let mut steps = 0;
        // More than lines of the client's that waited for it: those it gets whether it reads them or not.
        let owed_max = self.plan.limits.held_bytes as usize + limits::HELD_LINE_BYTES;
        while step && steps < STEPS {
            step = false;
            steps += 1;
            if let Some(stdout) = self
                .server
                .as_ref()
                .and_then(|server| server.stdout.as_ref())
            {
                // A broken pipe on our reading side is an end like any other.
                if self.down.fill(stdout).unwrap_or(true) {
                    self.link.server_wrote(self.now);
                    step = true;
                }
            }
            let Self {
                down,
                link,
                frames,
                now,
                to_client,
                to_server,
                ..
            } = self;
            // Our own lines wait for the end of the line that is on its way, and nothing new is routed before them; nor while
            // a server that does not read is owed more than it may be.
            let turn = to_client.is_empty() || down.mid_line();
            if turn && to_server.len() <= owed_max {
                step |= down.route(&mut Down {
                    link,
                    frames,
                    now: *now,
                });
            }
            // What the link wants in the place of a line goes out before the lines that follow it.
            if self.link.has_output() {
                step |= self.perform();
            }
            step |= self.write_client();
            moved |= step;
        }
        if moved && self.note_at.is_none() {
            self.note_at = Some(self.noted_at.after_ms(limits::NOTE_AGAIN_MS));
        }
        // What waits behind lines of ours is routed in its turn, and the end comes after it. Lines of ours that wait behind
        // half a line wait for nothing but this end.
        if self.down.ended()
            && !self.down.lines_wait()
            && (self.to_client.is_empty() || self.down.mid_line() || self.client_out.is_none())
            && let Some(server) = &mut self.server
            && server.stdout.take().is_some()
        {
            let Self {
                down,
                link,
                frames,
                now,
                ..
            } = self;
            down.finish(&mut Down {
                link,
                frames,
                now: *now,
            });
            self.write_client();
            self.tell_pipe_end(Pipe::ServerStdout);
            // Its stdin is about to be closed, and with it goes what it has not read.
            self.take_unread();
            if self.exit_told() {
                self.give_unread();
            }
            let tree_empty = self.tree_is_empty();
            self.handle(Input::StdoutClosed { tree_empty });
            return true;
        }
        step
    }

    /// Writes what is routed, then our own lines.
    pub(super) fn write_client(&mut self) -> bool {
        let Some(out) = &self.client_out else {
            self.down.discard_routed();
            self.to_client.clear();
            self.link.delivered();
            return false;
        };
        let mut moved = false;
        if !self.down.flushed() || !self.to_client.is_empty() {
            // Noted before it is so: whoever takes over then writes a newline too many, which harms less than half a line.
            self.link.mid_line().set_to_client(true);
        }
        let mut result = self.down.drain(out).map(|written| moved |= written > 0);
        if moved && self.down.flushed() {
            self.link.delivered();
        }
        while result.is_ok()
            && self.down.flushed()
            && !self.down.mid_line()
            && !self.to_client.is_empty()
        {
            match out.poll_write(self.to_client.make_contiguous()) {
                Poll::Pending => break,
                Poll::Ready(Ok(len)) => {
                    self.ours_torn = self.to_client.drain(..len).next_back() != Some(b'\n');
                    moved = true;
                    if self.to_client.is_empty() {
                        self.link.written();
                    }
                }
                Poll::Ready(Err(error)) => result = Err(error),
            }
        }
        let mid_line = self.down.mid_line() || self.down.torn() || self.ours_torn;
        if self.link.mid_line().to_client() != mid_line {
            self.link.mid_line().set_to_client(mid_line);
        }
        if result.is_err() {
            // Nobody reads our stdout any more.
            self.client_out = None;
            self.tell_pipe_end(Pipe::ClientStdout);
            self.handle(Input::Stop(Cause::ClientDeaf));
            return true;
        }
        moved
    }

    /// Client → server, until nothing moves; whether there is news for the link, or another look is due.
    pub(super) fn pump_up(&mut self) -> bool {
        let mut moved = false;
        let mut step = true;
        let mut steps = 0;
        while step && steps < STEPS {
            step = false;
            steps += 1;
            if let Some(client) = &self.client_in {
                step |= self.up.fill(client).unwrap_or(true);
            }
            let dead = self.reads_no_more();
            let Self {
                up,
                link,
                frames,
                now,
                to_client,
                to_server,
                ..
            } = self;
            let turn = !dead && (to_server.is_empty() || up.mid_line());
            if turn && to_client.len() < TO_CLIENT_BYTES {
                step |= up.route(&mut Up {
                    link,
                    frames,
                    now: *now,
                });
            }
            if turn && up.ended() && self.client_in.is_some() {
                up.finish(&mut Up {
                    link,
                    frames,
                    now: *now,
                });
            }
            // At once: whoever takes over must not take the rest of a line for a line.
            let within = self.up.within_a_line();
            if self.link.mid_line().from_client() != within {
                self.link.mid_line().set_from_client(within);
            }
            if self.link.has_output() {
                step |= self.perform();
            }
            step |= self.write_server();
            moved |= step;
        }
        if self.client_in.is_some() && (self.up.ended() && !self.waits() || self.left_unread(moved))
        {
            self.client_in = None;
            self.unread_until = None;
            self.tell_pipe_end(Pipe::ClientStdin);
            let gone = self.client.is_some_and(|client| !identity::alive(client));
            self.handle(if gone {
                Input::Stop(Cause::ClientGone)
            } else {
                Input::ClientEof
            });
            return true;
        }
        // A buffer that has just become full, or an end behind a line that waits: whether the client has left is asked when
        // nothing moves.
        step || moved && (self.up.full() || self.up.ended() && self.waits())
    }

    /// Whether the server is dead and the link does not know yet: what the client says now is for the next one.
    fn reads_no_more(&self) -> bool {
        let dead = |server: &Running| {
            server.stdin.is_none() && server.exit.is_some_and(|ended| !ended.told)
        };
        self.server.as_ref().is_some_and(dead) && !self.link.descending()
    }

    /// Whether a line waits before the end of the client's: to be shown, to be shown again, for the end of a line of ours, or
    /// for the end of a dead server to be told.
    fn waits(&self) -> bool {
        self.up.holds()
            || self.up.lines_wait()
            || self.reads_no_more()
            || !(self.to_server.is_empty() || self.up.mid_line())
    }

    /// A client that has left behind a full buffer, or behind a line that waits for the next generation: its EOF cannot be
    /// reached before a server that does not read. As long as something is taken it is only slow; if nothing is for its
    /// grace, that must not hide the EOF. While nobody serves because we wait ourselves, that proves nothing: the next
    /// generation answers what was asked, or it is given up and we do.
    fn left_unread(&mut self, moved: bool) -> bool {
        let left = (self.up.ended() && self.waits())
            || (self.up.full() && self.client_in.as_ref().is_some_and(Port::hung_up));
        if moved || !left || self.link.awaits_generation() {
            self.unread_until = None;
            return false;
        }
        let grace = self.plan.limits.grace_eof_ms;
        let until = *self.unread_until.get_or_insert(self.now.after_ms(grace));
        self.now >= until
    }

    fn tell_pipe_end(&mut self, pipe: Pipe) {
        let generation = self.link.generation();
        self.tell(What::PipeEnd(PipeEnd { pipe, generation }));
    }

    pub(super) fn write_server(&mut self) -> bool {
        if self.reads_no_more() {
            // It is taken back when the end is told.
            return false;
        }
        let Some(server) = &mut self.server else {
            return false;
        };
        let mut broken = server.is_deaf(self.now);
        let Some(stdin) = &server.stdin else {
            self.up.discard_routed();
            self.to_server.clear();
            return false;
        };
        let mut moved = false;
        match self.up.drain(stdin) {
            Ok(written) => {
                self.sent += written;
                moved |= written > 0;
            }
            Err(_) => broken = true,
        }
        // Our own lines go between two lines of the client's.
        while !broken && self.up.flushed() && !self.up.mid_line() && !self.to_server.is_empty() {
            match stdin.poll_write(self.to_server.make_contiguous()) {
                Poll::Pending => return moved,
                Poll::Ready(Ok(len)) => {
                    self.sent += len;
                    self.to_server.drain(..len);
                    moved = true;
                }
                Poll::Ready(Err(_)) => broken = true,
            }
        }
        if broken && !server.stdin_closing {
            self.take_unread();
        }
        let Some(server) = &mut self.server else {
            return moved;
        };
        if broken || (server.stdin_closing && self.up.flushed() && self.to_server.is_empty()) {
            server.close_stdin();
        }
        if broken {
            // It reads no more, so it can serve no more; its own end, if that is what it is, comes first.
            if !server.stdin_closing {
                self.tell_pipe_end(Pipe::ServerStdin);
                self.reap();
                if self
                    .server
                    .as_ref()
                    .is_some_and(|server| server.exit.is_none_or(|ended| ended.told))
                {
                    self.handle(Input::Stop(Cause::ServerExit));
                }
            }
            return true;
        }
        moved
    }
}

/// Lines of the server's.
struct Down<'a, 'l> {
    link: &'a mut Link<'l>,
    frames: &'a mut Frames,
    now: Moment,
}

impl Way for Down<'_, '_> {
    fn pass(&mut self, lines: &[u8]) -> usize {
        let Self { link, frames, now } = self;
        if frames.watched() {
            return 0;
        }
        link.results(*now, lines, |frame| {
            frames.passed(*now, Side::Server, frame);
        })
    }

    fn decide(&mut self, show: Show<'_>) -> Route {
        const FROM: Side = Side::Server;
        let Self { link, frames, now } = self;
        let (now, generation) = (*now, link.generation());
        match show {
            Show::Line(frame, bytes) => {
                let route = link.server_line(now, frame, bytes);
                frames.line(now, FROM, frame, bytes, route, generation);
                route
            }
            Show::Cut(frame, bytes) => {
                frames.long_begins(FROM, bytes);
                link.server_known(frame)
            }
            Show::Known(_) => Route::Forward,
            Show::CutEnd(frame) => {
                frames.long_ends(now, FROM, frame, true, generation);
                link.server_line(now, frame, b"")
            }
            Show::Piece(piece) => {
                link.server_piece(piece);
                Route::Gather
            }
            Show::GatherEnd(frame) => {
                frames.long_ends(now, FROM, frame, false, generation);
                link.gathered_from_server(now, frame);
                Route::Instead
            }
            // Junk, or an answer that the client must not see: the link knows which.
            Show::DropEnd(frame) => {
                frames.long_ends(now, FROM, frame, false, generation);
                link.server_line(now, frame, b"(a long line)")
            }
        }
    }
}

/// Lines of the client's.
struct Up<'a, 'l> {
    link: &'a mut Link<'l>,
    frames: &'a mut Frames,
    now: Moment,
}

impl Way for Up<'_, '_> {
    fn pass(&mut self, lines: &[u8]) -> usize {
        let Self { link, frames, now } = self;
        if frames.watched() {
            return 0;
        }
        link.calls(*now, lines, |frame| {
            frames.passed(*now, Side::Client, frame);
        })
    }

    fn decide(&mut self, show: Show<'_>) -> Route {
        const FROM: Side = Side::Client;
        let Self { link, frames, now } = self;
        let (now, generation) = (*now, link.generation());
        match show {
            Show::Line(frame, bytes) => {
                let route = link.client_line(now, frame, bytes);
                frames.line(now, FROM, frame, bytes, route, generation);
                route
            }
            Show::Cut(frame, bytes) => {
                frames.long_begins(FROM, bytes);
                link.client_cut(now, frame)
            }
            Show::Known(frame) => {
                link.client_known(now, frame);
                Route::Forward
            }
            Show::CutEnd(frame) => {
                frames.long_ends(now, FROM, frame, true, generation);
                Route::Forward
            }
            Show::DropEnd(frame) => {
                frames.long_ends(now, FROM, frame, false, generation);
                link.client_lost(now, frame);
                Route::Instead
            }
            Show::Piece(piece) => {
                link.client_piece(piece);
                Route::Gather
            }
            Show::GatherEnd(frame) => {
                frames.long_ends(now, FROM, frame, false, generation);
                link.gathered_from_client(now, frame);
                Route::Instead
            }
        }
    }
}
