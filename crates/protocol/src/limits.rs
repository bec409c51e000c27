//! Every limit and time-out, with its unit and default, in one table.
//!
//! The tables make the options, the config keys and the reference pages. The numbers after them are fixed, because
//! another value would improve nothing or, as for the table of requests in flight, because they are part of the layout
//! of the record. The reference pages list them too.

/// How much is kept of the events of all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Days that have events.
    pub days: u64,
    /// Bytes of all files together.
    pub bytes: u64,
}

impl Default for Kept {
    fn default() -> Self {
        let mut kept = Self { days: 0, bytes: 0 };
        for limit in &EVENTS {
            *(limit.of)(&mut kept) = limit.default;
        }
        kept
    }
}

/// What may be set below `[events]`.
pub static EVENTS: [Limit<Kept>; 2] = [
    Limit {
        name: "days",
        unit: Unit::Count,
        default: 14,
        min: 1,
        max: 36_500,
        help: "So many of the last days that have events are kept",
        of: |kept| &mut kept.days,
    },
    Limit {
        name: "size",
        unit: Unit::Size,
        default: 64 * 1024 * 1024,
        min: 2 * EVENTS_FILE_BYTES,
        max: 1 << 40,
        help: "The oldest go before all files together are larger than this",
        of: |kept| &mut kept.bytes,
    },
];

/// What may be set for one server. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a server may take to end by itself after its stdin was closed.
    pub grace_eof_ms: u64,
    /// How long the tree may take to end after SIGTERM.
    pub grace_term_ms: u64,
    /// How long the kill rung may take before the processes that are left are reported.
    pub kill_confirm_ms: u64,
    /// After how long a silent server's opening request is answered with an explanation (the server is left running).
    pub opening_ms: u64,
    /// Lines of the server's stderr that are remembered for the exit event.
    pub stderr_tail_lines: u64,
    /// Bytes of the server's stderr that are remembered for the exit event.
    pub stderr_tail_bytes: u64,
    /// Deaths within the window after which the server is given up; 0: it is never started again.
    pub restart_budget: u64,
    /// Over how long deaths are counted.
    pub restart_window_ms: u64,
    /// How often a server that was given up is tried once more; 0: never.
    pub restart_probe_ms: u64,
    /// How long a server that is to be restarted may work on what is in flight.
    pub drain_ms: u64,
    /// After how long an opening is answered from the cache; 0: never.
    pub instant_opening_ms: u64,
    /// Idle time after which a server is stopped until it is needed; 0: never.
    pub hibernate_ms: u64,
    /// How often an idle server is asked whether it is there; 0: never.
    pub probe_idle_ms: u64,
    /// How long an answer to that may take.
    pub probe_wait_ms: u64,
    /// Lost questions in a row after which an idle and silent server is restarted.
    pub probe_lost: u64,
    /// After how long a request is answered with an error; 0: never.
    pub call_deadline_ms: u64,
    /// Memory of the tree above which the server is restarted; 0: no limit.
    pub memory_max_bytes: u64,
    /// How long watched files must be left alone before a restart.
    pub watch_quiet_ms: u64,
    /// Messages that are held behind an instant opening.
    pub held_messages: u64,
    /// Bytes of such messages.
    pub held_bytes: u64,
    /// Bytes of one recording of frames.
    pub record_bytes: u64,
    /// Bytes of the log of one link: stderr, and lines on stdout that are no messages; 0: no log.
    pub log_bytes: u64,
    /// How long a server is kept for a client that lives and whose shim was killed without an end of stdin; 0: not at all.
    pub linger_ms: u64,
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
            restart_budget: 0,
            restart_window_ms: 0,
            restart_probe_ms: 0,
            drain_ms: 0,
            instant_opening_ms: 0,
            hibernate_ms: 0,
            probe_idle_ms: 0,
            probe_wait_ms: 0,
            probe_lost: 0,
            call_deadline_ms: 0,
            memory_max_bytes: 0,
            watch_quiet_ms: 0,
            held_messages: 0,
            held_bytes: 0,
            record_bytes: 0,
            log_bytes: 0,
            linger_ms: 0,
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
pub struct Limit<L: 'static = Limits> {
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
    pub of: fn(&mut L) -> &mut u64,
}

