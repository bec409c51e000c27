//! The findings as a terminal shows them: problems first, then notes, then one line for what is in order.

use mainstay_report::paint::Tone;
use mainstay_report::safe::visible;
use mainstay_report::wrap::{width, wrap};

use super::{Finding, Health, Places, Status};
use mainstay_report::measure::count;

/// The width of the column with the status.
const STATUS_COLUMNS: usize = 7;
/// Between a text and the command beside it.
const GAP: usize = 3;
/// A text never gets fewer columns than this, however narrow the terminal is.
const TEXT_COLUMNS_MIN: usize = 20;
/// The findings that are about servers of the user come before those about the machine.
const OF_THE_USER: [&str; 5] = ["server", "links", "orphan", "client", "sessions"];
/// Notes of these checks are facts of the machine. Only `--verbose` shows them.
const FACTS: [&str; 2] = ["tier", "memory"];

/// How findings are shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// The width of the terminal.
    pub columns: usize,
    /// Whether colours may be used.
    pub colour: bool,
    /// Every finding, its details, and where the files are.
    pub verbose: bool,
}

struct Row {
    status: Status,
    check: String,
    what: String,
    command: Option<String>,
    below: Vec<String>,
}

impl Row {
    fn of(finding: &Finding, verbose: bool) -> Self {
        let command = finding.command.as_ref().map(|text| visible(text).into());
        let same = |hint: &str| Some(hint.trim_matches('`')) == finding.command.as_deref();
        let hint = finding.hint.as_ref().filter(|hint| !same(hint));
        // A command says what to do. More words about it are for those who ask.
        let hint = hint.filter(|_| verbose || command.is_none());
        let mut below: Vec<String> = hint
            .map(|hint| format!("hint: {hint}"))
            .into_iter()
            .collect();
        if verbose {
            below.extend(finding.details.iter().cloned());
        }
        Self {
            status: finding.status,
            check: finding.check.into(),
            what: visible(&finding.what).into(),
            command,
            below,
        }
    }
}

/// The whole text.
pub fn render(health: &Health, screen: Screen) -> String {
    let mut shown: Vec<&Finding> = Vec::new();
    let mut folded: Vec<&str> = Vec::new();
    for finding in &health.findings {
        if screen.verbose || stands_alone(finding) {
            shown.push(finding);
        } else if !folded.contains(&finding.check) {
            folded.push(finding.check);
        }
    }
    let users = |finding: &&Finding| !OF_THE_USER.contains(&finding.check);
    shown.sort_by_key(|finding| (std::cmp::Reverse(finding.status), users(finding)));
    let mut rows: Vec<Row> = shown
        .iter()
        .map(|finding| Row::of(finding, screen.verbose))
        .collect();
    if !screen.verbose {
        rows.extend(health.containment.as_ref().map(|found| {
            let promise = found.tier.promise();
            let first = promise.split_once(". ").map_or(promise, |(first, _)| first);
            in_order("tier", format!("{}: {first}", found.tier))
        }));
        folded.retain(|check| *check != "tier" && !shown.iter().any(|one| one.check == *check));
        if !folded.is_empty() {
            rows.push(in_order(
                "rest",
                format!("{} (--verbose)", folded.join(", ")),
            ));
        }
    }
    let mut lines = lines(&rows, screen);
    if screen.verbose {
        lines.push(String::new());
        lines.extend(files(&health.paths, screen));
        lines.push(String::new());
    }
    let problems = |finding: &&Finding| finding.status == Status::Problem;
    lines.push(match health.findings.iter().filter(problems).count() {
        0 => Tone::Good.paint("healthy", screen.colour),
        number => Tone::Bad.paint(&count(number, "problem"), screen.colour),
    });
    lines.join("\n") + "\n"
}

/// Whether a finding has a line of its own without `--verbose`.
fn stands_alone(finding: &Finding) -> bool {
    match finding.status {
        Status::Ok => false,
        Status::Note => !FACTS.contains(&finding.check),
        Status::Problem => true,
    }
}

fn in_order(check: &str, what: String) -> Row {
    Row {
        status: Status::Ok,
        check: check.into(),
        what,
        command: None,
        below: Vec::new(),
    }
}

