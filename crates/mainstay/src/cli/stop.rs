//! `mainstay stop`: asks keepers to end their trees, and waits until they have.

use clap::Args;
use mainstay_core::event::Seen;
use mainstay_core::ids::LinkId;
use serde::Serialize;

use crate::config::file::nearest;
use crate::exit::Exit;
use crate::paths::Paths;
use crate::registry::ask::{Asked, NoAnswer};
use crate::registry::control::{Answer, Request};
use crate::registry::{self, Listed};
use crate::report::{Report, plain, talk};
use crate::view::happening::seen;
use crate::view::measure::fine;
use crate::view::printer::Printer;

/// What a keeper may take beyond the ladder itself before it counts as stuck.
const MARGIN_MS: u64 = 5_000;
/// The ladder of a card that does not tell its own.
const LADDER_MS: u64 = 10_000;

/// What `stop` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay stop playwright
  mainstay stop 3f2a                   the first digits of an id will do
  mainstay stop playwright --json

The client sees its server end. Most clients do not start it again by themselves.")]
pub struct Options {
    /// All servers of this name, or the one with this id
    #[arg(value_name = "NAME|ID")]
    pub whom: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// How one link ended.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The link.
    pub id: LinkId,
    /// The server's name.
    pub server: String,
    /// Whether nothing of it is left.
    pub ok: bool,
    /// How many processes were ended.
    pub ended: u32,
    /// Who is still there.
    pub left: Vec<Seen>,
    /// Why the keeper did not do it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    hint: Option<String>,
    #[serde(skip)]
    exit: Exit,
}

/// Ends servers.
pub fn stop(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let all = registry::list(&paths).map_err(|error| {
        Report::new(
            Exit::State,
            format!("cannot read {}", paths.run().display()),
        )
        .because(plain(&error))
        .hint("`mainstay doctor` looks for the reason")
    })?;
    let chosen = choose(&options.whom, all)?;
    // All are asked before the first answer is waited for: their ladders run side by side.
    let asked: Vec<_> = chosen
        .into_iter()
        .map(|listed| {
            let asked = Asked::send(&listed.path, &Request::Stop, patience(&listed));
            (listed, asked)
        })
        .collect();
    let rows: Vec<Row> = asked
        .into_iter()
        .map(|(listed, asked)| told(&listed, asked.and_then(Asked::answer)))
        .collect();
    show(&rows, options.json)?;
    Ok(rows
        .iter()
        .map(|row| row.exit)
        .max_by_key(|exit| exit.code())
        .unwrap_or(Exit::Ok))
}

fn patience(listed: &Listed) -> u64 {
    let told = listed.card.as_ref().map_or(0, |card| card.ladder_ms);
    MARGIN_MS + if told == 0 { LADDER_MS } else { told }
}

/// The links that are meant: all of a name, else the one whose id begins so.
fn choose(whom: &str, all: Vec<Listed>) -> Result<Vec<Listed>, Report> {
    let name = |listed: &Listed| listed.card.as_ref().map(|card| card.name.clone());
    if all
        .iter()
        .any(|listed| name(listed).as_deref() == Some(whom))
    {
        return Ok(all
            .into_iter()
            .filter(|listed| name(listed).as_deref() == Some(whom))
            .collect());
    }
    let begins = |listed: &Listed| {
        !whom.is_empty()
            && listed
                .id
                .to_string()
                .starts_with(&whom.to_ascii_lowercase())
    };
    let same: Vec<String> = all
        .iter()
        .filter(|listed| begins(listed))
        .map(|listed| listed.id.to_string())
        .collect();
    match same.as_slice() {
        [_] => Ok(all.into_iter().filter(|listed| begins(listed)).collect()),
        [] => Err(unknown(whom, &all)),
        several => Err(Report::new(
            Exit::NotFound,
            format!("{} ids begin with `{whom}`", several.len()),
        )
        .hint(format!("one of {}", several.join(", ")))),
    }
}

