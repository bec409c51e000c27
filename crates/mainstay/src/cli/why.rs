//! `mainstay why`: the story of the last death, or of the one that is named.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;

use clap::Args;
use mainstay_core::event::{Event, What};
use mainstay_core::ids::LinkId;
use mainstay_core::limits::Kept;
use mainstay_core::verdict::Death;
use memchr::memmem;

use crate::config::file::nearest;
use crate::exit::Exit;
use crate::ledger::backwards::{self, Place};
use crate::ledger::files::EventFile;
use crate::ledger::read::{self, Events, Filter};
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
    let found = find(&paths, options.whom.as_deref()).map_err(|error| {
        Report::new(
            Exit::State,
            format!("cannot read events in {}", paths.events().display()),
        )
        .because(plain(&error))
        .hint("`mainstay doctor` looks for the reason")
    })?;
    let (events, death) = found?;
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

/// The events around the death that is meant, and its place among them.
fn find(paths: &Paths, whom: Option<&str>) -> io::Result<Result<(Vec<Event>, usize), Report>> {
    let files = Events::open(paths, Filter::default()).files()?;
    let meant = match whom {
        None => last_death(&files, |_| true)?.ok_or_else(none_known),
        Some(whom) => search(&files, whom)?,
    };
    match meant {
        Ok(place) => around(paths, &files, &place),
        Err(report) => Ok(Err(report)),
    }
}

/// The last death among the lines that may be of interest.
fn last_death(files: &[EventFile], may_be: impl Fn(&[u8]) -> bool) -> io::Result<Option<Place>> {
    let flow = backwards::lines(files, |place, line| {
        if may_be(line) && death(line).is_some() {
            return ControlFlow::Break(place.clone());
        }
        ControlFlow::Continue(())
    })?;
    Ok(flow.break_value())
}

/// The event of a line, if it is a death. Most lines are none, and need not be parsed.
fn death(line: &[u8]) -> Option<Event> {
    const DEATHS: [&[u8]; 4] = [
        b"exit\"",
        b"start_failed\"",
        b"keeper_lost\"",
        b"lingering\"",
    ];
    const FIELD: &[u8] = b"\"event\":\"";
    let word = &line[memmem::find(line, FIELD)? + FIELD.len()..];
    if !DEATHS.iter().any(|death| word.starts_with(death)) {
        return None;
    }
    let event: Event = serde_json::from_slice(line).ok()?;
    Death::of(&event.what).is_some().then_some(event)
}

/// What a word may name, and what was found of it so far.
struct Search<'a> {
    whom: &'a str,
    server: memmem::Finder<'static>,
    /// Whether there is such a server.
    named: bool,
    pid: Option<(i32, memmem::Finder<'static>)>,
    /// The death of the process with this pid.
    exact: Option<Place>,
    /// The links that it has a part in.
    links: BTreeSet<LinkId>,
    prefix: String,
    /// The links whose id begins so, each with its last death.
    ids: BTreeMap<LinkId, Option<Place>>,
}

impl Search<'_> {
    /// Looks at the next older line; the death that is meant, if that is clear.
    fn look(&mut self, place: &Place, line: &[u8]) -> Option<Place> {
        if self.server.find(line).is_some() {
            let death = death(line).filter(|event| event.server == self.whom);
            if death.is_some() {
                return Some(place.clone());
            }
            self.named = self.named || parsed(line).is_some_and(|event| event.server == self.whom);
        }
        if self.named {
            return None;
        }
        if let Some((pid, finder)) = &self.pid
            && self.exact.is_none()
            && finder.find(line).is_some()
            && let Some(event) = parsed(line)
        {
            if died(&event.what, *pid) {
                self.exact = Some(place.clone());
            } else if mentions(&event.what, *pid) {
                self.links.insert(event.id);
            }
        }
        if !self.prefix.is_empty()
            && let Some(id) = link(line).filter(|id| id.starts_with(&self.prefix))
            && let Ok(id) = id.parse()
        {
            let last = self.ids.entry(id).or_default();
            if last.is_none() && death(line).is_some() {
                *last = Some(place.clone());
            }
        }
        None
    }
}

/// The death that a word means: a name counts first, then a pid, then an id.
fn search(files: &[EventFile], whom: &str) -> io::Result<Result<Place, Report>> {
    let finder = |bytes: &[u8]| memmem::Finder::new(bytes).into_owned();
    let pid = whom.parse::<i32>().ok();
    let mut search = Search {
        whom,
        server: finder(&read::server_bytes(whom)),
        named: false,
        pid: pid.map(|pid| (pid, finder(format!("\"pid\":{pid}").as_bytes()))),
        exact: None,
        links: BTreeSet::new(),
        prefix: whom.to_ascii_lowercase(),
        ids: BTreeMap::new(),
    };
    let flow = backwards::lines(files, |place, line| match search.look(place, line) {
        Some(place) => ControlFlow::Break(place),
        None => ControlFlow::Continue(()),
    })?;
    if let ControlFlow::Break(place) = flow {
        return Ok(Ok(place));
    }
    let none = || {
        Report::new(Exit::NotFound, format!("no death of `{whom}` is known"))
            .hint("`mainstay ps` shows what runs, `mainstay events` all that is known")
    };
    let Search {
        named,
        exact,
        links,
        ids,
        ..
    } = search;
    if named {
        return Ok(Err(none()));
    }
    if let Some(place) = exact {
        return Ok(Ok(place));
    }
    if !links.is_empty() {
        let of_them = |line: &[u8]| {
            let id = link(line).and_then(|id| id.parse().ok());
            id.is_some_and(|id| links.contains(&id))
        };
        return Ok(last_death(files, of_them)?.ok_or_else(none));
    }
    if ids.len() > 1 {
        let names: Vec<String> = ids.keys().map(ToString::to_string).collect();
        let report = Report::new(
            Exit::NotFound,
            format!("{} ids begin with `{whom}`", names.len()),
        );
        return Ok(Err(report.hint(format!("one of {}", names.join(", ")))));
    }
    match ids.into_values().next() {
        Some(death) => Ok(death.ok_or_else(none)),
        None => Ok(Err(unknown(whom, &names(files)?))),
    }
}

