//! Requests whose ids are too long for the table: a short label on the way to the server, the client's own id on the way
//! back.

use alloc::vec::Vec;

use mainstay_protocol::limits::{ID_BYTES, LONG_ID_BYTES};
use mainstay_protocol::message::envelope::{self, Members};
use mainstay_protocol::message::frame::{Frame, Id, Kind, Scanner};
use mainstay_protocol::message::{batch, settle};

use super::outbox::Outbox;
use super::requests::Requests;
use super::session::Session;

/// What becomes of a line with long ids.
pub(super) enum Short {
    /// It has none.
    AsItIs,
    /// The same line with labels in their places.
    Line(Vec<u8>),
    /// There is no room for another label until one is free.
    Full,
    /// An id is longer than any that is taken: it has its answer.
    Refused,
}

/// Puts labels in the places of long ids.
pub(super) fn shorten(
    frame: &Frame<'_>,
    line: &[u8],
    session: &mut Session<'_>,
    requests: &Requests<'_>,
    outbox: &mut Outbox,
) -> Short {
    match (frame.kind, frame.id) {
        (Kind::Request, Id::TooLong) => {}
        (Kind::Batch, _) if has_long_ids(line) => {}
        (Kind::Notification, _)
            if !session.no_long_ids()
                && frame.method.as_deref() == Some("notifications/cancelled") =>
        {
            let label = envelope::cancelled_id(line).and_then(|id| session.label_of(id));
            let short = label.and_then(|label| envelope::with_request_id(line, label));
            return short.map_or(Short::AsItIs, Short::Line);
        }
        (
            Kind::Request
            | Kind::Notification
            | Kind::Response
            | Kind::Error
            | Kind::Batch
            | Kind::Blank
            | Kind::Junk,
            _,
        ) => return Short::AsItIs,
    }
    let ids = long_ids(line);
    let mut fit = ids.iter().all(|id| id.len() <= LONG_ID_BYTES);
    if fit {
        session.forget_labels(|label| requests.knows(label));
        for id in &ids {
            fit &= session.give_label(id).is_some();
        }
        if !fit && !requests.is_empty() {
            return Short::Full;
        }
    }
    if !fit {
        refuse(&ids, outbox);
        return Short::Refused;
    }
    let short = |line: &[u8]| {
        let id = Members::of_line(line)?.get("id")?.get().as_bytes();
        envelope::with_id(line, session.label_of(id)?)
    };
    if frame.kind != Kind::Batch {
        return short(line).map_or(Short::AsItIs, Short::Line);
    }
    let mut whole = Vec::new();
    batch::each_member_line(line, |_, member| {
        whole.push(if whole.is_empty() { b'[' } else { b',' });
        let new = short(member);
        whole.extend_from_slice(new.as_deref().unwrap_or(member).trim_ascii_end());
    });
    whole.extend_from_slice(b"]\n");
    Short::Line(whole)
}

/// The requests of a line have no room, and cannot be shown again: each has its answer.
pub(super) fn refuse_all(line: &[u8], outbox: &mut Outbox) {
    refuse(&long_ids(line), outbox);
}

fn refuse(ids: &[Vec<u8>], outbox: &mut Outbox) {
    for id in ids {
        outbox.send_client(settle::error(id, NO_ROOM, "{}"));
    }
}

/// A line for the client with its own ids in the places of our labels; none if it has no label.
pub(super) fn lengthen(line: &[u8], session: &Session<'_>) -> Option<Vec<u8>> {
    if session.no_long_ids() {
        return None;
    }
    let mut scanner = Scanner::new();
    scanner.feed(line);
    let frame = scanner.frame();
    let own = |label: &[u8]| session.long_id(label);
    match (frame.kind, frame.id) {
        (Kind::Response | Kind::Error, Id::Token(label)) => {
            let line = envelope::with_id(line, own(label)?)?;
            let inside = envelope::ended_subscription(&line).and_then(own);
            let both = inside.and_then(|id| envelope::with_ended_subscription(&line, id));
            Some(both.unwrap_or(line))
        }
        (Kind::Notification, _) => match envelope::cancelled_id(line) {
            Some(label) => envelope::with_request_id(line, own(label)?),
            None => envelope::with_subscription(line, own(envelope::subscription(line)?)?),
        },
        (
            Kind::Request | Kind::Response | Kind::Error | Kind::Batch | Kind::Blank | Kind::Junk,
            _,
        ) => None,
    }
}

/// The labels under which requests of this line are known.
pub(super) fn labels_in(line: &[u8], session: &Session<'_>) -> Vec<Vec<u8>> {
    if session.no_long_ids() {
        return Vec::new();
    }
    let ids = long_ids(line);
    let labels = ids.iter().filter_map(|id| session.label_of(id));
    labels.map(<[u8]>::to_vec).collect()
}

const NO_ROOM: &str =
    "the id of the request is too long: at most 4 KiB each, and 64 KiB for all that wait";

/// The ids of requests in a line that are too long for the table.
fn long_ids(line: &[u8]) -> Vec<Vec<u8>> {
    let mut ids = Vec::new();
    let mut see = |line: &[u8]| {
        let message = Members::of_line(line)?;
        let id = message.get("id")?.get().as_bytes();
        if id.len() > ID_BYTES && message.get("method").is_some() {
            ids.push(id.to_vec());
        }
        Some(())
    };
    if see(line).is_none() {
        batch::each_member_line(line, |_, member| {
            see(member);
        });
    }
    ids
}

fn has_long_ids(line: &[u8]) -> bool {
    let mut found = false;
    batch::each_member(line, |member| {
        found |= (member.kind, member.id) == (Kind::Request, Id::TooLong);
    });
    found
}