/// The table.
pub static TABLE: [Limit; 23] = [
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
    Limit {
        name: "restart-budget",
        unit: Unit::Count,
        default: 5,
        min: 0,
        max: 1_000,
        help: "Deaths within --restart-window after which a server is given up; 0 never starts one again",
        of: |l| &mut l.restart_budget,
    },
    Limit {
        name: "restart-window",
        unit: Unit::Time,
        default: 60_000,
        min: 1_000,
        max: 86_400_000,
        help: "Time over which --restart-budget counts deaths",
        of: |l| &mut l.restart_window_ms,
    },
    Limit {
        name: "restart-probe",
        unit: Unit::Time,
        default: 60_000,
        min: 0,
        max: 86_400_000,
        help: "How often a server that was given up is tried once more; 0 never",
        of: |l| &mut l.restart_probe_ms,
    },
    Limit {
        name: "drain",
        unit: Unit::Time,
        default: 10_000,
        min: 0,
        max: 3_600_000,
        help: "Time a server that is to be restarted (restart, --watch, --memory-max) has to answer what is in flight",
        of: |l| &mut l.drain_ms,
    },
    Limit {
        name: "instant-opening",
        unit: Unit::Time,
        default: 300,
        min: 0,
        max: 60_000,
        help: "After this time without an answer, the opening and the lists are answered from the cache of an earlier session; 0 never",
        of: |l| &mut l.instant_opening_ms,
    },
    Limit {
        name: "hibernate",
        unit: Unit::Time,
        default: 0,
        min: 0,
        max: 604_800_000,
        help: "Stop a server that has been idle for this time; the next request starts it again; 0 never",
        of: |l| &mut l.hibernate_ms,
    },
    Limit {
        name: "probe-idle",
        unit: Unit::Time,
        default: 30_000,
        min: 0,
        max: 86_400_000,
        help: "How often an idle server is asked whether it is there; 0 never",
        of: |l| &mut l.probe_idle_ms,
    },
    Limit {
        name: "probe-wait",
        unit: Unit::Time,
        default: 10_000,
        min: 100,
        max: 3_600_000,
        help: "Time a server has to answer such a question before it counts as lost",
        of: |l| &mut l.probe_wait_ms,
    },
    Limit {
        name: "probe-lost",
        unit: Unit::Count,
        default: 3,
        min: 1,
        max: 1_000,
        help: "Questions in a row an idle server must leave unanswered, without any output or use of the processor, before it is restarted",
        of: |l| &mut l.probe_lost,
    },
    Limit {
        name: "call-deadline",
        unit: Unit::Time,
        default: 0,
        min: 0,
        max: 86_400_000,
        help: "Answer a request with an error after this time and cancel it at the server; 0 never",
        of: |l| &mut l.call_deadline_ms,
    },
    Limit {
        name: "memory-max",
        unit: Unit::Size,
        default: 0,
        min: 0,
        max: 1 << 50,
        help: "Memory of the whole tree above which the server is restarted between two requests; 0 no limit",
        of: |l| &mut l.memory_max_bytes,
    },
    Limit {
        name: "watch-quiet",
        unit: Unit::Time,
        default: 300,
        min: 10,
        max: 60_000,
        help: "How long the files under --watch must be left alone before the server is restarted",
        of: |l| &mut l.watch_quiet_ms,
    },
    Limit {
        name: "held-messages",
        unit: Unit::Count,
        default: 1_024,
        min: 1,
        max: 65_536,
        help: "Messages of the client that are held while a server starts behind an instant opening",
        of: |l| &mut l.held_messages,
    },
    Limit {
        name: "held-bytes",
        unit: Unit::Size,
        default: 8 * 1024 * 1024,
        min: 64 * 1024,
        max: 1 << 30,
        help: "Bytes of such messages",
        of: |l| &mut l.held_bytes,
    },
    Limit {
        name: "record-bytes",
        unit: Unit::Size,
        default: 64 * 1024 * 1024,
        min: 64 * 1024,
        max: 1 << 40,
        help: "Size at which the file under --record is ended; the server goes on",
        of: |l| &mut l.record_bytes,
    },
    Limit {
        name: "log-size",
        unit: Unit::Size,
        default: 4 * 1024 * 1024,
        min: 0,
        max: 1 << 30,
        help: "Size of the server's log for `mainstay logs`; the oldest lines go first; 0 writes no log, less than 256KiB counts as 256KiB",
        of: |l| &mut l.log_bytes,
    },
    Limit {
        name: "linger",
        unit: Unit::Time,
        default: LINGER_MS,
        min: 0,
        max: 3_600_000,
        help: "If the client kills mainstay but stays alive, keep the server this long so that the client can reconnect; without this option 60s for Claude Code, 0 for Copilot, Zed and Crush, and the default for others",
        of: |l| &mut l.linger_ms,
    },
];

