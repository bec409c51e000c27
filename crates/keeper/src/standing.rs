//! The state of the link at the moment of an event that users will ask about.

use mainstay_core::relay::Relay;
use mainstay_os::clock;
use mainstay_protocol::event::{Standing, Waiting};
use mainstay_protocol::limits::WAITING_NAMED;

use super::client::Client;
use super::frames::Frames;

/// The state now.
pub fn standing(relay: &Relay<'_>, frames: &Frames, client: &Client) -> Standing {
    // Both clocks are read at once, so that the two times belong together.
    let (now, wall_ms) = (clock::now(), clock::wall_ms());
    let link = relay.link();
    let waiting = link.waiting().take(WAITING_NAMED);
    let recent = frames.recent();
    Standing {
        wall_ms,
        since_handshake_ms: frames.since_handshake_ms(now, link.generation()),
        stdin_open: !relay.client_ended() && client.holds_stdin(),
        last_answer_ms: recent.last_answer().map(|at| now.ms_since(at)),
        in_flight: link.in_flight(),
        waiting: waiting
            .map(|(id, sort, at)| Waiting {
                request: sort.word().into(),
                id: String::from_utf8_lossy(id).into_owned(),
                ms: now.ms_since(at),
            })
            .collect(),
        frames: recent.briefs(now),
    }
}
