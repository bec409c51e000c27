//! Other bridges between stdio and HTTP side by side with ours: the latency that they add, what they cost, and what they leave.
//!
//! If a foreign bridge does not work here, the page says so. Only ours must work.

mod back;
mod client;
mod crew;
mod front;
mod peer;
mod web;

use std::io;
use std::time::Duration;

use back::Back;
use client::{Client, OverHttp};
use crew::Crew;
use front::Front;
use mainstay_os::clock;
use mainstay_testkit::wait::{Deadline, idle};
use peer::{INSTALL, Peer};
use web::Web;

use super::{Block, Part, Target};
use crate::args::Effort;
use crate::place::Place;
use crate::stats::{Series, mb, ms, us};
use crate::table::Table;

/// The time that a bridge has after its clients were killed to release what they had.
const RID_WITHIN: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(50);
/// The idle limit of a session, for bridges that have one.
const IDLE_MS: u64 = 2_000;

/// The target for what a bridge adds to a call.
const ADDED_MAX_NS: u64 = 60_000;

/// How much is measured.
#[derive(Clone, Copy)]
struct Amount {
    starts: usize,
    rounds: usize,
    block: usize,
    sessions: usize,
    clients: usize,
    /// The least time after the idle limit in which a session has to end.
    slack_ms: u64,
}

pub fn measure(place: &Place<'_>, effort: Effort) -> io::Result<Part> {
    let amount = Amount {
        starts: effort.pick(3, 1),
        // Two builds differ by less than two bridges do.
        rounds: effort.pick(if place.has_old() { 30 } else { 6 }, 2),
        block: effort.pick(100, 20),
        sessions: effort.pick(10, 3),
        clients: effort.pick(5, 2),
        slack_ms: effort.pick(4_000, 1_000) as u64,
    };
    if place.has_old() {
        return old_and_new(place, amount);
    }
    let (there, missing): (Vec<Peer>, Vec<Peer>) = Peer::ALL.into_iter().partition(|peer| {
        let installed = effort == Effort::Full && peer.program().is_some();
        *peer == Peer::Mainstay || installed
    });
    let mut blocks: Vec<Block> = vec![intro(amount).into()];
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(|peer| peer.words()).collect();
        let why = match effort {
            Effort::Quick => "left out by `--quick`",
            Effort::Full => "not installed",
        };
        let text = format!(
            "Not measured, {why}: {}. To install: `{INSTALL}`.",
            names.join(", ")
        );
        blocks.push(text.into());
    }
    let mut notes = Vec::new();
    let front = fronts(place, &there, amount, &mut notes)?;
    blocks.push("### A stdio server behind HTTP".into());
    blocks.push(front.table.into());
    let (table, front_left) = forsaken_fronts(place, &there, amount, &mut notes)?;
    blocks.push(forsaken_words(amount).into());
    blocks.push(table.into());
    let back = backs(place, &there, amount, &mut notes)?;
    blocks.push("### An HTTP server behind stdio".into());
    blocks.push(back.table.into());
    let (table, back_left) = forsaken_backs(place, &there, amount, &mut notes)?;
    blocks.push(
        "Clients that have started a bridge each and have opened are killed (SIGKILL); what is left is looked for 8 s later at the latest. The HTTP \
         server says how many sessions it had, and has."
            .into(),
    );
    blocks.push(table.into());
    if !notes.is_empty() {
        blocks.push(format!("What did not work: {}.", notes.join("; ")).into());
    }
    let left = Target {
        what: "`serve`, `run --url`: sessions and processes that killed clients leave",
        aim: "0",
        measured: format!("{front_left}, {back_left}"),
        met: front_left == 0 && back_left == 0,
    };
    let added = added(front.added_ns, back.added_ns);
    Ok(Part::new(blocks, vec![added, left]))
}

/// Two builds of ours, without the other bridges and without killed clients.
fn old_and_new(place: &Place<'_>, amount: Amount) -> io::Result<Part> {
    let builds = [Peer::Mainstay, Peer::Old];
    let mut notes = Vec::new();
    let front = fronts(place, &builds, amount, &mut notes)?;
    let back = backs(place, &builds, amount, &mut notes)?;
    let target = added(front.added_ns, back.added_ns);
    let blocks = vec![
        intro(amount).into(),
        "### A stdio server behind HTTP".into(),
        front.table.into(),
        "### An HTTP server behind stdio".into(),
        back.table.into(),
    ];
    Ok(Part::new(blocks, vec![target]))
}

