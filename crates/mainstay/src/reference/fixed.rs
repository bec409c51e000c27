//! The limits that no option changes, with a description of each.

use mainstay_http_core::serve::limits as serve;
use mainstay_protocol::limits;
use mainstay_store::config::quantity;

use super::size;

/// Description and value of each fixed limit.
pub fn fixed() -> Vec<(&'static str, String)> {
    let time = |ms| quantity::show(limits::Unit::Time, ms);
    let steps: Vec<String> = limits::BACKOFF_MS.map(time).into();
    vec![
        (
            "Longest line that is passed on as a whole; a longer one is passed on in pieces",
            size(limits::WHOLE_LINE_BYTES as u64),
        ),
        (
            "Longest line that mainstay must read as a whole before it passes it on (a list, a handshake)",
            size(limits::HELD_LINE_BYTES as u64),
        ),
        (
            "Requests in flight of one link; more requests wait",
            limits::IN_FLIGHT_MAX.to_string(),
        ),
        (
            "Delay before a restart, after each further death",
            steps.join(", "),
        ),
        (
            "A server that has run this long resets that delay, even if it has not answered a request",
            time(limits::STEADY_MS),
        ),
        (
            "Starts of a server that dies before the client has got any answer",
            limits::OPENING_TRIES.to_string(),
        ),
        (
            "Delay between these starts; it grows by this much each time",
            time(limits::OPENING_WAIT_MS),
        ),
        (
            "Time for which a failed start is explained to the client's requests",
            time(limits::EXPLAIN_MS),
        ),
        (
            "Time for which a `run` with wrong arguments waits for the client's first request, to explain them",
            time(limits::MISTAKE_MS),
        ),
        (
            "`notify`: time for which the command may run",
            time(limits::NOTIFY_MS),
        ),
        (
            "`notify`: time for which it is not called again for the same server, or for orphans",
            time(limits::NOTIFY_EVERY_MS),
        ),
        (
            "Processor time between two probes that counts as a sign of life",
            time(limits::ALIVE_CPU_MS),
        ),
        (
            "Time for which a cancelled request protects a silent server from being replaced",
            time(limits::TAKEN_BACK_MS),
        ),
        (
            "Time between two measurements of memory with `--memory-max`",
            time(limits::MEMORY_EVERY_MS),
        ),
        (
            "Share of `--memory-max` at which a server is replaced, before the kernel kills it",
            "90 %".into(),
        ),
        (
            "Time for which an open task prevents `--hibernate` and probes, unless its server states a time",
            time(limits::TASK_MS),
        ),
        (
            "Open tasks of one link that are tracked",
            limits::TASKS_MAX.to_string(),
        ),
        (
            "Size at which the events of a day continue in another file",
            size(limits::EVENTS_FILE_BYTES),
        ),
        (
            "Cache: one configuration holds",
            format!(
                "{} openings, {}",
                limits::CACHE_OPENINGS,
                size(limits::CACHE_BYTES as u64)
            ),
        ),
        (
            "Cache: files are kept; the longest unused are removed first",
            format!(
                "{} days without use, {} files, {}",
                limits::CACHE_FILES_KEPT_DAYS,
                limits::CACHE_FILES_KEPT,
                size(limits::CACHE_FILES_KEPT_BYTES)
            ),
        ),
        (
            "Killed keepers that a guard replaces, and killed pairs of guard and keeper that a shim replaces",
            format!(
                "{} in {}",
                limits::KEEPER_BUDGET,
                time(limits::KEEPER_BUDGET_MS)
            ),
        ),
        (
            "Time until a failed start of a guard, keeper or side guard is repeated",
            time(limits::KEEPER_RETRY_MS.into()),
        ),
        (
            "Side guards that one keeper starts before it continues without one",
            limits::SIDE_GUARDS.to_string(),
        ),
        (
            "Time for which a guard or a sweep waits for the processes that it has killed",
            time(limits::GUARD_KILL_MS),
        ),
        (
            "Time for which a shim waits for the end of a killed guard and keeper before it starts new ones",
            time(limits::PAIR_END_MS),
        ),
        (
            "Time for which a signalled shim waits for an EOF, which shows that the client wants the end",
            time(limits::DOUBT_MS),
        ),
        (
            "Time after which it exits if its keeper does not answer",
            time(limits::SHIM_STAYS_MS),
        ),
        (
            "Time in which a keeper with a kept server must accept a reconnecting client, before that client gets a new server",
            time(limits::HANDOVER_MS),
        ),
        (
            "Connections of reconnecting clients to one keeper at the same time",
            limits::DOOR_PEERS.to_string(),
        ),
        (
            "Progress tokens of a reconnected client that are tracked",
            limits::PROGRESS_MAX.to_string(),
        ),
        (
            "Time for which the status of an ending process is waited for",
            time(limits::EXITING_MS),
        ),
        (
            "Tier scope: time that the guardian gives a guard to end the processes of its dead keeper",
            time(limits::GUARDIAN_GUARD_MS),
        ),
        (
            "Tier scope: time after which the guardian kills a remaining cgroup again",
            time(limits::GUARDIAN_AGAIN_MS),
        ),
        (
            "Tier scope: time after which the guardian exits if there is no server",
            time(limits::GUARDIAN_IDLE_MS),
        ),
        (
            "Tier scope: time in which the user's systemd must answer",
            time(limits::SCOPE_KNOCK_MS),
        ),
        (
            "Tier scope: time in which systemd must create a scope, and again to start the guardian",
            time(limits::SCOPE_MAKE_MS),
        ),
        (
            "Time after which a silent connection to a keeper is closed if others wait",
            time(limits::CONTROL_ASKING_MS),
        ),
        (
            "`stop`, `restart`: time beyond its own limits after which a keeper counts as stuck",
            time(limits::KEEPER_MARGIN_MS),
        ),
        (
            "`stop`, `restart`: time after which they say on a terminal what they wait for",
            time(limits::PROGRESS_MS),
        ),
        (
            "Digits of an id that `stop`, `restart` and `tap` need",
            format!("{} at least", limits::ID_DIGITS),
        ),
        (
            "`restart`: time limit for a keeper that does not state its limits",
            time(limits::RESTART_PATIENCE_MS),
        ),
        ("`stop`: the same", time(limits::STOP_PATIENCE_MS)),
        (
            "`doctor`: time in which a keeper must answer",
            time(limits::DOCTOR_PATIENCE_MS),
        ),
        (
            "Time from a start until the processes of the server are noted for a later sweep",
            time(limits::NOTE_FIRST_MS),
        ),
        (
            "Time from activity until they are noted again",
            time(limits::NOTE_AGAIN_MS),
        ),
        (
            "HTTP: time for name lookup, connection and TLS together",
            time(limits::HTTP_CONNECT_MS),
        ),
        (
            "HTTP: idle time after which a connection is not used again",
            time(limits::HTTP_REST_MS),
        ),
        (
            "HTTP: silence after which the kernel checks the connection (TCP keepalive)",
            time(limits::HTTP_ALIVE_MS),
        ),
        (
            "Name of a lease: letters, digits, `.`, `_`, `-`",
            format!("{} at most", limits::LEASE_NAME_CHARS),
        ),
        (
            "Duration of a lease that was given neither a time nor an owner",
            time(limits::LEASE_TTL_MS),
        ),
        (
            "Duration of a lease",
            format!(
                "{} to {}",
                time(limits::LEASE_TTL_MIN_MS),
                time(limits::LEASE_TTL_MAX_MS)
            ),
        ),
        ("Leases at the same time", limits::LEASES_MAX.to_string()),
        (
            "Largest lease file that is read",
            size(limits::LEASE_FILE_BYTES),
        ),
        (
            "Time between two checks of a lease if the kernel cannot report its changes",
            time(limits::LEASE_LOOK_MS),
        ),
        (
            "Time in which a renewal in progress must finish after the lease's time is up",
            time(limits::LEASE_BUSY_MS),
        ),
        (
            "`lease close`: time in which shim and guard must exit after their keeper",
            time(limits::LEASE_OURS_MS),
        ),
        (
            "Time that a keeper takes to look for suspects after an unexplained death",
            time(limits::SUSPECTS_MS),
        ),
        (
            "A descendant of the client that is younger than this counts as a suspect",
            time(limits::SUSPECT_YOUNG_MS),
        ),
        (
            "`tap`: time in which the next keeper must appear after a keeper was killed",
            time(limits::TAP_AGAIN_MS),
        ),
        (
            "`--record`: pause after a write error",
            time(limits::RECORDING_AFTER_ERROR_MS),
        ),
        (
            "`reap`: a younger server is no orphan yet, unless `--min-age` says otherwise",
            time(limits::REAP_MIN_AGE_MS),
        ),
        (
            "`watch`: time between two scans of all processes",
            time(limits::WATCH_SCAN_MS),
        ),
        (
            "`watch`: time between two lists of the pids, if the kernel does not report new processes",
            time(limits::WATCH_LIST_MS),
        ),
        (
            "`watch`: shortest time between two inspections of new processes",
            time(limits::WATCH_LOOK_MS),
        ),
        (
            "`watch`: time after which a launcher without a server is reported itself",
            time(limits::WATCH_SETTLE_MS),
        ),
        (
            "`watch`: time after which a program that a launcher has started is reported",
            time(limits::WATCH_BELOW_MS),
        ),
        (
            "`watch`: time after the end of its client after which a server is reported as LEFT",
            time(limits::WATCH_LEFT_MS),
        ),
        (
            "`watch`: longest wait for the exit status of a server, and for the sender of its signal",
            format!(
                "{}, {}",
                time(limits::WATCH_STATUS_MS),
                time(limits::WATCH_SENDER_MS)
            ),
        ),
        (
            "`trace-signals`: time for which a process of a link stays known after its end",
            time(limits::TRACE_KNOWN_MS),
        ),
        (
            "`trace-signals`: size of the file with recent signals for `watch`",
            size(limits::TRACE_SHEET_BYTES),
        ),
        (
            "`why`: a server that exits within this time after a traced signal has probably obeyed it",
            time(limits::TRACE_OBEYS_MS),
        ),
        (
            "`serve`: time after which a client should reconnect for the rest of a stream",
            time(serve::RETRY_MS),
        ),
        (
            "`serve`: time after which a legacy server is asked again whether it is modern",
            time(serve::LEGACY_KNOWN_MS),
        ),
        (
            "`serve`: longest time for which a tool list is used to check calls",
            time(serve::TOOLS_KNOWN_MS),
        ),
        (
            "`serve`: pages of a tool list that are read at most",
            serve::TOOLS_PAGES.to_string(),
        ),
        (
            "`serve`: time limit of its own requests to a server",
            time(serve::QUESTION_MS),
        ),
        (
            "`serve`: buffer for a client that reads slowly; beyond it only answers are kept",
            size(serve::CLIENT_QUEUE_BYTES as u64),
        ),
        (
            "`serve`: buffer for a server that reads slowly; beyond it new requests wait",
            size(serve::SERVER_QUEUE_BYTES as u64),
        ),
        (
            "`serve`: time that servers get at its stop, in addition to their own grace times",
            time(serve::STOP_MARGIN_MS),
        ),
        (
            "`serve --upstream`: closed sessions that are remembered",
            serve::ENDED_KNOWN.to_string(),
        ),
        (
            "`serve --upstream`: tries to end a session there",
            serve::CLOSE_TRIES.to_string(),
        ),
        (
            "`serve --upstream`: time one such try may take",
            time(serve::CLOSE_WAIT_MS),
        ),
        (
            "HTTP: delays after which a request that no server has received is sent again",
            limits::HTTP_AGAIN_MS.map(time).join(", "),
        ),
        (
            "HTTP: delay after which a broken event stream is opened again, unless the server states another",
            time(limits::HTTP_RETRY_MS),
        ),
        (
            "HTTP: the shortest such delay that a server can state (after a failure, at least the delay above)",
            time(limits::HTTP_RETRY_LEAST_MS),
        ),
        (
            "HTTP: the longest such delay",
            time(limits::HTTP_RETRY_MOST_MS),
        ),
        (
            "HTTP: the longest `Retry-After` that is obeyed",
            time(limits::HTTP_RETRY_AFTER_MS),
        ),
        (
            "HTTP: time after which the rest of a broken answer is given up",
            time(limits::HTTP_RESUME_MS),
        ),
        (
            "HTTP: time for which an event stream stays open after its answer",
            time(limits::HTTP_SPENT_MS),
        ),
        (
            "HTTP: time for which other messages wait until `initialized` has arrived",
            time(limits::HTTP_CONFIRM_MS),
        ),
        (
            "HTTP: requests of one link at the same time; more messages wait",
            limits::HTTP_EXCHANGES.to_string(),
        ),
        (
            "HTTP: resource subscriptions that are repeated in a new session",
            limits::HTTP_SUBSCRIPTIONS.to_string(),
        ),
        (
            "HTTP: time limit for closing a session at the end of a link",
            time(limits::HTTP_FAREWELL_MS),
        ),
        (
            "Unclosed sessions: age at which a session that cannot be closed is given up",
            time(limits::UNCLOSED_KEPT_MS),
        ),
        (
            "Unclosed sessions: time one DELETE may take",
            time(limits::CLOSE_MS),
        ),
        (
            "Unclosed sessions: time a start goes on closing them",
            time(limits::CLOSE_SWEEP_MS),
        ),
        (
            "Unclosed sessions: wait after a failed attempt, doubled each time",
            time(limits::CLOSE_RETRY_MS),
        ),
        (
            "Unclosed sessions: the longest such wait",
            time(limits::CLOSE_RETRY_MOST_MS),
        ),
    ]
}
