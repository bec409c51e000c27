//! What a seed decides about a world: limits, characters, faults.

use mainstay_protocol::limits::Limits;
use mainstay_protocol::message::lists::Which;
use mainstay_protocol::message::remembered::{self, Remembered};

use super::client;
use super::dice::Dice;
use super::outside::Manners;
use super::server::Temper;

/// What goes wrong beside the server. Each number is a chance in a thousand steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The keeper is killed at one of its next steps.
    pub kill_keeper: u64,
    /// At most this many times.
    pub keepers_left: u32,
    /// The same chance for steps in which lines of the client are in flight.
    pub kill_at_lines: u64,
    /// Then it is killed at one of this many next steps.
    pub kill_within: u64,
    /// The chance, in a thousand successors, that the successor of a killed keeper is killed while it takes over.
    pub kill_successor: u64,
    /// Another process kills the server.
    pub kill_server: u64,
    /// The user asks for another generation.
    pub renew: u64,
    /// Everything is late.
    pub stall: u64,
    /// The chance, in a thousand acts of the client, that the shim is signalled or killed.
    pub strike: u64,
}

/// Limits, with small values.
pub fn limits(dice: &mut Dice) -> Limits {
    Limits {
        grace_eof_ms: dice.between(0, 2_000),
        grace_term_ms: dice.between(0, 2_000),
        opening_ms: dice.between(500, 6_000),
        restart_budget: dice.pick(&[0, 1, 2, 5, 5, 5]),
        restart_window_ms: dice.pick(&[1_000, 10_000, 60_000]),
        restart_probe_ms: dice.pick(&[0, 1_000, 20_000]),
        drain_ms: dice.pick(&[0, 500, 3_000]),
        instant_opening_ms: dice.pick(&[0, 50, 300]),
        hibernate_ms: dice.pick(&[0, 0, 500, 5_000]),
        probe_idle_ms: dice.pick(&[0, 500, 3_000]),
        probe_wait_ms: dice.pick(&[100, 1_000]),
        probe_lost: dice.between(1, 3),
        call_deadline_ms: dice.pick(&[0, 0, 0, 300, 3_000]),
        held_messages: dice.pick(&[1, 4, 64]),
        held_bytes: dice.pick(&[65_536, 1 << 20]),
        linger_ms: dice.pick(&[0, 300, 5_000, 60_000]),
        ..Limits::default()
    }
}

/// How the servers of this story behave.
pub fn temper(dice: &mut Dice) -> Temper {
    let wild = dice.permille(700);
    let mut rarely = |most: u64| if wild { dice.below(most) } else { 0 };
    let mut temper = Temper {
        never: rarely(60),
        twice: rarely(60),
        stale: rarely(60),
        junk: rarely(100),
        notify: rarely(400),
        ask: rarely(1_000),
        die: rarely(150),
        refuse: rarely(200),
        version: rarely(20),
        long: rarely(40),
        ..Temper::default()
    };
    temper.answer_ms = dice.pick(&[0, 20, 500, 4_000]);
    temper.modern = dice.permille(400);
    temper.dies_of_discover = !temper.modern && dice.permille(300);
    temper.lists_differ = dice.permille(500);
    temper.list_changed = dice.permille(600);
    temper.ignores_pings = dice.permille(150);
    temper
}

/// The same servers once nothing goes wrong.
pub fn calm(temper: &Temper) -> Temper {
    Temper {
        answer_ms: temper.answer_ms.min(500),
        modern: temper.modern,
        lists_differ: temper.lists_differ,
        list_changed: temper.list_changed,
        ..Temper::default()
    }
}

/// What goes wrong beside them.
pub fn faults(dice: &mut Dice) -> Faults {
    Faults {
        kill_keeper: dice.pick(&[0, 0, 5, 20]),
        keepers_left: 4,
        kill_at_lines: 0,
        kill_within: 0,
        kill_successor: 0,
        kill_server: dice.pick(&[0, 0, 2, 10]),
        renew: dice.pick(&[0, 0, 30]),
        stall: dice.pick(&[0, 0, 1, 5]),
        strike: dice.pick(&[0, 30, 100, 300]),
    }
}

/// Worlds in which keepers are also killed exactly where they move the client's lines. Such worlds are drawn separately, so that
/// all other worlds are the same with and without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLines {
    /// Any line.
    Any,
    /// Lines longer than one read: the rest of the line moves within the buffer.
    Large,
}

/// Whether this is such a world.
pub fn kills_at_lines(seed: u64) -> Option<AtLines> {
    match Dice::new(!seed).below(1_000) {
        0..150 => Some(AtLines::Any),
        150..350 => Some(AtLines::Large),
        _ => None,
    }
}

impl AtLines {
    /// The faults of such a world.
    pub fn faults(self, faults: Faults) -> Faults {
        let (kill_at_lines, kill_within) = match self {
            Self::Any => (150, 60),
            Self::Large => (400, 150),
        };
        Faults {
            keepers_left: 12,
            kill_at_lines,
            kill_within,
            kill_successor: 300,
            ..faults
        }
    }
}

/// How the next server reacts to its end.
pub fn manners(dice: &mut Dice) -> Manners {
    let prompt = dice.permille(700);
    Manners {
        eof_ms: (prompt || dice.permille(500)).then(|| dice.delay_ms(3_000)),
        term_ms: (prompt || dice.permille(500)).then(|| dice.delay_ms(3_000)),
        others: if dice.permille(300) { 2 } else { 0 },
        others_obey: dice.permille(700),
        serve_on: dice.permille(80),
        unkillable: dice.permille(10),
    }
}

/// The cache of an earlier session of this configuration.
pub fn remembered() -> Remembered {
    let mut remembered = Remembered::default();
    let opening = client::opening("1");
    if let Some(digest) = remembered::digest_of_params(opening.as_bytes()) {
        remembered.learn_opening(digest, br#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}"#);
        let tools =
            br#"{"tools":[{"name":"ro","inputSchema":{},"annotations":{"readOnlyHint":true}}]}"#;
        remembered.learn_list(Some(digest), Which::Tools, tools);
        remembered.learn_list(None, Which::Tools, tools);
    }
    remembered.written();
    remembered
}
