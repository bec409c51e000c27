//! Foreign text on a terminal: a name, a line of stderr or a URL can hold characters that move the cursor, turn the order of
//! the text around it, or cannot be seen.
//!
//! Invariant: whatever a view prints goes through [`screen`] or [`json`] on its way to stdout, and through [`screen`] on its way
//! to stderr; neither lets such a character through. Views measure what they show, so they make foreign text [`visible`] before.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::paint::colour_code;
use super::width::cut;

/// Whether a reader cannot see this character where it stands: a control character, a mark that changes the direction
/// of text, or a character without width.
fn is_hidden(c: char) -> bool {
    match c {
        ' '..='~' => false,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        c => c.is_control(),
    }
}

/// A text for one line: what cannot be seen is written as `\u{202e}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |_| None)
}

/// A text as it may go to a terminal: lines stay lines, and if colours are wanted, ours stay.
pub fn screen(text: &str, colour: bool) -> Cow<'_, str> {
    escaped(text, |rest| {
        if rest.starts_with(['\n', '\t']) {
            return Some(1);
        }
        colour.then(|| colour_code(rest)).flatten()
    })
}

/// JSON as it may go to a terminal: what cannot be seen can only be within a text, where `\u202e` means the same.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_hidden(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for c in text.chars() {
        if is_hidden(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                write!(out, "\\u{unit:04x}").ok();
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// A text for one line of a terminal: its lines are one, what cannot be seen is escaped, and the end is cut off with a mark.
pub fn one_line(text: &str, columns: usize) -> String {
    let clean = text.replace(['\n', '\r', '\t'], " ");
    cut(&visible(clean.trim()), columns)
}

/// The text with every hidden character escaped, except where `keep` says how many bytes from here stay.
fn escaped(text: &str, keep: impl Fn(&str) -> Option<usize>) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let stays = if is_hidden(c) {
            keep(rest)
        } else {
            Some(c.len_utf8())
        };
        if let Some(bytes) = stays {
            out.push_str(&rest[..bytes]);
            rest = &rest[bytes..];
        } else {
            out.extend(c.escape_unicode());
            rest = &rest[c.len_utf8()..];
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paint::Tone;

    /// Every character that must be escaped for a terminal.
    const FOREIGN: &str = "\0\u{7}\u{8}\r\u{1b}\u{7f}\u{80}\u{9b}\u{9f}\u{ad}\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\
        \u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{206f}\u{feff}\u{fff9}\
        \u{e0001}\u{e007f}\u{e0100}";

    #[test]
    fn hidden_characters_are_escaped_and_the_rest_is_untouched() {
        assert_eq!(visible("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(visible("\u{1b}[2J"), "\\u{1b}[2J");
        assert_eq!(visible("a\nb\t"), "a\\u{a}b\\u{9}");
        for text in ["", "plain ~ text", "Ünïcødé 日本語 🦀 עברית العربية …"]
        {
            assert!(matches!(visible(text), Cow::Borrowed(_)), "{text}");
            assert!(matches!(screen(text, true), Cow::Borrowed(_)), "{text}");
            assert!(matches!(json(text), Cow::Borrowed(_)), "{text}");
        }
        for c in FOREIGN.chars() {
            for safe in [
                visible(&c.to_string()),
                screen(&c.to_string(), true),
                json(&c.to_string()),
            ] {
                assert!(safe.is_ascii() && safe.starts_with("\\u"), "{c:?}: {safe}");
            }
        }
    }

    #[test]
    fn on_a_screen_only_lines_and_our_own_colours_stay() {
        let painted = Tone::Bad.paint("dead", true) + "\n\tx\n";
        assert_eq!(screen(&painted, true), painted);
        assert_eq!(screen(&painted, false), "\\u{1b}[31mdead\\u{1b}[0m\n\tx\n");
        for foreign in [
            "\u{1b}[8mx",
            "\u{1b}[31;40m",
            "\u{1b}[2J",
            "\u{1b}]0;t\u{7}",
            "\u{1b}[",
            "\u{1b}",
        ] {
            let safe = screen(foreign, true);
            assert!(!safe.contains('\u{1b}'), "{foreign:?}");
        }
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::json!({"a": format!("x{FOREIGN}\u{e0041}y"), "b": ["\u{202e}"]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = json(&text);
        assert!(safe.is_ascii());
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
        assert_eq!(safe.lines().count(), text.lines().count());
    }

    #[test]
    fn a_foreign_text_stays_on_its_line() {
        assert_eq!(one_line("a\n\u{1b}[31mb\r", 20), "a \\u{1b}[31mb");
        assert_eq!(one_line("\u{202e}exe.txt", 20), "\\u{202e}exe.txt");
        assert_eq!(one_line("abcdef", 6), "abcdef");
        assert_eq!(one_line("abcdefg", 6), "abcde…");
        assert_eq!(one_line("", 0), "");
    }
}
