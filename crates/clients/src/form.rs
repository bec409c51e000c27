//! The form of an adopted entry: which words stand before the old ones, and how they are recognised.
//!
//! ```text
//! had args   mainstay  run FLAGS… --name KEY -- OLD-COMMAND OLD-ARGS…
//! had none   mainstay  run FLAGS… --name=KEY    OLD-COMMAND
//! a URL      mainstay  run FLAGS… --name KEY --header-env NAME=MAINSTAY_HEADER_1 … --url OLD-URL
//! ```
//!
//! The form alone says what stood there, so that releasing needs no store. Only `run`, `--`, `--name=` and `--url` are looked at: other
//! versions may write other flags before them. FLAGS are those of `--thrifty`, `--lazy --hibernate TIME`; other words there are the user's, and an
//! update keeps them.

use std::ops::Range;

use crate::limits::NAME_CHARS_MAX;

/// The verb.
pub(crate) const RUN: &str = "run";
/// What ends our own words.
const END: &str = "--";
const NAME: &str = "--name";
const LAZY: &str = "--lazy";
const HIBERNATE: &str = "--hibernate";
const NAME_IS: &str = "--name=";
const URL: &str = "--url";
const HEADER: &str = "--header-env";
/// The beginning of variables that hold the value of a header.
const VARIABLE: &str = "MAINSTAY_HEADER_";

/// What the words of an entry are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A server's own command.
    Bare,
    /// Adopted: the word at this place is the old command.
    Wrapped {
        /// Its place; 0 is the command of the entry.
        old: usize,
        /// Whether the entry had arguments before.
        had_args: bool,
    },
    /// Adopted: the last word is the old URL.
    Bridged {
        /// Names of headers and the variables that hold their values.
        headers: Vec<(String, String)>,
    },
    /// It goes through mainstay, in a form that is not adopt's.
    ByHand,
}

/// Reads the words of an entry; a word that is no string is none.
pub(crate) fn recognise(words: &[Option<&str>]) -> Form {
    let Some(program) = words.first().copied().flatten() else {
        return Form::Bare;
    };
    if !is_mainstay(program) {
        let nested = words.windows(2).any(|pair| {
            pair[0].is_some_and(is_mainstay) && pair[1].is_some_and(|word| word == RUN)
        });
        return if nested { Form::ByHand } else { Form::Bare };
    }
    if words.get(1).copied().flatten() != Some(RUN) {
        return Form::ByHand;
    }
    if let Some(end) = words.iter().position(|word| *word == Some(END)) {
        return if end + 1 < words.len() {
            Form::Wrapped {
                old: end + 1,
                had_args: true,
            }
        } else {
            Form::ByHand
        };
    }
    if words.len() > 3 && words[words.len() - 2] == Some(URL) {
        return bridged(words).unwrap_or(Form::ByHand);
    }
    let named = |word: &&str| word.starts_with(NAME_IS);
    let name = words
        .iter()
        .position(|word| word.as_ref().is_some_and(named));
    let old = match name {
        Some(name) => name + 1,
        None if words.len() == 3 => 2,
        None => return Form::ByHand,
    };
    match words.get(old).copied().flatten() {
        Some(command) if !command.starts_with('-') => Form::Wrapped {
            old,
            had_args: old + 1 < words.len(),
        },
        Some(_) | None => Form::ByHand,
    }
}

fn bridged(words: &[Option<&str>]) -> Option<Form> {
    let mut headers = Vec::new();
    let mut place = 2;
    while place < words.len() - 2 {
        if words[place]? == HEADER {
            let (name, variable) = words[place + 1]?.split_once('=')?;
            variable.strip_prefix(VARIABLE)?;
            headers.push((name.to_owned(), variable.to_owned()));
            place += 1;
        } else if words[place]?.starts_with("--header") {
            return None;
        }
        place += 1;
    }
    Some(Form::Bridged { headers })
}

/// The words between `run` and the old command or URL, as places. What adopt did not write is the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    /// The user's words before the name, and before what `--thrifty` wrote.
    pub before: Range<usize>,
    /// What `--thrifty` wrote.
    pub thrifty: Range<usize>,
    /// The name that is given.
    pub name: Option<String>,
    /// The words behind the name. Those of headers are among them.
    pub after: Range<usize>,
}

impl Flags {
    /// Those of an adopted entry whose old command or URL has this place.
    pub fn of(words: &[Option<&str>], old: usize) -> Self {
        let ends = [Some(END), Some(URL)].contains(&words[old - 1]);
        let end = if ends { old - 1 } else { old };
        let named = (2..end).find_map(|place| {
            let word = words[place]?;
            if word == NAME && place + 1 < end {
                return Some((place, 2, words[place + 1]));
            }
            word.strip_prefix(NAME_IS)
                .map(|name| (place, 1, Some(name)))
        });
        let (at, length, name) = named.unwrap_or((end, 0, None));
        let wrote = |start: usize| {
            start >= 2 && words[start] == Some(LAZY) && words[start + 1] == Some(HIBERNATE)
        };
        let thrifty = at.checked_sub(3).filter(|&start| wrote(start));
        let thrifty = thrifty.unwrap_or(at)..at;
        Self {
            before: 2..thrifty.start,
            thrifty,
            name: name.map(ToOwned::to_owned),
            after: at + length..end,
        }
    }

