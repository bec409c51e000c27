//! Patterns of method names: `*` is any run of characters, `?` is one.

/// Whether a name is like the pattern. Time is bounded by the product of their lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and how much of the name it stands for.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match (pattern.get(p), star) {
            (Some(b'*'), _) => {
                star = Some((p, n));
                p += 1;
            }
            (Some(&c), _) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            (_, Some((at, taken))) => {
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, like) in [
            ("tools/call", "tools/call", true),
            ("tools/*", "tools/call", true),
            ("*/list", "tools/list", true),
            ("*", "", true),
            ("t*/*l", "tools/call", true),
            ("tools/?all", "tools/call", true),
            ("tools/", "tools/call", false),
            ("tools/call*x", "tools/call", false),
            ("", "x", false),
            ("a*b*c", "aXbXbXc", true),
        ] {
            assert_eq!(matches(pattern, name), like, "{pattern} {name}");
        }
        let pattern = "*a".repeat(100);
        assert!(!matches(&pattern, &"b".repeat(5_000)));
    }
}
