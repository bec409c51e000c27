//! The data: both directions, and our own lines between the others', as in `keeper/data.rs`.

use mainstay_core::event::Cause;
use mainstay_core::link::{Input, Link, Route};

use super::super::outside::{Halt, Outside, text};
use super::super::pump::Show;
use super::super::watch::Way;
use super::{Running, Shell, TO_CLIENT_BYTES};

impl Shell<'_> {
    pub(super) fn pump_down(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        let mut step = true;
        let mut steps = 0;
        while step && steps < 32 {
            step = false;
            steps += 1;
            outside.step()?;
            if let (Some(Running { stdout: true, .. }), Some(process)) =
                (&self.server, &mut outside.process)
            {
                if self.down.fill(&mut process.stdout) {
                    self.link.server_wrote(outside.now);
                    step = true;
                }
            }
            if self.to_client.is_empty() || self.down.mid_line() {
                self.before = self.link.word();
                let Self { down, link, .. } = self;
                step |= down.route(&mut |show| route_down(link, outside, show))?;
            }
            if self.link.has_output() {
                step |= self.perform(outside)?;
            }
            step |= self.write_client(outside)?;
        }
        if self.down.ended()
            && (self.to_client.is_empty() || self.down.mid_line() || !self.client_out)
            && let Some(server) = &mut self.server
            && std::mem::take(&mut server.stdout)
        {
            let Self { down, link, .. } = self;
            down.finish(&mut |show| route_down(link, outside, show))?;
            self.write_client(outside)?;
            self.take_unread(outside);
            if self.server.as_ref().is_some_and(|server| server.exit_told) {
                self.give_unread(outside);
            }
            let tree_empty = self.tree_is_empty(outside);
            self.handle(outside, Input::StdoutClosed { tree_empty })?;
            return Ok(true);
        }
        Ok(step)
    }

    pub(super) fn write_client(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        if !self.client_out {
            self.down.discard_routed();
            self.to_client.clear();
            self.link.delivered();
            return Ok(false);
        }
        let mut moved = false;
        let mut deaf = false;
        if !self.flushed() {
            // Noted before it is so: a needless newline harms nobody, a missing one loses an answer.
            self.link.mid_line().set_to_client(true);
        }
        while !self.down.flushed() && !deaf {
            match outside.to_client.write(self.down.out.make_contiguous()) {
                Ok(0) => break,
                Ok(len) => {
                    let written: Vec<u8> = self.down.out.iter().take(len).copied().collect();
                    self.down.written(len);
                    moved = true;
                    outside.to_client_tap(&written, Way::Passed)?;
                }
                Err(_) => {
                    self.down.discard_routed();
                    deaf = true;
                }
            }
        }
        if moved && self.down.flushed() {
            outside.step()?;
            self.link.delivered();
            outside.watch.delivered();
        }
        while !deaf && self.down.flushed() && !self.down.mid_line() && !self.to_client.is_empty() {
            match outside.to_client.write(self.to_client.make_contiguous()) {
                Ok(0) => break,
                Ok(len) => {
                    let written: Vec<u8> = self.to_client.drain(..len).collect();
                    self.ours_torn = written.last() != Some(&b'\n');
                    moved = true;
                    outside.to_client_tap(&written, Way::Ours)?;
                    outside.step()?;
                    if self.to_client.is_empty() {
                        self.link.written();
                        outside.watch.written();
                    }
                }
                Err(_) => deaf = true,
            }
        }
        let mid_line = self.down.mid_line() || self.down.torn() || self.ours_torn;
        self.link.mid_line().set_to_client(mid_line);
        if deaf {
            self.client_out = false;
            self.handle(outside, Input::Stop(Cause::ClientDeaf))?;
            return Ok(true);
        }
        Ok(moved)
    }

    pub(super) fn pump_up(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        let mut moved = false;
        let mut step = true;
        let mut steps = 0;
        while step && steps < 32 {
            step = false;
            steps += 1;
            outside.step()?;
            if self.client_in {
                step |= self.up.fill(&mut outside.from_client);
                self.keep(outside);
            }
            let turn =
                !self.reads_no_more(outside) && (self.to_server.is_empty() || self.up.mid_line());
            if turn && self.to_client.len() < TO_CLIENT_BYTES {
                self.before = self.link.word();
                let Self { up, link, .. } = self;
                step |= up.route(&mut |show| route_up(link, outside, show))?;
                self.keep(outside);
            }
            if turn && self.up.ended() && self.client_in {
                let Self { up, link, .. } = self;
                up.finish(&mut |show| route_up(link, outside, show))?;
                self.keep(outside);
            }
            self.link
                .mid_line()
                .set_from_client(self.up.within_a_line());
            if self.link.has_output() {
                step |= self.perform(outside)?;
            }
            step |= self.write_server(outside)?;
            moved |= step;
        }
        let waits = self.waits(outside);
        if self.client_in && (self.up.ended() && !waits || self.left_unread(moved, outside)) {
            self.client_in = false;
            self.unread_until = None;
            self.handle(outside, Input::ClientEof)?;
            return Ok(true);
        }
        Ok(step || moved && (self.up.full() || self.up.ended() && waits))
    }

    /// Whether the server is dead and the link does not know yet.
    fn reads_no_more(&self, outside: &Outside) -> bool {
        let ended = outside.process.as_ref().is_some_and(|p| p.ended.is_some());
        let untold = |server: &Running| !server.stdin && !server.exit_told;
        ended && self.server.as_ref().is_some_and(untold) && !self.link.descending()
    }

    /// Whether a line waits before the end of the client's: to be shown again, for the end of a line of ours, or for the end of
    /// a dead server to be told.
    fn waits(&self, outside: &Outside) -> bool {
        self.up.holds()
            || self.reads_no_more(outside)
            || !(self.to_server.is_empty() || self.up.mid_line())
    }

    /// What was read and not routed is in memory that outlives us.
    pub(super) fn keep(&mut self, outside: &mut Outside) {
        self.inbox.clone_from(&self.up.rest);
        outside.watch.marked();
    }

    pub(super) fn left_unread(&mut self, moved: bool, outside: &Outside) -> bool {
        let left = (self.up.ended() && self.waits(outside))
            || (self.up.full() && outside.from_client.writer_gone);
        if moved || !left || self.link.awaits_generation() {
            self.unread_until = None;
            return false;
        }
        let grace = outside.now.after_ms(self.limits.grace_eof_ms);
        outside.now >= *self.unread_until.get_or_insert(grace)
    }

    pub(super) fn write_server(&mut self, outside: &mut Outside) -> Result<bool, Halt> {
        if self.reads_no_more(outside) {
            return Ok(false);
        }
        let Some(server) = &mut self.server else {
            return Ok(false);
        };
        if !server.stdin {
            self.up.discard_routed();
            self.to_server.clear();
            return Ok(false);
        }
        let mut moved = false;
        let mut gone = false;
        while !self.up.flushed() && !gone {
            match outside.to_server(self.up.out.make_contiguous())? {
                Some(0) => break,
                Some(len) => {
                    self.sent.extend(self.up.out.range(..len));
                    self.up.written(len);
                    moved = true;
                    outside.step()?;
                }
                None => gone = true,
            }
        }
        while !gone && self.up.flushed() && !self.up.mid_line() && !self.to_server.is_empty() {
            match outside.to_server(self.to_server.make_contiguous())? {
                Some(0) => return Ok(moved),
                Some(len) => {
                    self.sent.extend(self.to_server.drain(..len));
                    moved = true;
                    outside.step()?;
                }
                None => gone = true,
            }
        }
        if gone && !server.stdin_closing {
            self.take_unread(outside);
        }
        let Some(server) = &mut self.server else {
            return Ok(moved);
        };
        if gone || (server.stdin_closing && self.up.flushed() && self.to_server.is_empty()) {
            server.stdin = false;
            if let Some(process) = &mut outside.process {
                process.stdin.writer_gone = true;
            }
        }
        if gone {
            let ended = outside.process.as_ref().is_some_and(|p| p.ended.is_some());
            if !server.stdin_closing && (!ended || server.exit_told) {
                self.handle(outside, Input::Stop(Cause::ServerExit))?;
            }
            return Ok(true);
        }
        Ok(moved)
    }
}

