//! What is wrong in the file: where, and what was probably meant.

use std::ops::Range;

use super::{Reader, SERVER, TOP, Value, of_servers};
use crate::exit::Exit;
use crate::report::Report;

impl Reader<'_> {
    pub(super) fn wrong_type(&self, value: &Value<'_>, name: &str, wanted: &str) -> Report {
        let found = article(value.get_ref().type_str());
        self.mistake(&value.span(), format!("`{name}` is {found}, not {wanted}"))
    }

    pub(super) fn unknown<S: AsRef<str>>(
        &self,
        at: &Range<usize>,
        name: &str,
        place: &str,
        known: &[S],
    ) -> Report {
        let report = self.mistake(at, format!("unknown key `{name}` {place}"));
        match nearest(name, known) {
            Some(near) => report.hint(format!("did you mean `{near}`?")),
            None => report.hint(format!(
                "known keys here: {}",
                known
                    .iter()
                    .map(AsRef::as_ref)
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        }
    }

    /// A key at the top that is neither of the two tables.
    pub(super) fn homeless(&self, at: &Range<usize>, name: &str) -> Report {
        let settings = of_servers();
        let report = self.unknown(at, name, "at the top", &TOP);
        match nearest(name, &settings) {
            Some(near) if nearest(name, &TOP).is_none() => report.hint(format!(
                "write `{near}` below a line `[server.NAME]`{}",
                if SERVER.contains(&near) {
                    ""
                } else {
                    ", or `[defaults]` for all servers"
                }
            )),
            Some(_) | None => report,
        }
    }

    pub(super) fn mistake(&self, at: &Range<usize>, problem: impl std::fmt::Display) -> Report {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        Report::new(
            Exit::Failed,
            format!("{}:{line}: {problem}", self.path.display()),
        )
    }
}

/// The known word that was probably meant.
pub fn nearest<'k, S: AsRef<str>>(word: &str, known: &'k [S]) -> Option<&'k str> {
    known
        .iter()
        .map(|candidate| {
            let candidate = candidate.as_ref();
            (strsim::jaro_winkler(word, candidate), candidate)
        })
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn article(word: &str) -> String {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) {
        format!("an {word}")
    } else {
        format!("a {word}")
    }
}
