//! The words behind `docker run` and its like: options, the image, and what the container is to run.

use std::ffi::OsStr;
use std::path::PathBuf;

/// Long options that take no value. Nearly all others do, so the exceptions are listed; a value after `=` is
/// recognised anyway.
const FLAGS: [&str; 24] = [
    "detach",
    "disable-content-trust",
    "env-host",
    "http-proxy",
    "init",
    "interactive",
    "no-healthcheck",
    "no-hostname",
    "no-hosts",
    "oom-kill-disable",
    "passwd",
    "privileged",
    "publish-all",
    "quiet",
    "read-only",
    "read-only-tmpfs",
    "replace",
    "rm",
    "rmi",
    "sig-proxy",
    "tls-verify",
    "tty",
    "unsetenv-all",
    "use-api-socket",
];
/// Short options that take none; `-it` is two of them.
const LETTERS: &str = "itdPq";

/// The words before the command of the container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The cid file that the user asked for.
    pub cidfile: Option<PathBuf>,
    /// Which word is the image.
    pub image: Option<usize>,
}

/// Reads what follows `run`.
pub fn read<W: AsRef<OsStr>>(words: &[W]) -> Words {
    let mut found = Words::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let word = word.as_ref().to_string_lossy();
        let (name, attached) = match word.strip_prefix("--") {
            Some("") => {
                found.image = (at + 1 < words.len()).then_some(at + 1);
                return found;
            }
            Some(long) => match long.split_once('=') {
                Some((name, value)) => (name, Value::Attached(value)),
                None if FLAGS.contains(&long) => (long, Value::None),
                None => (long, Value::Next),
            },
            None => match word.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => ("", short(letters)),
                Some(_) | None => {
                    found.image = Some(at);
                    return found;
                }
            },
        };
        let value = match attached {
            Value::None => None,
            Value::Attached(value) => Some(PathBuf::from(value)),
            Value::Next => {
                at += 1;
                words.get(at).map(|word| PathBuf::from(word.as_ref()))
            }
        };
        if name == "cidfile" {
            found.cidfile = value;
        }
        at += 1;
    }
    found
}

/// Where an option's value is.
enum Value<'w> {
    /// It has none.
    None,
    /// In the same word.
    Attached(&'w str),
    /// In the next one.
    Next,
}

/// `-i`, `-it`, `-p 80:80`, `-p80:80`, `-itv /a:/b`.
fn short(letters: &str) -> Value<'_> {
    let rest = letters.trim_start_matches(|c| LETTERS.contains(c));
    let mut behind = rest.chars();
    match behind.next() {
        None => Value::None,
        Some(_) if behind.as_str().is_empty() => Value::Next,
        Some(_) => Value::Attached(behind.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_end_at_the_image() {
        for (line, cidfile, image) in [
            ("-i --rm img", None, Some("img")),
            ("-it -e A=1 -v /a:/b img run -e x", None, Some("img")),
            ("-itv /a:/b -p80:80 img", None, Some("img")),
            ("--name n --network=host -- img x", None, Some("img")),
            ("--cidfile /mine -i img", Some("/mine"), Some("img")),
            ("--cidfile=/mine -i img", Some("/mine"), Some("img")),
            ("-i img tool --cidfile x", None, Some("img")),
            ("-e --cidfile -i img", None, Some("img")),
            ("--sig-proxy=false --read-only img", None, Some("img")),
            ("-i", None, None),
            ("", None, None),
        ] {
            let words: Vec<&str> = line.split_whitespace().collect();
            let read = read(&words);
            assert_eq!(read.cidfile, cidfile.map(PathBuf::from), "{line}");
            assert_eq!(read.image.map(|at| words[at]), image, "{line}");
        }
    }
}
