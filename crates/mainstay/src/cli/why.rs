//! `mainstay why`: explains why a server ended: the last one, or the one that the user names.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;

use clap::Args;
use mainstay_core::verdict::Death;
use mainstay_os::clock;
use mainstay_protocol::event::{Cause, Event, Part, Status, What};
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits::Kept;
use mainstay_protocol::time::{self, DAY_MS, Zone};
use mainstay_report::story::Story;
use mainstay_report::wrap::wrap;
use mainstay_report::{Exit, Report};
use mainstay_store::ledger::backwards::{self, Place};
use mainstay_store::ledger::files::EventFile;
use mainstay_store::ledger::read::{self, Events, Filter};
use mainstay_store::paths::Paths;
use memchr::memmem;

use super::{known, select};
use mainstay_report::printer::Printer;

/// The options of `why`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay why                         the last server that ended
  mainstay why playwright              the last end of this server
  mainstay why 3f2a                    of the link whose id begins with 3f2a
  mainstay why 1480540                 of this process
  mainstay why playwright --full       with its events, its last messages and all suspects
  mainstay why --last 5                the last five ends
  mainstay why playwright --json | jq .verdict

An end that was asked for is told only if no other end is known of the day before it. A verdict is
certain, probable or unknown. Only root can see which process sends a signal to a server: if
`sudo mainstay trace-signals` did not run at that time, the verdict names only suspects.
Exit code 1: no such end is known.")]
pub struct Options {
    /// The server's name, the link's id, or the pid of a server, a keeper, a shim or a client
    #[arg(value_name = "NAME|ID|PID")]
    pub target: Option<String>,
    /// Also show the events that the verdict rests on, the last messages, and all suspects
    #[arg(long, conflicts_with = "last")]
    pub full: bool,
    /// List the last NUMBER ends, the newest first
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub last: Option<u64>,
    /// Show times in UTC
    #[arg(long)]
    pub utc: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `mainstay why`.
pub fn why(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let unreadable = |error| {
        let what = format!("events in {}", paths.events().display());
        Report::unreadable(what, &error)
    };
    let zone = clock::zone(options.utc);
    let target = options.target.as_deref();
    let mut printer = Printer::new();
    if let Some(count) = options.last {
        let stories = last(&paths, target, count).map_err(unreadable)??;
        if options.json {
            printer.json(&stories)?;
        } else {
            printer.text(&list(&stories, printer.columns(), zone))?;
        }
        return Ok(Exit::Ok);
    }
    let (events, death) = find(&paths, target).map_err(unreadable)??;
    let Some(story) = Story::of(&events, death) else {
        return Err(none_known());
    };
    let (columns, colour) = (printer.columns(), printer.colour());
    if options.json {
        printer.json(&story)?;
    } else if options.full {
        printer.text(&story.full(columns, zone, colour))?;
    } else {
        printer.text(&story.brief(columns, zone, colour))?;
    }
    Ok(Exit::Ok)
}

/// The events around the death that the user asks for, and the index of the death among them.
fn find(paths: &Paths, target: Option<&str>) -> io::Result<Result<(Vec<Event>, usize), Report>> {
    let files = Events::open(paths, Filter::default()).files()?;
    let death = match target {
        None => last_death(&files, |_| true)?.ok_or_else(none_known),
        Some(target) => search(&files, target)?,
    };
    match death {
        Ok(place) => around(paths, &files, &place),
        Err(report) => Ok(Err(report)),
    }
}

/// The stories of the last deaths, the newest first: of all servers, or of those with this name or id.
fn last(paths: &Paths, target: Option<&str>, count: u64) -> io::Result<Result<Vec<Story>, Report>> {
    let files = Events::open(paths, Filter::default()).files()?;
    let mut places: Vec<Place> = Vec::new();
    let flow = backwards::lines(&files, |place, line| {
        let is_meant = |event: &Event| {
            target.is_none_or(|target| {
                event.server == target || event.id.to_string().starts_with(target)
            })
        };
        if death(line).is_some_and(|event| is_meant(&event)) {
            places.push(place.clone());
        }
        if places.len() as u64 == count {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let (ControlFlow::Break(()) | ControlFlow::Continue(())) = flow;
    let mut stories = Vec::new();
    for place in &places {
        if let Ok((events, death)) = around(paths, &files, place)? {
            stories.extend(Story::of(&events, death));
        }
    }
    if stories.is_empty() {
        // The same errors as for one death.
        return match target {
            None => Ok(Err(none_known())),
            Some(target) => Ok(search(&files, target)?.map(|_| Vec::new())),
        };
    }
    Ok(Ok(stories))
}

/// One row per death; a long one goes on below itself.
fn list(stories: &[Story], columns: usize, zone: Zone) -> String {
    let mut out = String::new();
    for story in stories {
        let (lead, text) = story.line(zone);
        let room = columns.saturating_sub(lead.len() + 2).max(20);
        for (at, line) in wrap(&text, room).iter().enumerate() {
            let lead = if at == 0 {
                lead.clone()
            } else {
                " ".repeat(lead.len())
            };
            out.push_str(&lead);
            out.push_str("  ");
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// The last death among the lines that `may_be` accepts.
fn last_death(files: &[EventFile], may_be: impl Fn(&[u8]) -> bool) -> io::Result<Option<Place>> {
    let mut choice = Choice::default();
    let flow = backwards::lines(files, |place, line| {
        if may_be(line)
            && let Some(event) = telling(line)
        {
            return choice.take(place, &event);
        }
        ControlFlow::Continue(())
    })?;
    Ok(flow.break_value().or(choice.asked_for()))
}

/// Which of several deaths is told: the newest. One that was asked for counts only if there is no other death of the day
/// before it: the user asks about the crash, not about the cure or about the end of the session.
#[derive(Default)]
struct Choice {
    /// The newest death, if it was asked for: its time, its link and its place.
    asked_for: Option<(u64, LinkId, Place)>,
    /// Links whose client was killed. What ended with it was not asked for.
    client_killed: BTreeSet<LinkId>,
}

impl Choice {
    /// Looks at the next older event: a death, or the end of a process. Returns the death that is to be told once it is known.
    fn take(&mut self, place: &Place, event: &Event) -> ControlFlow<Place> {
        if Death::of(&event.what).is_none() {
            if !is_killed_client(&event.what) {
                return ControlFlow::Continue(());
            }
            self.client_killed.insert(event.id);
            // The client's end may have been written before the server's.
            return match &self.asked_for {
                Some((_, id, newest)) if *id == event.id => ControlFlow::Break(newest.clone()),
                Some(_) | None => ControlFlow::Continue(()),
            };
        }
        let at = time::parse(&event.at).unwrap_or(0);
        let asked_for = was_asked_for(&event.what) && !self.client_killed.contains(&event.id);
        match &self.asked_for {
            Some((then, _, newest)) if at + DAY_MS < *then => ControlFlow::Break(newest.clone()),
            Some(_) if asked_for => ControlFlow::Continue(()),
            None if asked_for => {
                self.asked_for = Some((at, event.id, place.clone()));
                ControlFlow::Continue(())
            }
            Some(_) | None => ControlFlow::Break(place.clone()),
        }
    }

    /// The newest death, if all that were seen were asked for.
    fn asked_for(self) -> Option<Place> {
        self.asked_for.map(|(_, _, place)| place)
    }
}

/// Whether mainstay ended a server because its client or the user wanted it, or to restart it.
fn was_asked_for(what: &What) -> bool {
    if let What::Exit(exit) = what
        && let Some(ending) = &exit.ending
    {
        return matches!(
            ending.cause,
            Cause::Restart(_)
                | Cause::Asked
                | Cause::LeaseEnded(_)
                | Cause::ClientEof
                | Cause::ClientGone
        );
    }
    false
}

/// Whether a signal ended the client.
fn is_killed_client(what: &What) -> bool {
    matches!(what, What::Gone(gone)
        if gone.part == Part::Client && matches!(gone.status, Some(Status::Signal { .. })))
}

/// The event of a line, if it is a death.
pub fn death(line: &[u8]) -> Option<Event> {
    telling(line).filter(|event| Death::of(&event.what).is_some())
}

/// The event of a line, if it is a death or the end of another process of the link. No other lines are parsed.
fn telling(line: &[u8]) -> Option<Event> {
    const WORDS: [&[u8]; 5] = [
        b"exit\"",
        b"start_failed\"",
        b"keeper_lost\"",
        b"lingering\"",
        b"gone\"",
    ];
    const FIELD: &[u8] = b"\"event\":\"";
    let word = &line[memmem::find(line, FIELD)? + FIELD.len()..];
    if !WORDS.iter().any(|one| word.starts_with(one)) {
        return None;
    }
    parsed(line)
}

/// The search for the death that a word means: the word may be a name, a pid or the beginning of an id.
struct Search<'a> {
    target: &'a str,
    server: memmem::Finder<'static>,
    /// Whether a server has this name.
    named: bool,
    choice: Choice,
    pid: Option<(i32, memmem::Finder<'static>)>,
    /// The death of the process with this pid.
    exact: Option<Place>,
    /// The links that the process with this pid belongs to.
    links: BTreeSet<LinkId>,
    prefix: String,
    /// The links whose id begins with `prefix`, each with the death that is told.
    ids: BTreeMap<LinkId, (Choice, Option<Place>)>,
}

impl Search<'_> {
    /// Checks the next older line. Returns the death if this line decides it.
    fn check(&mut self, place: &Place, line: &[u8]) -> Option<Place> {
        if self.server.find(line).is_some() {
            let telling = telling(line).filter(|event| event.server == self.target);
            if let Some(event) = telling {
                self.named = true;
                return self.choice.take(place, &event).break_value();
            }
            self.named =
                self.named || parsed(line).is_some_and(|event| event.server == self.target);
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
            let (choice, told) = self.ids.entry(id).or_default();
            if told.is_none()
                && let Some(event) = telling(line)
            {
                *told = choice.take(place, &event).break_value();
            }
        }
        None
    }
}

/// The death that the word means: a name counts first, then a pid, then an id.
fn search(files: &[EventFile], target: &str) -> io::Result<Result<Place, Report>> {
    let finder = |bytes: &[u8]| memmem::Finder::new(bytes).into_owned();
    let pid = target.parse::<i32>().ok();
    let mut search = Search {
        target,
        server: finder(&read::server_bytes(target)),
        named: false,
        choice: Choice::default(),
        pid: pid.map(|pid| (pid, finder(format!("\"pid\":{pid}").as_bytes()))),
        exact: None,
        links: BTreeSet::new(),
        prefix: target.to_ascii_lowercase(),
        ids: BTreeMap::new(),
    };
    let flow = backwards::lines(files, |place, line| match search.check(place, line) {
        Some(place) => ControlFlow::Break(place),
        None => ControlFlow::Continue(()),
    })?;
    if let ControlFlow::Break(place) = flow {
        return Ok(Ok(place));
    }
    let none = || {
        Report::new(Exit::NotFound, format!("no death of `{target}` is known"))
            .hint("`mainstay ps` shows the servers that run, `mainstay events` everything that is recorded")
    };
    let Search {
        named,
        choice,
        exact,
        links,
        ids,
        ..
    } = search;
    if let Some(place) = choice.asked_for() {
        return Ok(Ok(place));
    }
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
        let problem = format!("{} ids begin with `{target}`", ids.len());
        let command = |id: &LinkId| (format!("mainstay why {id}"), String::new());
        let commands: Vec<_> = ids.keys().map(command).collect();
        return Ok(Err(select::one_of(problem, &commands, None)));
    }
    match ids.into_values().next() {
        Some((choice, told)) => Ok(told.or(choice.asked_for()).ok_or_else(none)),
        None => Ok(Err(known::unknown(target, &known::servers(files)?))),
    }
}

/// The events of one link around one of its deaths, and the index of the death among them. They begin with the start of that
/// generation, or of an earlier one that names the client, and end before the next death.
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
            if is_relevant(&event.what) {
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
        // The event was deleted because of its age, after we found it.
        return Ok(Err(none_known()));
    };
    events.reverse();
    let death = events.len() - 1;
    let mut later = Events::open(
        paths,
        Filter {
            id: Some(id.to_string()),
            ..Filter::default()
        },
    );
    later.skip_behind(place)?;
    let mut restarted = false;
    let flow = later.read(|event, _| {
        if restarted && Death::of(&event.what).is_some() {
            return ControlFlow::Break(());
        }
        restarted = restarted || matches!(event.what, What::Start(_));
        if is_relevant(&event.what) {
            events.push(event.clone());
        }
        ControlFlow::Continue(())
    })?;
    let (ControlFlow::Break(()) | ControlFlow::Continue(())) = flow;
    Ok(Ok((events, death)))
}

/// False for events that may come with every message and do not explain an end.
fn is_relevant(what: &What) -> bool {
    !matches!(
        what,
        What::Junk(_)
            | What::StderrDropped(_)
            | What::FromCache(_)
            | What::CallDeadline(_)
            | What::ProbesUnanswered(_)
    )
}

fn parsed(line: &[u8]) -> Option<Event> {
    serde_json::from_slice(line).ok()
}

/// The id of the link that a line is about. It is near the beginning, except in a line that was cut.
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

/// Whether this event is the death of the process.
fn died(what: &What, pid: i32) -> bool {
    if let What::Exit(exit) = what {
        return exit.pid == pid;
    }
    matches!(what, What::KeeperLost(lost) if lost.pid == pid)
}

/// Whether this event names the process.
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
        "deaths of servers under `mainstay run` are kept for {} days, unless the config file says otherwise",
        Kept::default().days
    ))
}
