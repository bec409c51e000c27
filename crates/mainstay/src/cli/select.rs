//! Finds the links that a user names, and sends a request to all their keepers: shared by `stop`, `restart`, `tap`, `logs` and `why`.
//!
//! A word that means several servers is refused with the command for each of them.

use std::path::Path;

use mainstay_os::clock;
use mainstay_protocol::ids::LinkId;
use mainstay_protocol::limits;
use mainstay_report::happening::seen;
use mainstay_report::measure::{fine, span};
use mainstay_report::safe::one_line;
use mainstay_report::{Exit, Report, talk};
use mainstay_store::config::file::nearest;
use mainstay_store::paths::Paths;
use mainstay_store::registry::ask::{Asked, NoAnswer};
use mainstay_store::registry::control::{Answer, Request};
use mainstay_store::registry::{self, Listed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::shell_words;

/// The longest directory in a list of servers.
const DIRECTORY_CHARS: usize = 60;
/// Time between two attempts to reach a keeper that does not listen yet, or to find a link that is not listed yet.
const RETRY_MS: u32 = 10;

/// A link with the answer of its keeper.
pub type Answered = (Listed, Result<Answer, NoAnswer>);

/// All links of this user.
pub fn all_links() -> Result<Vec<Listed>, Report> {
    let paths = Paths::find()?;
    registry::list(&paths).map_err(|error| Report::unreadable(paths.run().display(), &error))
}

/// Sends the request to all keepers before it waits for the first answer, so that they work at the same time.
/// `patience_ms` returns how long a keeper may take. `waiting` is called once if that takes longer than
/// `limits::PROGRESS_MS`, with the servers whose answers are missing and the longest time that it may take.
pub fn ask_all(
    chosen: Vec<Listed>,
    request: &Request,
    patience_ms: fn(&Listed) -> u64,
    waiting: impl FnOnce(&[String], u64),
) -> Vec<Answered> {
    let asked: Vec<_> = chosen
        .into_iter()
        .map(|listed| {
            let patience_ms = limits::KEEPER_MARGIN_MS + patience_ms(&listed);
            let asked = send(&listed, request, patience_ms);
            (listed, asked)
        })
        .collect();
    let (names, most_ms) = unanswered(&asked);
    if !names.is_empty() {
        waiting(&names, most_ms);
    }
    asked
        .into_iter()
        .map(|(listed, asked)| (listed, asked.and_then(Asked::answer)))
        .collect()
}

type Sent = (Listed, Result<Asked, NoAnswer>);

/// Waits a moment for all answers. Returns the names of the servers whose answers are missing then, and the longest time
/// that one of them may take.
fn unanswered(asked: &[Sent]) -> (Vec<String>, u64) {
    let until = clock::now().after_ms(limits::PROGRESS_MS);
    let mut open: Vec<(&Listed, &Asked)> = asked
        .iter()
        .filter_map(|(listed, asked)| Some((listed, asked.as_ref().ok()?)))
        .collect();
    while !open.is_empty() && clock::now() < until {
        let left = until.ms_since(clock::now());
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: left as i64 * 1_000_000,
        };
        let mut fds: Vec<PollFd<'_>> = open
            .iter()
            .map(|(_, asked)| PollFd::new(*asked, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return (Vec::new(), 0),
        }
        let answered: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut answered = answered.into_iter();
        open.retain(|_| !answered.next().unwrap_or(false));
    }
    let names = open.iter().map(|(listed, _)| name(listed)).collect();
    let most_ms = open.iter().map(|(_, asked)| asked.timeout_ms()).max();
    (names, most_ms.unwrap_or(0))
}

/// On a terminal: says that the answers of these servers are waited for.
pub fn tell_waiting(what: &str, names: &[String], most_ms: u64) {
    if rustix::termios::isatty(std::io::stderr()) {
        let names = names.join(", ");
        talk(&format!(
            "waiting until {what} (at most {}): {names}\n",
            span(most_ms)
        ));
    }
}

/// Sends the request as soon as the keeper listens, because a card may exist before the keeper's socket does.
fn send(listed: &Listed, request: &Request, patience_ms: u64) -> Result<Asked, NoAnswer> {
    let until = clock::now().after_ms(limits::KEEPER_LISTENS_MS);
    loop {
        match Asked::send(&listed.path, request, patience_ms) {
            Err(NoAnswer::Dead) if listed.lives() && clock::now() < until => clock::nap(RETRY_MS),
            asked => return asked,
        }
    }
}

/// The links that a command is about: one by its name or id, all of a name with `all`, and all that run with `all` alone.
pub fn choose(verb: &str, target: Option<&str>, all: bool) -> Result<Vec<Listed>, Report> {
    match (target, all) {
        (Some(target), true) => find(verb, target),
        (Some(target), false) => Ok(vec![only(verb, target, find(verb, target)?)?]),
        (None, true) => running(),
        (None, false) => Err(nameless(verb, &running()?)),
    }
}

/// The one link that a command is about.
pub fn choose_one(verb: &str, target: Option<&str>) -> Result<Listed, Report> {
    match target {
        Some(target) => only(verb, target, find(verb, target)?),
        None => Err(nameless(verb, &running()?)),
    }
}

/// Every link whose keeper lives.
pub fn running() -> Result<Vec<Listed>, Report> {
    let mut links = all_links()?;
    links.retain(|listed| listed.alive);
    Ok(links)
}

/// Finds the links with this name or id; at least one. A link is listed a moment after its client can use the server
/// (`limits::INTRODUCE_MS`), so a link that is not found at once is searched again for a while.
fn find(verb: &str, name_or_id: &str) -> Result<Vec<Listed>, Report> {
    let until = clock::now().after_ms(limits::LISTED_MS);
    loop {
        let all = all_links()?;
        let found = matching(name_or_id, &all);
        if !found.is_empty() {
            return Ok(found);
        }
        if clock::now() >= until {
            return Err(unknown(verb, name_or_id, &all));
        }
        clock::nap(RETRY_MS);
    }
}

/// The links with this name; without one, the links whose id begins with the word. Dead links count only if no other does.
fn matching(name_or_id: &str, all: &[Listed]) -> Vec<Listed> {
    let named = |listed: &&Listed| {
        let card = listed.card.as_ref();
        card.is_some_and(|card| card.name == name_or_id)
    };
    let digits = name_or_id.to_ascii_lowercase();
    let begins = |listed: &&Listed| {
        digits.len() >= limits::ID_DIGITS && listed.id.to_string().starts_with(&digits)
    };
    let mut found: Vec<Listed> = all.iter().filter(named).cloned().collect();
    if found.is_empty() {
        found = all.iter().filter(begins).cloned().collect();
    }
    if found.iter().any(|listed| listed.alive) {
        found.retain(|listed| listed.alive);
    }
    found
}

/// The only one of these links. An error if there are several, because the user may mean one that is used elsewhere.
fn only(verb: &str, target: &str, mut found: Vec<Listed>) -> Result<Listed, Report> {
    match (found.pop(), found.is_empty()) {
        (Some(listed), true) => Ok(listed),
        (None, _) => Err(unknown(verb, target, &[])),
        (Some(last), false) => {
            found.push(last);
            Err(ambiguous(verb, target, &found))
        }
    }
}

/// The error if a word means several servers.
pub fn ambiguous(verb: &str, target: &str, found: &[Listed]) -> Report {
    let count = found.len();
    let named = found.iter().all(|listed| name(listed) == target);
    let problem = if named {
        format!("{count} servers are called `{target}`")
    } else {
        format!("{count} ids begin with `{target}`")
    };
    let commands: Vec<(String, String)> = found
        .iter()
        .map(|listed| (by_id(verb, listed.id, found), whose(listed)))
        .collect();
    let all = (named && !matches!(verb, "tap" | "logs"))
        .then(|| format!("mainstay {verb} {} --all", shell_words::quoted(target)));
    one_of(problem, &commands, all.as_deref())
}

/// The error if a word means several servers: the command for each of them with a remark, and the command for all.
pub fn one_of(problem: String, commands: &[(String, String)], all: Option<&str>) -> Report {
    let all = all.map(|all| format!("\nor all of them: {all}"));
    let (rows, all) = (rows(commands), all.unwrap_or_default());
    Report::new(Exit::NotFound, problem).hint(format!("name one of them by its id:{rows}{all}"))
}

/// The error if a command names no server: the command for each server that runs.
pub fn nameless(verb: &str, running: &[Listed]) -> Report {
    let report = Report::new(
        Exit::Usage,
        format!("`mainstay {verb}` needs the name of a server"),
    );
    if running.is_empty() {
        return report.hint("no server runs under mainstay now");
    }
    let unique = |listed: &Listed| {
        let same = |other: &&Listed| name(other) == name(listed);
        listed.card.is_some() && running.iter().filter(same).count() == 1
    };
    let commands: Vec<(String, String)> = running
        .iter()
        .map(|listed| {
            let server = name(listed);
            if unique(listed) {
                let command = format!("mainstay {verb} {}", shell_words::quoted(&server));
                (command, whose(listed))
            } else {
                let whose = format!("{server}, {}", whose(listed));
                (by_id(verb, listed.id, running), whose)
            }
        })
        .collect();
    report.hint(format!("these servers run:{}", rows(&commands)))
}

/// One line for each command, the remarks below each other.
fn rows(commands: &[(String, String)]) -> String {
    let width = commands.iter().map(|(command, _)| command.chars().count());
    let width = width.max().unwrap_or(0);
    let rows: Vec<String> = commands
        .iter()
        .map(|(command, remark)| {
            let row = format!("{command:width$}  {remark}");
            format!("\n  {}", row.trim_end())
        })
        .collect();
    rows.concat()
}

/// The command with as many digits of the id as are needed to tell it from the others.
fn by_id(verb: &str, id: LinkId, among: &[Listed]) -> String {
    let id = id.to_string();
    let same = |digits: &str| {
        let begins = |listed: &&Listed| listed.id.to_string().starts_with(digits);
        among.iter().filter(begins).count()
    };
    let mut digits = limits::ID_DIGITS.min(id.len());
    while digits < id.len() && same(&id[..digits]) > 1 {
        digits += 1;
    }
    format!("mainstay {verb} {}", &id[..digits])
}

/// The client and the directory of a server.
fn whose(listed: &Listed) -> String {
    let Some(card) = &listed.card else {
        return "its card cannot be read".into();
    };
    let client = card
        .client
        .as_ref()
        .map_or_else(|| "no client".into(), seen);
    let paths = Paths::find().ok();
    let home = paths.as_ref().and_then(Paths::home);
    let below = home.and_then(|home| Path::new(&card.cwd).strip_prefix(home).ok());
    let directory = match below {
        Some(below) if below == Path::new("") => "~".into(),
        Some(below) => format!("~/{}", below.display()),
        None => card.cwd.clone(),
    };
    format!("{client}, in {}", one_line(&directory, DIRECTORY_CHARS))
}

fn unknown(verb: &str, name_or_id: &str, all: &[Listed]) -> Report {
    let report = Report::new(
        Exit::NotFound,
        format!("no server is called `{name_or_id}`"),
    );
    let digits = name_or_id.to_ascii_lowercase();
    let id = all
        .iter()
        .find(|listed| listed.id.to_string().starts_with(&digits));
    if let Some(listed) = id.filter(|_| !digits.is_empty()) {
        let command = by_id(verb, listed.id, all);
        return report.hint(format!(
            "an id needs {} digits at least: `{command}` is {}",
            limits::ID_DIGITS,
            name(listed)
        ));
    }
    let mut names: Vec<&str> = all
        .iter()
        .filter_map(|listed| Some(listed.card.as_ref()?.name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    match (nearest(name_or_id, &names), names.as_slice()) {
        (_, []) => report.hint("no server runs under mainstay now"),
        (Some(near), _) => report.hint(format!("did you mean `{near}`?")),
        (None, names) => report.hint(format!("running servers: {}", names.join(", "))),
    }
}

/// The server's name, or `?` if its card cannot be read.
pub fn name(listed: &Listed) -> String {
    let card = listed.card.as_ref();
    card.map_or_else(|| "?".into(), |card| card.name.clone())
}

/// The server's name for output; with its id if there are several rows.
pub fn label(server: &str, id: LinkId, rows: usize) -> String {
    if rows > 1 {
        format!("{server} ({id})")
    } else {
        server.to_owned()
    }
}

/// The error if a keeper did not do what it was asked, with a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub error: String,
    pub hint: Option<String>,
}

impl Failure {
    /// An error without a hint.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
        }
    }

    /// The keeper refused the request.
    pub fn refused(error: &str) -> Self {
        Self::new(format!("its keeper refused: {error}"))
    }

    /// The keeper sent the answer to another request.
    pub fn unexpected_answer() -> Self {
        Self::new("its keeper answered something else")
    }

    /// The keeper did not answer.
    pub fn no_answer(listed: &Listed, reason: NoAnswer) -> Self {
        let hinted = |error: String, hint: Option<String>| Self { error, hint };
        match reason {
            NoAnswer::Strange(what) => Self::new(format!("its keeper cannot be asked: {what}")),
            NoAnswer::Dead if listed.alive => hinted(
                "its keeper does not listen: it is just starting or ending".into(),
                Some("try again".into()),
            ),
            NoAnswer::Dead => hinted(
                "its keeper is dead".into(),
                Some(
                    "the next `mainstay run` ends the processes that it left; `mainstay doctor` shows them"
                        .into(),
                ),
            ),
            NoAnswer::Stuck { ms } => {
                let keeper = listed.card.as_ref().and_then(|card| card.keeper.as_ref());
                hinted(
                    format!("its keeper is stuck: no answer for {}", fine(ms)),
                    keeper.map(|seen| {
                        let pid = seen.who.pid;
                        format!("`kill -9 {pid}` ends the keeper, and its guard then ends the tree")
                    }),
                )
            }
        }
    }

    /// The text for stderr.
    pub fn text(&self, name: &str) -> String {
        let hint = self
            .hint
            .as_ref()
            .map_or_else(String::new, |hint| format!("hint: {hint}\n"));
        format!("error: {name}: {}\n{hint}", self.error)
    }
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;
    use mainstay_protocol::ids::LinkId;
    use mainstay_store::registry::card::samples;

    /// A link whose keeper is this process.
    pub fn listed(id: u32, name: &str) -> Listed {
        Listed {
            id: LinkId(id),
            path: Paths::nowhere().run(),
            card: Some(samples::card(id, name)),
            alive: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::listed;
    use super::*;
    use mainstay_store::registry::entry::Entry;
    use mainstay_store::scratch::Scratch;
    use std::io::Write;

    fn all() -> Vec<Listed> {
        vec![
            listed(0xab00_0000, "fetch"),
            listed(0xab10_0000, "play"),
            of_client(listed(0xcd00_0000, "play")),
            listed(0xef00_0000, "ab10"),
        ]
    }

    fn of_client(mut listed: Listed) -> Listed {
        let card = listed.card.as_mut().unwrap();
        card.client = Some(mainstay_report::samples::seen(7, "claude"));
        listed
    }

    fn ids(name_or_id: &str) -> Vec<u32> {
        let found = matching(name_or_id, &all());
        found.iter().map(|listed| listed.id.0).collect()
    }

    fn refused(name_or_id: &str) -> String {
        let found = matching(name_or_id, &all());
        if found.is_empty() {
            return unknown("stop", name_or_id, &all()).to_string();
        }
        only("stop", name_or_id, found).unwrap_err().to_string()
    }

    #[test]
    fn a_name_counts_before_an_id_and_an_id_needs_four_digits() {
        assert_eq!(ids("play"), [0xab10_0000, 0xcd00_0000]);
        assert_eq!(ids("CD00"), [0xcd00_0000]);
        assert!(ids("cd0").is_empty());
        assert_eq!(ids("ab10"), [0xef00_0000], "a name counts before an id");
        assert_eq!(ids("ab10000"), [0xab10_0000]);
        let mut dead = all();
        dead[2].alive = false;
        assert_eq!(matching("play", &dead).len(), 1, "dead links do not count");
        dead[1].alive = false;
        assert_eq!(matching("play", &dead).len(), 2, "if no other is left");
    }

    #[test]
    fn an_ambiguous_word_is_refused_with_the_command_for_each_server() {
        assert_eq!(
            refused("play"),
            "error: 2 servers are called `play`\nhint: name one of them by its id:\n\
             \x20 mainstay stop ab10  no client, in /\n\
             \x20 mainstay stop cd00  claude (7), in /\n\
             or all of them: mainstay stop play --all"
        );
        let twins = [listed(0xab10_0000, "a b"), listed(0xab10_0001, "a b")];
        let tap = ambiguous("tap", "a b", &twins).to_string();
        assert!(
            tap.contains("mainstay tap ab100001") && !tap.contains("--all"),
            "{tap}"
        );
        let stop = ambiguous("stop", "a b", &twins).to_string();
        assert!(stop.ends_with("mainstay stop 'a b' --all"), "{stop}");
        let ids = ambiguous("stop", "ab10", &twins).to_string();
        assert!(ids.starts_with("error: 2 ids begin with `ab10`\n"), "{ids}");
        assert!(!ids.contains("--all"), "{ids}");
    }

    #[test]
    fn a_command_without_a_name_lists_what_runs() {
        assert_eq!(
            nameless("stop", &all()).to_string(),
            "error: `mainstay stop` needs the name of a server\nhint: these servers run:\n\
             \x20 mainstay stop fetch  no client, in /\n\
             \x20 mainstay stop ab10   play, no client, in /\n\
             \x20 mainstay stop cd00   play, claude (7), in /\n\
             \x20 mainstay stop ab10   no client, in /"
        );
        assert!(
            nameless("tap", &[])
                .to_string()
                .ends_with("no server runs under mainstay now")
        );
    }

    #[test]
    fn an_unknown_name_is_an_error_with_a_hint() {
        assert_eq!(
            refused("ftech"),
            "error: no server is called `ftech`\nhint: did you mean `fetch`?"
        );
        assert_eq!(
            refused("zzz"),
            "error: no server is called `zzz`\nhint: running servers: ab10, fetch, play"
        );
        assert_eq!(
            refused("cd"),
            "error: no server is called `cd`\nhint: an id needs 4 digits at least: `mainstay stop cd00` is play"
        );
        assert_eq!(unknown("stop", "", &[]).exit(), Exit::NotFound);
    }

    #[test]
    fn a_keeper_that_does_not_answer_gives_an_error_with_a_hint() {
        let stuck = Failure::no_answer(&listed(1, "a"), NoAnswer::Stuck { ms: 14_000 });
        assert_eq!(stuck.error, "its keeper is stuck: no answer for 14.00 s");
        assert!(stuck.hint.unwrap().starts_with("`kill -9 "));
        let early = Failure::no_answer(&listed(1, "a"), NoAnswer::Dead);
        assert_eq!(
            early.text("a"),
            "error: a: its keeper does not listen: it is just starting or ending\nhint: try again\n"
        );
    }

    #[test]
    fn a_keeper_that_does_not_listen_yet_is_waited_for() {
        let scratch = Scratch::new();
        let entry = Entry::create(&scratch.paths(), LinkId(7)).unwrap();
        let all = registry::list(&scratch.paths()).unwrap();
        let answers = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask_all(all, &Request::Stop, |_| 60_000, |_, _| {}));
            let listener = entry.listen().unwrap();
            listener.set_nonblocking(false).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let answer = Answer::Stopped {
                ended: 1,
                left: Vec::new(),
            };
            stream.write_all(&answer.line()).unwrap();
            asked.join().unwrap()
        });
        assert!(
            matches!(answers.as_slice(), [(_, Ok(Answer::Stopped { .. }))]),
            "{answers:?}"
        );
    }
}