    /// The flags of `--thrifty`, except those that the user's words give already.
    pub fn thrift(&self, words: &[Option<&str>], time: &str) -> Vec<String> {
        let given = |flag: &str| {
            let mut own = self.before.clone().chain(self.after.clone());
            own.any(|place| {
                let word = words[place].unwrap_or_default();
                let rest = word.strip_prefix(flag);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            })
        };
        let mut flags = Vec::new();
        if !given(LAZY) {
            flags.push(LAZY.to_owned());
        }
        if !given(HIBERNATE) {
            flags.extend([HIBERNATE.to_owned(), time.to_owned()]);
        }
        flags
    }
}

/// The flags that `--thrifty` writes.
pub(crate) fn thrift(time: &str) -> Vec<String> {
    [LAZY, HIBERNATE, time].map(ToOwned::to_owned).into()
}

/// The word between our own words and an old command or URL.
pub(crate) fn last_word(form: &Form) -> Option<&'static str> {
    match form {
        Form::Wrapped { had_args: true, .. } => Some(END),
        Form::Bridged { .. } => Some(URL),
        Form::Wrapped {
            had_args: false, ..
        }
        | Form::Bare
        | Form::ByHand => None,
    }
}

/// The words that name a server, in the form that has this last word.
pub(crate) fn naming(name: &str, last: Option<&str>) -> Vec<String> {
    match last {
        Some(_) => vec![NAME.to_owned(), name.to_owned()],
        None => vec![format!("{NAME_IS}{name}")],
    }
}

/// Whether a command is this program, in any place or version.
pub(crate) fn is_mainstay(command: &str) -> bool {
    let base = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let base = base.strip_suffix(".exe").unwrap_or(base);
    base == "mainstay" || base.starts_with("mainstay-")
}

/// The words before the old command of an entry.
pub(crate) fn wrapping(flags: &[String], name: &str, had_args: bool) -> Vec<String> {
    let mut words = vec![RUN.to_owned()];
    words.extend_from_slice(flags);
    if had_args {
        words.extend([NAME.to_owned(), name.to_owned(), END.to_owned()]);
    } else {
        words.push(format!("{NAME_IS}{name}"));
    }
    words
}

/// The words before the old URL of an entry.
pub(crate) fn bridging(flags: &[String], name: &str, headers: &[String]) -> Vec<String> {
    let mut words = vec![RUN.to_owned()];
    words.extend_from_slice(flags);
    words.extend([NAME.to_owned(), name.to_owned()]);
    for (number, header) in headers.iter().enumerate() {
        words.push(HEADER.to_owned());
        words.push(format!("{header}={}", variable(number)));
    }
    words.push(URL.to_owned());
    words
}

/// The variable that holds the value of this header, counted from 0.
pub(crate) fn variable(number: usize) -> String {
    format!("{VARIABLE}{}", number + 1)
}

/// The name of a server, from its key: what `--name` takes, and what no client expands.
pub(crate) fn name_of(key: &str) -> String {
    let plain = |c: char| {
        if c.is_control() || "$`{}%\\".contains(c) {
            '-'
        } else {
            c
        }
    };
    let name: String = key.chars().map(plain).take(NAME_CHARS_MAX).collect();
    let name = name.trim().trim_start_matches('-');
    if name.is_empty() {
        "server".to_owned()
    } else {
        name.to_owned()
    }
}