fn unknown(whom: &str, all: &[Listed]) -> Report {
    let report = Report::new(Exit::NotFound, format!("no server is called `{whom}`"));
    let mut names: Vec<&str> = all
        .iter()
        .filter_map(|listed| Some(listed.card.as_ref()?.name.as_str()))
        .collect();
    names.dedup();
    match (nearest(whom, &names), names.as_slice()) {
        (_, []) => report.hint("none runs under mainstay now"),
        (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
        (None, names) => report.hint(format!("those that run: {}", names.join(", "))),
    }
}

fn told(listed: &Listed, answer: Result<Answer, NoAnswer>) -> Row {
    let keeper = listed
        .card
        .as_ref()
        .and_then(|card| card.keeper.as_ref())
        .map(|seen| seen.who.pid);
    let mut row = Row {
        id: listed.id,
        server: listed
            .card
            .as_ref()
            .map_or_else(|| "?".into(), |card| card.name.clone()),
        ok: false,
        ended: 0,
        left: Vec::new(),
        error: None,
        hint: None,
        exit: Exit::Stuck,
    };
    let (error, hint) = match answer {
        Ok(Answer::Stopped { ended, left }) => {
            row.ok = left.is_empty();
            row.exit = if row.ok { Exit::Ok } else { Exit::Unhealthy };
            row.ended = ended;
            row.left = left;
            return row;
        }
        Ok(Answer::Refused { error }) => (format!("its keeper refused: {error}"), None),
        Ok(Answer::Status(_)) => ("its keeper answered something else".into(), None),
        Err(NoAnswer::Strange(what)) => (format!("its keeper cannot be asked: {what}"), None),
        Err(NoAnswer::Dead) if listed.alive => (
            "its keeper does not listen: it is just starting or ending".into(),
            Some("ask again".into()),
        ),
        Err(NoAnswer::Dead) => (
            "its keeper is dead".into(),
            Some(
                "what it left is ended at the next `mainstay run`; `mainstay doctor` shows it"
                    .into(),
            ),
        ),
        Err(NoAnswer::Stuck { ms }) => (
            format!("its keeper is stuck: no answer for {}", fine(ms)),
            keeper.map(|pid| {
                format!("`kill -9 {pid}` ends the keeper, and its guard then ends the tree")
            }),
        ),
    };
    row.error = Some(error);
    row.hint = hint;
    row
}

fn show(rows: &[Row], json: bool) -> Result<(), Report> {
    let mut printer = Printer::new();
    if json {
        printer.json(&rows)?;
        return Ok(());
    }
    for row in rows {
        let name = if rows.len() > 1 {
            format!("{} ({})", row.server, row.id)
        } else {
            row.server.clone()
        };
        match &row.error {
            None => {
                let left: Vec<String> = row.left.iter().map(seen).collect();
                let who = if left.is_empty() {
                    String::new()
                } else {
                    format!(": {}", left.join(", "))
                };
                let text = format!(
                    "{name}: ended {}, {} left{who}\n",
                    row.ended,
                    row.left.len()
                );
                printer.text(&text)?;
            }
            Some(error) => {
                let hint = row
                    .hint
                    .as_ref()
                    .map_or_else(String::new, |hint| format!("hint: {hint}\n"));
                talk(&format!("error: {name}: {error}\n{hint}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::card::samples;

    fn listed(id: u32, name: &str) -> Listed {
        Listed {
            id: LinkId(id),
            path: "/nowhere".into(),
            card: Some(samples::card(id, name)),
            alive: true,
        }
    }

    fn all() -> Vec<Listed> {
        vec![
            listed(0xab00_0000, "fetch"),
            listed(0xab10_0000, "play"),
            listed(0xcd00_0000, "play"),
            listed(0xef00_0000, "ab1"),
        ]
    }

    fn ids(whom: &str) -> Result<Vec<u32>, String> {
        let chosen = choose(whom, all()).map_err(|report| report.to_string())?;
        Ok(chosen.iter().map(|listed| listed.id.0).collect())
    }

    #[test]
    fn a_name_means_all_of_it_and_an_id_one() {
        assert_eq!(ids("play"), Ok(vec![0xab10_0000, 0xcd00_0000]));
        assert_eq!(ids("CD"), Ok(vec![0xcd00_0000]));
        assert_eq!(ids("ab1"), Ok(vec![0xef00_0000]), "a name before an id");
    }

    #[test]
    fn nobody_and_too_many_are_told() {
        assert_eq!(
            ids("ab").unwrap_err(),
            "error: 2 ids begin with `ab`\nhint: one of ab000000, ab100000"
        );
        assert_eq!(
            ids("ftech").unwrap_err(),
            "error: no server is called `ftech`\nhint: did you mean `fetch`?"
        );
        assert_eq!(
            ids("zzz").unwrap_err(),
            "error: no server is called `zzz`\nhint: those that run: fetch, play, ab1"
        );
        assert!(choose("x", Vec::new()).is_err());
        assert!(ids("").is_err());
    }

    #[test]
    fn a_keeper_that_does_not_answer_is_told() {
        let stuck = told(&listed(1, "a"), Err(NoAnswer::Stuck { ms: 14_000 }));
        assert_eq!(
            stuck.error.as_deref(),
            Some("its keeper is stuck: no answer for 14.00 s")
        );
        assert!(stuck.hint.unwrap().starts_with("`kill -9 "));
        assert_eq!(stuck.exit, Exit::Stuck);
        let left = Answer::Stopped {
            ended: 1,
            left: vec![crate::samples::seen(9, "x")],
        };
        let left = told(&listed(1, "a"), Ok(left));
        assert_eq!((left.ok, left.exit), (false, Exit::Unhealthy));
    }
}
