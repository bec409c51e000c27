//! The reference pages, rendered from the tables that the program itself uses. Only in tests.
//!
//! `MAINSTAY_BLESS=1 cargo test -p mainstay reference` writes them; without it the test compares.

#![expect(
    clippy::format_push_string,
    reason = "a page is pushed together; nobody waits for it"
)]

use std::fs;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory};
use mainstay_core::limits::{self, TABLE};
use mainstay_core::policy::Retry;
use mainstay_core::serve::limits as serve;
use mainstay_core::tier::Tier;
use serde_json::Value;

use crate::cli::Cli;
use crate::config::{file, quantity};
use crate::{exit, samples};

const HEAD: &str = "<!-- Generated: `MAINSTAY_BLESS=1 cargo test -p mainstay reference`. -->\n\n";

#[test]
fn options_page() {
    let mut page = String::from("# Commands and options\n");
    let mut cli = Cli::command();
    cli.build();
    for verb in cli.get_subcommands() {
        if verb.is_hide_set() || verb.get_name() == "help" {
            continue;
        }
        page += &verb_section(verb, "");
        let name = format!("{} ", verb.get_name());
        for below in verb.get_subcommands() {
            if below.get_name() != "help" {
                page += &verb_section(below, &name);
            }
        }
    }
    page += "\n## Limits\n\nEach is an option of `run` and, with `_` for `-`, a key of the config file.\n\n";
    page +=
        "| option | config key | default | from | to | what it is |\n|---|---|---|---|---|---|\n";
    for limit in &TABLE {
        let show = |value| quantity::show(limit.unit, value);
        page += &format!(
            "| `--{}` | `{}` | {} | {} | {} | {} |\n",
            limit.name,
            file::key(limit),
            show(limit.default),
            show(limit.min),
            show(limit.max),
            limit.help
        );
    }
    page += "\n## Limits of `serve`\n\nEach is an option of `serve` and, with `_` for `-`, a key of `[serve]` in the config file.\n\n";
    page +=
        "| option | config key | default | from | to | what it is |\n|---|---|---|---|---|---|\n";
    for limit in &serve::TABLE {
        let show = |value| quantity::show(limit.unit, value);
        page += &format!(
            "| `--{}` | `{}` | {} | {} | {} | {} |\n",
            limit.name,
            file::key(limit),
            show(limit.default),
            show(limit.min),
            show(limit.max),
            limit.help
        );
    }
    page += "\n## Fixed limits\n\n| what | how much |\n|---|---|\n";
    for (what, how_much) in fixed() {
        page += &format!("| {what} | {how_much} |\n");
    }
    compare("options.md", &page);
}

/// What no option changes.
fn fixed() -> Vec<(&'static str, String)> {
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
            "Between two looks at the memory of a tree with `--memory-max`",
            time(limits::MEMORY_EVERY_MS),
        ),
        (
            "Share of `--memory-max` at which a server is asked to give way, before the kernel ends it",
            "90 %".into(),
        ),
        (
            "Time an open task forbids `--hibernate`, unless its server says how long it is kept",
            time(limits::TASK_MS),
        ),
        (
            "Open tasks that are known at once",
            limits::TASKS_MAX.to_string(),
        ),
        (
            "Events are kept",
            format!(
                "{} days, {}",
                limits::EVENTS_KEPT_DAYS,
                size(limits::EVENTS_KEPT_BYTES)
            ),
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
            "New keepers that a guard starts before it gives up",
            format!(
                "{} in {}",
                limits::KEEPER_BUDGET,
                time(limits::KEEPER_BUDGET_MS)
            ),
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
            "Requests taken back unanswered that are remembered for the case that their client goes",
            limits::CANCELLED_MAX.to_string(),
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

fn verb_section(verb: &Command, before: &str) -> String {
    let about = verb
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut section = format!("\n## mainstay {before}{}\n\n{about}.\n", verb.get_name());
    let args: Vec<&Arg> = verb
        .get_arguments()
        .filter(|arg| arg.get_id() != "help" && !arg.is_hide_set())
        .filter(|arg| {
            !arg.get_help_heading()
                .is_some_and(|head| head.starts_with("Limits"))
        })
        .collect();
    if !args.is_empty() {
        section += "\n| option | what it does |\n|---|---|\n";
    }
    for arg in args {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        section += &format!("| `{}` | {help} |\n", written(arg));
    }
    if let Some(examples) = verb.get_after_help() {
        section += &format!("\n```\n{examples}\n```\n");
    }
    section
}

fn written(arg: &Arg) -> String {
    let value: String = arg
        .get_value_names()
        .filter(|_| arg.get_action().takes_values())
        .map(|names| format!(" {}", names.join(" ")))
        .unwrap_or_default();
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}{value}"),
        (None, Some(long)) => format!("--{long}{value}"),
        (Some(short), None) => format!("-{short}{value}"),
        (None, None) => value.trim().replace('|', "\\|"),
    }
}