/// How long a server is kept for a client that has no profile.
pub const LINGER_MS: u64 = 5_000;
/// How long a signalled shim waits: an EOF within this time is the client's own act, not a consequence of our end.
pub const DOUBT_MS: u64 = 100;
/// How long after its start a shim gives back the memory that only its start has needed.
pub const SHIM_STARTS_MS: u64 = 500;
/// How long a signalled shim stays if the keeper says nothing: less than the 500 ms after which Claude Code kills it.
pub const SHIM_STAYS_MS: u64 = 400;
/// How long a shim waits for the keeper's word about a signal that its parent did not send.
pub const SHIM_WAITS_MS: u64 = 2_000;
/// Within this time a second signal of the same stranger is obeyed.
pub const INSIST_MS: u64 = 2_000;
/// How long a kept server may take to answer before it is handed over; one that does not is replaced.
pub const ANSWERS_MS: u64 = 1_000;
/// How long a lingering keeper may take to attach a newcomer before the newcomer starts a server of its own.
pub const HANDOVER_MS: u64 = 5_000;
/// Connections that a lingering keeper listens to at once.
pub const DOOR_PEERS: usize = 16;
/// Progress tokens of a client that came back that are known by their labels; the oldest goes.
pub const PROGRESS_MAX: usize = 4_096;

