//! Command lines and messages without what looks like a secret.
//!
//! Of a command line it looks at words only: the value of an option or variable whose name speaks of a secret, a header, a
//! password in an address, and the known beginnings of tokens. Messages are the business of `redact/json.rs`. Neither knows what a
//! program means by its names, so both hide rather too much than too little; they cannot promise to find everything.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

mod json;
mod path;
pub use json::body;
pub use path::{hidden_parts, path};

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

/// Words that say it as the last one of a name (`db_pw`, `adminPass`, `--otp`), and mean something else inside of one (`bypass`).
const LAST_WORDS: [&str; 8] = [
    "pw", "pwd", "pass", "passcode", "pswd", "passwort", "otp", "psk",
];

/// The shell's working directory, in capitals; `pwd` is a password.
const DIRECTORY: &str = "PWD";

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

/// The option of `mainstay run` whose value is two names.
const HEADER_ENV: &str = "--header-env";

/// The same words with each secret hidden.
pub fn words(words: &[String]) -> Vec<String> {
    let mut value_follows = false;
    let mut names_follow = false;
    words
        .iter()
        .map(|word| {
            if core::mem::replace(&mut names_follow, word == HEADER_ENV) && are_names(word) {
                return word.clone();
            }
            let is_value = core::mem::take(&mut value_follows) && !word.starts_with('-');
            if is_value {
                return HIDDEN.to_string();
            }
            value_follows = word.starts_with('-') && !word.contains(['=', ' ']) && speaks(word);
            one(word)
        })
        .collect()
}

/// Whether a word is the name of a header and that of the variable with its value.
fn are_names(word: &str) -> bool {
    word.split_once('=').is_some_and(|(_, variable)| {
        let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        variable.starts_with(|c: char| c.is_ascii_uppercase()) && variable.chars().all(plain)
    })
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
        if is_web(scheme) {
            let way = rest.find('/').unwrap_or(rest.len());
            let way = way.min(rest.find(char::is_whitespace).unwrap_or(rest.len()));
            let ends = |c: char| c.is_whitespace() || "?#\"'<>`;&|()".contains(c);
            let end = rest[way..].find(ends).map_or(rest.len(), |end| way + end);
            shown += &rest[..way];
            shown += &path(&rest[way..end], HIDDEN);
            rest = &rest[end..];
        }
    }
    shown + rest
}

/// Whether what stands before `://` is the scheme of servers that have tokens in their paths.
fn is_web(scheme: &str) -> bool {
    ["http", "https", "ws", "wss"].iter().any(|web| {
        let before = scheme.len().checked_sub(web.len());
        before.is_some_and(|at| {
            let (before, last) = (scheme.get(..at), scheme.get(at..));
            last.is_some_and(|last| last.eq_ignore_ascii_case(web))
                && before
                    .is_some_and(|before| !before.ends_with(|c: char| c.is_ascii_alphanumeric()))
        })
    })
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
        || name != DIRECTORY && LAST_WORDS.contains(&last_word(name).as_str())
}

/// The last word of a name in lower case, without a number behind it: `pw` of `db-pw`, `DB_PW2` and `dbPw`.
fn last_word(name: &str) -> String {
    let name = name.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
    let mut start = name.len();
    let mut after: Option<char> = None;
    for (at, c) in name.char_indices().rev() {
        let begins = match after {
            // `dbPw`: a small letter before a capital one is of the word before.
            Some(next) => next.is_ascii_uppercase() && !c.is_ascii_uppercase(),
            None => false,
        };
        // `DBPass`: the last of several capitals begins the word.
        let ended = after.is_some_and(|next| c.is_ascii_uppercase() && next.is_ascii_lowercase());
        if !c.is_ascii_alphanumeric() || begins {
            break;
        }
        start = at;
        if ended {
            break;
        }
        after = Some(c);
    }
    name[start..].to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    //! guards: Secrets in command lines and URLs are hidden.

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
                &[
                    "npx",
                    "mcp-remote",
                    "https://h/s/Zk3xT9qLmB7vR2pW/mcp",
                    "--port=80",
                ],
                "npx|mcp-remote|https://h/s/[hidden]/mcp|--port=80",
            ),
            (
                &[
                    "sh",
                    "-c",
                    "curl http://u:p@h/token/abc; x ws://h/aGVsbG8?a 'wss://h' https://h/mcp",
                ],
                "sh|-c|curl http://u:[hidden]@h/token/[hidden]; x ws://h/[hidden]?a 'wss://h' https://h/mcp",
            ),
            (
                &["x", "file:///home/aGVsbG8/a1b2c3d4e5"],
                "x|file:///home/aGVsbG8/a1b2c3d4e5",
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
            (
                &[
                    "x",
                    "--pw",
                    "abc",
                    "--pwd=abc",
                    "DB_PASS=abc",
                    "adminPass:abc",
                    "DBPw2=abc",
                ],
                "x|--pw|[hidden]|--pwd=[hidden]|DB_PASS=[hidden]|adminPass:[hidden]|DBPw2=[hidden]",
            ),
            (
                &[
                    "env",
                    "PWD=/srv",
                    "OLDPWD=/tmp",
                    "--bypass=yes",
                    "--compass",
                    "n",
                    "--pass-through=1",
                ],
                "env|PWD=/srv|OLDPWD=/tmp|--bypass=yes|--compass|n|--pass-through=1",
            ),
            (
                &[
                    "run",
                    "--header-env",
                    "Authorization=MY_TOKEN_1",
                    "Authorization=MY_TOKEN_1",
                ],
                "run|--header-env|Authorization=MY_TOKEN_1|Authorization=[hidden]",
            ),
            (
                &[
                    "run",
                    "--header-env",
                    "Authorization=abc",
                    "--header-env",
                    "--token",
                    "A=B",
                ],
                "run|--header-env|Authorization=[hidden]|--header-env|--token|[hidden]",
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
