//! `mainstay logs`: shows what a server wrote to stderr, and the lines on its stdout that were no messages.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use clap::Args;
use mainstay_os::clock;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits;
use mainstay_protocol::time::{self, Zone, ZonedTime};
use mainstay_report::paint::Tone;
use mainstay_report::printer::{Printer, Reader};
use mainstay_report::safe::visible;
use mainstay_report::wrap::wrap;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::config::file::nearest;
use mainstay_store::ledger::follow::{LedgerWatch, Wake};
use mainstay_store::logs::read::{self, LogReader, LoggedLink};
use mainstay_store::logs::{LogLine, Source};
use mainstay_store::paths::Paths;
use mainstay_store::registry::Listed;
use mainstay_store::since::Since;
use serde::Serialize;

use super::select;

/// How many lines are shown if the user does not say.
const LAST: u64 = 50;
/// Time between two looks for a link that is not listed yet.
const RETRY_MS: u32 = 10;

/// The options of `logs`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay logs playwright                 the last 50 lines
  mainstay logs playwright -f              go on with new lines, also after a restart
  mainstay logs playwright -n 500 --since 14:00
  mainstay logs 3f2a --json | jq -r .text

These are the lines that the server writes to stderr. A line with `stdout:` was written to stdout and was
no message, so the client did not get it. Without a running server of that name, the log of the last one
is shown. Logs are kept as long as events, at most `--log-size` for each server. Secrets are hidden.")]
pub struct Options {
    /// The server's name, or the first digits of the id that `mainstay ps` shows
    #[arg(value_name = "NAME|ID")]
    pub target: Option<String>,
    /// Continue with new lines until the server's client has ended
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last NUMBER lines [default: 50, with --since all]
    #[arg(long, short = 'n', value_name = "NUMBER")]
    pub last: Option<u64>,
    /// Only lines since then: `10min`, `1d`, `yesterday`, `14:00`, `2026-11-17`
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// Show times in UTC
    #[arg(long)]
    pub utc: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// One line, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Row<'a> {
    /// The id of the link.
    id: LinkId,
    /// The server's name.
    server: &'a str,
    /// The line itself.
    #[serde(flatten)]
    line: &'a LogLine,
}

/// The link whose log is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chosen {
    link: LinkId,
    server: String,
    runs: bool,
}

/// Runs `mainstay logs`.
pub fn logs(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let unreadable = |error| {
        let what = format!("logs in {}", paths.logs().display());
        Report::unreadable(what, &error)
    };
    let zone = clock::zone(options.utc);
    let Some(target) = &options.target else {
        let logged = read::list(&paths).unwrap_or_default();
        return Err(nameless(&select::running()?, &logged));
    };
    let chosen = find(&paths, target)?;
    // The watch is set before the first read, so that no line is missed.
    let watch = if options.follow && chosen.runs {
        paths.make_one(&paths.logs())?;
        Some(watch(&paths).map_err(unreadable)?)
    } else {
        None
    };
    let mut show = Show {
        printer: Printer::new(),
        json: options.json,
        zone,
        date: String::new(),
        chosen: chosen.clone(),
    };
    let mut reader = LogReader::new(&paths, chosen.link);
    let past = past(&mut reader, options, zone).map_err(unreadable)?;
    let none = past.is_empty();
    if show.lines(past)? == Reader::Gone {
        return Ok(Exit::Ok);
    }
    let Some(watch) = watch else {
        if none && !options.json {
            talk(&nothing(options, &chosen));
        }
        return Ok(Exit::Ok);
    };
    if none && !options.json {
        talk(&format!(
            "{} has written nothing yet; waiting, Ctrl-C ends\n",
            chosen.server
        ));
    }
    loop {
        let runs = paths.run().join(chosen.link.to_string()).is_there();
        let mut lines = Vec::new();
        reader.read(|line| lines.push(line)).map_err(unreadable)?;
        if show.lines(lines)? == Reader::Gone {
            return Ok(Exit::Ok);
        }
        if !runs {
            if !options.json {
                talk(&format!("{} is gone with its client\n", chosen.server));
            }
            return Ok(Exit::Ok);
        }
        match watch.wait(show.printer.as_fd()).map_err(unreadable)? {
            Wake::Written => {}
            Wake::ReaderGone => return Ok(Exit::Ok),
            Wake::LedgerGone => {
                return Err(
                    Report::new(Exit::State, "the directory of the logs was removed")
                        .because(paths.logs().display()),
                );
            }
        }
    }
}

