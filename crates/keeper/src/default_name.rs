//! Makes a name from the command of a server that was not given one.
//!
//! The launcher (`npx`, `uvx`, `node`, `docker run`, …) says nothing about the server, so the name is that of the
//! package, module, script or image behind it, without version, scope and path. A word that is too general (`mcp`,
//! `server`, `index`) is combined with the word before it.

use std::ffi::OsString;
use std::path::Path;

use mainstay_store::config::target::Target;

use crate::container;

/// The longest name of a server.
pub const NAME_CHARS: usize = 64;

/// Words that are too general for a name.
const EMPTY_WORDS: [&str; 14] = [
    "mcp",
    "server",
    "mcp-server",
    "mcp_server",
    "server-mcp",
    "index",
    "main",
    "__main__",
    "app",
    "cli",
    "start",
    "run",
    "stdio",
    "src",
];
/// Directories that are too general for a name.
const EMPTY_DIRECTORIES: [&str; 12] = [
    "build",
    "dist",
    "out",
    "lib",
    "src",
    "bin",
    "target",
    "release",
    "debug",
    "node_modules",
    ".venv",
    "venv",
];

/// The name of a server with a URL: its host.
pub fn of_url(url: &str) -> String {
    let host =
        Target::parse(url).map_or_else(|_| "http".into(), |target| target.host().replace(':', "-"));
    host.chars().take(NAME_CHARS).collect()
}

/// The name of a server with this command.
pub fn of(command: &[OsString]) -> String {
    let words: Vec<String> = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let name: String = subject(&words, 0)
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '-'
            }
        })
        .take(NAME_CHARS)
        .collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() {
        "server".into()
    } else {
        name.into()
    }
}

fn subject(words: &[&str], depth: u32) -> String {
    let Some((&program, rest)) = words.split_first() else {
        return String::new();
    };
    let plain = base(program);
    let launcher = plain.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    // Limits the recursion for a launcher that launches launchers.
    let found = match if depth < 5 { launcher } else { "" } {
        "npx" | "bunx" | "pnpx" => package_run(rest, &NPX_VALUES),
        "npm" | "pnpm" | "yarn" | "bun" => {
            match verb(rest, &["--prefix", "-C", "--dir", "--cwd"]) {
                Some(("exec" | "x" | "dlx", rest)) => package_run(rest, &NPX_VALUES),
                Some(("run" | "start", rest)) if launcher == "bun" => script(rest, &[]),
                Some((file, _)) if launcher == "bun" && file.contains('.') => Some(path(file)),
                Some(_) | None => None,
            }
        }
        "uvx" => package_run(rest, &UV_VALUES),
        "pipx" => match verb(rest, &[]) {
            Some(("run", rest)) => package_run(rest, &["--spec", "--python", "--index-url"]),
            Some(_) | None => None,
        },
        "uv" => match verb(rest, &UV_VALUES) {
            Some(("run", rest)) => uv_run(rest, depth),
            Some(("tool" | "x", rest)) => match verb(rest, &UV_VALUES) {
                Some(("run", rest)) => package_run(rest, &UV_VALUES),
                Some(_) | None => None,
            },
            Some(_) | None => None,
        },
        "python" | "pythonw" | "pypy" => python(rest),
        "node" | "nodejs" | "tsx" | "ts-node" | "ruby" | "perl" | "php" => {
            script(rest, &NODE_VALUES)
        }
        "deno" => match verb(rest, &[]) {
            Some(("run" | "x", rest)) => script(rest, &["--config", "-c", "--import-map"]),
            Some(_) | None => None,
        },
        "java" => java(rest),
        "docker" | "podman" | "nerdctl" => match verb(rest, &["-H", "--host", "--context", "-c"]) {
            Some(("run", rest) | ("container", ["run", rest @ ..])) => image(rest),
            Some(_) | None => None,
        },
        "sh" | "bash" | "dash" | "zsh" | "ash" => shell(rest, depth),
        "env" | "nice" | "nohup" | "stdbuf" | "exec" | "time" | "mise" | "caffeinate" => {
            behind_prefix(rest, depth)
        }
        _ => None,
    };
    found
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| path(program))
}