/// What ours adds to a call, in both directions.
fn added(front_ns: u64, back_ns: u64) -> Target {
    Target {
        what: "`serve`, `run --url`: added per call against no bridge, p50",
        aim: "≤ 60 µs each",
        measured: format!("{} µs, {} µs", us(front_ns), us(back_ns)),
        met: front_ns.max(back_ns) <= ADDED_MAX_NS,
    }
}

fn intro(amount: Amount) -> String {
    format!(
        "A 200 B call and its answer, {} times one after another and as often {} at a time, in blocks of {} that take turns between all bridges, all of \
         which run meanwhile, after one block each that does not count. *No bridge* is the same client on a small HTTP server, and *added* is what a bridge takes longer than that. Memory is that of \
         all processes of the bridge with one session, its server not counted: their own pages, and those of the program file once. Start is from the start of the process to the answer to the first \
         call (median of {}). The servers parse every message, so the figures are not those of the sections above.",
        amount.rounds * amount.block,
        client::AT_ONCE,
        amount.block,
        amount.starts
    )
}

fn forsaken_words(amount: Amount) -> String {
    format!(
        "A client that has opened {} sessions, made a call in each, and listens in each, is killed (SIGKILL). A bridge with an idle limit \
         for sessions is set to {} s (the default is 30 minutes, for each of them). At least {} s later, the table shows in how many of the sessions a \
         call is still answered, and how many more processes there are than before the client came. Where one server is for all sessions, it stays by design \
         and is not counted.",
        amount.sessions,
        IDLE_MS / 1_000,
        (IDLE_MS + amount.slack_ms) / 1_000,
    )
}

/// One row while it is measured.
struct Lane {
    words: String,
    client: Option<Box<dyn Client>>,
    one: Series,
    one_ns: u64,
    many_ns: u64,
    memory: Option<u64>,
    starts: Series,
}

impl Lane {
    fn new(words: String) -> Self {
        Self {
            words,
            client: None,
            one: Series::default(),
            one_ns: 0,
            many_ns: 0,
            memory: None,
            starts: Series::default(),
        }
    }

    fn forget(&mut self) {
        (self.one, self.one_ns, self.many_ns) = (Series::default(), 0, 0);
    }

    fn block(&mut self, count: usize) -> io::Result<()> {
        let Some(client) = &mut self.client else {
            return Ok(());
        };
        client.refresh()?;
        let begun = clock::now();
        for id in 0..count {
            let before = clock::now();
            client.ask(id)?;
            self.one.push(clock::now() - before);
        }
        let half = clock::now();
        client.ask_many(count)?;
        self.one_ns += half - begun;
        self.many_ns += clock::now() - half;
        Ok(())
    }
}

fn fronts(
    place: &Place<'_>,
    peers: &[Peer],
    amount: Amount,
    notes: &mut Vec<String>,
) -> io::Result<SideBySide> {
    let peers: Vec<Peer> = peers.iter().copied().filter(|peer| peer.fronts()).collect();
    let web = Web::start()?;
    side_by_side(
        place,
        &peers,
        amount,
        notes,
        floor(&web)?,
        "serve",
        |peer, start| {
            let (front, client, ns) = Front::start(place, peer, &format!("front-{start}"))?;
            Ok((Running::Front(front), client, ns))
        },
    )
}

fn backs(
    place: &Place<'_>,
    peers: &[Peer],
    amount: Amount,
    notes: &mut Vec<String>,
) -> io::Result<SideBySide> {
    let there = |peer: &Peer| peer.back("").is_some();
    let peers: Vec<Peer> = peers.iter().copied().filter(there).collect();
    let web = Web::start()?;
    side_by_side(
        place,
        &peers,
        amount,
        notes,
        floor(&web)?,
        "run --url",
        |peer, start| {
            let (back, client, ns) = Back::start(place, peer, &web, &format!("back-{start}"))?;
            Ok((Running::Back(back), Box::new(client), ns))
        },
    )
}

/// A running bridge, in either direction.
enum Running {
    Front(Front),
    Back(Back),
}

impl Running {
    fn memory(&self) -> u64 {
        match self {
            Self::Front(front) => front.crew.memory(),
            Self::Back(back) => back.crew.memory(),
        }
    }