fn lines(rows: &[Row], screen: Screen) -> Vec<String> {
    let checks = rows.iter().map(|row| width(&row.check)).max().unwrap_or(0);
    let indent = STATUS_COLUMNS + 2 + checks + 2;
    let room = screen.columns.saturating_sub(indent).max(TEXT_COLUMNS_MIN);
    // Commands stand in a column beside the texts if there is room for all of them, else each below its text.
    let with_command = || rows.iter().filter(|row| row.command.is_some());
    let commands = with_command().filter_map(|row| row.command.as_deref());
    let widest = commands.map(width).max().unwrap_or(0);
    let column = with_command().map(|row| width(&row.what)).max();
    let beside = column.filter(|column| column + GAP + widest <= room);
    let mut lines = Vec::new();
    for row in rows {
        let (word, tone) = match row.status {
            Status::Ok => ("ok", Tone::Good),
            Status::Note => ("note", Tone::Warn),
            Status::Problem => ("problem", Tone::Bad),
        };
        let word = tone.paint(&format!("{word:<STATUS_COLUMNS$}"), screen.colour);
        let check = format!("{}{}", row.check, " ".repeat(checks - width(&row.check)));
        let mut texts = wrap(&row.what, room);
        let mut below: Vec<String> = Vec::new();
        if let Some(command) = &row.command {
            match beside {
                Some(column) => {
                    let pad = " ".repeat(column + GAP - width(&row.what));
                    let command = Tone::Strong.paint(command, screen.colour);
                    texts = vec![format!("{}{pad}{command}", row.what)];
                }
                None => below.push(Tone::Strong.paint(&format!("→ {command}"), screen.colour)),
            }
        }
        for text in &row.below {
            let text = visible(text);
            let wrapped = wrap(&text, room).into_iter();
            below.extend(wrapped.map(|line| Tone::Faint.paint(&line, screen.colour)));
        }
        let indent = " ".repeat(indent);
        let mut texts = texts.into_iter();
        let first = texts.next().unwrap_or_default();
        lines.push(format!("{word}  {check}  {first}"));
        lines.extend(texts.chain(below).map(|line| format!("{indent}{line}")));
    }
    lines
}