/// Options of npx and its like that take a value.
const NPX_VALUES: [&str; 8] = [
    "-c",
    "--call",
    "-w",
    "--workspace",
    "--registry",
    "--cache",
    "--userconfig",
    "--prefix",
];
/// Options of uv that take a value.
const UV_VALUES: [&str; 17] = [
    "--with",
    "--with-editable",
    "--with-requirements",
    "--python",
    "-p",
    "--index",
    "--index-url",
    "-i",
    "--default-index",
    "--extra-index-url",
    "--cache-dir",
    "--directory",
    "--project",
    "--extra",
    "--group",
    "--env-file",
    "--refresh-package",
];
/// Options of node that take a value.
const NODE_VALUES: [&str; 8] = [
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
    "-C",
    "--conditions",
    "--title",
];

/// The first word that is not an option, and the words after it.
fn verb<'w, 'a>(words: &'w [&'a str], values: &[&str]) -> Option<(&'a str, &'w [&'a str])> {
    let mut rest = words;
    loop {
        let (&word, after) = rest.split_first()?;
        if word == "--" {
            let (&word, after) = after.split_first()?;
            return Some((word, after));
        }
        if !word.starts_with('-') || word == "-" {
            return Some((word, after));
        }
        // `--option=value` contains its value.
        let skip = usize::from(values.contains(&word));
        rest = after.get(skip..)?;
    }
}

/// `npx -y PACKAGE`, `uvx --from PACKAGE PROGRAM`, `npx -p PACKAGE PROGRAM`.
fn package_run(words: &[&str], values: &[&str]) -> Option<String> {
    let mut known = values.to_vec();
    known.extend(["--from", "--package"]);
    // `-p` is npx's package and uv's python; both take a value.
    known.push("-p");
    let (subject, _) = verb(words, &known)?;
    Some(package(subject))
}

fn uv_run(words: &[&str], depth: u32) -> Option<String> {
    if let Some(at) = words
        .iter()
        .position(|&word| word == "-m" || word == "--module")
        && words[..at].iter().all(|word| word.starts_with('-'))
    {
        return words.get(at + 1).map(|word| module(word));
    }
    let (word, rest) = verb(words, &UV_VALUES)?;
    if Path::new(word).extension().is_some_and(|end| end == "py") {
        return Some(path(word));
    }
    // `uv run python -m x`, `uv run mcp run server.py`
    let mut inner = vec![word];
    inner.extend(rest);
    if word == "mcp" || word == "fastmcp" {
        return script(rest.get(1..)?, &[]);
    }
    Some(subject(&inner, depth + 1))
}

fn python(words: &[&str]) -> Option<String> {
    let mut rest = words;
    loop {
        let (&word, after) = rest.split_first()?;
        match word {
            "-m" => return after.first().map(|word| module(word)),
            "-c" | "-" => return None,
            "-W" | "-X" => rest = after.get(1..)?,
            _ if word.starts_with('-') => rest = after,
            _ => return Some(path(word)),
        }
    }
}

fn script(words: &[&str], values: &[&str]) -> Option<String> {
    let (word, _) = verb(words, values)?;
    match word.strip_prefix("npm:").or(word.strip_prefix("jsr:")) {
        Some(name) => Some(package(name)),
        None => Some(path(word)),
    }
}

fn java(words: &[&str]) -> Option<String> {
    let at = words.iter().position(|&word| word == "-jar")?;
    words.get(at + 1).map(|word| path(word))
}

/// `docker run OPTIONS IMAGE`.
fn image(words: &[&str]) -> Option<String> {
    let word = *words.get(container::words::read(words).image?)?;
    let name = word.split('@').next().unwrap_or(word);
    let (parent, last) = name.rsplit_once('/').unwrap_or(("", name));
    let last = last.split(':').next().unwrap_or(last);
    let parent = parent.rsplit('/').next().unwrap_or("");
    Some(joined(parent, last))
}

/// `sh -c 'exec npx …'`, `bash script.sh`.
fn shell(words: &[&str], depth: u32) -> Option<String> {
    let (&word, after) = words.split_first()?;
    if word.starts_with('-') && word.ends_with('c') {
        // The `&` in `2>&1` does not end a command.
        let text = after.first()?.replace(">&", ">");
        // The last command of a list is the server.
        let last = text
            .rsplit(['\n', ';', '&'])
            .find(|part| !part.trim().is_empty())?;
        let inner: Vec<&str> = last
            .split_whitespace()
            .map(|word| word.trim_matches(['"', '\'']))
            .collect();
        return behind_prefix(&inner, depth);
    }
    script(words, &["-o", "-O"])
}

/// `env A=1 COMMAND`, `exec COMMAND`.
fn behind_prefix(words: &[&str], depth: u32) -> Option<String> {
    let start = words
        .iter()
        .position(|word| !word.starts_with('-') && !word.contains(['=', '>']) && *word != "exec")?;
    Some(subject(&words[start..], depth + 1))
}

/// `@scope/name@version`, `name==1.0`, `name[extra]`, `git+https://host/owner/name@rev`, `./path`.
fn package(text: &str) -> String {
    if text.contains("://") || text.starts_with(['.', '/', '~']) {
        let text = text.split('#').next().unwrap_or(text);
        let last = text
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or(text);
        return path(
            last.split('@')
                .next()
                .unwrap_or(last)
                .trim_end_matches(".git"),
        );
    }
    let (scope, name) = match text.strip_prefix('@').and_then(|rest| rest.split_once('/')) {
        Some((scope, name)) => (scope, name),
        // `github:owner/name`
        None => text.rsplit_once('/').map_or(("", text), |(owner, name)| {
            (owner.rsplit(':').next().unwrap_or(owner), name)
        }),
    };
    let end = name
        .find(['@', '=', '<', '>', '~', '!', '[', '#', ';', ' '])
        .unwrap_or(name.len());
    joined(scope, &name[..end])
}

/// `package.module` keeps its last part unless that is too general.
fn module(text: &str) -> String {
    let mut parts = text.rsplit('.');
    let last = parts.next().unwrap_or(text);
    joined(parts.next().unwrap_or(""), last)
}

/// A file's name without its extension, or the nearest directory whose name is specific.
fn path(text: &str) -> String {
    let last = base(text);
    let stem = match last.rsplit_once('.') {
        Some((stem, ending)) if SCRIPTS.contains(&ending) && !stem.is_empty() => stem,
        Some(_) | None => last,
    };
    if !EMPTY_WORDS.contains(&stem) {
        return stem.into();
    }
    let parent = Path::new(text)
        .ancestors()
        .skip(1)
        .filter_map(|part| part.file_name()?.to_str())
        .find(|part| !EMPTY_DIRECTORIES.contains(part) && !EMPTY_WORDS.contains(part));
    match parent {
        Some(parent) => parent.into(),
        None => stem.into(),
    }
}

/// Extensions of scripts.
const SCRIPTS: [&str; 13] = [
    "js", "mjs", "cjs", "ts", "mts", "cts", "py", "sh", "rb", "pl", "php", "jar", "exe",
];

fn joined(before: &str, name: &str) -> String {
    if EMPTY_WORDS.contains(&name) && !before.is_empty() {
        format!("{before}-{name}")
    } else {
        name.into()
    }
}

fn base(text: &str) -> &str {
    text.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_people_would_give() {
        for (command, name) in [
            (
                "/usr/local/bin/github-mcp-server stdio",
                "github-mcp-server",
            ),
            ("npx -y @playwright/mcp@latest", "playwright-mcp"),
            (
                "npx @modelcontextprotocol/server-filesystem /tmp",
                "server-filesystem",
            ),
            ("npx -y chrome-devtools-mcp@0.6.0", "chrome-devtools-mcp"),
            ("npx --package=@x/tools weather --fast", "weather"),
            ("npx -p @x/tools weather", "weather"),
            ("npx -y github:owner/thing", "thing"),
            (
                "npm exec -y -- @playwright/mcp@1.2.3 --headless",
                "playwright-mcp",
            ),
            ("pnpm dlx @upstash/context7-mcp", "context7-mcp"),
            ("bunx --bun @scope/pkg", "pkg"),
            ("bun run /srv/weather/src/index.ts", "weather"),
            ("uvx mcp-server-fetch", "mcp-server-fetch"),
            (
                "uvx mcp-server-git==2025.1.1 --repository /x",
                "mcp-server-git",
            ),
            (
                "uvx --from git+https://github.com/oraios/serena serena start",
                "serena",
            ),
            ("uvx --python 3.12 markitdown-mcp[all]", "markitdown-mcp"),
            ("uvx git+https://github.com/a/b-mcp.git@main", "b-mcp"),
            ("uv run --directory /srv/weather server.py", "server"),
            ("uv --directory /srv run weather-server", "weather-server"),
            ("uv run python -m weather.server", "weather-server"),
            ("uv run -m weather", "weather"),
            ("uv tool run ruff-mcp@1", "ruff-mcp"),
            ("uv run mcp run /srv/weather/server.py", "weather"),
            (
                "python3.12 -u -m mcp_server_time --tz UTC",
                "mcp_server_time",
            ),
            ("python3 -W ignore /srv/weather/main.py", "weather"),
            ("python server.py", "server"),
            ("node /srv/weather/build/index.js", "weather"),
            ("node --import tsx ./notes.ts", "notes"),
            ("deno run -A npm:@scope/mcp", "scope-mcp"),
            ("java -Xmx1g -jar /opt/sonar-mcp.jar", "sonar-mcp"),
            (
                "docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:v1",
                "github-mcp-server",
            ),
            (
                "docker run --rm -i --mount type=bind,src=/a,dst=/b mcp/filesystem /b",
                "filesystem",
            ),
            (
                "podman run -i localhost:5000/acme/mcp@sha256:00",
                "acme-mcp",
            ),
            ("env A=1 npx -y @playwright/mcp", "playwright-mcp"),
            ("./server", "server"),
            ("", "server"),
            ("///", "server"),
        ] {
            let words: Vec<OsString> = command.split_whitespace().map(OsString::from).collect();
            assert_eq!(of(&words), name, "{command}");
        }
    }

    #[test]
    fn a_shell_command_is_named_by_the_program_it_runs() {
        let words = |text: &str| vec!["sh".into(), "-c".into(), OsString::from(text)];
        assert_eq!(
            of(&words("cd /x && exec npx -y '@playwright/mcp'")),
            "playwright-mcp"
        );
        assert_eq!(of(&words("TOKEN=1 weather --stdio")), "weather");
        assert_eq!(of(&words("cd /x; weather --stdio 2>&1 >&2")), "weather");
        assert_eq!(of(&words("exec 2>>log weather")), "weather");
        assert_eq!(of(&words("")), "sh");
    }

    #[test]
    fn every_command_gets_a_name() {
        let words = [
            "npx",
            "npm",
            "uv",
            "uvx",
            "python",
            "node",
            "docker",
            "sh",
            "env",
            "java",
            "deno",
            "bun",
            "run",
            "exec",
            "tool",
            "container",
            "-c",
            "-m",
            "-jar",
            "-p",
            "--",
            "-",
            "",
            "@",
            "@/",
            "a/",
            ":",
            "=",
            ".",
            "..",
            "é@é",
            "x",
        ];
        for first in words {
            for second in words {
                for third in words {
                    let command: Vec<OsString> = vec![first.into(), second.into(), third.into()];
                    let name = of(&command);
                    assert!(!name.is_empty() && name.len() <= 64, "{command:?}: {name}");
                    assert!(!name.contains(['/', ' ', '\0']), "{command:?}: {name}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_in_a_command_give_a_valid_name() {
        let odd: Vec<OsString> = vec!["/x/a b\u{1b}[31m".into()];
        assert_eq!(of(&odd), "a-b--31m");
        let long: Vec<OsString> = vec!["n".repeat(500).into()];
        assert_eq!(of(&long).len(), NAME_CHARS);
    }
}
