//! What is wrong in the file: where, and what was probably meant.

use std::ops::Range;

use mainstay_report::{Exit, Report};

use super::{Reader, SERVER, TOP, Value, of_servers};

impl Reader<'_> {
    pub(super) fn wrong_type(&self, value: &Value<'_>, name: &str, wanted: &str) -> Report {
        let found = article(value.get_ref().type_str());
        let report = self.mistake(&value.span(), format!("`{name}` is {found}, not {wanted}"));
        let name = toml_key(name);
        report.hint(match wanted {
            TEXTS => format!("write it like `{name} = [\"…\", \"…\"]`"),
            SWITCH => format!("write `{name} = true` or `{name} = false`"),
            TABLE => format!("write a line `[{name}]`, and its keys below it"),
            TEXT => format!("write it in quotes: `{name} = \"…\"`"),
            _ => format!("write {wanted} after `{name} =`"),
        })
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

/// What a value must be, in the words of the error.
pub(super) const TEXT: &str = "a text";
/// See [`TEXT`].
pub(super) const TEXTS: &str = "a list of texts";
/// See [`TEXT`].
pub(super) const SWITCH: &str = "`true` or `false`";
/// See [`TEXT`].
pub(super) const TABLE: &str = "a table";

/// The name of a key as TOML wants it.
fn toml_key(name: &str) -> String {
    let bare = |part: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        !part.is_empty() && part.bytes().all(fits)
    };
    if name.split('.').all(bare) {
        return name.into();
    }
    match name.split_once('.') {
        Some(("server", rest)) => format!("server.{rest:?}"),
        Some(_) | None => format!("{name:?}"),
    }
}

/// What to do about a file that is no TOML.
pub(super) fn syntax_hint(text: &str, message: &str) -> &'static str {
    if text.trim_start().starts_with('{') {
        "the file is TOML, not JSON: a server is a line `[server.NAME]`, with `command = \"…\"` below it"
    } else if message.contains("duplicate key") {
        "a name may stand there once: put what belongs together below one, and remove the other"
    } else {
        "correct that line: a table begins with a line like `[server.NAME]`, and texts stand in quotes, as in `command = \"npx\"`"
    }
}

/// What to do if a value is of no use and the built-in one may do.
pub(super) fn leave_out(name: &str, built_in: &str) -> String {
    format!("leave `{name}` out for the built-in value, {built_in}")
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