/// Where every file is.
fn files(places: &Places, screen: Screen) -> Vec<String> {
    let Places {
        state,
        events,
        run,
        cache,
        leases,
        sessions,
        backups,
        config,
        program,
    } = places;
    let files = [
        ("config", config.as_ref()),
        ("events", Some(events)),
        ("registry", Some(run)),
        ("leases", Some(leases)),
        ("sessions", Some(sessions)),
        ("cache", Some(cache)),
        ("backups", Some(backups)),
        ("state", Some(state)),
        ("program", program.as_ref()),
    ];
    let mut lines = vec![Tone::Strong.paint("files", screen.colour)];
    for (name, path) in files {
        if let Some(path) = path {
            // A path is never broken, so that it can be copied.
            lines.push(format!("  {name:<8}  {}", visible(path)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    //! guards: `doctor` shows problems first and fits every terminal from 60 to 200 columns.

    use super::*;
    use crate::cli::doctor::Containment;
    use mainstay_protocol::event::Detached;
    use mainstay_protocol::tier::Tier;

    fn health() -> Health {
        let finding = |check, status, what: &str| Finding::new(check, status, what);
        let mut client = finding(
            "client",
            Status::Note,
            "Claude Code: 3 of 10 servers go through mainstay",
        )
        .command("mainstay adopt claude")
        .hint("`mainstay adopt claude`");
        client.details = vec!["~/.claude.json: 3 of 10 servers".into()];
        let orphans = finding(
            "orphan",
            Status::Note,
            "2 servers without a client, 310 MiB",
        )
        .command("mainstay reap")
        .hint("`mainstay reap` lists them, `mainstay reap --yes` ends them");
        let place = |name: &str| format!("~/.local/state/mainstay/{name}");
        Health {
            healthy: false,
            version: "0",
            paths: Places {
                state: "~/.local/state/mainstay".into(),
                events: place("events"),
                run: place("run"),
                cache: place("cache"),
                leases: place("lease"),
                sessions: place("sessions"),
                backups: place("backups"),
                config: Some("/home/you/.config/mainstay/config.toml".into()),
                program: Some("/home/you/.local/bin/mainstay".into()),
            },
            containment: Some(Containment {
                tier: Tier::Cgroup,
                why_not: Vec::new(),
                detached: Detached::Yes,
                memory_why_not: None,
            }),
            findings: vec![
                finding(
                    "tier",
                    Status::Ok,
                    &format!("cgroup: {}", Tier::Cgroup.promise()),
                ),
                finding("tier", Status::Note, "not scope: no systemd user manager"),
                finding("memory", Status::Ok, "the kernel enforces --memory-max"),
                finding("config", Status::Ok, "there is no config file, and none is needed"),
                finding(
                    "links",
                    Status::Problem,
                    "the mainstay processes of these servers were killed: gone (00000001)",
                )
                .hint("the next `mainstay run` ends the processes that are left and removes the directories"),
                orphans,
                finding("events", Status::Ok, "no events yet"),
                finding(
                    "server",
                    Status::Problem,
                    "crash was given up 3m20s ago: exit code 1",
                )
                .command("mainstay why crash"),
                client,
            ],
        }
    }

    fn shown(columns: usize, verbose: bool) -> String {
        let screen = Screen {
            columns,
            colour: false,
            verbose,
        };
        render(&health(), screen)
    }

    #[test]
    fn at_eighty_columns() {
        assert_eq!(
            shown(80, false),
            "\
problem  links   the mainstay processes of these servers were killed: gone
                 (00000001)
                 hint: the next `mainstay run` ends the processes that are left
                 and removes the directories
problem  server  crash was given up 3m20s ago: exit code 1
                 → mainstay why crash
note     orphan  2 servers without a client, 310 MiB
                 → mainstay reap
note     client  Claude Code: 3 of 10 servers go through mainstay
                 → mainstay adopt claude
ok       tier    cgroup: the whole process tree is killed with the server
ok       rest    memory, config, events (--verbose)
2 problems
"
        );
    }

    #[test]
    fn at_a_hundred_and_twenty_columns() {
        assert_eq!(
            shown(120, false),
            "\
problem  links   the mainstay processes of these servers were killed: gone (00000001)
                 hint: the next `mainstay run` ends the processes that are left and removes the directories
problem  server  crash was given up 3m20s ago: exit code 1          mainstay why crash
note     orphan  2 servers without a client, 310 MiB                mainstay reap
note     client  Claude Code: 3 of 10 servers go through mainstay   mainstay adopt claude
ok       tier    cgroup: the whole process tree is killed with the server
ok       rest    memory, config, events (--verbose)
2 problems
"
        );
    }

    #[test]
    fn verbose_shows_every_finding_and_every_place() {
        assert_eq!(
            shown(80, true),
            "\
problem  links   the mainstay processes of these servers were killed: gone
                 (00000001)
                 hint: the next `mainstay run` ends the processes that are left
                 and removes the directories
problem  server  crash was given up 3m20s ago: exit code 1
                 → mainstay why crash
note     orphan  2 servers without a client, 310 MiB
                 → mainstay reap
                 hint: `mainstay reap` lists them, `mainstay reap --yes` ends
                 them
note     client  Claude Code: 3 of 10 servers go through mainstay
                 → mainstay adopt claude
                 ~/.claude.json: 3 of 10 servers
note     tier    not scope: no systemd user manager
ok       tier    cgroup: the whole process tree is killed with the server. If
                 all mainstay processes die at once, the next `mainstay run`
                 cleans up
ok       memory  the kernel enforces --memory-max
ok       config  there is no config file, and none is needed
ok       events  no events yet

files
  config    /home/you/.config/mainstay/config.toml
  events    ~/.local/state/mainstay/events
  registry  ~/.local/state/mainstay/run
  leases    ~/.local/state/mainstay/lease
  sessions  ~/.local/state/mainstay/sessions
  cache     ~/.local/state/mainstay/cache
  backups   ~/.local/state/mainstay/backups
  state     ~/.local/state/mainstay
  program   /home/you/.local/bin/mainstay

2 problems
"
        );
    }

    #[test]
    fn every_line_fits_and_colour_changes_no_text() {
        for columns in 60..=200 {
            for verbose in [false, true] {
                let text = shown(columns, verbose);
                let wide: Vec<&str> = text.lines().filter(|line| width(line) > columns).collect();
                assert!(wide.is_empty(), "{columns}: {wide:?}");
            }
        }
        let screen = Screen {
            columns: 80,
            colour: true,
            verbose: true,
        };
        let mut plain = render(&health(), screen);
        for code in [1, 2, 31, 32, 33, 0] {
            plain = plain.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(plain, shown(80, true));
    }
}
