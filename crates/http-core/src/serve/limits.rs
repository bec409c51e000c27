//! Every limit of the HTTP front, in one table like that of a server.

use mainstay_protocol::limits::{Limit, Unit};

/// What may be set for the front. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeLimits {
    /// How long a session may be unused.
    pub session_ttl_ms: u64,
    /// Sessions that are open at a time.
    pub session_cap: u64,
    /// Requests of one session, or of all clients of a shared server, that are not answered yet.
    pub requests_max: u64,
    /// Streams of one session that are open at a time.
    pub streams_max: u64,
    /// Connections at a time.
    pub connections_max: u64,
    /// The largest body.
    pub body_max_bytes: u64,
    /// All headers of a request together.
    pub header_max_bytes: u64,
    /// How long the headers of a request may take.
    pub header_wait_ms: u64,
    /// How long its body may take.
    pub body_wait_ms: u64,
    /// How often a silent stream gets a comment.
    pub sse_keep_alive_ms: u64,
    /// How long a peer may take to acknowledge what was sent.
    pub dead_peer_ms: u64,
    /// Events of one session that are kept for clients that come back.
    pub resume_events: u64,
    /// Bytes of such events.
    pub resume_bytes: u64,
    /// How long requests are still taken when we are told to stop.
    pub drain_delay_ms: u64,
    /// How long what is in flight may take when we stop.
    pub stop_wait_ms: u64,
}

impl Default for ServeLimits {
    fn default() -> Self {
        let mut limits = Self {
            session_ttl_ms: 0,
            session_cap: 0,
            requests_max: 0,
            streams_max: 0,
            connections_max: 0,
            body_max_bytes: 0,
            header_max_bytes: 0,
            header_wait_ms: 0,
            body_wait_ms: 0,
            sse_keep_alive_ms: 0,
            dead_peer_ms: 0,
            resume_events: 0,
            resume_bytes: 0,
            drain_delay_ms: 0,
            stop_wait_ms: 0,
        };
        for limit in &TABLE {
            *(limit.of)(&mut limits) = limit.default;
        }
        limits
    }
}