/// Wakes for each new line, and when a link ends.
fn watch(paths: &Paths) -> std::io::Result<LedgerWatch> {
    let watch = LedgerWatch::of(paths.logs())?;
    watch.and_removals_in(&paths.run())?;
    Ok(watch)
}

/// The lines up to now that the user wants.
fn past(reader: &mut LogReader, options: &Options, zone: Zone) -> std::io::Result<Vec<LogLine>> {
    let since = options
        .since
        .map(|since| time::rfc3339(since.moment(clock::wall_ms(), zone)));
    let most = match (options.last, &since) {
        (Some(last), _) => last,
        (None, Some(_)) => u64::MAX,
        (None, None) => LAST,
    };
    let mut lines = VecDeque::new();
    reader.read(|line| {
        // The text of a time sorts as the time does.
        if since.as_ref().is_none_or(|since| line.at >= *since) {
            lines.push_back(line);
        }
        if lines.len() as u64 > most {
            lines.pop_front();
        }
    })?;
    Ok(lines.into())
}

fn nothing(options: &Options, chosen: &Chosen) -> String {
    let server = &chosen.server;
    if options.since.is_some() || options.last == Some(0) {
        format!("no line of {server} matches; `mainstay logs {server}` shows the last ones\n")
    } else {
        format!("{server} has written nothing to stderr\n")
    }
}

/// Prints lines.
struct Show {
    printer: Printer,
    json: bool,
    zone: Zone,
    date: String,
    chosen: Chosen,
}

impl Show {
    fn lines(&mut self, lines: Vec<LogLine>) -> Result<Reader, Report> {
        for line in lines {
            let shown = if self.json {
                let row = Row {
                    id: self.chosen.link,
                    server: &self.chosen.server,
                    line: &line,
                };
                self.printer.json_line(&row)?
            } else {
                let text = self.text(&line);
                self.printer.text(&text)?
            };
            if shown == Reader::Gone {
                return Ok(Reader::Gone);
            }
        }
        Ok(Reader::There)
    }

    fn text(&mut self, line: &LogLine) -> String {
        let colour = self.printer.colour();
        let columns = self.printer.terminal().then(|| self.printer.columns());
        let mut out = String::new();
        let at = ZonedTime::of_text(&line.at, self.zone);
        if let Some(at) = &at {
            let date = format!("{} ({})", at.date(), at.zone());
            if date != self.date {
                out = Tone::Faint.paint(&date, colour) + "\n";
                self.date = date;
            }
        }
        let clock = at.map_or_else(|| "--:--:--".into(), |at| at.clock());
        out + &row(&clock, line, columns, colour)
    }
}

/// The clock, and the text behind it; on a terminal, a long text goes on below itself.
fn row(clock: &str, line: &LogLine, columns: Option<usize>, colour: bool) -> String {
    let foreign = visible(&line.text);
    let (text, tone) = match line.from {
        Source::Stderr => (foreign.into_owned(), Tone::Plain),
        Source::Stdout => (format!("stdout: {foreign}"), Tone::Warn),
        Source::Mainstay => (format!("--- {foreign} ---"), Tone::Strong),
    };
    let room = columns.map(|columns| columns.saturating_sub(clock.len() + 2).max(20));
    let lines = match room {
        // A text that fits keeps its blanks.
        Some(room) if text.chars().count() > room => wrap(&text, room),
        Some(_) | None => vec![text],
    };
    let mut out = String::new();
    for (at, text) in lines.iter().enumerate() {
        let lead = if at == 0 {
            Tone::Faint.paint(clock, colour)
        } else {
            " ".repeat(clock.len())
        };
        out += format!("{lead}  {}", tone.paint(text, colour)).trim_end();
        out.push('\n');
    }
    out
}

