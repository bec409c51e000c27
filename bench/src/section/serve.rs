//! The HTTP front: what it adds to a round trip, what many sessions cost, and what they leave.

mod front;

use std::io;

use front::Front;
use mainstay_os::clock;

use super::{Block, Part, Target};
use crate::args::Effort;
use crate::http::{Connection, call};
use crate::lane::{Kind, Lane};
use crate::place::Place;
use crate::stats::{Series, mb, ms, us};
use crate::table::Table;
use crate::talk::Requests;

/// The number of requests in flight when the rate is measured.
const AT_ONCE: usize = 16;

/// The tool that is called.
const TOOL: &str = "fill";

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let mut blocks = Vec::new();
    blocks.extend(round_trips(place, effort.pick(5_000, 50))?);
    let (table, kept, target) = load(place, effort)?;
    blocks.push(table.into());
    blocks.push(kept.into());
    Ok(Part::new(blocks, vec![target]))
}

fn round_trips(place: &Place<'_>, count: usize) -> io::Result<Vec<Block>> {
    let requests = Requests::new(64, 200, 200);
    let mut table = Table::new(
        1,
        &[
            "way",
            "p50, µs",
            "p99",
            "one after another, 1/s",
            "16 at a time, 1/s",
        ],
    );
    for (words, kind) in [
        ("stdio, bare", Kind::Direct),
        ("stdio, `mainstay run`", Kind::Mainstay),
    ] {
        let mut lane = Lane::start(place, kind)?;
        let mut series = Series::default();
        let start = clock::now();
        for _ in 0..count {
            series.push(lane.talk.ask(&requests)?);
        }
        let second = per_second(count, clock::now() - start);
        table.row([
            words.into(),
            us(series.p50()),
            us(series.quantile(0.99)),
            second,
            "-".into(),
        ]);
        lane.end()?;
        place.step();
    }
    let front = Front::start(place, &[])?;
    let mut connection = front.connect()?;
    let session = connection.greet()?;
    let mut series = Series::default();
    let start = clock::now();
    for id in 0..count {
        let before = clock::now();
        connection.post(Some(&session), &call(TOOL, id))?;
        connection.answer()?.good()?;
        series.push(clock::now() - before);
    }
    let one = per_second(count, clock::now() - start);
    place.step();
    let mut connections = (0..AT_ONCE)
        .map(|_| front.connect())
        .collect::<io::Result<Vec<Connection>>>()?;
    let start = clock::now();
    for (id, connection) in connections.iter_mut().enumerate() {
        connection.post(Some(&session), &call(TOOL, id))?;
    }
    for id in AT_ONCE..count + AT_ONCE {
        let connection = &mut connections[id % AT_ONCE];
        connection.answer()?.good()?;
        if id < count {
            connection.post(Some(&session), &call(TOOL, id))?;
        }
    }
    let many = per_second(count, clock::now() - start);
    table.row([
        "HTTP, `mainstay serve`".into(),
        us(series.p50()),
        us(series.quantile(0.99)),
        one,
        many,
    ]);
    drop(connections);
    front.end()?;
    Ok(vec![
        format!(
            "A 200 B request and answer, {count} times. Over HTTP one connection is kept alive; each request has the headers that an SDK sends, and \
             goes through the front, a keeper and back. What the front adds to `mainstay run` is the HTTP of both directions and one more hop."
        )
        .into(),
        table.into(),
    ])
}

/// Many sessions at once, and many in a row.
fn load(place: &Place<'_>, effort: Effort) -> io::Result<(Table, String, Target)> {
    let (at_once, in_a_row) = (effort.pick(1_000, 20), effort.pick(10_000, 40));
    let front = Front::start(place, &["--session-cap", "2000"])?;
    let mut connection = front.connect()?;
    // One session first, so that one-time allocations are done.
    let first = connection.greet()?;
    connection.delete(&first)?;
    front.settled(place, 0)?;
    let before = front.state()?;
    let start = clock::now();
    let mut sessions = Vec::new();
    for _ in 0..at_once {
        sessions.push(connection.greet()?);
        place.step();
    }
    let opened = clock::now() - start;
    let full = front.state()?;
    let mut slowest = Series::default();
    for session in &sessions {
        let start = clock::now();
        connection.post(Some(session), &call(TOOL, 1))?;
        connection.answer()?.good()?;
        slowest.push(clock::now() - start);
        place.step();
    }
    for session in &sessions {
        connection.delete(session)?;
    }
    front.settled(place, 0)?;
    let emptied = front.state()?;
    let start = clock::now();
    for number in 0..in_a_row {
        let session = connection.greet()?;
        // Every third client disconnects in the middle of a request and sends no DELETE. Another client ends its session.
        if number % 3 == 0 {
            let mut lost = front.connect()?;
            lost.post(Some(&session), &call(TOOL, 1))?;
            drop(lost);
        }
        connection.delete(&session)?;
        place.step();
    }
    let row = clock::now() - start;
    front.settled(place, 0)?;
    let after = front.state()?;
    let mut table = Table::new(
        1,
        &[
            "when",
            "sessions",
            "servers",
            "descriptors of `serve`",
            "its memory, MB",
        ],
    );
    for (when, state) in [
        ("before", &before),
        ("that many at once", &full),
        ("all deleted", &emptied),
        ("that many more in a row", &after),
    ] {
        table.row([
            when.into(),
            state.sessions.to_string(),
            state.links.to_string(),
            state.descriptors.to_string(),
            mb(state.resident / 1_024),
        ]);
    }
    let text = format!(
        "{at_once} sessions were opened one after another ({} ms each, its server's start included) and stayed; a request in each of them took {} ms \
         (p50; p99 {}). Then {in_a_row} were opened and ended in a row ({} ms each), every third with its connection dropped in the middle of a request. \
         Each session has a server, shim, guard and keeper of its own.",
        ms(opened / at_once as u64),
        ms(slowest.p50()),
        ms(slowest.quantile(0.99)),
        ms(row / in_a_row as u64)
    );
    let same = after.sessions == 0 && after.links == 0 && after.descriptors <= before.descriptors;
    let grown = after.resident.saturating_sub(emptied.resident) >> 10;
    let target = Target {
        what: "sessions, servers, descriptors of `serve` after all are gone, and memory that many more in a row added",
        aim: "as before, ≤ 1 MB",
        measured: format!(
            "{} / {} / {}, {} MB",
            after.sessions,
            after.links,
            after.descriptors,
            mb(grown)
        ),
        met: same && grown <= 1_024,
    };
    front.end()?;
    Ok((table, text, target))
}

fn per_second(count: usize, ns: u64) -> String {
    format!("{:.0}", count as f64 * 1e9 / ns as f64)
}
