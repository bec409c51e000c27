//! What is to be done, in order. The shell drains it.
//!
//! Invariants: [`Output::Finish`] is the last output; at most one start is asked for at a time; a line of ours is one
//! whole line.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use mainstay_protocol::event::What;

use super::io::Output;
use crate::server::stop::Step;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Output>,
    finished: bool,
    /// Lines of ours for the client so far.
    to_client: u64,
}

impl Outbox {
    pub fn push(&mut self, output: Output) {
        debug_assert!(!self.finished, "no output after the last one: {output:?}");
        self.queue.push_back(output);
    }

    /// A line of ours for the client.
    pub fn send_client(&mut self, line: Vec<u8>) {
        debug_assert!(is_line(&line), "one whole line");
        self.to_client += 1;
        self.push(Output::ToClient(line));
    }

    /// The number of our next line for the client, from 1.
    pub fn next_for_client(&self) -> u64 {
        self.to_client + 1
    }

    /// A line of ours for the server.
    pub fn send_server(&mut self, line: Vec<u8>) {
        debug_assert!(is_line(&line), "one whole line");
        self.push(Output::ToServer(line));
    }

    pub fn tell(&mut self, what: What) {
        self.push(Output::Tell(what));
    }

    /// A step of the descent, if there is one to take.
    pub fn step(&mut self, step: Option<Step>) {
        if let Some(step) = step {
            self.push(Output::Stop(step));
        }
    }

    /// Asks for the next generation.
    pub fn spawn(&mut self) {
        debug_assert!(
            !self.queue.contains(&Output::Spawn),
            "one start at a time is asked for"
        );
        self.push(Output::Spawn);
    }

    /// Takes back the start that was asked for.
    pub fn withdraw_spawn(&mut self) {
        self.queue.retain(|output| *output != Output::Spawn);
    }

    /// The client's pipes were let go before: nothing of them is to be let go once more.
    pub fn withdraw_release(&mut self) {
        let release =
            |output: &Output| matches!(output, Output::DropClient | Output::ReleaseClient);
        self.queue.retain(|output| !release(output));
    }

    /// All is done.
    pub fn finish(&mut self, code: u8) {
        self.push(Output::Finish(code));
        self.finished = true;
    }

    pub fn next(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

fn is_line(bytes: &[u8]) -> bool {
    bytes.iter().position(|&byte| byte == b'\n') == bytes.len().checked_sub(1)
}