/// What is wrong with the time of `--thrifty`.
pub(crate) fn time_problem(time: &str) -> Option<String> {
    let plain = !time.is_empty() && time.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    (!plain).then(|| format!("`{time}` is not a time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Form {
        let words: Vec<Option<&str>> = line.split_whitespace().map(Some).collect();
        recognise(&words)
    }

    fn wrapped(old: usize, had_args: bool) -> Form {
        Form::Wrapped { old, had_args }
    }

    #[test]
    fn every_form_is_recognised_whatever_the_version_wrote() {
        for (line, form) in [
            ("npx -y pkg", Form::Bare),
            ("npx", Form::Bare),
            ("npx -- pkg", Form::Bare),
            ("/b/mainstay run --name k -- npx -y pkg", wrapped(5, true)),
            ("mainstay run -- npx", wrapped(3, true)),
            (
                "mainstay run --new-flag x --name k -- npx -- --",
                wrapped(7, true),
            ),
            ("mainstay-0.2 run --name=k npx", wrapped(3, false)),
            ("mainstay run --lazy --name=k npx", wrapped(4, false)),
            ("mainstay run --name=k npx -y", wrapped(3, true)),
            ("mainstay run npx", wrapped(2, false)),
            ("C:\\bin\\mainstay.exe run -- npx", wrapped(3, true)),
            ("mainstay run --name k npx -y pkg", Form::ByHand),
            ("mainstay run --name k", Form::ByHand),
            ("mainstay run --name k --", Form::ByHand),
            ("mainstay run --name=k", Form::ByHand),
            ("mainstay run --name=k --lazy", Form::ByHand),
            ("mainstay serve --name=k x", Form::ByHand),
            ("mainstay", Form::ByHand),
            ("npx mainstay run -- x", Form::ByHand),
            ("env A=1 /b/mainstay run -- x", Form::ByHand),
            (
                "mainstay run --url http://h/",
                Form::Bridged { headers: vec![] },
            ),
            (
                "mainstay run --name k --header-env X-A=MAINSTAY_HEADER_1 --url http://h/",
                Form::Bridged {
                    headers: vec![("X-A".into(), "MAINSTAY_HEADER_1".into())],
                },
            ),
            (
                "mainstay run --header-env X-A=MY_TOKEN --url http://h/",
                Form::ByHand,
            ),
            ("mainstay run --header X:1 --url http://h/", Form::ByHand),
        ] {
            assert_eq!(of(line), form, "{line}");
        }
        assert_eq!(recognise(&[]), Form::Bare);
        assert_eq!(recognise(&[None, Some("run")]), Form::Bare);
    }

    #[test]
    fn an_entry_that_we_built_is_recognised() {
        let flags = ["--lazy", "--hibernate", "10m"].map(String::from);
        for had_args in [true, false] {
            let mut words = vec!["/x/mainstay".to_owned()];
            words.extend(wrapping(&flags, "k", had_args));
            let old = words.len();
            words.push("npx".into());
            let words: Vec<_> = words.iter().map(|word| Some(word.as_str())).collect();
            assert_eq!(recognise(&words), wrapped(old, had_args));
        }
        let headers = ["Authorization".to_owned(), "X-B".to_owned()];
        let mut words = vec!["mainstay".to_owned()];
        words.extend(bridging(&flags, "k", &headers));
        words.push("https://h/mcp".into());
        let words: Vec<_> = words.iter().map(|word| Some(word.as_str())).collect();
        let headers = vec![
            ("Authorization".into(), "MAINSTAY_HEADER_1".into()),
            ("X-B".into(), "MAINSTAY_HEADER_2".into()),
        ];
        assert_eq!(recognise(&words), Form::Bridged { headers });
    }

    #[test]
    fn the_users_words_are_told_from_ours() {
        for (line, old, before, thrifty, name, after) in [
            ("m run --name k -- npx", 5, 2..2, 2..2, Some("k"), 4..4),
            ("m run -- npx", 3, 2..2, 2..2, None, 2..2),
            (
                "m run --watch . --lazy --hibernate 10m --name k --max 3 -- npx",
                12,
                2..4,
                4..7,
                Some("k"),
                9..11,
            ),
            ("m run --lazy --name=k npx", 4, 2..3, 3..3, Some("k"), 4..4),
            (
                "m run --lazy --hibernate 10m --name=k npx",
                6,
                2..2,
                2..5,
                Some("k"),
                6..6,
            ),
            // The user has put something between: it is no longer what adopt wrote.
            (
                "m run --lazy --hibernate 10m --max 3 --name k -- npx",
                10,
                2..7,
                7..7,
                Some("k"),
                9..9,
            ),
            (
                "m run --name k --header-env A=B --url http://h/",
                7,
                2..2,
                2..2,
                Some("k"),
                4..6,
            ),
        ] {
            let words: Vec<Option<&str>> = line.split_whitespace().map(Some).collect();
            let flags = Flags::of(&words, old);
            let expected = Flags {
                before,
                thrifty,
                name: name.map(ToOwned::to_owned),
                after,
            };
            assert_eq!(flags, expected, "{line}");
        }
        let words = ["m", "run", "--hibernate=1h", "--name", "k", "--", "x"].map(Some);
        assert_eq!(Flags::of(&words, 6).thrift(&words, "10m"), ["--lazy"]);
    }

    #[test]
    fn a_name_is_one_that_run_takes_and_no_client_expands() {
        for (key, name) in [
            ("files", "files"),
            ("my files", "my files"),
            ("--x", "x"),
            ("a${B}c", "a--B-c"),
            ("a\tb", "a-b"),
            ("", "server"),
            ("---", "server"),
            ("é", "é"),
        ] {
            assert_eq!(name_of(key), name);
        }
        assert_eq!(name_of(&"n".repeat(100)).chars().count(), NAME_CHARS_MAX);
    }
}
