//! What has one value for everybody, in words.

use mainstay_core::limits;
use mainstay_core::serve::limits as serve;

use super::size;
use crate::config::quantity;

/// What no option changes.
pub fn fixed() -> Vec<(&'static str, String)> {
    let time = |ms| quantity::show(limits::Unit::Time, ms);
    let steps: Vec<String> = limits::BACKOFF_MS.map(time).into();
    vec![
        (
            "A line that goes on whole; a longer one goes on as it comes",
            size(limits::WHOLE_LINE_BYTES as u64),
        ),
        (
            "A line that must be seen whole before it goes on (a list, an opening)",
            size(limits::HELD_LINE_BYTES as u64),
        ),
        (
            "Requests in flight that are tracked; more wait",
            limits::IN_FLIGHT_MAX.to_string(),
        ),
        (
            "Waiting before the next generation, death by death",
            steps.join(", "),
        ),
        (
            "Life of a generation that has not served, after which that waiting begins anew",
            time(limits::STEADY_MS),
        ),
        (
            "Generations that may die before the client has had any answer",
            limits::OPENING_TRIES.to_string(),
        ),
        (
            "Waiting between these, longer by this each time",
            time(limits::OPENING_WAIT_MS),
        ),
        (
            "Time a link stays to explain a failed start to whoever asks",
            time(limits::EXPLAIN_MS),
        ),
        (
            "Processor time of the tree that counts as a sign of life between two probes",
            time(limits::ALIVE_CPU_MS),
        ),
        (
            "Time a request that was taken back may hold a silent server",
            time(limits::TAKEN_BACK_MS),
        ),
        (
            "Between two looks at the memory of a tree with `--memory-max`",
            time(limits::MEMORY_EVERY_MS),
        ),
        (
            "Share of `--memory-max` at which a server is asked to give way, before the kernel ends it",
            "90 %".into(),
        ),
        (
            "Time an open task forbids `--hibernate` and probes, unless its server says how long it is kept",
            time(limits::TASK_MS),
        ),
        (
            "Open tasks that are known at once",
            limits::TASKS_MAX.to_string(),
        ),
        (
            "A day's file of events is followed by another one at",
            size(limits::EVENTS_FILE_BYTES),
        ),
        (
            "A record holds",
            format!(
                "{} openings, {}",
                limits::RECORD_OPENINGS,
                size(limits::RECORD_BYTES as u64)
            ),
        ),
        (
            "Records are kept; the longest unused go first",
            format!(
                "{} days without use, {} records, {}",
                limits::RECORDS_KEPT_DAYS,
                limits::RECORDS_KEPT,
                size(limits::RECORDS_KEPT_BYTES)
            ),
        ),
        (
            "New keepers that a guard starts, and new pairs of them that a shim starts, before it gives up",
            format!(
                "{} in {}",
                limits::KEEPER_BUDGET,
                time(limits::KEEPER_BUDGET_MS)
            ),
        ),
        (
            "Time until a guard, keeper or side guard is started again that could not be",
            time(limits::KEEPER_RETRY_MS.into()),
        ),
        (
            "Side guards that one keeper sets before it goes on alone",
            limits::SIDE_GUARDS.to_string(),
        ),
        (
            "Time a guard or a sweep waits for those whom it has killed",
            time(limits::GUARD_KILL_MS),
        ),
        (
            "Time a shim waits for the death of a killed guard and keeper before it starts new ones",
            time(limits::PAIR_END_MS),
        ),
        (
            "Time a signalled shim is kept waiting for an EOF, which would say that the client means it",
            time(limits::DOUBT_MS),
        ),
        (
            "Time it stays if its keeper says nothing",
            time(limits::SHIM_STAYS_MS),
        ),
        (
            "Time a keeper that lingers has to take a newcomer in before that one starts a server of its own",
            time(limits::HANDOVER_MS),
        ),
        (
            "Newcomers at a lingering keeper's door at once",
            limits::DOOR_PEERS.to_string(),
        ),
        (
            "Progress tokens of a client that came back that are known by their labels",
            limits::PROGRESS_MAX.to_string(),
        ),
        (
            "Time a process that is on its way out has until its status is called unknown",
            time(limits::EXITING_MS),
        ),
        (
            "Tier scope: time the guardian gives a living guard to end its dead keeper's tree",
            time(limits::GUARDIAN_GUARD_MS),
        ),
        (
            "Tier scope: after this the guardian ends a leaf again that is still there",
            time(limits::GUARDIAN_AGAIN_MS),
        ),
        (
            "Tier scope: time the guardian stays without any leaf",
            time(limits::GUARDIAN_IDLE_MS),
        ),
        (
            "Tier scope: time the user's systemd has to answer at all",
            time(limits::SCOPE_KNOCK_MS),
        ),
        (
            "Tier scope: time it has to make a scope, and again to start the guardian",
            time(limits::SCOPE_MAKE_MS),
        ),
        (
            "Time a silent connection to a keeper keeps its place when others need it",
            time(limits::CONTROL_ASKING_MS),
        ),
        (
            "`stop`, `restart`: what a keeper may take beyond its own limits before it counts as stuck",
            time(limits::KEEPER_MARGIN_MS),
        ),
        (
            "`restart`: patience with a keeper that does not tell its limits",
            time(limits::RESTART_PATIENCE_MS),
        ),
        ("`stop`: the same", time(limits::STOP_PATIENCE_MS)),
        (
            "`doctor`: time a keeper has to say how it is",
            time(limits::DOCTOR_PATIENCE_MS),
        ),
        (
            "After a start, until the members of the tree are noted for the next sweep",
            time(limits::NOTE_FIRST_MS),
        ),
        (
            "After activity, until they are noted again",
            time(limits::NOTE_AGAIN_MS),
        ),
        (
            "HTTP: time a name, a connection and TLS may take together",
            time(limits::HTTP_CONNECT_MS),
        ),
        (
            "HTTP: time a connection rests before it is not used again",
            time(limits::HTTP_REST_MS),
        ),
        (
            "HTTP: silence after which the kernel asks whether the server is still there",
            time(limits::HTTP_ALIVE_MS),
        ),
        (
            "Name of a lease: letters, digits, `.`, `_`, `-`",
            format!("{} at most", limits::LEASE_NAME_CHARS),
        ),
        (
            "Time of a lease that was given neither a time nor an owner",
            time(limits::LEASE_TTL_MS),
        ),
        (
            "Time of a lease",
            format!(
                "{} to {}",
                time(limits::LEASE_TTL_MIN_MS),
                time(limits::LEASE_TTL_MAX_MS)
            ),
        ),
        ("Leases at once", limits::LEASES_MAX.to_string()),
        (
            "Largest file of a lease that is read",
            size(limits::LEASE_FILE_BYTES),
        ),
        (
            "How often a keeper looks at its lease where the kernel tells nothing",
            time(limits::LEASE_LOOK_MS),
        ),
        (
            "Time somebody who is renewing a lease has before it is over for its age",
            time(limits::LEASE_BUSY_MS),
        ),
        (
            "`lease close`: time that shim and guard have to leave behind their keeper",
            time(limits::LEASE_OURS_MS),
        ),
        (
            "A keeper's look for suspects after an unexplained death",
            time(limits::SUSPECTS_MS),
        ),
        (
            "A descendant of the client younger than this is one of them",
            time(limits::SUSPECT_YOUNG_MS),
        ),
        (
            "`tap`: until the next keeper of a link must be there after the last one was killed",
            time(limits::TAP_AGAIN_MS),
        ),
        (
            "The disk under `--record` is left alone after an error",
            time(limits::RECORDING_AFTER_ERROR_MS),
        ),
        (
            "`watch`: how often the whole process table is looked at",
            time(limits::WATCH_SCAN_MS),
        ),
        (
            "`watch`: how often the list of pids is, where the kernel does not tell of new processes",
            time(limits::WATCH_LIST_MS),
        ),
        (
            "`watch`: at least this long between two looks, however many programs are started",
            time(limits::WATCH_LOOK_MS),
        ),
        (
            "`watch`: time a launcher may be without its server before it is told itself",
            time(limits::WATCH_SETTLE_MS),
        ),
        (
            "`watch`: time a program that a launcher has started may live untold",
            time(limits::WATCH_BELOW_MS),
        ),
        (
            "`watch`: time a server may outlive its client before it is told as left",
            time(limits::WATCH_LEFT_MS),
        ),
        (
            "`watch`: time the status of a server that has gone is waited for, and the word of a tracer",
            format!(
                "{}, {}",
                time(limits::WATCH_STATUS_MS),
                time(limits::WATCH_SENDER_MS)
            ),
        ),
        (
            "`trace-signals`: time a process stays known after the last card that named it",
            time(limits::TRACE_KNOWN_MS),
        ),
        (
            "`trace-signals`: signals that are kept for `watch`",
            size(limits::TRACE_SHEET_BYTES),
        ),
        (
            "`why`: a server that ends with a code so soon after a traced signal has probably obeyed it",
            time(limits::TRACE_OBEYS_MS),
        ),
        (
            "`serve`: what a client is told to wait before it comes back for the rest of a stream",
            time(serve::RETRY_MS),
        ),
        (
            "`serve`: time that a server is taken for one of the legacy era before it is asked again",
            time(serve::LEGACY_KNOWN_MS),
        ),
        (
            "`serve`: age of a tool list with which calls are compared",
            time(serve::TOOLS_KNOWN_MS),
        ),
        (
            "`serve`: pages of a tool list that are read",
            serve::TOOLS_PAGES.to_string(),
        ),
        (
            "`serve`: time a question of its own to a server may take",
            time(serve::QUESTION_MS),
        ),
        (
            "`serve`: bytes that wait for a client that reads slowly; beyond that only answers are kept",
            size(serve::OUTLET_BYTES as u64),
        ),
        (
            "`serve`: bytes that wait for a server that reads slowly; beyond that new requests wait",
            size(serve::INLET_BYTES as u64),
        ),
        (
            "`serve`: time servers have to end when it stops, beyond their own ladder",
            time(serve::STOP_MARGIN_MS),
        ),
        (
            "`serve --upstream`: sessions that it has ended and remembers",
            serve::ENDED_KNOWN.to_string(),
        ),
        (
            "`serve --upstream`: tries to end a session there",
            serve::PAY_TRIES.to_string(),
        ),
        (
            "`serve --upstream`: time one such try may take",
            time(serve::PAY_WAIT_MS),
        ),
        (
            "HTTP: after these times a request that no server has seen is sent again",
            limits::HTTP_AGAIN_MS.map(time).join(", "),
        ),
        (
            "HTTP: after this time a broken event stream is asked for again, unless its server says otherwise",
            time(limits::HTTP_RETRY_MS),
        ),
        (
            "HTTP: the shortest such wait, whatever its server says (after a failure, it is not less than the one above)",
            time(limits::HTTP_RETRY_LEAST_MS),
        ),
        (
            "HTTP: the longest such wait",
            time(limits::HTTP_RETRY_MOST_MS),
        ),
        (
            "HTTP: the longest `Retry-After` that is waited for",
            time(limits::HTTP_RETRY_AFTER_MS),
        ),
        (
            "HTTP: time the rest of a broken answer is asked for in vain",
            time(limits::HTTP_RESUME_MS),
        ),
        (
            "HTTP: time an event stream stays open after its answer",
            time(limits::HTTP_SPENT_MS),
        ),
        (
            "HTTP: time other messages wait for `initialized` to arrive",
            time(limits::HTTP_CONFIRM_MS),
        ),
        (
            "HTTP: exchanges of one link at once; more messages wait",
            limits::HTTP_EXCHANGES.to_string(),
        ),
        (
            "HTTP: resource subscriptions that a new session is told of",
            limits::HTTP_SUBSCRIPTIONS.to_string(),
        ),
        (
            "HTTP: time closing a session may take at the end of a link",
            time(limits::HTTP_FAREWELL_MS),
        ),
        (
            "Debts: age after which a session that cannot be closed is given up",
            time(limits::DEBT_KEPT_MS),
        ),
        ("Debts: time one DELETE may take", time(limits::DEBT_PAY_MS)),
        (
            "Debts: time the sweep at a start goes on paying",
            time(limits::DEBT_SWEEP_MS),
        ),
        (
            "Debts: rest after a failed attempt, doubled each time",
            time(limits::DEBT_RETRY_MS),
        ),
        (
            "Debts: the longest such rest",
            time(limits::DEBT_RETRY_MOST_MS),
        ),
    ]
}
