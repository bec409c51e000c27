//! The stream for what the server says unasked: kept open where there is one, and missed by nobody where there is none.

use alloc::vec::Vec;

use super::close::speaks_of_session;
use super::hear::resumable;
use super::{Bridge, Content, ExchangeId, Head, Listen, Purpose, Session, Verb};
use crate::clock::Moment;
use crate::http::{headers, sse};
use crate::limits;

impl Bridge {
    pub(super) fn listen_event(&mut self, event: &sse::Event) {
        if let Some(id) = &event.id {
            self.listen_last = resumable(id);
        }
        self.listen_retry_ms = event.retry_ms.or(self.listen_retry_ms);
        self.listen_failures = 0;
    }

    pub(super) fn listen_head(&mut self, now: Moment, exchange: ExchangeId, head: &Head) {
        if head.ok() && head.content == Content::Events {
            self.listened = true;
            return;
        }
        match head.status {
            // What it means is in its body.
            400 if self.listened => return,
            404 if self.listened => {
                self.listen = Listen::Idle;
                self.session_gone();
            }
            200..=299 | 405 | 501 => self.listen = Listen::Never,
            408 | 409 | 425 | 429 | 500..=599 => self.listen_rests(now, limits::HTTP_RETRY_MS),
            // Many servers know no GET at all, and say so in their own way.
            _ if !self.listened => self.listen = Listen::NotHere,
            _ => self.listen_rests(now, limits::HTTP_RETRY_MS),
        }
        self.close(exchange);
    }

    /// The stream was there, and is refused now.
    pub(super) fn listen_refused(&mut self, now: Moment, exchange: ExchangeId, body: &[u8]) {
        self.close(exchange);
        if speaks_of_session(body) && self.id.is_some() {
            self.listen = Listen::Idle;
            self.session_gone();
        } else {
            self.listen_rests(now, limits::HTTP_RETRY_MS);
        }
    }

    pub(super) fn listen_ended(
        &mut self,
        now: Moment,
        exchange: ExchangeId,
        begun: Moment,
        head: Option<&Head>,
    ) {
        if self.listen == Listen::Open(exchange) {
            // A gateway that ends every stream after a while is not in trouble.
            if now.ms_since(begun) >= limits::HTTP_LISTENED_MS {
                self.listen_failures = 0;
            }
            let least = if head.is_some_and(Head::ok) {
                limits::HTTP_RETRY_LEAST_MS
            } else {
                limits::HTTP_RETRY_MS
            };
            self.listen_rests(now, least);
        }
    }

    /// The server may choose the wait, but not that there is none: no wait at all does not grow either.
    fn listen_rests(&mut self, now: Moment, least_ms: u64) {
        self.listen_failures = self.listen_failures.saturating_add(1);
        let wait = self
            .listen_retry_ms
            .unwrap_or(limits::HTTP_RETRY_MS)
            .clamp(least_ms, limits::HTTP_RETRY_MOST_MS);
        let grown = wait
            .saturating_mul(1 << self.listen_failures.min(16).saturating_sub(1))
            .min(limits::HTTP_RETRY_MOST_MS);
        self.listen = Listen::Resting(now.after_ms(grown.max(wait)));
    }

    /// Opens the stream for what the server says unasked.
    pub(super) fn open_listen(&mut self) {
        if matches!(
            self.listen,
            Listen::Never | Listen::NotHere | Listen::Open(_)
        ) || self.session != Session::Open
            || self.old.is_some()
            || self.closing.is_some()
        {
            if matches!(self.listen, Listen::Resting(_)) {
                self.listen = Listen::Idle;
            }
            return;
        }
        let mut headers = self.session_headers();
        let last = self.listen_last.clone();
        headers.extend(last.map(|last| (headers::LAST_EVENT.into(), last)));
        let exchange = self.send(Purpose::Listen, Verb::Get, headers, Vec::new(), None);
        self.listen = Listen::Open(exchange);
    }

    pub(super) fn close_listen(&mut self) {
        if let Listen::Open(exchange) = self.listen {
            self.close(exchange);
        }
        if self.listen != Listen::Never {
            self.listen = Listen::Idle;
        }
        self.listen_last = None;
        self.listened = false;
    }
}
