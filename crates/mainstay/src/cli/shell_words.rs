//! Commands in hints, written so that they can be pasted into a shell.

/// A word as a shell reads it: quoted if it has spaces or signs that a shell would interpret.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@=,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A command line, word by word.
pub fn line<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_needs_it() {
        for (word, shown) in [
            ("@playwright/mcp", "@playwright/mcp"),
            ("my server", "'my server'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), shown);
        }
        assert_eq!(line(&["npx", "-y", "a b"]), "npx -y 'a b'");
    }
}
