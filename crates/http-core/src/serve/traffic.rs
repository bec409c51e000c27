//! What both eras use to talk: exchanges with clients, links to servers, and the outputs for the shell.
//!
//! The machines of the eras get it for the time of one input, so that none of them holds another.

use alloc::vec::Vec;

use mainstay_protocol::clock::Moment;

use super::exchanges::{Exchanges, Source, State};
use super::limits::ServeLimits;
use super::links::{Links, Role};
use super::outputs::Outputs;
use super::relabel::Draw;
use super::requests::{Refused, Step};
use super::sse::EventId;

/// What became of an exchange that was asked to go on.
#[derive(Debug)]
pub(super) enum Progress {
    /// It is in another state, and goes on at once.
    Becomes(State),
    /// It waits until something changes at this link.
    WaitsFor(u64),
    /// It waits for time or messages, or has been answered.
    Is(Step),
}

pub(super) type Next = Result<Progress, Refused>;

/// The exchanges, the links and the outputs.
pub(super) struct Traffic {
    pub exchanges: Exchanges,
    pub links: Links,
    pub out: Outputs,
    pub limits: ServeLimits,
    /// Gives bits that no client can guess.
    pub draw: Draw,
    next: u64,
}

impl Traffic {
    pub fn new(limits: ServeLimits, draw: Draw) -> Self {
        Self {
            exchanges: Exchanges::default(),
            links: Links::default(),
            out: Outputs::default(),
            limits,
            draw,
            next: 1,
        }
    }

    /// A number for an exchange, a link or a path, which no other has.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn start_link(&mut self, path: u64, role: Role) -> u64 {
        let link = self.number();
        self.links.start(link, path, role, &mut self.out);
        link
    }

    pub fn send(&mut self, link: u64, line: Vec<u8>) {
        self.links.send(link, line, &mut self.out);
    }

    /// The server's input is closed as soon as everything is written. The exchanges that wait for the link find out.
    pub fn close_link(&mut self, link: u64) {
        self.wake_waiting(link);
        self.links.close(link, &mut self.out);
    }

    pub fn wake_waiting(&mut self, link: u64) {
        self.exchanges.wake_waiting(link, &mut self.out);
    }

    /// Every exchange that waits for a link is asked again.
    pub fn wake_all_waiting(&mut self) {
        let links: Vec<u64> = self.exchanges.awaited_links().collect();
        for link in links {
            self.wake_waiting(link);
        }
    }

    /// The exchange is woken when something changes at this link.
    pub fn wait_for(&mut self, number: u64, link: u64) {
        debug_assert!(
            self.links.contains(link),
            "an exchange waits for a link that is gone"
        );
        self.exchanges.wait_for(number, link);
    }

    /// The link could not be started: the exchanges that wait for it, and those of its session, are refused.
    pub fn fail_waiting(&mut self, link: u64, session: Option<u64>, why: &str) {
        self.exchanges.fail(link, session, why, &mut self.out);
    }

    /// The link reads no more: what waits for it goes nowhere.
    pub fn abandon_link(&mut self, link: u64) {
        self.links.abandon(link, &mut self.out);
        self.wake_waiting(link);
    }

    /// The client reads events from now on.
    pub fn begin_stream(
        &mut self,
        now: Moment,
        number: u64,
        source: Source,
        priming: Option<EventId>,
    ) {
        let comment_at = self.comment_at(now);
        self.exchanges
            .begin_stream(number, source, priming, comment_at);
    }

    /// States what holds after each step.
    pub fn check(&self) {
        self.exchanges.check();
        self.links.check();
        for link in self.exchanges.awaited_links() {
            debug_assert!(
                self.links.contains(link),
                "an exchange waits for a link that is gone"
            );
        }
    }

    /// A request was sent for this exchange: its messages are taken from now on.
    pub fn expect_messages(&mut self, now: Moment, number: u64) {
        let comment_at = self.comment_at(now);
        self.exchanges.expect_messages(number, comment_at);
    }

    /// When a stream that is silent from now on gets a comment.
    pub fn comment_at(&self, now: Moment) -> Moment {
        now.after_ms(self.limits.sse_keep_alive_ms)
    }
}
