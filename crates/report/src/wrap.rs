//! Wraps a text at its words, for terminals of any width.

use crate::width::head;
pub use crate::width::width;

/// The lines of a text, each at most so many columns wide, broken between words. A word that is wider than a line is broken inside.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    // A wide character does not fit into one column.
    let columns = columns.max(2);
    let mut lines = Vec::new();
    let mut line = String::new();
    for mut word in text.split_whitespace() {
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        while width(word) > columns {
            let (part, rest) = head(word, columns);
            lines.push(part.into());
            word = rest;
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("  a\nb  c ", 4), ["a b", "c"]);
        assert_eq!(wrap("日本 語", 5), ["日本", "語"]);
        assert_eq!(wrap("e\u{301}e\u{301} x", 2), ["e\u{301}e\u{301}", "x"]);
        assert_eq!(wrap("a b", 0), ["a", "b"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn only_a_word_longer_than_the_line_is_broken() {
        assert_eq!(wrap("x abcdef g", 4), ["x", "abcd", "ef g"]);
        assert_eq!(wrap("日本語", 1), ["日", "本", "語"]);
        for columns in 2..40 {
            let text = "the quick brown fox jumps over a-rather-long-hyphenated-word 日本語日本語 and ends";
            for line in wrap(text, columns) {
                assert!(width(&line) <= columns, "{columns}: {line}");
            }
        }
    }
}