/// The link that the user means. One that has just begun is not listed yet, so it is searched again for a while.
fn find(paths: &Paths, target: &str) -> Result<Chosen, Report> {
    let until = clock::now().after_ms(limits::LISTED_MS);
    loop {
        let logged = read::list(paths).unwrap_or_default();
        match choose(target, &select::all_links()?, &logged) {
            Err(_) if clock::now() < until => clock::nap(RETRY_MS),
            chosen => return chosen,
        }
    }
}

/// The error if no server is named: the command for each that runs, or else the names that have a log.
fn nameless(running: &[Listed], logged: &[LoggedLink]) -> Report {
    let report = select::nameless("logs", running);
    let mut names: Vec<&str> = logged.iter().map(|link| link.server.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if !running.is_empty() || names.is_empty() {
        return report;
    }
    report.hint(format!(
        "no server runs now; there are logs of: {}",
        names.join(", ")
    ))
}

/// A running server of that name; else the last one that had it; else the link whose id begins with the word.
fn choose(target: &str, running: &[Listed], logged: &[LoggedLink]) -> Result<Chosen, Report> {
    let card = |listed: &Listed| listed.card.clone().filter(|_| listed.alive);
    let cards: Vec<_> = running.iter().filter_map(card).collect();
    let is_named = |listed: &&Listed| card(listed).is_some_and(|card| card.name == target);
    let named: Vec<Listed> = running.iter().filter(is_named).cloned().collect();
    match named.as_slice() {
        [] => {}
        [listed] => {
            return Ok(Chosen {
                link: listed.id,
                server: target.into(),
                runs: true,
            });
        }
        several => return Err(select::ambiguous("logs", target, several)),
    }
    let ended = |logged: &LoggedLink| Chosen {
        link: logged.link,
        server: logged.server.clone(),
        runs: cards.iter().any(|card| card.id == logged.link),
    };
    if let Some(last) = logged.iter().rev().find(|logged| logged.server == target) {
        return Ok(ended(last));
    }
    let prefix = target.to_ascii_lowercase();
    let begins = |link: LinkId| !prefix.is_empty() && link.to_string().starts_with(&prefix);
    let mut found: Vec<Chosen> = logged
        .iter()
        .filter(|it| begins(it.link))
        .map(ended)
        .collect();
    for card in cards.iter().filter(|card| begins(card.id)) {
        if !found.iter().any(|chosen| chosen.link == card.id) {
            found.push(Chosen {
                link: card.id,
                server: card.name.clone(),
                runs: true,
            });
        }
    }
    if found.len() > 1 {
        let problem = format!("{} ids begin with `{target}`", found.len());
        let command = |chosen: &Chosen| {
            let command = format!("mainstay logs {}", chosen.link);
            (command, chosen.server.clone())
        };
        let commands: Vec<_> = found.iter().map(command).collect();
        return Err(select::one_of(problem, &commands, None));
    }
    found.pop().ok_or_else(|| {
        let mut names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
        names.extend(logged.iter().map(|logged| logged.server.as_str()));
        names.sort_unstable();
        names.dedup();
        unknown(target, &names)
    })
}

fn unknown(target: &str, names: &[&str]) -> Report {
    let report = Report::new(Exit::NotFound, format!("no log of `{target}` is known"));
    match (nearest(target, names), names) {
        (_, []) => report.hint("no server has written anything under `mainstay run` yet"),
        (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
        (None, names) => report.hint(format!("servers: {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::select::samples::listed;
    use super::*;

    fn logged(link: u32, server: &str) -> LoggedLink {
        LoggedLink {
            link: LinkId(link),
            server: server.into(),
            changed_ms: u64::from(link),
        }
    }

    fn ids(target: &str) -> Result<(u32, bool), String> {
        let running = [
            listed(0xab00_0000, "fetch"),
            listed(0xab10_0000, "play"),
            listed(0xcd00_0000, "play"),
        ];
        let logged = [
            logged(0x0100_0000, "old"),
            logged(0x0200_0000, "fetch"),
            logged(0x0300_0000, "old"),
        ];
        choose(target, &running, &logged)
            .map(|chosen| (chosen.link.0, chosen.runs))
            .map_err(|report| report.to_string())
    }

    #[test]
    fn a_running_server_comes_before_ended_ones() {
        assert_eq!(ids("fetch"), Ok((0xab00_0000, true)));
        assert_eq!(ids("old"), Ok((0x0300_0000, false)));
        assert_eq!(ids("01"), Ok((0x0100_0000, false)));
        assert_eq!(ids("CD"), Ok((0xcd00_0000, true)));
    }

    #[test]
    fn an_ambiguous_or_unknown_name_is_refused_with_the_candidates() {
        assert_eq!(
            ids("play").unwrap_err(),
            "error: 2 servers are called `play`\nhint: name one of them by its id:\n  mainstay logs ab10  no client, in /\n  mainstay logs cd00  no client, in /"
        );
        assert_eq!(
            ids("ab").unwrap_err(),
            "error: 2 ids begin with `ab`\nhint: name one of them by its id:\n  mainstay logs ab000000  fetch\n  mainstay logs ab100000  play"
        );
        assert_eq!(
            ids("ftech").unwrap_err(),
            "error: no log of `ftech` is known\nhint: did you mean `fetch`?"
        );
        assert_eq!(
            ids("zzz").unwrap_err(),
            "error: no log of `zzz` is known\nhint: servers: fetch, old, play"
        );
    }

    #[test]
    fn without_a_name_the_servers_are_listed() {
        let running = [listed(0xab00_0000, "fetch")];
        let old = [logged(0x0100_0000, "old"), logged(0x0300_0000, "old")];
        let problem = "error: `mainstay logs` needs the name of a server\nhint: ";
        for (running, logged, hint) in [
            (
                &running[..],
                &old[..],
                "these servers run:\n  mainstay logs fetch  no client, in /",
            ),
            (&[], &old, "no server runs now; there are logs of: old"),
            (&[], &[], "no server runs under mainstay now"),
        ] {
            assert_eq!(
                nameless(running, logged).to_string(),
                format!("{problem}{hint}")
            );
        }
    }

    #[test]
    fn a_long_line_goes_on_below_itself() {
        let line = |from, text: &str| LogLine {
            at: String::new(),
            generation: 1,
            from,
            text: text.into(),
        };
        let long = line(
            Source::Stderr,
            "  the quick brown fox jumps over the lazy dog",
        );
        assert_eq!(
            row("14:22:45", &long, Some(40), false),
            "14:22:45  the quick brown fox jumps over\n          the lazy dog\n"
        );
        assert_eq!(
            row("14:22:45", &long, None, false),
            "14:22:45    the quick brown fox jumps over the lazy dog\n"
        );
        assert_eq!(
            row(
                "14:22:45",
                &line(Source::Stdout, "Listening\u{1b}[2J"),
                Some(80),
                false
            ),
            "14:22:45  stdout: Listening\\u{1b}[2J\n"
        );
        assert_eq!(
            row(
                "14:22:45",
                &line(Source::Mainstay, "restarted as #2, pid 7"),
                Some(80),
                false
            ),
            "14:22:45  --- restarted as #2, pid 7 ---\n"
        );
    }
}