/// A line up to this size goes on whole; a longer one is forwarded as it comes.
pub const WHOLE_LINE_BYTES: usize = 64 * 1024;
/// The longest line that we hold whole because we must see all of it.
pub const HELD_LINE_BYTES: usize = 16 * 1024 * 1024;
/// In-flight requests that are tracked; more give back-pressure.
pub const IN_FLIGHT_MAX: usize = 65_536;
/// The longest id token that has its place in the table of requests in flight.
pub const ID_BYTES: usize = 104;
/// The longest id of a request that is taken; one with a longer id is answered with an error at once.
pub const LONG_ID_BYTES: usize = 4_096;
/// All ids above [`ID_BYTES`] of requests in flight together.
pub const LONG_IDS_BYTES: usize = 64 * 1024;
/// How long the next generation waits after the first, second … death in a row.
pub const BACKOFF_MS: [u64; 6] = [0, 250, 500, 1_000, 2_000, 4_000];
/// A generation that lived this long, or has served, has shown that it can: the waiting begins anew, the budget does not.
pub const STEADY_MS: u64 = 5_000;
/// Generations that may die before the client has had any answer.
pub const OPENING_TRIES: u32 = 3;
/// How much longer the next one waits after each of these.
pub const OPENING_WAIT_MS: u64 = 250;
/// How long a `run` with wrong arguments waits for the client's first request, to explain them.
pub const MISTAKE_MS: u64 = 10_000;
/// How many bytes of the client it reads.
pub const MISTAKE_BYTES: usize = 1024 * 1024;
/// How many requests it answers.
pub const MISTAKE_ANSWERS: usize = 16;
/// How long the command of `notify` may run.
pub const NOTIFY_MS: u64 = 10_000;
/// How long nothing is notified again about one server, or about orphans.
pub const NOTIFY_EVERY_MS: u64 = 10 * 60_000;
/// How long a link stays to explain a failed start to a client that goes on asking.
pub const EXPLAIN_MS: u64 = 2_000;
/// Processor time of the tree that is a sign of life: one tick of the kernel's accounting.
pub const ALIVE_CPU_MS: u64 = 10;
/// How often a tree's memory is looked at, if it is limited.
pub const MEMORY_EVERY_MS: u64 = 1_000;
/// How long a cancelled request may keep a server busy that writes nothing meanwhile.
pub const TAKEN_BACK_MS: u64 = 3_600_000;
/// How long a task forbids rest and probes without any news of it, if its server does not say how long it is kept.
pub const TASK_MS: u64 = 3_600_000;
/// Tasks that are known at once; of more, the one that would end first is forgotten.
pub const TASKS_MAX: usize = 1_024;
/// A day's file of events is followed by another one at this size.
pub const EVENTS_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// After so many days the remains of a dead link are removed that cannot be settled here: its directory from another
/// pid namespace, the note of a container whose engine does not answer.
pub const ENTRY_KEPT_DAYS: u64 = 14;
/// Openings in the cache file of one configuration; the oldest is dropped.
pub const CACHE_OPENINGS: usize = 4;
/// Bytes of results in the cache file of one configuration.
pub const CACHE_BYTES: usize = 4 * 1024 * 1024;
/// The largest cache file that is read.
pub const CACHE_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Days that an unused cache file is kept.
pub const CACHE_FILES_KEPT_DAYS: u64 = 30;
/// Cache files that are kept; the one unused for longest is removed.
pub const CACHE_FILES_KEPT: usize = 256;
/// Bytes of all cache files together.
pub const CACHE_FILES_KEPT_BYTES: u64 = 64 * 1024 * 1024;
/// New keepers that a guard starts within [`KEEPER_BUDGET_MS`] before it gives up; likewise new pairs that a shim starts.
pub const KEEPER_BUDGET: u32 = 5;
/// See [`KEEPER_BUDGET`].
pub const KEEPER_BUDGET_MS: u64 = 60_000;
/// How long they wait after a start that failed because memory, processes or descriptors had run out; a keeper waits as
/// long before it starts the next side guard.
pub const KEEPER_RETRY_MS: u32 = 500;
/// Side guards that one keeper starts before it continues alone.
pub const SIDE_GUARDS: u32 = 16;
/// How long a guard's or a sweep's kill may take until all are gone.
pub const GUARD_KILL_MS: u64 = 5_000;
/// How long a shim waits for the death of a killed guard and keeper before it starts new ones.
pub const PAIR_END_MS: u64 = 5_000;
/// How long after the client's end a guard asks a keeper that is still there whether it makes progress, and how often.
pub const CLIENT_GONE_ASK_MS: u64 = 1_000;
/// How long such a keeper may take to answer, besides the time for which the kill rung blocks it.
pub const KEEPER_ANSWER_MS: u64 = 1_000;
/// How long a process that is on its way out may take until its status can be read.
pub const EXITING_MS: u64 = 100;
/// How long the guardian gives a living guard to end its dead keeper's tree.
pub const GUARDIAN_GUARD_MS: u64 = 1_000;
/// After how long the guardian ends a leaf again that is still there.
pub const GUARDIAN_AGAIN_MS: u64 = 1_000;
/// How long the guardian stays without any leaf.
pub const GUARDIAN_IDLE_MS: u64 = 10_000;
/// How long the user's systemd may take to know us.
pub const SCOPE_KNOCK_MS: u64 = 100;
/// How long it may take to make a scope, and again to start the guardian.
pub const SCOPE_MAKE_MS: u64 = 500;
/// How long a connection to a keeper may say nothing before it makes room for others.
pub const CONTROL_ASKING_MS: u64 = 1_000;
/// Connections to a keeper that show frames; they do not count among the others.
pub const TAPS: usize = 4;
/// Bytes that wait for a tap that does not read; beyond them frames are lost and counted.
pub const TAP_BYTES: usize = 512 * 1024;
/// The same for the disk under a recording.
pub const RECORDING_BYTES: usize = 512 * 1024;
/// The recording's disk is written to for a tenth of the time at most: after a write it rests this many times as long.
pub const RECORDING_RESTS: u64 = 10;
/// How long that disk is left alone after an error.
pub const RECORDING_AFTER_ERROR_MS: u64 = 1_000;
/// Files that the log of one link has at most; a full one is followed by the next.
pub const LOG_FILES: u64 = 4;
/// The smallest size at which such a file is full.
pub const LOG_FILE_BYTES_LEAST: u64 = 64 * 1024;
/// The longest line of a log; a longer one is broken.
pub const LOG_LINE_BYTES: usize = 8 * 1024;
/// Bytes of a server's output that wait for the disk under its log; the oldest are lost and counted.
pub const LOG_WAITING_BYTES: usize = 64 * 1024;
/// How long they wait for more, so that many lines are one write.
pub const LOG_WAIT_MS: u64 = 50;
/// Bytes of the logs of all ended servers together.
pub const LOGS_BYTES: u64 = 64 * 1024 * 1024;
/// The longest body that is shown or recorded: lines up to this size are whole.
pub const FRAME_BODY_BYTES: usize = WHOLE_LINE_BYTES;
/// Frames that a keeper remembers for the next death, without their bodies.
pub const RECENT_FRAMES: usize = 16;
/// Requests in flight that are named in an event.
pub const WAITING_NAMED: usize = 8;
/// How long a keeper looks for suspects after an unexplained death.
pub const SUSPECTS_MS: u64 = 20;
/// Suspects that are named.
pub const SUSPECTS_NAMED: usize = 16;
/// A descendant of the client that is younger than this at a death is a suspect.
pub const SUSPECT_YOUNG_MS: u64 = 10_000;
/// How long `tap` looks for the next keeper of a link whose keeper was killed.
pub const TAP_AGAIN_MS: u64 = 5_000;
/// How long a command waits for a keeper that lives and does not listen yet: it has just started or taken over.
pub const KEEPER_LISTENS_MS: u64 = 5_000;
/// How much longer than its card says a keeper may take before it counts as stuck.
pub const KEEPER_MARGIN_MS: u64 = 5_000;
/// How long we wait for a restart if the card does not say how long it may take.
pub const RESTART_PATIENCE_MS: u64 = 75_000;
/// How long we wait for the stop ladder if the card does not say how long it may take.
pub const STOP_PATIENCE_MS: u64 = 10_000;
/// How long a keeper may take to tell `doctor` how it is.
pub const DOCTOR_PATIENCE_MS: u64 = 2_000;
/// How long a successor waits for a process that reads or removes its link's directory.
pub const ENTRY_BUSY_MS: u64 = 250;
/// The longest name of a lease.
pub const LEASE_NAME_CHARS: usize = 64;
/// How long a lease lasts that was given neither a time nor an owner.
pub const LEASE_TTL_MS: u64 = 600_000;
/// The shortest time that a lease may last.
pub const LEASE_TTL_MIN_MS: u64 = 100;
/// The longest time that a lease may last without being renewed.
pub const LEASE_TTL_MAX_MS: u64 = 2_592_000_000;
/// Leases that may be open at once.
pub const LEASES_MAX: usize = 4_096;
/// The largest file of a lease that is read.
pub const LEASE_FILE_BYTES: u64 = 64 * 1024;
/// How often a keeper reads its lease if the kernel does not report changes.
pub const LEASE_LOOK_MS: u64 = 1_000;
/// How long a process that ends an expired lease waits for a process that is renewing it.
pub const LEASE_BUSY_MS: u64 = 1_000;
/// How long our own processes may take to leave after the tree of a closed lease's server is empty.
pub const LEASE_OURS_MS: u64 = 1_000;
/// How long a link that has just begun writes no file, so that the client's opening exchange does not wait for the disk.
pub const INTRODUCE_MS: u64 = 20;
/// The fewest digits of an id that commands accept, so that a mistyped name rarely is an id.
pub const ID_DIGITS: usize = 4;
/// `stop` and `restart` say what they wait for after this time.
pub const PROGRESS_MS: u64 = 500;
/// How long a link that is named and is not listed is looked for.
pub const LISTED_MS: u64 = 250;
/// The members of a tree are noted this long after its start.
pub const NOTE_FIRST_MS: u64 = 1_000;
/// They are noted again this long after activity.
pub const NOTE_AGAIN_MS: u64 = 5_000;
/// How long a name, a connection and TLS to an HTTP server may take together.
pub const HTTP_CONNECT_MS: u64 = 10_000;
/// How long an HTTP connection may rest before it is used again: less than the 5 s after which Node's servers close one.
pub const HTTP_REST_MS: u64 = 4_000;
/// After how long without a byte the kernel asks whether an HTTP server is still there.
pub const HTTP_ALIVE_MS: u64 = 30_000;
/// `reap`: a younger server is no orphan yet.
pub const REAP_MIN_AGE_MS: u64 = 10_000;
/// `reap`: so many servers are ended in one run, unless more are asked for.
pub const REAP_MAX: usize = 20;
/// `watch`: how often the whole process table is looked at.
pub const WATCH_SCAN_MS: u64 = 30_000;
/// `watch`: how often the list of pids is looked at where the kernel does not tell of new processes.
pub const WATCH_LIST_MS: u64 = 1_000;
/// `watch`: at least this long between two looks, however many programs are started.
pub const WATCH_LOOK_MS: u64 = 50;
/// `watch`: how long a launcher may be without its server before it is told itself.
pub const WATCH_SETTLE_MS: u64 = 2_000;
/// `watch`: how long a program that a launcher has started may live untold.
pub const WATCH_BELOW_MS: u64 = 250;
/// `watch`: how long a server may outlive its client before it is told as left.
pub const WATCH_LEFT_MS: u64 = 5_000;
/// `watch`: how long the status of a server that has gone is waited for.
pub const WATCH_STATUS_MS: u64 = 1_000;
/// `watch`: how long a tracer's word about its end is waited for.
pub const WATCH_SENDER_MS: u64 = 300;
/// `trace-signals`: how long a process stays known after the last card that named it.
pub const TRACE_KNOWN_MS: u64 = 10_000;
/// `trace-signals`: bytes of signals that are kept for `watch`.
pub const TRACE_SHEET_BYTES: u64 = 1024 * 1024;
/// A server that ends with a code so soon after a traced signal has probably obeyed it.
pub const TRACE_OBEYS_MS: u64 = 10_000;
/// How long after its answer an event stream may stay open.
pub const HTTP_SPENT_MS: u64 = 1_000;
/// How long after each failure a request that no HTTP server has seen is sent again.
pub const HTTP_AGAIN_MS: [u64; 3] = [250, 500, 1_000];
/// After how long a broken event stream is asked for again, unless its server says otherwise.
pub const HTTP_RETRY_MS: u64 = 500;
/// The shortest such wait, whatever its server says. After a failure it is at least [`HTTP_RETRY_MS`].
pub const HTTP_RETRY_LEAST_MS: u64 = 100;
/// The longest such wait, and how far it grows.
pub const HTTP_RETRY_MOST_MS: u64 = 60_000;
/// A stream for what a server says unasked that was open for so long has not failed when it ends.
pub const HTTP_LISTENED_MS: u64 = 10_000;
/// The longest `Retry-After` that is waited for.
pub const HTTP_RETRY_AFTER_MS: u64 = 5_000;
/// How long the rest of a broken answer is asked for in vain.
pub const HTTP_RESUME_MS: u64 = 60_000;
/// HTTP exchanges that one bridge has at once; more messages wait.
pub const HTTP_EXCHANGES: usize = 256;
/// Resource subscriptions that a new session is told of.
pub const HTTP_SUBSCRIPTIONS: usize = 1_024;
/// How long closing an HTTP session may take at the end of a bridge; then it stays written down.
pub const HTTP_FAREWELL_MS: u64 = 1_500;
/// How long other messages wait for the client's `initialized` to arrive.
pub const HTTP_CONFIRM_MS: u64 = 2_000;
/// Age at which an unclosed HTTP session is given up. Servers that expire sessions do it sooner.
pub const UNCLOSED_KEPT_MS: u64 = 86_400_000;
/// How much of the time between two attempts counts as time of trying: a clock that jumps, or a machine that sleeps, must not
/// make a session old at once.
pub const UNCLOSED_PAUSE_MOST_MS: u64 = UNCLOSED_KEPT_MS / 4;
/// Attempts to close a session before it is given up, however old it is.
pub const CLOSE_TRIES_LEAST: u32 = 5;
/// How long one DELETE for an unclosed session may take.
pub const CLOSE_MS: u64 = 5_000;
/// How long a start goes on closing sessions of dead processes.
pub const CLOSE_SWEEP_MS: u64 = 30_000;
/// Wait after a failed attempt to close a session; doubled each time.
pub const CLOSE_RETRY_MS: u64 = 2_000;
/// The longest such wait.
pub const CLOSE_RETRY_MOST_MS: u64 = 3_600_000;
