//! One HTTP exchange: a request, and what comes back, piece by piece.
//!
//! What has come waits in a small box; a task that finds it full waits, and so does its server.
//!
//! Invariant: whatever the servers send to a client that does not read, the box holds less than [`INBOX_BYTES`] and one
//! message, and an exchange beside it no more than the one message that it is reading.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use mainstay_http_core::bridge::{Content, End, ExchangeId, Head, Input};
use mainstay_http_core::headers;
use mainstay_http_core::sse::Decoder;
use mainstay_os::clock;
use mainstay_protocol::limits::HELD_LINE_BYTES;
use mainstay_protocol::time;

use super::{INBOX, INBOX_BYTES, Inbox};
use crate::client::{Answer, Client, Failure, Outgoing};

/// The longest body of a refusal that is looked at.
const REFUSAL_BYTES: usize = 64 * 1024;
/// The longest session id: some servers put all that they know of a session into it.
const SESSION_CHARS: usize = 16 * 1_024;
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// What has come and was not looked at yet.
#[derive(Default)]
pub struct Box {
    inputs: VecDeque<(ExchangeId, Input)>,
    bytes: usize,
    reader: Option<Waker>,
    writers: Vec<Waker>,
}

impl Box {
    /// The next thing, if there is one.
    pub fn take(&mut self, cx: &mut Context<'_>) -> Option<Input> {
        let Some((_, input)) = self.inputs.pop_front() else {
            self.reader = Some(cx.waker().clone());
            return None;
        };
        self.bytes -= weight(&input);
        self.wake_writers();
        Some(input)
    }

    /// Drops the inputs of an exchange that was broken off.
    pub fn forget(&mut self, exchange: ExchangeId) {
        self.inputs.retain(|(of, _)| *of != exchange);
        self.bytes = self.inputs.iter().map(|(_, input)| weight(input)).sum();
        // Wake all senders: the reader that would do it may be gone.
        self.wake_writers();
    }

    /// Reports an exchange that cannot be started.
    pub fn refuse(&mut self, exchange: ExchangeId, why: String) {
        let end = End::Failed { unsent: true, why };
        self.put(exchange, Input::End(exchange, end));
    }

    fn is_full(&self) -> bool {
        self.inputs.len() >= INBOX || self.bytes >= INBOX_BYTES
    }

    fn wake_writers(&mut self) {
        for writer in self.writers.drain(..) {
            writer.wake();
        }
    }

