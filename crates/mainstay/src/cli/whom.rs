//! Whom a command means, by name or id, and asking all of them at once: what `stop` and `restart` share.

use mainstay_core::ids::LinkId;
use mainstay_core::limits;
use mainstay_os::clock;

use crate::config::file::nearest;
use crate::exit::Exit;
use crate::paths::Paths;
use crate::registry::ask::{Asked, NoAnswer};
use crate::registry::control::{Answer, Request};
use crate::registry::{self, Listed};
use crate::report::{Report, plain};
use crate::view::measure::fine;

/// The time between two looks at a keeper that does not listen yet, or for a link that is not listed yet.
const LOOK_MS: u32 = 10;

/// A link, and what its keeper answered.
pub type Told = (Listed, Result<Answer, NoAnswer>);

/// All links of this user.
pub fn everybody() -> Result<Vec<Listed>, Report> {
    let paths = Paths::find()?;
    registry::list(&paths).map_err(|error| {
        Report::new(
            Exit::State,
            format!("cannot read {}", paths.run().display()),
        )
        .because(plain(&error))
        .hint("`mainstay doctor` looks for the reason")
    })
}

/// Asks all of them before the first answer is waited for: what they do takes its time side by side. `patience_ms` is
/// how long one may take, by its card.
pub fn ask_all(
    chosen: Vec<Listed>,
    request: &Request,
    patience_ms: fn(&Listed) -> u64,
) -> Vec<Told> {
    let asked: Vec<_> = chosen
        .into_iter()
        .map(|listed| {
            let patience_ms = limits::KEEPER_MARGIN_MS + patience_ms(&listed);
            let asked = send(&listed, request, patience_ms);
            (listed, asked)
        })
        .collect();
    asked
        .into_iter()
        .map(|(listed, asked)| (listed, asked.and_then(Asked::answer)))
        .collect()
}

/// Sends the question, as soon as the keeper listens: a card can be there before its keeper's socket is.
fn send(listed: &Listed, request: &Request, patience_ms: u64) -> Result<Asked, NoAnswer> {
    let until = clock::now().after_ms(limits::KEEPER_LISTENS_MS);
    loop {
        match Asked::send(&listed.path, request, patience_ms) {
            Err(NoAnswer::Dead) if listed.lives() && clock::now() < until => clock::nap(LOOK_MS),
            asked => return asked,
        }
    }
}

/// The links that are meant, as `choose` says. A link is listed a moment after its client could speak to its server
/// (`limits::INTRODUCE_MS`), so one that is not there is looked for again before that is told.
pub fn find(whom: &str) -> Result<Vec<Listed>, Report> {
    let until = clock::now().after_ms(limits::LISTED_MS);
    loop {
        match choose(whom, everybody()?) {
            Err(_) if clock::now() < until => clock::nap(LOOK_MS),
            found => return found,
        }
    }
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

/// The server's name.
pub fn name(listed: &Listed) -> String {
    let card = listed.card.as_ref();
    card.map_or_else(|| "?".into(), |card| card.name.clone())
}

/// The server's name as one of so many rows: with its id, unless it is alone.
pub fn label(server: &str, id: LinkId, rows: usize) -> String {
    if rows > 1 {
        format!("{server} ({id})")
    } else {
        server.to_owned()
    }
}

/// Why a keeper did not do it, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Why.
    pub error: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Trouble {
    /// Without anything to be done.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            hint: None,
        }
    }

    /// The keeper said no.
    pub fn refused(error: &str) -> Self {
        Self::new(format!("its keeper refused: {error}"))
    }

    /// The keeper answered another question.
    pub fn beside() -> Self {
        Self::new("its keeper answered something else")
    }

    /// The keeper said nothing.
    pub fn of(listed: &Listed, silence: NoAnswer) -> Self {
        let hinted = |error: String, hint: Option<String>| Self { error, hint };
        match silence {
            NoAnswer::Strange(what) => Self::new(format!("its keeper cannot be asked: {what}")),
            NoAnswer::Dead if listed.alive => hinted(
                "its keeper does not listen: it is just starting or ending".into(),
                Some("ask again".into()),
            ),
            NoAnswer::Dead => hinted(
                "its keeper is dead".into(),
                Some(
                    "what it left is ended at the next `mainstay run`; `mainstay doctor` shows it"
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

    /// For people to read, behind the name of the server.
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
    use crate::registry::card::samples;
    use mainstay_core::ids::LinkId;

    /// A link of a keeper that we are.
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
    use crate::registry::entry::Entry;
    use crate::scratch::Scratch;
    use std::io::Write;

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
        let stuck = Trouble::of(&listed(1, "a"), NoAnswer::Stuck { ms: 14_000 });
        assert_eq!(stuck.error, "its keeper is stuck: no answer for 14.00 s");
        assert!(stuck.hint.unwrap().starts_with("`kill -9 "));
        let early = Trouble::of(&listed(1, "a"), NoAnswer::Dead);
        assert_eq!(
            early.text("a"),
            "error: a: its keeper does not listen: it is just starting or ending\nhint: ask again\n"
        );
    }

    #[test]
    fn a_keeper_that_does_not_listen_yet_is_waited_for() {
        let scratch = Scratch::new();
        let entry = Entry::create(&scratch.paths(), LinkId(7)).unwrap();
        let all = registry::list(&scratch.paths()).unwrap();
        let told = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask_all(all, &Request::Stop, |_| 60_000));
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
            matches!(told.as_slice(), [(_, Ok(Answer::Stopped { .. }))]),
            "{told:?}"
        );
    }
}
