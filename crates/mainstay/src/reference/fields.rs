//! The fields of each event, in the order of the samples.

/// What each field of an event means. Checked against real events in both directions.
pub const FIELDS: &[(&str, &[(&str, &str)])] = &[
    (
        "start: a generation was started",
        &[
            ("generation", "counts from 1"),
            ("argv", "the command as given"),
            ("cwd", "the directory it runs in"),
            ("pid", "the server process"),
            ("tier", "the tier in force"),
            ("why_not", "why no stronger one: tier and reason"),
            (
                "client",
                "the client (pid, start, comm), if it could be seen; comm is the client's own name (`Gemini CLI`) where its process is only called `node` or the like",
            ),
            (
                "detached",
                "`\"yes\"`, or `{\"no\":{\"why\":…}}`: whether the guard left the client's process tree",
            ),
        ],
    ),
    (
        "start_failed: a generation could not be started",
        &[
            ("argv", "the command as given"),
            ("cwd", "the directory it was to run in"),
            ("problem", "what went wrong"),
            ("hint", "how to mend it"),
        ],
    ),
    (
        "exit: a server process ended",
        &[
            ("generation", "which one"),
            ("pid", "the server process"),
            (
                "status",
                "`{\"code\":n}` or `{\"signal\":{\"number\":n,\"core\":bool}}`",
            ),
            ("uptime_ms", "how long it lived"),
            (
                "usage",
                "user_ms, system_ms, max_rss_kib by the kernel's own count",
            ),
            ("in_flight", "client requests that it had not answered"),
            ("kept", "those of them that are sent to the next generation"),
            (
                "ending",
                "what mainstay had done to end it by then: cause and rungs as in teardown, ms (since when); null if it had begun nothing",
            ),
            (
                "out_of_memory",
                "tree or machine, if it was killed because memory had run out",
            ),
            ("stderr_tail", "its last words on stderr"),
            (
                "standing",
                "how the link stood then: wall_ms (when that was), since_handshake_ms, stdin_open, last_answer_ms (its age), in_flight, waiting (the oldest requests without an answer) and frames, the last ones without their bodies",
            ),
        ],
    ),
    (
        "teardown: a tree was ended",
        &[
            (
                "cause",
                "why: `client_eof`, `client_gone`, `client_deaf`, `{\"shim_signal\":{\"number\":n}}`, `shim_killed`, `{\"keeper_signal\":{\"number\":n}}`, `asked`, `server_exit`, `start_failed`, `keeper_lost`, `{\"lease_ended\":{\"lease\":…,\"over\":…}}`",
            ),
            (
                "rungs",
                "the rungs of the stop ladder that were needed: `eof`, `term`, `kill`",
            ),
            ("ms", "from the cause to \"empty\""),
            (
                "ended",
                "processes that were ended or ended within the ladder",
            ),
            (
                "left",
                "who is still there (pid, start, comm); empty means \"0 left\". A container has pid 0 and its id in `comm`",
            ),
        ],
    ),
    (
        "sweep: something that an earlier keeper left behind was ended",
        &[
            ("of", "the link that it belonged to"),
            ("owner", "the keeper that owned it, dead (pid, start)"),
            (
                "by",
                "how it was found: `leaf`, `tag`, `card`, or `cid` for a container",
            ),
            (
                "ended",
                "who was ended; a container has pid 0 and its id in `comm`",
            ),
            ("left", "who could not be ended"),
        ],
    ),
    (
        "signal: a signal reached the shim or the keeper",
        &[
            ("number", "which"),
            (
                "code",
                "`si_code`: 0 kill(), 128 the kernel, below 0 only a claim",
            ),
            (
                "sender",
                "the sender's pid as the kernel told it; 0 is outside this pid namespace",
            ),
            ("uid", "the sender's uid"),
            ("comm", "the sender's short name, if it still was there"),
            ("to", "whom it reached: `shim` or `keeper`"),
            (
                "origin",
                "what the code means: `kill`, `thread` (tgkill), `kernel` (a terminal's key or end), `outside` this container, `claim` (the sender wrote its pid itself and may lie)",
            ),
            ("start", "the sender's start time in ticks since boot"),
            ("exe", "the file that the sender runs"),
            (
                "cmdline",
                "the sender's arguments, without what looks like a secret",
            ),
            (
                "ancestry",
                "the sender's parent, its parent and so on (pid, start, comm), up to the client if it is among them",
            ),
            (
                "relation",
                "what the sender is: `client`, `below_client`, `session_leader`, `above_client`, `ours`, `other`",
            ),
            (
                "gone",
                "the sender had ended before it could be looked at; of several equal signals at once the kernel tells the first sender only",
            ),
        ],
    ),
    (
        "gone: the shim (killed without a signal that it could pass on) or the client ended",
        &[
            ("part", "who: `shim` or `client`"),
            ("pid", "its pid"),
            ("start", "its start time in ticks since boot"),
            (
                "status",
                "how it ended (as in `exit`), if the kernel tells: Linux 6.15, or while nobody has reaped it",
            ),
        ],
    ),
    (
        "guard_lost: the guard was killed, a side guard took its place",
        LOST,
    ),
    (
        "keeper_lost: the keeper was killed, its tree was ended and a new keeper took over",
        LOST,
    ),
    (
        "client_moved: the process that started us is gone, but somebody else holds the client's end",
        &[
            ("from", "who is gone (pid, start)"),
            ("to", "who holds the client's end (pid, start, comm)"),
            (
                "status",
                "how the first ended (as in `exit`), if the kernel tells",
            ),
        ],
    ),
    (
        "junk: lines on the server's stdout that were no messages were dropped",
        &[
            ("lines", "how many so far"),
            ("sample", "the first bytes of the first one"),
        ],
    ),
    (
        "stderr_dropped: the client does not read the server's stderr",
        &[("bytes", "how many so far")],
    ),
    (
        "opening_silent: the opening request stayed unanswered and was answered with an explanation",
        &[("ms", "how long the server has been silent")],
    ),
    (
        "renewal: a generation is to be replaced, or put to rest",
        &[
            ("generation", "which"),
            (
                "why",
                "asked, changed (path), memory (bytes), unresponsive (lost, silent_ms), idle (ms), opening, reopened",
            ),
            ("in_flight", "client requests that it may still answer"),
        ],
    ),
    (
        "replayed: a new generation was told what its predecessor knew; the client's traffic goes on",
        &[
            ("generation", "which"),
            ("ms", "from its start to the end of the replay"),
            ("level", "whether the log level was set again"),
            ("subscriptions", "resources that were subscribed to again"),
            ("listens", "listening requests that were opened again"),
            ("resent", "requests that its predecessor had not answered"),
        ],
    ),
    (
        "differs: a new generation is not what its predecessor was",
        &[("generation", "which"), ("what", "in what")],
    ),
    (
        "abandoned: the server died or could not be started too often; requests are answered with an explanation, and it is tried again now and then",
        &[
            ("deaths", "deaths within the window"),
            ("failed_starts", "starts that failed within the window"),
            ("window_ms", "the window"),
            ("last", "how the last one came about"),
            (
                "changed",
                "the watched file whose change it does not start after, if it is that; it is started when one changes again",
            ),
            ("probe_ms", "after how long it is tried once more; 0: never"),
        ],
    ),
    (
        "list_changed: the client was told that lists have changed",
        &[("lists", "which: tools, prompts, resources")],
    ),
    (
        "instant: a request was answered from the record, because the server was not up yet",
        &[("method", "its method"), ("ms", "how long it had waited")],
    ),
    (
        "probes_unanswered: the server does not answer when it is asked whether it is there; it is not asked any more",
        &[("lost", "questions that it left unanswered")],
    ),
    (
        "call_deadline: a request took longer than the user allows; it was answered with an error and cancelled at the server",
        &[("request", "what it was"), ("ms", "how long it took")],
    ),
    (
        "lease_opened: a lease was opened; `id` is the lease's own, `server` its name",
        &[
            ("lease", "its name"),
            (
                "owner",
                "the process whose end is its end (pid, start, comm)",
            ),
            ("ttl_ms", "how long it lasts without being renewed"),
            ("by", "who asked for it"),
        ],
    ),
    (
        "lease_ended: a lease is over, and its servers are ended; `id` and `server` as in `lease_opened`",
        &[
            ("lease", "its name"),
            (
                "over",
                "why: `{\"closed\":{\"by\":…}}`, `{\"expired\":{\"ttl_ms\":n}}`, `{\"owner_gone\":{\"owner\":…}}`, `\"rebooted\"`, `\"removed\"`",
            ),
        ],
    ),
    (
        "suspects: somebody was ended by nobody knows whom; this is who was there",
        &[
            ("part", "who was ended: `server`, `shim` or `keeper`"),
            ("pid", "its pid"),
            (
                "who",
                "processes of the same user that might have done it: pid, start, comm, cmdline (without secrets) and why: `client`, `name`, `mainstay`, `below_client`",
            ),
            ("looked_at", "how many processes were looked at"),
            ("all", "whether that was all of them"),
        ],
    ),
    (
        "pipe_end: a pipe of the client's or of the server's came to its end",
        &[
            (
                "pipe",
                "which: `client_stdin`, `client_stdout`, `server_stdin`, `server_stdout`",
            ),
            ("generation", "the generation that was up"),
        ],
    ),
    (
        "recording_hurt: the file under --record is not whole; told once",
        &[
            ("path", "the file"),
            ("why", "what is wrong with it"),
            ("lost", "frames that are not in it so far"),
        ],
    ),
    (
        "signal_traced: `mainstay trace-signals` saw a signal to a process of this link while it was sent; `at` is the time of the signal",
        &[
            ("number", "which signal"),
            (
                "code",
                "`si_code`: 0 by `kill`, above 0 by the kernel itself",
            ),
            (
                "to",
                "whom it was for: `server`, `tree`, `shim`, `guard`, `keeper` or `client`",
            ),
            ("pid", "that process"),
            ("start", "its start time in clock ticks since boot"),
            ("generation", "which generation, if it was the server"),
            (
                "result",
                "`delivered`, `ignored`, `pending` (the same one waited there already) or `dropped`",
            ),
            (
                "sender",
                "the process that sent it; whoever ran at that moment, if the kernel did",
            ),
            ("comm", "the sender's short name"),
            (
                "sender_start",
                "the sender's start time, if it still was there",
            ),
            ("uid", "the sender's user, if it still was there"),
            ("exe", "the file that the sender runs"),
            (
                "cmdline",
                "the sender's arguments, without what looks like a secret",
            ),
        ],
    ),
    (
        "serve_started: the HTTP front listens",
        &[
            ("listen", "address and port"),
            ("servers", "the servers behind it"),
        ],
    ),
    (
        "serve_stopped: the HTTP front has stopped",
        &[
            ("number", "the signal that it stopped by"),
            ("sessions", "sessions that were opened while it ran"),
            ("left", "servers that had not ended when its time was up"),
        ],
    ),
    (
        "session_began: an HTTP client of `serve` opened a session",
        &[(
            "session",
            "its number, counted from 1 for each front; its name is the client's secret",
        )],
    ),
    (
        "session_over: a session of an HTTP client of `serve` is over",
        &[
            ("session", "its number"),
            (
                "why",
                "`deleted` (by the client), `idle`, `evicted` (it made room), `server_gone`, `opening_failed` or `shutdown`",
            ),
            ("ms", "how long it was open"),
            ("requests", "requests that its client made"),
        ],
    ),
    (
        "session_opened: an HTTP server opened a session, which is now written down as a debt",
        &[
            ("url", "the server's URL, without user, password and query"),
            ("version", "the protocol version, as far as it is known"),
        ],
    ),
    (
        "session_closed: an HTTP session was closed",
        &[
            ("url", "the server's URL, without user, password and query"),
            (
                "by",
                "`delete` (ours) or `server` (it had forgotten it by itself)",
            ),
            ("status", "the status of our DELETE"),
        ],
    ),
    (
        "debt_paid: a session that a dead process of ours had opened was closed",
        &[
            ("url", "the server's URL, without user, password and query"),
            ("since", "when the session was opened"),
            ("status", "the status of our DELETE"),
            ("attempts", "how many it took"),
        ],
    ),
    (
        "debt_given_up: such a session could not be closed in a day, after which its server has surely forgotten it",
        &[
            ("url", "the server's URL, without user, password and query"),
            ("since", "when the session was opened"),
            ("why", "why the last attempt was in vain"),
            ("attempts", "how many there were"),
        ],
    ),
    (
        "lingering: the shim was signalled or killed while the client lives and stdin was open; the server is kept for it",
        &[
            (
                "cause",
                "what was done to the shim: shim_signal (number), shim_killed",
            ),
            ("ms", "for how long it is kept at most"),
            ("uptime_ms", "how long this generation had been up"),
            (
                "in_flight",
                "client requests that are unanswered: their answers reach nobody",
            ),
        ],
    ),
    (
        "reattached: the client came back and goes on with the server that was kept",
        &[
            ("after_ms", "how long it was away"),
            ("dropped", "answers that came meanwhile and were dropped"),
        ],
    ),
    (
        "linger_ended: the server is kept no longer, and ends",
        &[
            (
                "why",
                "time_over, client_gone, asked, lease_ended, server_ended, keeper_lost",
            ),
            ("after_ms", "how long it was kept"),
            ("dropped", "answers that came meanwhile and were dropped"),
        ],
    ),
];

const LOST: &[(&str, &str)] = &[
    ("pid", "its pid"),
    (
        "status",
        "how it ended (as in `exit`), if that could be seen",
    ),
    (
        "ended",
        "processes of the tree that were ended because of it",
    ),
    (
        "settled",
        "client requests that were answered with an error because of it",
    ),
    ("successor", "who took its place"),
];
