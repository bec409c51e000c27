//! How many columns of a terminal a text takes: most characters take one, those of East Asian scripts and most emoji take two.
//!
//! A character that terminals disagree about counts as the wider one, so that a line is never wider than it was measured.

/// Marks that are drawn over the character before them.
const NARROWEST: [(char, char); 5] = [
    ('\u{300}', '\u{36f}'),
    ('\u{1ab0}', '\u{1aff}'),
    ('\u{1dc0}', '\u{1dff}'),
    ('\u{20d0}', '\u{20ff}'),
    ('\u{fe20}', '\u{fe2f}'),
];
/// Characters of two columns, in order.
const WIDE: [(char, char); 46] = [
    ('\u{1100}', '\u{115f}'),
    ('\u{231a}', '\u{231b}'),
    ('\u{2329}', '\u{232a}'),
    ('\u{23e9}', '\u{23f3}'),
    ('\u{25fd}', '\u{25fe}'),
    ('\u{2614}', '\u{2615}'),
    ('\u{2648}', '\u{2653}'),
    ('\u{267f}', '\u{267f}'),
    ('\u{2693}', '\u{2693}'),
    ('\u{26a1}', '\u{26a1}'),
    ('\u{26aa}', '\u{26ab}'),
    ('\u{26bd}', '\u{26be}'),
    ('\u{26c4}', '\u{26c5}'),
    ('\u{26ce}', '\u{26ce}'),
    ('\u{26d4}', '\u{26d4}'),
    ('\u{26ea}', '\u{26ea}'),
    ('\u{26f2}', '\u{26f5}'),
    ('\u{26fa}', '\u{26fa}'),
    ('\u{26fd}', '\u{26fd}'),
    ('\u{2705}', '\u{2705}'),
    ('\u{270a}', '\u{270b}'),
    ('\u{2728}', '\u{2728}'),
    ('\u{274c}', '\u{274e}'),
    ('\u{2753}', '\u{2757}'),
    ('\u{2795}', '\u{2797}'),
    ('\u{27b0}', '\u{27b0}'),
    ('\u{27bf}', '\u{27bf}'),
    ('\u{2b1b}', '\u{2b1c}'),
    ('\u{2b50}', '\u{2b55}'),
    ('\u{2e80}', '\u{303e}'),
    ('\u{3041}', '\u{4dbf}'),
    ('\u{4e00}', '\u{a4cf}'),
    ('\u{a960}', '\u{a97f}'),
    ('\u{ac00}', '\u{d7a3}'),
    ('\u{f900}', '\u{faff}'),
    ('\u{fe10}', '\u{fe19}'),
    ('\u{fe30}', '\u{fe6f}'),
    ('\u{ff01}', '\u{ff60}'),
    ('\u{ffe0}', '\u{ffe6}'),
    ('\u{16fe0}', '\u{1b2ff}'),
    ('\u{1f004}', '\u{1f004}'),
    ('\u{1f0cf}', '\u{1f0cf}'),
    ('\u{1f18e}', '\u{1f64f}'),
    ('\u{1f680}', '\u{1f6ff}'),
    ('\u{1f7e0}', '\u{1faff}'),
    ('\u{20000}', '\u{3fffd}'),
];

/// The columns of a text without colours.
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.chars().map(of).sum()
}

fn of(c: char) -> usize {
    let among = |ranges: &[(char, char)]| {
        ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&c))
    };
    match c {
        ..'\u{300}' => 1,
        _ if among(&NARROWEST) => 0,
        _ if among(&WIDE) => 2,
        _ => 1,
    }
}

/// The text, with its end cut off and marked if it takes more columns than this.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    if columns == 0 {
        return String::new();
    }
    format!("{}…", head(text, columns - 1).0.trim_end())
}

/// The text, with its beginning cut off and marked if it takes more columns than this. Of a path, the end tells most.
pub fn cut_start(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    if columns == 0 {
        return String::new();
    }
    let mut used = 0;
    let kept = text.char_indices().rev().take_while(|(_, c)| {
        used += of(*c);
        used < columns
    });
    let at = kept.last().map_or(text.len(), |(at, _)| at);
    format!("…{}", &text[at..])
}

/// As much of a text as fits into these columns, and the rest.
pub fn head(text: &str, columns: usize) -> (&str, &str) {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += of(c);
        if used > columns {
            return text.split_at(at);
        }
    }
    (text, "")
}

/// The text with blanks after it, up to these columns.
pub fn padded(text: &str, columns: usize) -> String {
    let blanks = columns.saturating_sub(width(text));
    format!("{text}{:blanks$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        for (text, columns) in [
            ("", 0),
            ("plain", 5),
            ("Ünïcødé …", 9),
            ("日本語", 6),
            ("🦀 crab", 7),
            ("e\u{301}te\u{301}", 3),
            ("✓ ok", 4),
            ("한국", 4),
        ] {
            assert_eq!(width(text), columns, "{text}");
        }
    }

    #[test]
    fn a_wide_character_is_never_cut_in_half() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut_start("/home/ann/日本", 7), "…n/日本");
        assert_eq!(cut_start("ab", 2), "ab");
        assert_eq!(padded("日", 4), "日  ");
        assert_eq!(head("日本", 3), ("日", "本"));
    }

    #[test]
    fn the_ranges_are_in_order() {
        for ranges in [&WIDE[..], &NARROWEST[..]] {
            let ends: Vec<char> = ranges.iter().flat_map(|(a, b)| [*a, *b]).collect();
            assert!(ends.is_sorted());
        }
    }
}
