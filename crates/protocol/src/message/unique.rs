//! Keys of JSON objects that readers disagree about.
//!
//! Of two equal keys some readers take the first, most take the last. A key with half a surrogate pair (`"\ud800"`) is a
//! text for JavaScript and Python, and an error for Rust and Go, which then read nothing of its object. A message with
//! such keys can pass a check in one program and mean something else to the next. Where a message of one client meets
//! those of others, it is refused as a whole ([`has_unclear_keys`]).
//!
//! Readers also disagree about spelling. Go and .NET do not tell upper case from lower case, and C programs end a text
//! at its first NUL. [`alike`] says whether a key may be taken for another one.
//!
//! Invariants:
//! - Keys are compared as texts: escapes do not hide a repeated key.
//! - Two different keys of one object with the same 64-bit hash count as repeated. That happens by accident once in
//!   10^19 pairs, and on purpose only to a sender that wants its own message refused.
//! - Time grows as n·log n with the length of the text; memory is at most 12 bytes per key or open bracket. There is no
//!   recursion, so depth needs no limit.

use alloc::vec::Vec;
use core::fmt;

use memchr::memchr;
use serde::de::{Deserializer, Visitor};

use super::frame::string_end;
use super::token::hash_of;

/// Whether an object at any depth of this valid JSON text has a key twice, or a key that is no Unicode text. Of a text that is no
/// JSON nothing is promised.
pub fn has_unclear_keys(json: &[u8]) -> bool {
    // For each open bracket: where the keys of its object start, or that it is an array.
    let mut open: Vec<u32> = Vec::new();
    let mut keys: Vec<u64> = Vec::new();
    let mut i = 0;
    while let Some(&byte) = json.get(i) {
        i += 1;
        match byte {
            b'"' => {
                let Some(end) = string_end(json, i, &mut false) else {
                    return false;
                };
                if is_key(&json[end..]) {
                    let Some(hash) = hash_of_key(&json[i - 1..end]) else {
                        return true;
                    };
                    keys.push(hash);
                }
                i = end;
            }
            b'{' => open.push(keys.len() as u32),
            b'[' => open.push(ARRAY),
            b'}' | b']' => {
                if let Some(first) = open.pop().filter(|&first| first != ARRAY)
                    && has_equals(&mut keys, first as usize)
                {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

const ARRAY: u32 = u32::MAX;

/// Takes the keys of an object that ends.
fn has_equals(keys: &mut Vec<u64>, first: usize) -> bool {
    let own = keys.get_mut(first..).unwrap_or_default();
    own.sort_unstable();
    let equals = own.windows(2).any(|pair| pair[0] == pair[1]);
    keys.truncate(first);
    equals
}

/// Whether the string before this is a key: in valid JSON, only a key has a colon behind it.
fn is_key(rest: &[u8]) -> bool {
    let blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    rest.iter().find(|byte| !blank(byte)) == Some(&b':')
}

/// The hash of a key, written with quotes; none if it has half a surrogate pair, which is no text.
fn hash_of_key(token: &[u8]) -> Option<u64> {
    let raw = &token[1..token.len() - 1];
    if memchr(b'\\', raw).is_none() {
        return Some(hash_of(raw));
    }
    let mut reader = serde_json::Deserializer::from_slice(token);
    reader.deserialize_str(Hash).ok()
}

/// The hash of a text.
struct Hash;

impl Visitor<'_> for Hash {
    type Value = u64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }
    fn visit_str<E>(self, text: &str) -> Result<u64, E> {
        Ok(hash_of(text.as_bytes()))
    }
}

/// Whether some reader takes this key for that one, which has no NUL.
pub fn alike(key: &str, other: &str) -> bool {
    let seen = key.split('\0').next().unwrap_or_default();
    if seen.is_ascii() && other.is_ascii() {
        return seen.eq_ignore_ascii_case(other);
    }
    folded(seen).eq(folded(other))
}

/// Without upper and lower case: `ſ` and the sign for Kelvin are letters as others.
fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    #[test]
    fn a_repeated_key_is_found_at_any_depth_and_in_any_spelling() {
        for json in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"b":{},"a":[]}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a/b":1,"a\/b":2}"#,
            r#"{"😀":1,"\ud83d\ude00":2}"#,
            r#"{"\ud800":1,"\uD800":2}"#,
            r#"{"params":{"name":"x","_m\ud907":1}}"#,
            r#"{"":1,"":2}"#,
            r#"{"x":[0,{"y":[{"a" : 1 , "a"	: 2}]}]}"#,
            r#"[[{"b":{},"a":{"b":1},"b":2}]]"#,
            r#"{"a":"\"","b":"a","a":"\\"}"#,
        ] {
            assert!(has_unclear_keys(json.as_bytes()), "{json}");
        }
    }

    #[test]
    fn one_key_in_several_objects_is_not_repeated() {
        for json in [
            "{}",
            "[]",
            "1",
            r#"{"a":{"a":{"a":"a"}},"b":{"a":1}}"#,
            r#"[{"a":1},{"a":1}]"#,
            r#"{"a":"a","b":"a","A":"b"}"#,
            r#"{"a":["a","a",{"a":1}]}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\",\"a\":1,","b":2}"#,
        ] {
            assert!(!has_unclear_keys(json.as_bytes()), "{json}");
        }
    }

    #[test]
    fn depth_and_number_cost_no_more_than_length() {
        let deep = format!(
            r#"{}{{"a":1,"a":1}}{}"#,
            "[".repeat(1_000_000),
            "]".repeat(1_000_000)
        );
        assert!(has_unclear_keys(deep.as_bytes()));
        let keys: Vec<String> = (0..200_000).map(|n| format!(r#""{n}":{n},"#)).collect();
        let many = format!("{{{}", keys.concat());
        assert!(!has_unclear_keys(format!(r#"{many}"x":1}}"#).as_bytes()));
        assert!(has_unclear_keys(format!(r#"{many}"77":1}}"#).as_bytes()));
    }

    #[test]
    fn keys_that_some_reader_takes_for_others() {
        for (key, other) in [
            ("id", "id"),
            ("ID", "id"),
            ("i\u{44}", "id"),
            ("param\u{17f}", "params"),
            ("\u{212a}ey", "key"),
            ("id\0x", "id"),
            ("taskid", "taskId"),
        ] {
            assert!(alike(key, other), "{key:?} {other}");
        }
        for (key, other) in [("i", "id"), ("ids", "id"), ("\0id", "id"), ("íd", "id")] {
            assert!(!alike(key, other), "{key:?} {other}");
        }
    }
}