/// The table.
pub static TABLE: [Limit<ServeLimits>; 15] = [
    Limit {
        name: "session-ttl",
        unit: Unit::Time,
        default: 30 * 60_000,
        min: 100,
        max: 604_800_000,
        help: "A session that was not used for this time is ended",
        of: |l| &mut l.session_ttl_ms,
    },
    Limit {
        name: "session-cap",
        unit: Unit::Count,
        default: 10_000,
        min: 1,
        max: 1_000_000,
        help: "Sessions that may be open at a time; the one unused for longest makes room",
        of: |l| &mut l.session_cap,
    },
    Limit {
        name: "requests-max",
        unit: Unit::Count,
        default: 1_024,
        min: 1,
        max: 65_536,
        help: "Requests that one server may have in flight; more are refused with status 429",
        of: |l| &mut l.requests_max,
    },
    Limit {
        name: "streams-max",
        unit: Unit::Count,
        default: 64,
        min: 1,
        max: 65_536,
        help: "Streams that one session may have open; more are refused with status 429",
        of: |l| &mut l.streams_max,
    },
    Limit {
        name: "connections-max",
        unit: Unit::Count,
        default: 10_000,
        min: 1,
        max: 1_000_000,
        help: "Connections at a time; more are refused with status 503",
        of: |l| &mut l.connections_max,
    },
    Limit {
        name: "body-max",
        unit: Unit::Size,
        default: 4 * 1024 * 1024,
        min: 1_024,
        max: 16 * 1024 * 1024,
        help: "The largest body of a request; a larger one is refused with status 413",
        of: |l| &mut l.body_max_bytes,
    },
    Limit {
        name: "header-max",
        unit: Unit::Size,
        default: 64 * 1024,
        min: 8 * 1024,
        max: 1024 * 1024,
        help: "All headers of a request together; more are refused with status 431",
        of: |l| &mut l.header_max_bytes,
    },
    Limit {
        name: "header-wait",
        unit: Unit::Time,
        default: 30_000,
        min: 100,
        max: 600_000,
        help: "Time the headers of a request may take; also the time a connection may be without one",
        of: |l| &mut l.header_wait_ms,
    },
    Limit {
        name: "body-wait",
        unit: Unit::Time,
        default: 30_000,
        min: 100,
        max: 600_000,
        help: "Time the body of a request may take; then status 408",
        of: |l| &mut l.body_wait_ms,
    },
    Limit {
        name: "sse-keep-alive",
        unit: Unit::Time,
        default: 15_000,
        min: 50,
        max: 600_000,
        help: "How often a silent stream gets a comment, which also shows whether the client is still connected; an answer that takes longer becomes a stream",
        of: |l| &mut l.sse_keep_alive_ms,
    },
    Limit {
        name: "dead-peer",
        unit: Unit::Time,
        default: 30_000,
        min: 100,
        max: 600_000,
        help: "Time a client's machine may take to acknowledge what it was sent before it counts as gone",
        of: |l| &mut l.dead_peer_ms,
    },
    Limit {
        name: "resume-events",
        unit: Unit::Count,
        default: 256,
        min: 0,
        max: 65_536,
        help: "Events of one session that are kept for a client that comes back with Last-Event-ID",
        of: |l| &mut l.resume_events,
    },
    Limit {
        name: "resume-bytes",
        unit: Unit::Size,
        default: 1024 * 1024,
        min: 0,
        max: 256 * 1024 * 1024,
        help: "Bytes of such events",
        of: |l| &mut l.resume_bytes,
    },
    Limit {
        name: "drain-delay",
        unit: Unit::Time,
        default: 5_000,
        min: 0,
        max: 600_000,
        help: "Time that requests are still taken after SIGTERM, while /readyz tells balancers to send them elsewhere; 0s by default on a loopback address",
        of: |l| &mut l.drain_delay_ms,
    },
    Limit {
        name: "stop-wait",
        unit: Unit::Time,
        default: 5_000,
        min: 0,
        max: 600_000,
        help: "Time that requests in flight have to be answered when serve is told to stop",
        of: |l| &mut l.stop_wait_ms,
    },
];

/// What a client is told to wait before it comes back for the rest of a stream.
pub const RETRY_MS: u64 = 500;
/// How long a server that was found to be of the legacy era is not asked again.
pub const LEGACY_KNOWN_MS: u64 = 600_000;
/// How old a tool list may be before a call is compared with a new one.
pub const TOOLS_KNOWN_MS: u64 = 60_000;
/// How long a tool list may take that calls are compared with; after that they go on without.
pub const TOOLS_WAIT_MS: u64 = 5_000;
/// Pages of a tool list that are read.
pub const TOOLS_PAGES: usize = 64;
/// How long a question of ours may take.
pub const QUESTION_MS: u64 = 60_000;
/// Bytes that wait for a client that reads slowly; beyond that, what is no answer is dropped.
pub const CLIENT_QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that wait for a server that reads slowly before new requests wait too.
pub const SERVER_QUEUE_BYTES: usize = 8 * 1024 * 1024;
/// Streams of one session that are over and can be resumed.
pub const STREAMS_KNOWN: usize = 256;
/// Resources that one session of a shared server may be subscribed to.
pub const HEEDS_MOST: usize = 1_024;
/// How long servers have to end when we stop, beyond their own ladder.
pub const STOP_MARGIN_MS: u64 = 5_000;
/// Sessions upstream that we have ended and remember.
pub const ENDED_KNOWN: usize = 100_000;
/// How often the end of a session upstream is tried.
pub const CLOSE_TRIES: u32 = 4;
/// How long one such try may take.
pub const CLOSE_WAIT_MS: u64 = 3_000;
