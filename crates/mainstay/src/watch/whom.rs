//! Whose servers are watched: the one place that knows what a client looks like.

use mainstay_core::ids::Identity;
use mainstay_os::census;

/// Whose servers.
#[derive(Clone, Debug)]
pub enum Whom {
    /// Those of this process.
    Process(Identity),
    /// Those of every process that looks like this client.
    Client(Signature),
    /// Those of anybody, as long as they belong to our user.
    All,
}

/// What a client looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What people call it.
    pub name: String,
    /// Its program is called one of these.
    programs: Vec<String>,
}

/// Clients whose program is not called as they are.
const OTHERS: [(&str, &[&str]); 4] = [
    ("copilot", &["copilot", "copilot-runtime"]),
    ("continue", &["cn"]),
    ("vscode", &["code"]),
    ("qwen", &["qwen", "qwen-code"]),
];
/// What runs programs that are scripts; the script's name counts then.
const RUNTIMES: [&str; 6] = ["node", "bun", "deno", "python", "python3", "MainThread"];

impl Signature {
    /// The client of this name; a name that we do not know is that of a program.
    pub fn named(name: &str) -> Self {
        let other = OTHERS.iter().find(|(known, _)| *known == name);
        let programs = other.map_or(vec![name.to_owned()], |(_, programs)| {
            programs.iter().map(|&program| program.to_owned()).collect()
        });
        Self {
            name: name.to_owned(),
            programs,
        }
    }

    /// Whether a process looks like it.
    pub fn fits(&self, pid: i32, comm: &str) -> bool {
        if self.programs.iter().any(|program| program == comm) {
            return true;
        }
        // Everybody else would have to be asked for its arguments: only those that can be it are.
        let shown = RUNTIMES.contains(&comm);
        shown && self.fits_words(&census::cmdline(pid))
    }

    fn fits_words(&self, words: &[String]) -> bool {
        let mut words = words.iter().map(String::as_str);
        let first = words.next().unwrap_or_default();
        let script = words
            .find(|word| !word.starts_with('-'))
            .unwrap_or_default();
        let is = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            self.programs
                .iter()
                .any(|program| program == name || path.split('/').any(|part| part == program))
        };
        is(first) || is(script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_by_program_and_by_script() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (client, line, fits) in [
            (
                "gemini",
                "node --max-old-space-size=9 /usr/bin/gemini -p x",
                true,
            ),
            ("qwen", "node --expose-gc /x/qwen-code/cli.js", true),
            (
                "copilot",
                "/x/copilot-linux-x64/copilot-runtime --headless",
                true,
            ),
            ("continue", "node /usr/bin/cn chat", true),
            ("claude", "node /srv/server.js claude", false),
            ("gemini", "node", false),
        ] {
            let signature = Signature::named(client);
            assert_eq!(signature.fits_words(&words(line)), fits, "{line}");
        }
        assert!(Signature::named("claude").fits(0, "claude"));
        assert!(!Signature::named("claude").fits(0, "bash"));
    }
}
