//! Every limit and time-out, with its unit and default, in one table.
//!
//! The table makes the options, the config keys and the reference page; nothing else in the project carries a
//! number that a user might want to change.

/// What may be set for one server. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a server may take to end by itself after its stdin was closed.
    pub grace_eof_ms: u64,
    /// How long the tree may take to end after SIGTERM.
    pub grace_term_ms: u64,
    /// How long the kill rung may take before the leftovers are named.
    pub kill_confirm_ms: u64,
    /// After how long a silent server's opening request is answered with an explanation (the server is left running).
    pub opening_ms: u64,
    /// Lines of the server's stderr that are remembered for the exit event.
    pub stderr_tail_lines: u64,
    /// Bytes of the server's stderr that are remembered for the exit event.
    pub stderr_tail_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let mut limits = Self {
            grace_eof_ms: 0,
            grace_term_ms: 0,
            kill_confirm_ms: 0,
            opening_ms: 0,
            stderr_tail_lines: 0,
            stderr_tail_bytes: 0,
        };
        for limit in &TABLE {
            *(limit.of)(&mut limits) = limit.default;
        }
        limits
    }
}

/// The unit of a limit, which is also how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time: `1500ms`, `2s`, `5m`.
    Time,
    /// A size: `8KiB`, `16MiB`, or plain bytes.
    Size,
    /// A plain number.
    Count,
}

/// One row of the table.
pub struct Limit {
    /// The option (`--grace-eof`) and, with `_`, the config key (`grace_eof`).
    pub name: &'static str,
    /// How it is written.
    pub unit: Unit,
    /// Its default, in milliseconds, bytes or pieces.
    pub default: u64,
    /// The smallest value that makes sense.
    pub min: u64,
    /// The largest value that makes sense.
    pub max: u64,
    /// One sentence for `--help` and the reference page.
    pub help: &'static str,
    /// The field it sets.
    pub of: fn(&mut Limits) -> &mut u64,
}

/// The table.
pub static TABLE: [Limit; 6] = [
    Limit {
        name: "grace-eof",
        unit: Unit::Time,
        default: 2_000,
        min: 0,
        max: 600_000,
        help: "Time a server has to end by itself after its stdin was closed",
        of: |l| &mut l.grace_eof_ms,
    },
    Limit {
        name: "grace-term",
        unit: Unit::Time,
        default: 2_000,
        min: 0,
        max: 600_000,
        help: "Time the tree has to end after SIGTERM, before it is killed",
        of: |l| &mut l.grace_term_ms,
    },
    Limit {
        name: "kill-confirm",
        unit: Unit::Time,
        default: 5_000,
        min: 10,
        max: 60_000,
        help: "Time the kill itself may take before the leftovers are named in an event",
        of: |l| &mut l.kill_confirm_ms,
    },
    Limit {
        name: "opening",
        unit: Unit::Time,
        default: 55_000,
        min: 100,
        max: 3_600_000,
        help: "After this time without any output, a server's opening request is answered with an explanation; the server is left running",
        of: |l| &mut l.opening_ms,
    },
    Limit {
        name: "stderr-tail-lines",
        unit: Unit::Count,
        default: 64,
        min: 0,
        max: 10_000,
        help: "Lines of the server's stderr kept for the exit event",
        of: |l| &mut l.stderr_tail_lines,
    },
    Limit {
        name: "stderr-tail-bytes",
        unit: Unit::Size,
        default: 8 * 1024,
        min: 0,
        max: 1024 * 1024,
        help: "Bytes of the server's stderr kept for the exit event",
        of: |l| &mut l.stderr_tail_bytes,
    },
];

/// A line up to this size goes on whole; a longer one is forwarded as it comes.
pub const WHOLE_LINE_BYTES: usize = 64 * 1024;
/// In-flight requests that are tracked; more give back-pressure.
pub const IN_FLIGHT_MAX: usize = 65_536;
/// The longest id token that is tracked.
pub const ID_BYTES: usize = 104;
/// Days that events are kept.
pub const EVENTS_KEPT_DAYS: u64 = 14;
/// Bytes of events that are kept.
pub const EVENTS_KEPT_BYTES: u64 = 64 * 1024 * 1024;
/// New keepers that a guard starts within [`KEEPER_BUDGET_MS`] before it gives up.
pub const KEEPER_BUDGET: u32 = 5;
/// See [`KEEPER_BUDGET`].
pub const KEEPER_BUDGET_MS: u64 = 60_000;
