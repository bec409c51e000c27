//! Programs that only start another one, which then talks over the same pipes: `npx`, `uvx`, `sh -c`.

/// Package runners, and programs that run the command in their arguments.
const RUNNERS: [&str; 14] = [
    "npm", "npx", "pnpm", "pnpx", "yarn", "bunx", "uvx", "pipx", "env", "nohup", "timeout", "sudo",
    "setsid", "nice",
];
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ash", "busybox"];
/// Scripts of package runners, as they appear in the arguments of `node`.
const SCRIPTS: [&str; 6] = [
    "npm-cli.js",
    "npx-cli.js",
    "npm",
    "npx",
    "yarn.js",
    "pnpm.cjs",
];

/// Whether this command line is a launcher's.
pub fn launches(words: &[String]) -> bool {
    // A process title (`npm exec @x/y`) is one word with spaces in it.
    let mut words = words.iter().flat_map(|word| word.split(' '));
    let first = name(words.next().unwrap_or_default());
    let second = words.next().unwrap_or_default();
    if RUNNERS.contains(&first) {
        return true;
    }
    if SHELLS.contains(&first) {
        let options = second.strip_prefix('-').unwrap_or_default();
        return !options.starts_with('-') && options.contains('c');
    }
    match first {
        "node" | "nodejs" => SCRIPTS.contains(&name(second)),
        "uv" => matches!(second, "run" | "tool" | "x"),
        "bun" => second == "x",
        _ => false,
    }
}

fn name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    // A login shell is called `-bash`.
    name.strip_prefix('-').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_told_apart_from_servers_by_their_command_line() {
        for (words, launcher) in [
            (&["npm exec @playwright/mcp"][..], true),
            (&["/usr/bin/npx", "-y", "x"], true),
            (&["node", "/usr/lib/npm/bin/npx-cli.js", "x"], true),
            (&["sh", "-c", "node server.js"], true),
            (&["/bin/bash", "-lc", "x"], true),
            (&["uv", "run", "x"], true),
            (&["bash", "mcp-stdio-proxy.sh"], false),
            (&["bash", "--norc", "x"], false),
            (&["node", "server.js"], false),
            (&["python3", "-c", "import x"], false),
            (&[], false),
        ] {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(launches(&words), launcher, "{words:?}");
        }
    }
}
