//! A fingerprint of a JSON value that does not depend on how the value is written.
//!
//! White space, escapes and the order of an object's members do not matter; the order of an array's elements does.
//! Numbers are compared as they are read: `1` is not `1.0`, but `1e2` is `100.0`. It is 64 bits wide and withstands no
//! attacker: a server that makes two of its own lists collide only keeps its own news from its client, and an accident
//! has one chance in 10^19.

use core::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::token::{fold, hash_of};

/// The fingerprint of JSON text; none if it is no JSON, or is nested more deeply than the parser reads.
pub(super) fn digest(json: &str) -> Option<u64> {
    let Digest(digest) = serde_json::from_str(json).ok()?;
    Some(digest)
}

/// Mixes two words, the first of which is weighed otherwise than the second.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    fold(a.rotate_left(29).wrapping_add(b), 0xD6E8_FEB8_6659_FD93)
}

struct Digest(u64);

/// What sort of value it is, so that `"1"` is not `1`.
#[derive(Clone, Copy)]
enum Sort {
    Null = 1,
    Bool,
    Whole,
    Negative,
    Float,
    Text,
    Array,
    Object,
}

impl Digest {
    fn of(sort: Sort, word: u64) -> Self {
        Self(mix(sort as u64, word))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Digest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Digest, E> {
        Ok(Digest::of(Sort::Null, 0))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Digest, E> {
        Ok(Digest::of(Sort::Bool, u64::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Digest, E> {
        Ok(Digest::of(Sort::Whole, value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Digest, E> {
        Ok(Digest::of(Sort::Negative, value as u64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Digest, E> {
        Ok(Digest::of(Sort::Float, value.to_bits()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Digest, E> {
        Ok(Digest::of(Sort::Text, hash_of(value.as_bytes())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Digest, A::Error> {
        let mut all = 0;
        while let Some(Digest(element)) = seq.next_element()? {
            all = mix(all, element);
        }
        Ok(Digest::of(Sort::Array, all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Digest, A::Error> {
        // A sum does not know the order of what was added.
        let mut all = 0u64;
        while let Some((Digest(key), Digest(value))) = map.next_entry()? {
            all = all.wrapping_add(mix(key, value));
        }
        Ok(Digest::of(Sort::Object, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn written_otherwise() {
        for (a, b) in [
            ("1", " 1\n"),
            (r#"{"a":1,"b":[]}"#, r#"{ "b" : [ ], "a" : 1 }"#),
            (r#""a/\u00fc""#, r#""\u0061\/ü""#),
            (r#"[{"x":null,"\u0079":{}}]"#, r#"[{"y":{},"x":null}]"#),
        ] {
            assert!(digest(a).is_some());
            assert_eq!(digest(a), digest(b), "{a} {b}");
        }
    }

    #[test]
    fn other_values() {
        let values = [
            "null",
            "true",
            "false",
            "0",
            "-1",
            "1",
            "1.0",
            "1.5",
            "\"1\"",
            "\"\"",
            "\"null\"",
            "[]",
            "{}",
            "[[]]",
            "[{}]",
            "[null]",
            "[1,2]",
            "[2,1]",
            "[[1],2]",
            "[[1,2]]",
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"b":1}"#,
            r#"{"a":{"b":1}}"#,
            r#"["a",1]"#,
            r#"{"":null}"#,
        ];
        for (at, a) in values.iter().enumerate() {
            for b in &values[at + 1..] {
                assert_ne!(digest(a), digest(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn a_text_that_is_no_json_has_no_fingerprint() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "nope", "1 2", "\"\\ud800\"", &deep] {
            assert_eq!(digest(text), None);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,60}") {
            digest(&text);
        }

        #[test]
        fn one_value_has_one_fingerprint(text in r#"\[("a"|1|\{"b":(2|\[\])\}|,){0,9}\]"#) {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                let again: String = value.to_string();
                prop_assert_eq!(digest(&text), digest(&again));
            }
        }
    }
}
