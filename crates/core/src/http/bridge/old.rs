//! The transport of 2024-11-05: one stream for all that the server says, and an endpoint that it names for what the
//! client says.
//!
//! It is tried when a server refuses the first POST as one that knows no such endpoint would. There is no session to
//! close: the end of the stream is its end.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::reopen::Step;
use super::{Bridge, Content, End, ExchangeId, Flight, Head, Purpose, Session, Verb};
use crate::clock::Moment;
use crate::http::sse;
use crate::http::words::Why;
use crate::message::slot::Tracked;

/// A server that speaks only the old transport.
#[derive(Clone, Debug)]
pub(super) struct Old {
    /// Its stream.
    pub stream: ExchangeId,
    /// Where messages go; none while it is not known.
    pub endpoint: Option<String>,
    /// The status with which it refused the first POST.
    refused: u16,
}

impl Bridge {
    /// The first POST was refused: perhaps it is an old server.
    pub(super) fn try_old(&mut self, refused: u16) {
        self.old = Some(Old {
            stream: 0,
            endpoint: None,
            refused,
        });
        self.dial_old();
    }

    pub(super) fn dial_old(&mut self) {
        let stream = self.send(Purpose::Old, Verb::Get, Vec::new(), Vec::new(), None);
        if let Some(old) = &mut self.old {
            old.stream = stream;
            old.endpoint = None;
        }
    }

    pub(super) fn old_head(&mut self, exchange: ExchangeId, head: &Head) {
        if head.ok() && head.content == Content::Events {
            return;
        }
        self.close(exchange);
        self.no_old(&alloc::format!("HTTP {}", head.status));
    }

    /// It is no old server either, or it is gone.
    fn no_old(&mut self, why: &str) {
        let refused = self.old.as_ref().map_or(404, |old| old.refused);
        if let Some(id) = self.opening_id() {
            self.old = None;
            self.session = Session::Closed;
            self.initialize = None;
            self.answer(
                &id,
                Tracked::Initialize,
                false,
                &Why::Status { status: refused },
            );
            self.refuse_waiting("its first message was refused");
            return;
        }
        self.reopen_failed(why);
    }

    /// An event of the stream; whether it is none of the messages.
    pub(super) fn old_event(&mut self, event: &sse::Event) -> bool {
        if event.name != "endpoint" {
            return false;
        }
        let endpoint = String::from_utf8_lossy(&event.data).trim().to_string();
        if let Some(old) = &mut self.old {
            old.endpoint = Some(endpoint);
        }
        match &self.session {
            Session::Opening => {
                self.noted = true;
                if let Some(id) = self.opening_id() {
                    self.send_initialize(&id);
                }
            }
            Session::Reopening(Step::Dial) => self.greet(),
            Session::Reopening(Step::Greet { .. } | Step::Confirm | Step::Restore(_))
            | Session::Closed
            | Session::Open
            | Session::Lost => {}
        }
        true
    }

    /// The stream has ended, and with it everything that was to come on it.
    pub(super) fn old_ended(&mut self, now: Moment, end: &End) {
        let why = match end {
            End::Failed { why, .. } => why.clone(),
            End::Done | End::TooLong => "the server ended its event stream".to_string(),
        };
        match self.session {
            Session::Opening | Session::Reopening(_) => {
                self.no_old(&why);
            }
            Session::Open => self.session = Session::Lost,
            Session::Closed | Session::Lost => {}
        }
        let lost: Vec<Vec<u8>> = self
            .requests
            .iter()
            .filter(|(_, one)| one.flight == Flight::Elsewhere)
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            self.broke(now, &id, why.clone());
        }
    }
}
