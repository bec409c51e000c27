//! Tool calls, and their answers, while nothing else goes on: the table is all that has to know of them.
//!
//! Most of what passes a link is this. What holds for the whole run is asked once, before it; each line then costs a
//! glance and its place in the table. Whatever is not written in the usual way, or is no call, ends the run.
//!
//! Invariant: a line that passes here leaves the link as [`Link::client_line`] or [`Link::server_line`] would have.

use super::Link;
use super::state::{Attachment, Life, Silence, Stage};
use crate::clock::Moment;
use crate::message::frame::{Frame, Id, Kind};
use crate::message::inflight::{Opened, Tracked};
use crate::policy::Retry;

impl Link<'_> {
    /// Lets the calls at the start of `lines` go on, and shows each; how many bytes they have.
    #[inline]
    pub fn calls(
        &mut self,
        now: Moment,
        lines: &[u8],
        mut passed: impl FnMut(&Frame<'_>),
    ) -> usize {
        if !self.steady() {
            return 0;
        }
        let generation = self.head.generation;
        let mut used = 0;
        while let Some((frame, len)) = Frame::at_a_glance(&lines[used..])
            && let (Id::Token(id), Some("tools/call")) = (frame.id, frame.method.as_deref())
        {
            match self.inflight.open(id, Tracked::ToolsCall, generation, now) {
                Opened::New | Opened::Again => self.resend.forget(id),
                Opened::Full | Opened::Untracked => break,
            }
            passed(&frame);
            used += len;
        }
        if used > 0 {
            self.head.spoken = 1;
            self.was_used(now);
        }
        used
    }

    /// Lets the results of calls at the start of `lines` go on, and shows each; how many bytes they have.
    #[inline]
    pub fn results(
        &mut self,
        now: Moment,
        lines: &[u8],
        mut passed: impl FnMut(&Frame<'_>),
    ) -> usize {
        if !self.steady() {
            return 0;
        }
        let mut used = 0;
        while let Some((frame, len)) = Frame::at_a_glance(&lines[used..])
            && let (Id::Token(id), Kind::Response) = (frame.id, frame.kind)
            && self.inflight.answered_if(id, Tracked::ToolsCall)
        {
            self.resend.forget(id);
            passed(&frame);
            used += len;
        }
        if used > 0 {
            self.on_way.answer = true;
            self.served_by = self.head.generation;
            if let Life::Up(up) = &mut self.life {
                up.silence = Silence::Broken;
                up.said += used as u64;
            }
            self.was_used(now);
        }
        used
    }

    fn was_used(&mut self, now: Moment) {
        if let Life::Up(up) = &mut self.life {
            up.used = now;
        }
        self.busy_or_idle(now);
    }

    /// Whether there is nothing that a call, or its answer, would have to be told apart from, kept for or held back for.
    fn steady(&self) -> bool {
        let serving = matches!(&self.life, Life::Up(up)
            if matches!(up.stage, Stage::Serving) && up.giving_way.is_none());
        serving
            && matches!(self.attachment, Attachment::Held)
            && self.opened()
            && self.era_settled()
            && self.orphans.is_empty()
            && self.changed.is_none()
            && self.policy.retry != Retry::Annotated
            && self.limits.hibernate_ms == 0
            && !self.tasks.possible()
    }
}
