//! Ends: of the server, of its tree, and what must be passed on before each is told, as in `keeper/end.rs`.

use mainstay_core::event::{Status, Usage};
use mainstay_core::link::{Exited, Holders, Input};

use super::super::outside::{Halt, Outside, Process, text};
use super::Shell;

impl Shell<'_> {
    pub(super) fn tree_is_empty(&self, outside: &Outside) -> bool {
        let process = outside.process.as_ref();
        self.server.is_none() || process.is_none_or(Process::tree_empty)
    }

    pub(super) fn tell_exit(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let dry = self.server.as_ref().is_some_and(|server| !server.stdout)
            || (self.down.dry() && self.to_client.is_empty())
            || !self.client_out;
        let (Some(server), Some(process)) = (&mut self.server, &outside.process) else {
            return Ok(());
        };
        if let Some((status, at)) = process.ended
            && !server.exit_told
            && (dry || outside.now >= at.after_ms(self.limits.grace_term_ms))
        {
            server.exit_told = true;
            let served_on = server.stdout && server.stdin && process.serves();
            let tree_empty = process.tree_empty();
            if !served_on {
                self.end_torn_line();
                self.give_unread(outside);
            }
            self.handle(outside, exited(status, served_on, tree_empty))?;
            if served_on && self.link.descending() {
                self.end_torn_line();
            }
        }
        self.tell_empty(outside)
    }

    pub(super) fn tell_empty(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let told = self.server.as_ref().is_some_and(|server| server.exit_told);
        if self.link.descending() && told && self.tree_is_empty(outside) {
            return self.end_tree(outside);
        }
        Ok(())
    }

    pub(super) fn end_tree(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let (Some(server), Some(process)) = (&mut self.server, &mut outside.process) else {
            return Ok(());
        };
        let left = process.kill(outside.now);
        if let Some((status, _)) = process.ended
            && !std::mem::replace(&mut server.exit_told, true)
        {
            self.end_torn_line();
            self.give_unread(outside);
            self.handle(outside, exited(status, false, true))?;
        }
        self.end_torn_line();
        self.give_unread(outside);
        self.handle(outside, Input::TreeEmpty { ended: 1, left })
    }

    /// What the server has not read, and nobody else can read any more, is taken back.
    pub(super) fn take_unread(&mut self, outside: &Outside) {
        let (Some(server), Some(process)) = (&self.server, &outside.process) else {
            return;
        };
        let unreadable = if server.stdin {
            !process.serves()
        } else {
            process.tree_empty()
        };
        if !unreadable {
            return;
        }
        let unread = process.stdin.len().min(self.sent.len());
        if unread > 0 {
            // A line that was read in part was not understood either.
            let read = self.sent.len() - unread;
            let begins = |at: usize| at == 0 || self.sent[at - 1] == b'\n';
            let from = (0..=read).rev().find(|&at| begins(at)).unwrap_or(read);
            self.unread.extend_from_slice(&self.sent[from..]);
        }
        self.sent.clear();
        self.take_unsent();
    }

    /// So is what was not even written: lines of the client's, then those that went our way.
    fn take_unsent(&mut self) {
        self.unread.extend(&self.up.out);
        if self.up.mid_line() {
            let last = self.unread.iter().rposition(|&byte| byte == b'\n');
            self.unread.truncate(last.map_or(0, |last| last + 1));
        }
        self.unread.extend(self.to_server.drain(..));
        self.up.discard_routed();
    }

    /// What the dead server has not read is the link's again, before it hears of the death.
    pub(super) fn give_unread(&mut self, outside: &mut Outside) {
        self.take_unread(outside);
        self.take_unsent();
        let lines = std::mem::take(&mut self.unread);
        if !lines.is_empty() {
            // They are taken out of the pipe, and are not found there again.
            self.sent.clear();
            self.up.out.clear();
            outside.note(|| format!("never read: {}", text(&lines)));
        }
        outside.watch.unread(&lines);
        self.link.unread(&lines);
    }

    pub(super) fn end_torn_line(&mut self) {
        let torn = self.down.mid_line();
        self.down.forget_partial();
        if torn {
            self.to_client.push_front(b'\n');
            self.ours_torn = true;
        }
    }
}

fn exited(status: Status, served_on: bool, tree_empty: bool) -> Input {
    let holders = if served_on {
        Holders::Somebody { written: None }
    } else {
        Holders::Nobody
    };
    Input::Exited(Exited {
        pid: 7,
        status,
        usage: Usage::default(),
        stderr_tail: vec!["last words".into()],
        out_of_memory: None,
        holders,
        tree_empty,
    })
}
