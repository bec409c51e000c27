//! `mainstay why`: the story of the last death, or of the one that is named.

use std::collections::BTreeMap;

use clap::Args;
use mainstay_core::event::{Event, What};
use mainstay_core::ids::LinkId;
use mainstay_core::limits::Kept;
use mainstay_core::verdict::{Fact, deaths};

use crate::config::file::nearest;
use crate::exit::Exit;
use crate::ledger::read::{self, Filter};
use crate::paths::Paths;
use crate::report::{Report, plain};
use crate::view::printer::Printer;
use crate::view::story::Story;

/// What `why` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay why                         the last death of all
  mainstay why playwright              the last one of this server
  mainstay why 3f2a                    of the link whose id begins so
  mainstay why 1480540                 of this process
  mainstay why playwright --json | jq .verdict

A verdict is certain, probable or unknown, and says by which rule and from which events. Who sends
SIGKILL, or a signal to the server itself, only root can see: such a verdict names suspects, nobody
else, unless `sudo mainstay trace-signals` ran at the time. Exit code 1: no such death is known.")]
pub struct Options {
    /// The server's name, the link's id, or the pid of a server, a keeper, a shim or a client
    #[arg(value_name = "NAME|ID|PID")]
    pub whom: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Tells the story.
pub fn why(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let (events, _) = read::all(&paths, Filter::default()).map_err(|error| {
        Report::new(
            Exit::State,
            format!("cannot read events in {}", paths.events().display()),
        )
        .because(plain(&error))
        .hint("`mainstay doctor` looks for the reason")
    })?;
    let (events, death) = find(events, options.whom.as_deref())?;
    let Some(story) = Story::of(&events, death) else {
        return Err(none_known());
    };
    let mut printer = Printer::new();
    if options.json {
        printer.json(&story)?;
    } else {
        let colour = printer.colour();
        printer.text(&story.render(colour))?;
    }
    Ok(Exit::Ok)
}

/// The events of one link, and which of them is the death that is meant.
fn find(events: Vec<Event>, whom: Option<&str>) -> Result<(Vec<Event>, usize), Report> {
    let mut links: BTreeMap<LinkId, Link> = BTreeMap::new();
    for (place, event) in events.into_iter().enumerate() {
        let link = links.entry(event.id).or_default();
        link.places.push(place);
        link.events.push(event);
    }
    let mut links: Vec<Link> = links.into_values().collect();
    let mut exact = None;
    if let Some(whom) = whom {
        let names: Vec<String> = links.iter().filter_map(Link::name).collect();
        (links, exact) = narrow(links, whom)?;
        if links.is_empty() {
            return Err(unknown(whom, &names));
        }
    }
    // The last one, in the order in which they were written.
    let last = links
        .into_iter()
        .filter_map(|link| {
            let death = link.last_death(exact)?;
            Some((link.places[death], link.events, death))
        })
        .max_by_key(|(place, ..)| *place);
    match (last, whom) {
        (Some((_, events, death)), _) => Ok((events, death)),
        (None, None) => Err(none_known()),
        (None, Some(whom)) => Err(Report::new(
            Exit::NotFound,
            format!("no death of `{whom}` is known"),
        )
        .hint("`mainstay ps` shows what runs, `mainstay events` all that is known")),
    }
}

/// All events of one link.
#[derive(Default)]
struct Link {
    events: Vec<Event>,
    /// Where each is among all.
    places: Vec<usize>,
}

impl Link {
    fn name(&self) -> Option<String> {
        self.events.first().map(|event| event.server.clone())
    }

    fn id(&self) -> String {
        let first = self.events.first();
        first.map_or_else(String::new, |event| event.id.to_string())
    }

    fn mentions(&self, pid: i32) -> bool {
        self.events.iter().any(|event| mentions(&event.what, pid))
    }

    /// The last death; of that process, if one is named.
    fn last_death(&self, pid: Option<i32>) -> Option<usize> {
        let facts: Vec<Fact<'_>> = self
            .events
            .iter()
            .map(|event| Fact {
                at_ms: 0,
                what: &event.what,
            })
            .collect();
        let all = deaths(&facts);
        let of_it = |at: &&usize| pid.is_none_or(|pid| died(&self.events[**at].what, pid));
        all.iter().rfind(of_it).copied()
    }
}

/// The links that are meant, and the process if it is one that died: a name counts first, then a pid, then an id.
fn narrow(links: Vec<Link>, whom: &str) -> Result<(Vec<Link>, Option<i32>), Report> {
    let named = |link: &Link| link.events.iter().any(|event| event.server == whom);
    if links.iter().any(named) {
        return Ok((links.into_iter().filter(named).collect(), None));
    }
    if let Ok(pid) = whom.parse::<i32>() {
        let dead = |link: &Link| link.events.iter().any(|event| died(&event.what, pid));
        let exact = links.iter().any(dead).then_some(pid);
        if links.iter().any(|link| link.mentions(pid)) {
            let of_it = |link: &Link| link.mentions(pid);
            return Ok((links.into_iter().filter(of_it).collect(), exact));
        }
    }
    let prefix = whom.to_ascii_lowercase();
    let begins = |link: &Link| !prefix.is_empty() && link.id().starts_with(&prefix);
    let links: Vec<Link> = links.into_iter().filter(begins).collect();
    if links.len() > 1 {
        let ids: Vec<String> = links.iter().map(Link::id).collect();
        return Err(Report::new(
            Exit::NotFound,
            format!("{} ids begin with `{whom}`", ids.len()),
        )
        .hint(format!("one of {}", ids.join(", "))));
    }
    Ok((links, None))
}

/// Whether this is the death of that process.
fn died(what: &What, pid: i32) -> bool {
    if let What::Exit(exit) = what {
        return exit.pid == pid;
    }
    matches!(what, What::KeeperLost(lost) if lost.pid == pid)
}

/// Whether that process has a part in it.
fn mentions(what: &What, pid: i32) -> bool {
    if let What::Start(start) = what {
        let client = start.client.as_ref();
        return start.pid == pid || client.is_some_and(|client| client.who.pid == pid);
    }
    if let What::ClientMoved(moved) = what {
        return moved.to.who.pid == pid;
    }
    died(what, pid) || matches!(what, What::Gone(gone) if gone.who.pid == pid)
}

fn none_known() -> Report {
    Report::new(Exit::NotFound, "no death is known").hint(format!(
        "deaths of servers under `mainstay run` are remembered for {} days, if the config file says nothing else",
        Kept::default().days
    ))
}

fn unknown(whom: &str, names: &[String]) -> Report {
    let report = Report::new(Exit::NotFound, format!("nothing is known of `{whom}`"));
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    match (nearest(whom, &names), names.as_slice()) {
        (_, []) => report.hint("no server has run under mainstay yet"),
        (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
        (None, names) => report.hint(format!("known are: {}", names.join(", "))),
    }
}