    fn end(self, place: &Place<'_>) -> io::Result<()> {
        match self {
            Self::Front(front) => front.end(place),
            Self::Back(back) => back.end(place),
        }
    }
}

/// The bridges of one direction.
struct SideBySide {
    table: Table,
    /// What ours adds to a call, p50.
    added_ns: u64,
}

/// Starts each bridge as often as wanted and measures the last ones in turn.
fn side_by_side(
    place: &Place<'_>,
    peers: &[Peer],
    amount: Amount,
    notes: &mut Vec<String>,
    floor: Lane,
    ours: &str,
    start: impl Fn(Peer, usize) -> io::Result<(Running, Box<dyn Client>, u64)>,
) -> io::Result<SideBySide> {
    let mut lanes = vec![floor];
    let mut running = Vec::new();
    for &peer in peers {
        let mut lane = Lane::new(named(peer, ours));
        for number in 0..amount.starts {
            match start(peer, number) {
                Ok((bridge, client, ns)) => {
                    lane.starts.push(ns);
                    if number + 1 < amount.starts {
                        drop(client);
                        bridge.end(place)?;
                    } else {
                        lane.memory = Some(bridge.memory());
                        lane.client = Some(client);
                        running.push(bridge);
                    }
                }
                Err(error) => failed(notes, peer, "does not start", error)?,
            }
        }
        lanes.push(lane);
    }
    in_turn(place, &mut lanes, peers, amount, notes)?;
    let p50 = |lane: Option<&Lane>| lane.map_or(0, |lane| lane.one.p50());
    let found = SideBySide {
        table: told(&lanes, amount),
        // Ours is the first behind the floor.
        added_ns: p50(lanes.get(1)).saturating_sub(p50(lanes.first())),
    };
    drop(lanes);
    for bridge in running {
        bridge.end(place)?;
    }
    Ok(found)
}

/// The small HTTP server without a bridge.
fn floor(web: &Web) -> io::Result<Lane> {
    let mut lane = Lane::new("no bridge".into());
    lane.client = Some(Box::new(OverHttp::open(
        &web.endpoint(),
        Peer::Mainstay.tool(),
    )?));
    Ok(lane)
}

fn in_turn(
    place: &Place<'_>,
    lanes: &mut [Lane],
    peers: &[Peer],
    amount: Amount,
    notes: &mut Vec<String>,
) -> io::Result<()> {
    for round in 0..=amount.rounds {
        for lane in &mut *lanes {
            place.step();
            // The first round does not count, because some bridges compile while they run.
            if round == 1 {
                lane.forget();
            }
            if let Err(error) = lane.block(amount.block) {
                lane.client = None;
                let of = |peer: &&Peer| lane.words.contains(&peer.words());
                let peer = peers.iter().find(of).unwrap_or(&Peer::Mainstay);
                failed(notes, *peer, "stopped answering", error)?;
            }
        }
    }
    Ok(())
}

fn told(lanes: &[Lane], amount: Amount) -> Table {
    let mut table = Table::new(
        1,
        &[
            "bridge",
            "p50, µs",
            "p99",
            "added, p50",
            "one after another, 1/s",
            "16 at a time, 1/s",
            "memory, MB",
            "start, ms",
        ],
    );
    let floor = lanes.first().map_or(0, |lane| lane.one.p50());
    for lane in lanes {
        let count = amount.rounds * amount.block;
        let second = |ns: u64| match ns {
            0 => "-".into(),
            ns => format!("{:.0}", count as f64 * 1e9 / ns as f64),
        };
        let start = match lane.starts.count() {
            0 => "-".into(),
            _ => ms(lane.starts.p50()),
        };
        let memory = lane.memory.map_or("-".into(), mb);
        // A bridge that failed in the middle has no figures.
        let row = if lane.client.is_some() {
            let p50 = lane.one.p50();
            [
                us(p50),
                us(lane.one.quantile(0.99)),
                us(p50.saturating_sub(floor)),
                second(lane.one_ns),
                second(lane.many_ns),
                memory,
                start,
            ]
        } else {
            let none = || String::from("-");
            [none(), none(), none(), none(), none(), memory, start]
        };
        table.row([lane.words.clone()].into_iter().chain(row));
    }
    table
}