#[test]
fn exit_codes_page() {
    let mut page = String::from(
        "# Exit codes\n\n`run` is transparent: it ends as the server ended. The other commands use the low codes.\n\n\
         | code | commands | meaning |\n|---|---|---|\n",
    );
    for row in &exit::TABLE {
        page += &format!("| {} | {} | {} |\n", row.code, row.commands, row.meaning);
    }
    compare("exit-codes.md", &page);
}

#[test]
fn config_page() {
    let mut page = String::from(
        "# Config file\n\n`~/.config/mainstay/config.toml`; it need not exist. `XDG_*` variables are not read: clients pass six \
         variables only, and everybody must see the same file.\n\nWhat counts: option, then `[server.NAME]`, then \
         `[defaults]`, then what is built in. An unknown key or a wrong unit is an error that names the line.\n\n\
         ```toml\n[defaults]\ngrace_eof = \"3s\"\n\n[server.playwright]\ncommand = \"npx\"          # so that `mainstay run --name \
         playwright` is enough\nargs = [\"-y\", \"@playwright/mcp\"]\nenv = { DEBUG = \"pw:mcp\" }\ncwd = \"~/work\"\n\
         require_tier = \"cgroup\"\n```\n\n| key | where | value | built in | what it is |\n|---|---|---|---|---|\n",
    );
    for limit in &TABLE {
        let form = match limit.unit {
            limits::Unit::Time => "time (`1500ms`, `2s`, `5m`, `1h`)",
            limits::Unit::Size => "size (`8192`, `8KiB`, `16MiB`)",
            limits::Unit::Count => "number",
        };
        page += &format!(
            "| `{}` | both | {form} | {} | {} |\n",
            file::key(limit),
            quantity::show(limit.unit, limit.default),
            limit.help
        );
    }
    let words: Vec<&str> = Tier::ALL.iter().map(|tier| tier.word()).collect();
    let tiers = words.join(", ");
    let ways = Retry::ALL.map(Retry::word).join(", ");
    for (key, place, form, default, help) in [
        (
            "tier",
            "both",
            tiers.as_str(),
            "the strongest",
            "Hold the tree this way",
        ),
        (
            "require_tier",
            "both",
            tiers.as_str(),
            "none",
            "Do not start the server at all unless its tree is held at least this strongly",
        ),
        (
            "retry",
            "both",
            ways.as_str(),
            Retry::default().word(),
            "What is sent again if the server dies in the middle: nothing, what is safe by the protocol, or also calls of tools annotated as read-only or idempotent",
        ),
        (
            "lazy",
            "both",
            "true or false",
            "false",
            "Do not start the server before it is needed",
        ),
        (
            "advertise_list_changed",
            "both",
            "true or false",
            "false",
            "Tell the client of changed lists after a restart, also where the server did not say that it would",
        ),
        (
            "watch",
            "both",
            "list of paths, relative to the server's directory, or `~/…`",
            "none",
            "Restart the server between two requests when one of these files or directories changes",
        ),
        (
            "record",
            "both",
            "true or false",
            "true",
            "Remember how the server opens, and use what is remembered",
        ),
        (
            "record_file",
            "both",
            "absolute path, or `~/…`",
            "none",
            "Write every frame of each session to the end of this file, secrets hidden",
        ),
        (
            "record_secrets",
            "both",
            "true or false",
            "false",
            "Do not hide secrets there",
        ),
        ("command", "server", "text", "", "The server command"),
        ("args", "server", "list of texts", "", "Its arguments"),
        (
            "env",
            "server",
            "table of texts",
            "",
            "Variables added to its environment",
        ),
        (
            "cwd",
            "server",
            "absolute path, or `~/…`",
            "the client's",
            "The directory it runs in",
        ),
        (
            "url",
            "server",
            "text",
            "",
            "The URL of a streamable-HTTP server, instead of a command",
        ),
        (
            "headers",
            "server",
            "table of texts",
            "",
            "Headers that are sent to that URL; they are never logged",
        ),
        (
            "header_env",
            "server",
            "table of texts",
            "",
            "The same, with the name of a variable as each value: `Authorization = \"MY_TOKEN\"`",
        ),
    ] {
        assert!(file::COMMON.contains(&key) || file::SERVER.contains(&key));
        page += &format!("| `{key}` | {place} | {form} | {default} | {help} |\n");
    }
    page += "\n## `[serve]`\n\nFor `mainstay serve`; options count before these. Its limits are on the page of [options](options.md#limits-of-serve).\n\n\
             | key | value | built in | what it is |\n|---|---|---|---|\n";
    for (key, form, default, help) in [
        (
            "listen",
            "address with port",
            "127.0.0.1:8808",
            "Where to listen",
        ),
        (
            "token_file",
            "path, or `~/…`",
            "none",
            "The file with the token that clients must bear",
        ),
        (
            "allow_host",
            "list of texts",
            "none",
            "Names that clients may call us by, beside localhost",
        ),
        (
            "allow_origin",
            "list of texts",
            "none",
            "Web sites whose pages may call us",
        ),
    ] {
        assert!(file::SERVE.contains(&key));
        page += &format!("| `{key}` | {form} | {default} | {help} |\n");
    }
    page += "\n## Tiers, weakest first\n\n";
    for tier in Tier::ALL {
        page += &format!("- `{tier}`: {}\n", tier.promise());
    }
    compare("config.md", &page);
}