fn route_down(link: &mut Link<'_>, outside: &mut Outside, show: Show<'_>) -> Result<Route, Halt> {
    outside.step()?;
    let now = outside.now;
    let route = match show {
        // One by one, so that a keeper can be killed between any two.
        Show::Line(_, bytes) if link.results(now, bytes, |_| ()) > 0 => Route::Forward,
        Show::Line(frame, bytes) => link.server_line(now, frame, bytes),
        Show::Cut(frame) => link.server_known(frame),
        Show::Known(_) => Route::Forward,
        Show::CutEnd(frame) => link.server_line(now, frame, b""),
        Show::Piece(piece) => {
            link.server_piece(piece);
            Route::Gather
        }
        Show::GatherEnd(frame) => {
            link.gathered_from_server(now, frame);
            Route::Instead
        }
        Show::DropEnd(frame) => link.server_line(now, frame, b"(a long line)"),
    };
    outside.note(|| format!("server: {route:?} {}", told(show)));
    Ok(route)
}

fn route_up(link: &mut Link<'_>, outside: &mut Outside, show: Show<'_>) -> Result<Route, Halt> {
    outside.step()?;
    let now = outside.now;
    let route = match show {
        Show::Line(_, bytes) if link.calls(now, bytes, |_| ()) > 0 => Route::Forward,
        Show::Line(frame, bytes) => link.client_line(now, frame, bytes),
        Show::Cut(frame) => link.client_cut(now, frame),
        Show::Known(frame) => {
            link.client_known(now, frame);
            Route::Forward
        }
        Show::CutEnd(_) => Route::Forward,
        Show::DropEnd(frame) => {
            link.client_lost(now, frame);
            Route::Instead
        }
        Show::Piece(piece) => {
            link.client_piece(piece);
            Route::Gather
        }
        Show::GatherEnd(frame) => {
            link.gathered_from_client(now, frame);
            Route::Instead
        }
    };
    if route != Route::Hold {
        outside.note(|| format!("client: {route:?} {}", told(show)));
    }
    outside.watch.routed(show, route);
    Ok(route)
}

fn told(show: Show<'_>) -> String {
    match show {
        Show::Line(_, bytes) => text(bytes).to_string(),
        Show::Cut(frame) => format!("cut {frame:?}"),
        Show::Known(frame) => format!("known {frame:?}"),
        Show::CutEnd(frame) => format!("cut end {frame:?}"),
        Show::DropEnd(frame) => format!("drop end {frame:?}"),
        Show::Piece(piece) => format!("piece of {} bytes", piece.len()),
        Show::GatherEnd(frame) => format!("gather end {frame:?}"),
    }
}
