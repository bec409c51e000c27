//! The causes of an end of a session: each is a row of the table.

use mainstay_os::identity::Handle;
use mainstay_protocol::event;
use mainstay_protocol::ids::Identity;
use mainstay_testkit::card::Card;
use mainstay_testkit::client::Carrier;
use mainstay_testkit::killers;
use mainstay_testkit::puppet::{Plan, Puppet};
use mainstay_testkit::terminal::Terminal;
use mainstay_testkit::wait::until;
use rustix::process::Signal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    CleanEof,
    HalfClose,
    ClientExits,
    ClientKilled,
    HangUp,
    Claude,
    Copilot,
    Codex,
    Shim,
    KeptInVain,
    KeptForADeadClient,
    Guard,
    Keeper,
    GuardAndKeeper,
    AllThree,
}

/// The expected consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// Every process ends.
    Ended,
    /// The client goes on with the same server.
    SameServer,
    /// The client goes on with a new server.
    NewServer,
    /// The next start ends the processes that can outlive a keeper.
    Swept,
}

impl Cause {
    pub const ALL: [Self; 15] = [
        Self::CleanEof,
        Self::HalfClose,
        Self::ClientExits,
        Self::ClientKilled,
        Self::HangUp,
        Self::Claude,
        Self::Copilot,
        Self::Codex,
        Self::Shim,
        Self::KeptInVain,
        Self::KeptForADeadClient,
        Self::Guard,
        Self::Keeper,
        Self::GuardAndKeeper,
        Self::AllThree,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Self::CleanEof => "client closes stdin",
            Self::HalfClose => "client half-closes its socket",
            Self::ClientExits => "client exits without closing",
            Self::ClientKilled => "client gets SIGKILL",
            Self::HangUp => "terminal hangs up",
            Self::Claude => "shim: SIGINT, SIGTERM, SIGKILL (Claude)",
            Self::Copilot => "shim's tree: SIGTERM, 2 ms, SIGKILL (Copilot)",
            Self::Codex => "shim's group: SIGTERM, 2 ms, SIGKILL (Codex)",
            Self::Shim => "shim gets SIGKILL",
            Self::KeptInVain => "shim gets SIGTERM, kept for 500 ms in vain",
            Self::KeptForADeadClient => "shim gets SIGTERM, kept for 60 s, client ends meanwhile",
            Self::Guard => "guard gets SIGKILL",
            Self::Keeper => "keeper gets SIGKILL",
            Self::GuardAndKeeper => "guard and keeper get SIGKILL at once",
            Self::AllThree => "shim, guard and keeper get SIGKILL at once",
        }
    }

    /// The client's plan for this cause.
    pub fn plan(self) -> Plan {
        Plan {
            carrier: if self == Self::HalfClose {
                Carrier::Sockets
            } else {
                Carrier::Pipes
            },
            terminal: (self == Self::HangUp)
                .then(|| Terminal::open().expect("a terminal is to be had")),
            own_group: self == Self::Codex,
            ..Plan::default()
        }
    }

    /// How long the server is kept for a client that lives.
    pub fn linger(self) -> &'static str {
        match self {
            Self::KeptInVain => "500ms",
            Self::KeptForADeadClient => "60s",
            Self::CleanEof
            | Self::HalfClose
            | Self::ClientExits
            | Self::ClientKilled
            | Self::HangUp
            | Self::Claude
            | Self::Copilot
            | Self::Codex
            | Self::Shim
            | Self::Guard
            | Self::Keeper
            | Self::GuardAndKeeper
            | Self::AllThree => "0",
        }
    }

    pub fn aftermath(self) -> Aftermath {
        match self {
            Self::Guard => Aftermath::SameServer,
            Self::Keeper | Self::GuardAndKeeper => Aftermath::NewServer,
            Self::AllThree => Aftermath::Swept,
            Self::CleanEof
            | Self::HalfClose
            | Self::ClientExits
            | Self::ClientKilled
            | Self::HangUp
            | Self::Claude
            | Self::Copilot
            | Self::Codex
            | Self::Shim
            | Self::KeptInVain
            | Self::KeptForADeadClient => Aftermath::Ended,
        }
    }

    /// True if a teardown may name this cause. If two things happen at once, either may be seen first.
    pub fn tells(self, why: &event::Cause) -> bool {
        use event::Cause::{ClientEof, ClientGone, ShimKilled, ShimSignal};
        match self {
            Self::CleanEof
            | Self::HalfClose
            // The client goes on, or the next one comes, and closes in the end.
            | Self::Guard
            | Self::Keeper
            | Self::GuardAndKeeper
            | Self::AllThree => *why == ClientEof,
            Self::ClientExits | Self::ClientKilled => matches!(why, ClientEof | ClientGone),
            Self::HangUp => matches!(why, ClientEof | ClientGone | ShimSignal { number: 1 }),
            Self::Claude => matches!(why, ShimSignal { number: 2 } | ShimKilled),
            Self::Copilot | Self::Codex => matches!(why, ShimSignal { number: 15 } | ShimKilled),
            Self::Shim => *why == ShimKilled,
            Self::KeptInVain => *why == ShimSignal { number: 15 },
            Self::KeptForADeadClient => *why == ClientGone,
        }
    }

    /// Does it and returns the client if it lives on.
    pub fn strike(self, mut puppet: Puppet, card: &Card) -> Option<Puppet> {
        let shim = puppet.shims[0];
        let victims = |roles: &[Option<Identity>]| {
            let victims: Vec<Identity> = roles.iter().copied().flatten().collect();
            assert_eq!(
                victims.len(),
                roles.len(),
                "the card names them all: {}",
                card.json
            );
            killers::at_once(&victims);
        };
        match self {
            Self::CleanEof => puppet.close(),
            Self::HalfClose => puppet.half_close(),
            Self::ClientExits => {
                puppet.exit();
                return None;
            }
            Self::ClientKilled => {
                puppet.kill();
                return None;
            }
            Self::HangUp => {
                puppet.hang_up();
                return None;
            }
            Self::Claude => killers::claude(shim),
            Self::Copilot => killers::copilot(shim),
            Self::Codex => killers::codex(shim),
            Self::Shim => victims(&[Some(shim)]),
            Self::KeptInVain => terminate(shim),
            Self::KeptForADeadClient => {
                terminate(shim);
                until("the server is kept", || {
                    let card = std::fs::read_to_string(card.dir.join("card.json")).ok()?;
                    card.contains("\"lingering\"").then_some(())
                });
                puppet.kill();
                return None;
            }
            Self::Guard => victims(&[card.guard]),
            Self::Keeper => victims(&[card.keeper]),
            Self::GuardAndKeeper => victims(&[card.guard, card.keeper]),
            Self::AllThree => victims(&[Some(shim), card.guard, card.keeper]),
        }
        Some(puppet)
    }
}

fn terminate(shim: Identity) {
    let shim = Handle::open(shim).expect("the shim is there");
    shim.signal(Signal::TERM).expect("it can be signalled");
}