/// Clients open sessions in each bridge and are killed. Returns how many sessions and processes ours has left.
fn forsaken_fronts(
    place: &Place<'_>,
    peers: &[Peer],
    amount: Amount,
    notes: &mut Vec<String>,
) -> io::Result<(Table, usize)> {
    let mut table = Table::new(
        2,
        &[
            "clients killed without DELETE",
            "idle limit",
            "sessions opened",
            "sessions left",
            "processes left",
        ],
    );
    let mut forsaken = Vec::new();
    for &peer in peers.iter().filter(|peer| peer.fronts()) {
        let mut front = Front::spawn(place, peer, "forsaken", Some(IDLE_MS))?;
        let opened = front.listens().and_then(|()| {
            let before = front.crew.living().len();
            Ok((before, front.forsaken(place, amount.sessions)?))
        });
        match opened {
            Ok((before, sessions)) => forsaken.push((front, before, sessions)),
            Err(error) => {
                front.end(place)?;
                failed(notes, peer, "opens no sessions", error)?;
            }
        }
    }
    let least = Deadline::after(Duration::from_millis(IDLE_MS + amount.slack_ms));
    rid(place, || {
        least.passed()
            && forsaken
                .iter()
                .all(|(front, before, _)| front.crew.living().len() <= *before)
    });
    let mut ours = 0;
    for (front, before, sessions) in forsaken {
        let peer = front.peer;
        let processes = front.crew.living().len().saturating_sub(before);
        let left = front.answers(&sessions).unwrap_or(0);
        if peer == Peer::Mainstay {
            ours = processes + left;
        }
        table.row([
            named(peer, "serve"),
            if peer.expires() {
                format!("{} s", IDLE_MS / 1_000)
            } else {
                "no option".into()
            },
            sessions.len().to_string(),
            left.to_string(),
            processes.to_string(),
        ]);
        front.end(place)?;
    }
    Ok((table, ours))
}

/// Clients that have started a bridge each are killed. Returns how many sessions and processes ours has left.
fn forsaken_backs(
    place: &Place<'_>,
    peers: &[Peer],
    amount: Amount,
    notes: &mut Vec<String>,
) -> io::Result<(Table, usize)> {
    let mut table = Table::new(
        1,
        &[
            "clients killed",
            "clients",
            "sessions opened",
            "sessions left",
            "processes left",
        ],
    );
    let mut forsaken = Vec::new();
    for &peer in peers.iter().filter(|peer| peer.back("").is_some()) {
        let (crew, web) = (Crew::new(peer, "forsaken-back"), Web::start()?);
        match back::forsake(place, &crew, peer, &web, amount.clients) {
            Ok(()) => forsaken.push((peer, crew, web)),
            Err(error) => {
                crew.end_all();
                failed(notes, peer, "opens no sessions", error)?;
            }
        }
    }
    rid(place, || {
        forsaken
            .iter()
            .all(|(_, crew, web)| web.sessions().1 == 0 && crew.living().is_empty())
    });
    let mut ours = 0;
    for (peer, crew, web) in forsaken {
        let processes = crew.living().len();
        let (opened, left) = web.sessions();
        if peer == Peer::Mainstay {
            ours = processes + left;
        }
        table.row([
            named(peer, "run --url"),
            amount.clients.to_string(),
            opened.to_string(),
            left.to_string(),
            processes.to_string(),
        ]);
        crew.end_all();
        place.step();
    }
    Ok((table, ours))
}

/// Waits until the bridges have released everything, or their time is over.
fn rid(place: &Place<'_>, done: impl Fn() -> bool) {
    let end = Deadline::after(RID_WITHIN);
    while !done() && !end.passed() {
        place.step();
        idle(LOOK);
    }
}

fn named(peer: Peer, verb: &str) -> String {
    match peer {
        Peer::Mainstay => format!("`mainstay {verb}`"),
        Peer::Old => format!("`mainstay {verb}`, old"),
        Peer::Supergateway
        | Peer::ProxyNpm
        | Peer::ProxyPython
        | Peer::ProxyRust
        | Peer::Remote => peer.words(),
    }
}

/// Ours must work. A failure of another bridge becomes a note.
fn failed(notes: &mut Vec<String>, peer: Peer, what: &str, error: io::Error) -> io::Result<()> {
    if peer.is_ours() {
        return Err(error);
    }
    let why = error.to_string();
    let why = why.lines().next().unwrap_or("");
    notes.push(format!("{} {what} ({why})", peer.words()));
    Ok(())
}