/// The events of one link around one of its deaths, and its place among them: from the start of that generation, or an earlier one
/// that knows the client, to the first death after the next start.
fn around(
    paths: &Paths,
    files: &[EventFile],
    place: &Place,
) -> io::Result<Result<(Vec<Event>, usize), Report>> {
    let mut events: Vec<Event> = Vec::new();
    let mut own = None;
    let flow = backwards::lines_up_to(files, place, |at, line| {
        if let Some(death) = events.first() {
            if own
                .as_ref()
                .is_some_and(|own: &memmem::Finder<'_>| own.find(line).is_none())
            {
                return ControlFlow::Continue(());
            }
            let Some(event) = parsed(line).filter(|event| event.id == death.id) else {
                return ControlFlow::Continue(());
            };
            let complete = matches!(&event.what, What::Start(start)
                if start.client.is_some() || start.generation <= 1);
            if tells(&event.what) {
                events.push(event);
            }
            return if complete {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            };
        }
        let Some(death) = parsed(line).filter(|_| at == place) else {
            return ControlFlow::Break(());
        };
        own = Some(memmem::Finder::new(&read::id_bytes(&death.id.to_string())).into_owned());
        let alone = matches!(death.what, What::StartFailed(_));
        events.push(death);
        if alone {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    let (ControlFlow::Break(()) | ControlFlow::Continue(())) = flow;
    let Some(id) = events.first().map(|event| event.id) else {
        // Retention was quicker.
        return Ok(Err(none_known()));
    };
    events.reverse();
    let death = events.len() - 1;
    let mut behind = Events::open(
        paths,
        Filter {
            id: Some(id.to_string()),
            ..Filter::default()
        },
    );
    behind.skip_behind(place)?;
    let mut again = false;
    let flow = behind.read(|event, _| {
        if again && Death::of(&event.what).is_some() {
            return ControlFlow::Break(());
        }
        again = again || matches!(event.what, What::Start(_));
        if tells(&event.what) {
            events.push(event.clone());
        }
        ControlFlow::Continue(())
    })?;
    let (ControlFlow::Break(()) | ControlFlow::Continue(())) = flow;
    Ok(Ok((events, death)))
}

/// False for what may come with every message, and says nothing of an end.
fn tells(what: &What) -> bool {
    !matches!(
        what,
        What::Junk(_)
            | What::StderrDropped(_)
            | What::Instant(_)
            | What::CallDeadline(_)
            | What::ProbesUnanswered(_)
    )
}

fn parsed(line: &[u8]) -> Option<Event> {
    serde_json::from_slice(line).ok()
}

/// The id of the link that a line is about. It stands in front, except in a line that had to be cut.
fn link(line: &[u8]) -> Option<String> {
    const FIELD: &[u8] = b"\",\"id\":\"";
    const FRONT_BYTES: usize = 64;
    const ID_BYTES: usize = 8;
    if !line.starts_with(b"{\"v\":") {
        return parsed(line).map(|event| event.id.to_string());
    }
    let front = &line[..line.len().min(FRONT_BYTES)];
    let at = memmem::find(front, FIELD)? + FIELD.len();
    let id = line.get(at..at + ID_BYTES)?;
    String::from_utf8(id.to_vec()).ok()
}

/// The names of all servers.
fn names(files: &[EventFile]) -> io::Result<Vec<String>> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut last: Option<Vec<u8>> = None;
    let field = memmem::Finder::new(b"\"server\":\"");
    let flow = backwards::lines(files, |_, line| {
        if let Some(at) = field.find(line)
            && let Some(rest) = line.get(at..)
            && last.as_ref().is_none_or(|last| !rest.starts_with(last))
            && let Some(event) = parsed(line)
        {
            last = Some(read::server_bytes(&event.server));
            seen.insert(event.server);
        }
        ControlFlow::<()>::Continue(())
    })?;
    debug_assert!(flow.is_continue());
    Ok(seen.into_iter().collect())
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
    match (nearest(whom, names), names) {
        (_, []) => report.hint("no server has run under mainstay yet"),
        (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
        (None, names) => report.hint(format!("known are: {}", names.join(", "))),
    }
}