/// What each field of an event means. Checked against real events in both directions.
const FIELDS: &[(&str, &[(&str, &str)])] = &[
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
                "the client (pid, start, comm), if it could be seen",
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
                "who is still there (pid, start, comm); empty means \"0 left\"",
            ),
        ],
    ),
    (
        "sweep: something that an earlier keeper left behind was ended",
        &[
            ("of", "the link that it belonged to"),
            ("owner", "the keeper that owned it, dead (pid, start)"),
            ("by", "how it was found: `leaf`, `tag`, `card`"),
            ("ended", "who was ended"),
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
        "abandoned: the server died too often; requests are answered with an explanation, and it is tried again now and then",
        &[
            ("deaths", "deaths within the window"),
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

#[test]
fn events_page() {
    let mut page = String::from(
        "# Events\n\n`~/.local/state/mainstay/events/YYYY-MM-DD.jsonl` (UTC), one event per line, at most 64 KiB; a day that \
         grows beyond 16 MiB goes on in `YYYY-MM-DD.1.jsonl`. Fields are only ever added: ignore what you do not know. A torn \
         line is normal after a power cut. A line that would be too long is cut inside its fields and then has a field \
         `cut` with its whole length.\n\nEvery event has `v` (format version, 1), `at` (RFC 3339, UTC), `id` (the link), `server` (its name) and \
         `event` (the kind).\n",
    );
    let samples = samples::all();
    assert_eq!(samples.len(), FIELDS.len());
    for (what, (title, fields)) in samples.into_iter().zip(FIELDS) {
        let (word, meaning) = title.split_once(": ").unwrap();
        assert_eq!(word, what.word());
        let event = samples::event(what);
        let line = serde_json::to_string(&event).unwrap();
        let Value::Object(written) = serde_json::to_value(&event).unwrap() else {
            panic!("an event is an object")
        };
        page +=
            &format!("\n## {word}\n\nMeaning: {meaning}.\n\n| field | what it is |\n|---|---|\n");
        for (field, help) in *fields {
            assert!(written.contains_key(*field), "{word} has no field {field}");
            page += &format!("| `{field}` | {help} |\n");
        }
        for field in written.keys() {
            let common = ["v", "at", "id", "server", "event"].contains(&field.as_str());
            let told = fields.iter().any(|(name, _)| name == field);
            assert!(common || told, "{word}.{field} is not told");
        }
        page += &format!("\n```json\n{line}\n```\n");
    }
    compare("events.md", &page);
}

fn size(bytes: u64) -> String {
    quantity::show(limits::Unit::Size, bytes)
}

fn compare(name: &str, page: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference")
        .join(name);
    let page = format!("{HEAD}{page}");
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/reference/{name} is not up to date: MAINSTAY_BLESS=1 cargo test -p mainstay reference"
    );
}
