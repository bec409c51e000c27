//! Servers whose memory is their worth: a browser page, a REPL's variables, a debugger's target.
//!
//! Stopping such a server when it is idle would lose what the user built up in it, so `--thrifty` leaves it running. It is known by
//! words in its name and its command line only.

/// Parts of words that say it wherever they stand.
const PARTS: [(&str, &str); 14] = [
    ("playwright", "a browser"),
    ("puppeteer", "a browser"),
    ("browser", "a browser"),
    ("chrome", "a browser"),
    ("chromium", "a browser"),
    ("firefox", "a browser"),
    ("selenium", "a browser"),
    ("webdriver", "a browser"),
    ("stagehand", "a browser"),
    ("jupyter", "a REPL"),
    ("ipython", "a REPL"),
    ("notebook", "a REPL"),
    ("debugger", "a debugger"),
    ("desktop-commander", "a terminal"),
];

/// Whole words that say it.
const WORDS: [(&str, &str); 13] = [
    ("repl", "a REPL"),
    ("kernel", "a REPL"),
    ("interpreter", "a REPL"),
    ("debug", "a debugger"),
    ("gdb", "a debugger"),
    ("lldb", "a debugger"),
    ("dap", "a debugger"),
    ("cdp", "a browser"),
    ("terminal", "a terminal"),
    ("tmux", "a terminal"),
    ("pty", "a terminal"),
    ("shell", "a terminal"),
    ("ssh", "a terminal"),
];

/// What keeps its state in memory, if the name or the command line of a server says so.
pub fn keeps_state<'w>(
    name: &'w str,
    words: impl IntoIterator<Item = &'w str>,
) -> Option<&'static str> {
    let mut all = std::iter::once(name).chain(words);
    all.find_map(|word| {
        let lower = word.to_lowercase();
        let part = PARTS.iter().find(|(part, _)| lower.contains(part));
        // A directory that the server works in may have any name.
        let is_path = lower.starts_with(['/', '~', '.']);
        let whole = || {
            let mut parts = lower.split(|c: char| !c.is_ascii_alphanumeric());
            let known = parts.find_map(|part| WORDS.iter().find(|(word, _)| *word == part));
            known.filter(|_| !is_path)
        };
        part.or_else(whole).map(|(_, what)| *what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_repls_and_debuggers_are_known_and_others_are_not() {
        for (name, line, what) in [
            ("playwright", "npx @playwright/mcp", Some("a browser")),
            (
                "web",
                "npx -y chrome-devtools-mcp@latest",
                Some("a browser"),
            ),
            ("py", "uvx mcp-python-repl", Some("a REPL")),
            ("x", "uvx jupyter-mcp-server", Some("a REPL")),
            ("gdb", "uvx thing", Some("a debugger")),
            ("x", "npx mcp-debugger", Some("a debugger")),
            ("replicate", "npx replicate-mcp", None),
            ("files", "npx server-filesystem /home/ann/debug", None),
            ("x", "node /srv/playwright-mcp/index.js", Some("a browser")),
            ("time", "uvx mcp-server-time", None),
            (
                "github",
                "docker run -i ghcr.io/github/github-mcp-server",
                None,
            ),
        ] {
            assert_eq!(keeps_state(name, line.split(' ')), what, "{name}: {line}");
        }
    }
}