    fn put(&mut self, exchange: ExchangeId, input: Input) {
        self.bytes += weight(&input);
        self.inputs.push_back((exchange, input));
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The bytes of a message that were chosen by a server.
fn weight(input: &Input) -> usize {
    match input {
        Input::Event(_, event) => {
            event.name.len() + event.id.as_ref().map_or(0, Vec::len) + event.data.len()
        }
        Input::Body(_, body) => body.len(),
        Input::Head(_, head) => head.session.as_ref().map_or(0, String::len),
        Input::Line(_)
        | Input::LongLine(..)
        | Input::Eof
        | Input::Term
        | Input::End(..)
        | Input::Noted(..)
        | Input::Tick => 0,
    }
}

/// Waits until something may be put into the box.
async fn room(inbox: &Inbox) {
    poll_fn(|cx| {
        let mut inbox = inbox.borrow_mut();
        if !inbox.is_full() {
            return Poll::Ready(());
        }
        let known = inbox.writers.iter().any(|one| one.will_wake(cx.waker()));
        if !known {
            inbox.writers.push(cx.waker().clone());
        }
        Poll::Pending
    })
    .await;
}

async fn put(inbox: &Inbox, exchange: ExchangeId, input: Input) {
    room(inbox).await;
    inbox.borrow_mut().put(exchange, input);
}

/// Runs an exchange to its end.
pub async fn run(client: Rc<Client>, outgoing: Outgoing, exchange: ExchangeId, inbox: Inbox) {
    let end = match client.send(outgoing).await {
        Ok(answer) => read(answer, exchange, &inbox).await,
        Err(failure) => failed(failure),
    };
    put(&inbox, exchange, Input::End(exchange, end)).await;
}

async fn read(mut answer: Answer, exchange: ExchangeId, inbox: &Inbox) -> End {
    let head = head(&answer);
    let streams = head.content == Content::Events && (200..300).contains(&head.status);
    let most = if answer.status.is_success() {
        HELD_LINE_BYTES
    } else {
        REFUSAL_BYTES
    };
    put(inbox, exchange, Input::Head(exchange, head)).await;
    if streams {
        return stream(answer, exchange, inbox).await;
    }
    let mut body = Vec::new();
    loop {
        room(inbox).await;
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > most => {
                if answer.status.is_success() {
                    return End::TooLong;
                }
                break;
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(failure) => return failed(failure),
        }
    }
    put(inbox, exchange, Input::Body(exchange, body)).await;
    End::Done
}

async fn stream(mut answer: Answer, exchange: ExchangeId, inbox: &Inbox) -> End {
    let mut decoder = Decoder::new();
    loop {
        room(inbox).await;
        let chunk = match answer.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return End::Done,
            Err(failure) => return failed(failure),
        };
        let mut events = Vec::new();
        let decoded = decoder.push(&chunk, |event| events.push(event));
        for event in events {
            put(inbox, exchange, Input::Event(exchange, event)).await;
        }
        if decoded.is_err() {
            return End::TooLong;
        }
    }
}

fn failed(failure: Failure) -> End {
    End::Failed {
        unsent: failure.unsent(),
        why: failure.why,
    }
}

fn head(answer: &Answer) -> Head {
    let content = answer.header(CONTENT_TYPE.as_str()).unwrap_or("");
    let kind = content.split(';').next().unwrap_or("").trim();
    let content = if kind.eq_ignore_ascii_case("application/json") {
        Content::Json
    } else if kind.eq_ignore_ascii_case("text/event-stream") {
        Content::Events
    } else {
        Content::Other(kind.into())
    };
    let session = answer
        .header(headers::SESSION)
        .filter(|id| !id.is_empty() && id.len() <= SESSION_CHARS)
        .map(Into::into);
    let retry_after = answer.header(RETRY_AFTER.as_str());
    Head {
        status: answer.status.as_u16(),
        content,
        session,
        retry_after_ms: retry_after.map(|text| wait_ms(text, clock::wall_ms())),
    }
}

/// The time in a `Retry-After`. One that cannot be read counts as longer than any wait.
fn wait_ms(text: &str, now_ms: u64) -> u64 {
    let seconds = text.trim().parse::<u64>().ok();
    let at = || http_date_ms(text.trim());
    seconds
        .map(|seconds| seconds.saturating_mul(1_000))
        .or_else(|| Some(at()?.saturating_sub(now_ms)))
        .unwrap_or(u64::MAX)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, in milliseconds since 1970.
fn http_date_ms(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once(", ")?;
    let [day, name, year, clock, "GMT"] = rest.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let month = 1 + MONTHS.iter().position(|month| *month == name)?;
    time::parse(&format!("{year}-{month:02}-{day}T{clock}.000Z"))
}

#[cfg(test)]
mod tests {
    //! guards: An answer that is not read takes a bounded number of bytes.

    use mainstay_http_core::sse::Event;

    use super::super::exchanges::Exchanges;
    use super::*;

    /// A message of the longest that is held, as one exchange after the other would put it.
    fn message(exchange: ExchangeId, bytes: usize) -> Input {
        if exchange.is_multiple_of(2) {
            return Input::Body(exchange, vec![b'x'; bytes]);
        }
        let (name, id, retry_ms, data) = (String::new(), None, None, vec![b'x'; bytes]);
        Input::Event(
            exchange,
            Event {
                name,
                id,
                retry_ms,
                data,
            },
        )
    }

    fn held(inbox: &Inbox) -> usize {
        let inputs = &inbox.borrow().inputs;
        inputs.iter().map(|(_, input)| weight(input)).sum()
    }

    #[test]
    fn messages_without_a_reader_are_bounded_in_bytes() {
        let inbox = Inbox::default();
        let mut all = Exchanges::default();
        for exchange in 1..=INBOX as ExchangeId {
            let inbox = Rc::clone(&inbox);
            all.begin(exchange, async move {
                put(&inbox, exchange, message(exchange, HELD_LINE_BYTES / 4)).await;
            });
        }
        let mut cx = Context::from_waker(Waker::noop());
        let mut taken = Vec::new();
        loop {
            while all.poll(&mut cx) {}
            assert!(held(&inbox) < INBOX_BYTES + HELD_LINE_BYTES / 4);
            assert_eq!(held(&inbox), inbox.borrow().bytes);
            let next = inbox.borrow_mut().take(&mut cx);
            match next {
                Some(Input::Event(exchange, _) | Input::Body(exchange, _)) => taken.push(exchange),
                other => {
                    assert_eq!(other, None);
                    break;
                }
            }
        }
        taken.sort_unstable();
        assert!(
            taken.into_iter().eq(1..=INBOX as ExchangeId),
            "none is lost"
        );
        assert_eq!(inbox.borrow().bytes, 0);
    }

    #[test]
    fn small_things_are_bounded_in_number() {
        let inbox = Inbox::default();
        let mut all = Exchanges::default();
        for exchange in 1..=2 * INBOX as ExchangeId {
            let inbox = Rc::clone(&inbox);
            all.begin(exchange, async move {
                put(&inbox, exchange, message(exchange, 1)).await;
            });
        }
        let mut cx = Context::from_waker(Waker::noop());
        while all.poll(&mut cx) {}
        assert_eq!(inbox.borrow().inputs.len(), INBOX);
    }

    #[test]
    fn an_exchange_that_is_forgotten_makes_room_for_those_that_wait() {
        let inbox = Inbox::default();
        let mut all = Exchanges::default();
        for exchange in [1, 2] {
            let inbox = Rc::clone(&inbox);
            all.begin(exchange, async move {
                put(&inbox, exchange, message(exchange, INBOX_BYTES)).await;
            });
        }
        let mut cx = Context::from_waker(Waker::noop());
        while all.poll(&mut cx) {}
        inbox.borrow_mut().forget(1);
        assert_eq!(inbox.borrow().bytes, 0);
        while all.poll(&mut cx) {}
        let next = inbox.borrow_mut().take(&mut cx);
        assert_eq!(next, Some(message(2, INBOX_BYTES)), "it was woken");
    }

    #[test]
    fn a_wait_is_read_in_either_form() {
        let then = 784_111_777_000;
        for (text, now, wait) in [
            ("3", 0, 3_000),
            ("Sun, 06 Nov 1994 08:49:37 GMT", then - 2_000, 2_000),
            ("Sun, 06 Nov 1994 08:49:37 GMT", then + 2_000, 0),
            ("Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_800_000, 0),
            ("Fri, 01 Mar 2024 00:00:01 GMT", 1_709_251_200_000, 1_000),
            ("soon", 0, u64::MAX),
            ("Sun, 06 Nov 1994 08:49:37 CET", 0, u64::MAX),
        ] {
            assert_eq!(wait_ms(text, now), wait, "{text}");
        }
    }
}
