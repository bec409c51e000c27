//! guards: A variable is left out of the key of a cache file only if its value is new in each session.

use super::*;

fn env(words: &[&str]) -> Vec<CString> {
    words
        .iter()
        .map(|&word| CString::new(word).unwrap())
        .collect()
}

fn answers(client: u64, tools: u64) -> Answers {
    Answers {
        params_digest: Some(client),
        parts: [Some(1), Some(tools), None, None, None],
    }
}

/// Openings of one client with these values of `A`.
fn opened(values: &[&str]) -> Openings {
    let mut openings = Openings::new(7);
    for (session, value) in values.iter().enumerate() {
        let env = env(&[&format!("A={value}"), "HOME=/h"]);
        openings.note(session as u64, answers(1, 1), &env);
    }
    openings
}

#[test]
fn three_values_in_a_row_that_do_not_come_back() {
    for (values, volatile) in [
        (&["1"][..], false),
        (&["1", "2"], false),
        (&["1", "2", "3"], true),
        (&["1", "1", "2", "2", "3"], true),
        (&["1", "2", "1"], false),
        (&["1", "2", "1", "3", "4"], false),
        (&["1", "2", "1", "3", "4", "5", "6", "7", "8"], true),
        (&["1", "1", "1", "1"], false),
    ] {
        let openings = opened(values);
        assert_eq!(openings.is_volatile("A"), volatile, "{values:?}");
        assert!(!openings.is_volatile("HOME") && !openings.is_volatile("B"));
    }
}

#[test]
fn what_is_learned_is_kept_and_nothing_more_is_written() {
    let mut openings = opened(&["1", "2", "3"]);
    for value in ["A=4", "A=5", "A=1"] {
        assert!(!openings.note(9, answers(1, 1), &env(&[value, "HOME=/h"])));
        assert!(openings.is_volatile("A"));
    }
    // A list that no session had asked for before.
    let mut more = answers(1, 1);
    more.parts[2] = Some(5);
    assert!(openings.note(9, more, &env(&["A=6", "HOME=/h"])));
    more.parts[2] = Some(6);
    assert!(openings.note(10, more, &env(&["A=7", "HOME=/h"])));
    assert!(!openings.is_volatile("A"), "the new list differs");
}

#[test]
fn each_sort_of_client_is_compared_with_itself() {
    let mut openings = Openings::new(7);
    for n in 0..3 {
        let variable = format!("A={n}");
        openings.note(n, answers(1, 1), &env(&[&variable]));
        openings.note(n + 10, answers(2, 99), &env(&[]));
    }
    assert!(openings.is_volatile("A"));
}

#[test]
fn one_session_counts_once() {
    let mut openings = Openings::new(7);
    for value in ["A=1", "A=2", "A=3"] {
        openings.note(1, answers(1, 1), &env(&[value]));
    }
    assert!(!openings.is_volatile("A"));
}

#[test]
fn they_stay_few() {
    let mut openings = Openings::new(7);
    for n in 0..100 {
        let changes = format!("A={}", n % 2);
        openings.note(n, answers(n % 7, 1), &env(&[&changes, "HOME=/h"]));
        openings.note(n + 1_000, answers(1, n), &env(&[&changes]));
    }
    assert!(openings.openings.len() <= OPENINGS_PER_CLIENT * CLIENTS);
    let many: Vec<String> = (0..2_000).map(|n| format!("V{n}={n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    openings.note(7_777, answers(5, 1), &env(&many));
    let newest = openings.openings.last().unwrap();
    assert_eq!(newest.values.len(), VARIABLES);
}

#[test]
fn what_was_written_is_understood() {
    let mut openings = opened(&["1", "2", "3"]);
    let modern = Answers {
        params_digest: None,
        parts: [None, Some(u64::MAX), None, None, None],
    };
    openings.note(77, modern, &env(&["B=\u{e9}", "C="]));
    let bytes = openings.serialize("demo").unwrap();
    assert_eq!(Openings::parse(&bytes), Some(openings));
    let text = String::from_utf8(bytes).unwrap();
    for (from, to) in [
        ("\"version\":1", "\"version\":2"),
        ("----", "-"),
        ("----", "zzzz"),
        ("ffffffffffffffff", "x"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        assert_eq!(Openings::parse(text.replace(from, to).as_bytes()), None);
    }
}
