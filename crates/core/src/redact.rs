//! Command lines and messages without what looks like a secret.
//!
//! Of a command line it looks at words only: the value of an option or variable whose name speaks of a secret, a header, a
//! password in an address, and the known beginnings of tokens. Messages are the business of `redact/json.rs`. Neither knows what a
//! program means by its names, so both hide rather too much than too little; they cannot promise to find everything.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

mod json;
pub use json::body;

/// What stands in place of a secret.
pub const HIDDEN: &str = "[hidden]";

/// Parts of names whose values are secrets.
const NAMES: [&str; 12] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "authorization",
    "credential",
    "privatekey",
    "accesskey",
    "bearer",
    "cookie",
];

/// How tokens of known makers begin.
const BEGINNINGS: [&str; 13] = [
    "sk-",
    "sk_live_",
    "npm_",
    "AIza",
    "eyJ",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
];

/// The same words with each secret hidden.
pub fn words(words: &[String]) -> Vec<String> {
    let mut value_follows = false;
    words
        .iter()
        .map(|word| {
            let is_value = core::mem::take(&mut value_follows) && !word.starts_with('-');
            if is_value {
                return HIDDEN.to_string();
            }
            value_follows = word.starts_with('-') && !word.contains(['=', ' ']) && speaks(word);
            one(word)
        })
        .collect()
}

fn one(word: &str) -> String {
    if let Some(at) = word.find(['=', ':'])
        && speaks(&word[..at])
    {
        return format!("{}{HIDDEN}", &word[..=at]);
    }
    // A whole script can be one word: it is hidden from the first name of a secret that gets a value.
    for (at, _) in word.match_indices(['=', ':']) {
        let name = word[..at]
            .rsplit([' ', '\n', '"', '\'', '&', '?', ';'])
            .next();
        if name.is_some_and(speaks) {
            return format!("{}{HIDDEN}", &word[..=at]);
        }
    }
    let shown = addresses(word);
    let word = shown.as_str();
    let value = word.rsplit(['=', ' ']).next().unwrap_or(word);
    if BEGINNINGS.iter().any(|start| value.starts_with(start)) {
        return format!("{}{HIDDEN}", &word[..word.len() - value.len()]);
    }
    word.to_string()
}

/// The word with the secret of each address in it hidden.
fn addresses(word: &str) -> String {
    let mut shown = String::new();
    let mut rest = word;
    while let Some((scheme, after)) = rest.split_once("://") {
        let ends = |c: char| c.is_whitespace() || c == '/';
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        let secret = authority.rfind('@').and_then(|at| {
            let who = &authority[..at];
            secret_of(scheme, who).map(|start| start..at)
        });
        shown += scheme;
        shown += "://";
        rest = after;
        if let Some(secret) = secret {
            shown += &after[..secret.start];
            shown += HIDDEN;
            rest = &after[secret.end..];
        }
    }
    shown + rest
}

/// Where in what stands before the `@` of an address its secret begins. A name alone is one (a token needs no password
/// beside it) unless it is the plain user name of a shell, which has its keys elsewhere.
fn secret_of(scheme: &str, who: &str) -> Option<usize> {
    if let Some(colon) = who.find(':') {
        return Some(colon + 1);
    }
    let of_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let scheme = &scheme[scheme.trim_end_matches(of_scheme).len()..];
    let last = scheme.rsplit('+').next().unwrap_or(scheme);
    let shell = ["ssh", "sftp", "scp", "rsync"]
        .iter()
        .any(|name| last.eq_ignore_ascii_case(name));
    let token = BEGINNINGS.iter().any(|start| who.starts_with(start));
    let name = !who.is_empty() && !who.contains(['?', '#', '"', '\'', '<', '>', '\\']);
    (name && !scheme.is_empty() && (token || !shell)).then_some(0)
}

/// Whether a name speaks of a secret.
pub fn speaks(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    NAMES.iter().any(|part| plain.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(line: &[&str]) -> String {
        let line: Vec<String> = line.iter().map(ToString::to_string).collect();
        words(&line).join("|")
    }

    #[test]
    fn secrets_are_hidden_and_the_rest_is_not() {
        for (line, shown) in [
            (&["x", "--token", "abc", "y"][..], "x|--token|[hidden]|y"),
            (&["x", "--api-key=abc"], "x|--api-key=[hidden]"),
            (&["x", "--token", "--verbose"], "x|--token|--verbose"),
            (
                &["env", "GITHUB_TOKEN=abc", "x"],
                "env|GITHUB_TOKEN=[hidden]|x",
            ),
            (
                &["curl", "-H", "Authorization: Bearer abc"],
                "curl|-H|Authorization:[hidden]",
            ),
            (
                &["x", "postgres://ann:pw@db/x"],
                "x|postgres://ann:[hidden]@db/x",
            ),
            (
                &["x", "postgres://ann:p@w@db/x"],
                "x|postgres://ann:[hidden]@db/x",
            ),
            (
                &[
                    "uvx",
                    "--from",
                    "git+https://ghp_abc@github.com/a/b@v1",
                    "b",
                ],
                "uvx|--from|git+https://[hidden]@github.com/a/b@v1|b",
            ),
            (
                &["x", "--dsn=https://0a1b@h.example/7"],
                "x|--dsn=https://[hidden]@h.example/7",
            ),
            (
                &[
                    "sh",
                    "-c",
                    "git clone https://abc@h/a && curl 'ftp://u:p@h'",
                ],
                "sh|-c|git clone https://[hidden]@h/a && curl 'ftp://u:[hidden]@h'",
            ),
            // A user of a shell is no secret, unless it is a token by its look; nor is an `@` elsewhere.
            (
                &["git", "clone", "ssh://git@h/a", "git+ssh://git@h/a"],
                "git|clone|ssh://git@h/a|git+ssh://git@h/a",
            ),
            (&["git", "clone", "git@h:a/b"], "git|clone|git@h:a/b"),
            (&["x", "ssh://ghp_abc@h/a"], "x|ssh://[hidden]@h/a"),
            (
                &["npx", "https://h/@a/b@1.0", "@a/b@1.0", "https://h?q=a@b"],
                "npx|https://h/@a/b@1.0|@a/b@1.0|https://h?q=a@b",
            ),
            (
                &["x", "https://@h/", "://@", "//a@h"],
                "x|https://@h/|://@|//a@h",
            ),
            (
                &["x", "https://h/p?token=abc&z=1"],
                "x|https://h/p?token=[hidden]",
            ),
            (&["x", "--key", "sk-abc"], "x|--key|[hidden]"),
            (&["x", "--key=ghp_abc"], "x|--key=[hidden]"),
            (
                &["sh", "-c", "A=1 MY_SECRET=abc npx y"],
                "sh|-c|A=1 MY_SECRET=[hidden]",
            ),
            (&["kill", "-TERM", "4711"], "kill|-TERM|4711"),
            (
                &["node", "/srv/a=b.js", "--port=80"],
                "node|/srv/a=b.js|--port=80",
            ),
            (&["x", "é=ü", "="], "x|é=ü|="),
        ] {
            assert_eq!(hidden(line), shown);
        }
    }
}
