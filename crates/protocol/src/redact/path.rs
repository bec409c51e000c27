//! The path of an address without what may be a secret: many servers have a token for a folder.
//!
//! A part of the path is shown only if it is made of words as people write them. What is not is hidden, because a token of an
//! unknown maker has no other mark than that it reads like nothing.

use alloc::string::String;

use super::{BEGINNINGS, speaks};

/// The longest part that is shown.
const PART_CHARS: usize = 40;
/// The longest word.
const WORD_CHARS: usize = 16;
/// The longest number.
const NUMBER_CHARS: usize = 6;
/// The longest number at a word: `oauth2`, `py312`.
const VERSION_CHARS: usize = 3;
/// Words that are written together in one: `getServerId`.
const HUMPS: usize = 3;

/// A path with each part that may be a secret replaced by `mask`.
pub fn path(path: &str, mask: &str) -> String {
    let mut shown = String::new();
    let mut before = "";
    for (place, part) in path.split('/').enumerate() {
        if place > 0 {
            shown.push('/');
        }
        shown += if hides(part, before) { mask } else { part };
        before = part;
    }
    shown
}

/// The parts of a path that may be secrets.
pub fn hidden_parts(path: &str) -> impl Iterator<Item = &str> {
    let mut before = "";
    path.split('/').filter(move |part| {
        let before = core::mem::replace(&mut before, part);
        hides(part, before)
    })
}

fn hides(part: &str, before: &str) -> bool {
    let separates = |c: char| "-_.~@:+,=".contains(c);
    let readable = || part.split(separates).all(is_word);
    let token = BEGINNINGS.iter().any(|start| part.starts_with(start));
    !part.is_empty() && (speaks(before) || token || part.len() > PART_CHARS || !readable())
}

/// Whether it is a word, a number, or a word with a small number at one end.
fn is_word(text: &str) -> bool {
    let digit = |c: char| c.is_ascii_digit();
    let word = text.trim_matches(digit);
    let numbers = text.len() - word.len();
    if word.is_empty() {
        return numbers <= NUMBER_CHARS;
    }
    let one_end = !(text.starts_with(digit) && text.ends_with(digit));
    numbers <= VERSION_CHARS && one_end && word.len() <= WORD_CHARS && is_spelled(word)
}

/// Whether letters are written as words are: `word`, `WORD`, `Word`, `wordsOfOne`.
fn is_spelled(word: &str) -> bool {
    if !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return false;
    }
    if word.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return true;
    }
    let mut humps = 0;
    let mut length = 0;
    let mut capital = false;
    for byte in word.bytes() {
        let upper = byte.is_ascii_uppercase();
        if length == 0 || upper && !capital {
            if humps > 0 && length < 2 {
                return false;
            }
            humps += 1;
            length = 0;
        } else if upper {
            // Two capitals within small letters.
            return false;
        }
        capital = upper;
        length += 1;
    }
    humps <= HUMPS && (humps == 1 || length >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn words_are_shown_and_what_reads_like_nothing_is_not() {
        for shown in [
            "",
            "/",
            "/mcp",
            "/v1/mcp/",
            "//a//b",
            "/api/v2.1/streamable-http",
            "/@owner/my-server_2/mcp",
            "/oauth2/sse",
            "/2025-11-25/tools.json",
            "/JetBrains/mcpServer/README",
            "/sequential-thinking",
            "/team/4711/mcp",
        ] {
            assert_eq!(path(shown, "…"), shown);
            assert_eq!(hidden_parts(shown).count(), 0, "{shown}");
        }
        for (secret, shown) in [
            ("/s/Zk3xT9qLmB7vR2pWc1Yd/mcp", "/s/…/mcp"),
            ("/550e8400-e29b-41d4-a716-446655440000/mcp", "/…/mcp"),
            ("/x/d41d8cd98f00b204e9800998ecf8427e", "/x/…"),
            ("/sk-abcdef/mcp", "/…/mcp"),
            ("/s/aGVsbG8/mcp", "/s/…/mcp"),
            ("/s/QwErTyUiOp/mcp", "/s/…/mcp"),
            ("/k3j9x0a8b2/mcp", "/…/mcp"),
            ("/12345678901/mcp", "/…/mcp"),
            ("/token/abc/mcp", "/token/…/mcp"),
            ("/api-key/abc", "/api-key/…"),
            ("/a%2Fb/mcp", "/…/mcp"),
            ("/qhzmxkwpvbnrtydfe/mcp", "/…/mcp"),
            ("/é/mcp", "/…/mcp"),
        ] {
            assert_eq!(path(secret, "…"), shown);
            let hidden: Vec<&str> = hidden_parts(secret).collect();
            assert_eq!(hidden.len(), 1, "{secret}");
            assert!(!shown.contains(hidden[0]), "{secret}");
        }
    }
}
