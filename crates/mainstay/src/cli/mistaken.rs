//! Arguments that cannot be parsed. If a client has started us, it gets the reason in its opening, because clients do not show
//! the stderr of a server that failed to start; and the reason is recorded, so that `why` and `events` know it.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use mainstay_keeper::default_name;
use mainstay_os::{role, title};
use mainstay_protocol::redact;
use mainstay_report::{Exit, Report, printer, talk};
use mainstay_store::config::file::nearest;
use mainstay_store::paths::Paths;

use super::run_options::{self, RunOptions};
use super::run_refused::{Recorded, Refusal};
use super::shell_words;

/// Programs that start servers.
const LAUNCHERS: [&str; 22] = [
    "bash", "bun", "bunx", "cargo", "deno", "docker", "dotnet", "go", "java", "node", "npm", "npx",
    "pipx", "pnpm", "podman", "python", "python3", "ruby", "sh", "uv", "uvx", "yarn",
];

/// Prints help and version on stdout, and a mistake in the arguments on stderr and to the client.
pub fn unparsed(error: &clap::Error) -> Exit {
    let text = error.to_string();
    if !error.use_stderr() {
        return match printer::print_text(&text) {
            Ok(()) => Exit::Ok,
            Err(report) => report.exit(),
        };
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.split_first() {
        Some((verb, words)) if verb == "run" => {
            talk(&text);
            let command = command_of(words);
            tell_client(&explained(error), &command, Recorded::Now);
        }
        Some((verb, _)) if verb.to_str().and_then(tip).is_none() && lacks_run(&words, error) => {
            let report = if is_command(&words, error) {
                let report = did_you_mean(&words);
                report.tell();
                report
            } else {
                talk(&text);
                explained(error)
            };
            tell_client(&report, &words, Recorded::WithFirstRequest);
        }
        Some(_) | None => match mistyped(&words, error) {
            Some(report) => report.tell(),
            None => talk(&text),
        },
    }
    Exit::Usage
}

/// The error for a first word that is no command of ours, but means one: by its sense, or by its letters.
fn mistyped(words: &[OsString], error: &clap::Error) -> Option<Report> {
    let word = words.first()?.to_str()?;
    let mut wrong = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg]
        .into_iter()
        .filter_map(|kind| error.get(kind));
    if !wrong.any(|wrong| matches!(wrong, ContextValue::String(wrong) if wrong == word)) {
        return None;
    }
    let report = Report::new(
        Exit::Usage,
        format!("`{word}` is not a command of mainstay"),
    );
    if let Some(tip) = tip(word) {
        return Some(report.hint(tip));
    }
    let Some(ContextValue::Strings(similar)) = error.get(ContextKind::SuggestedSubcommand) else {
        return None;
    };
    let near = nearest(word, similar)?;
    Some(report.hint(format!(
        "did you mean `mainstay {near}`? `mainstay --help` lists the commands"
    )))
}

/// What to type instead of a word that other programs have as a command.
fn tip(word: &str) -> Option<&'static str> {
    Some(match word {
        "undo" => "`mainstay release --all` takes back what `mainstay adopt` has changed",
        "version" | "-v" => "did you mean `mainstay --version`?",
        "init" | "setup" | "install" => {
            "`mainstay adopt` sends the servers of your clients through mainstay; guide: docs/guides/adopt.md"
        }
        "remove" | "uninstall" => {
            "`mainstay release --all` takes it out of the configs of your clients; guide: docs/guides/upgrade-and-uninstall.md"
        }
        "config" => {
            "`mainstay doctor --verbose` shows where the config file is and what is wrong with it"
        }
        "completion" | "completions" => {
            "the packages install completions for bash, zsh and fish; in the source they are in packaging/completions"
        }
        _ => return None,
    })
}

/// `mainstay run` without a server: tells the client, and returns the report.
pub fn no_command(report: Report) -> Report {
    tell_client(&report, &[], Recorded::Now);
    report
}

/// Records the mistake and answers the client's opening, unless a user has typed the command.
fn tell_client(report: &Report, command: &[OsString], when: Recorded) {
    if rustix::termios::isatty(role::standard(0)) {
        return;
    }
    hide_headers();
    let (paths, _) = Paths::find_or_nowhere();
    let argv: Vec<OsString> = std::iter::once("mainstay".into())
        .chain(std::env::args_os().skip(1))
        .collect();
    let refusal = Refusal {
        paths: &paths,
        name: &name(command),
        argv: &argv,
        read: &[],
    };
    refusal.answer_opening(report, when);
}

/// Removes the values of headers from our command line, which every user can see in the process list while we wait for the
/// client.
fn hide_headers() {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let headers = values(&words, "--header");
    let secrets: Vec<&str> = headers
        .iter()
        .filter_map(|header| header.split_once(':'))
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
        .collect();
    if !secrets.is_empty() {
        title::hide(&secrets);
    }
}

/// The name of the server: the one that was given, or made from the command.
fn name(command: &[OsString]) -> String {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let given = given_name(&words).filter(|name| run_options::name(name).is_ok());
    given.unwrap_or_else(|| default_name::of(command))
}

/// The value of `--name`, whatever else is wrong.
fn given_name(words: &[OsString]) -> Option<String> {
    values(words, "--name").pop()
}

/// The values of an option before the server command, whatever else is wrong.
fn values(words: &[OsString], option: &str) -> Vec<String> {
    let words = words.iter().map(|word| word.to_string_lossy());
    let mut words = words.take_while(|word| word != "--");
    let mut values = Vec::new();
    while let Some(word) = words.next() {
        let value = word
            .strip_prefix(option)
            .and_then(|rest| rest.strip_prefix('='));
        if word == option {
            values.extend(words.next().map(String::from));
        } else {
            values.extend(value.map(String::from));
        }
    }
    values
}

/// The server command in the arguments of a `run` that cannot be parsed: what comes after `--`.
fn command_of(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.iter().skip_while(|word| *word != "--");
    words.next();
    words.cloned().collect()
}

/// Whether these words may be the arguments of a `run` that was left out. A word that is similar to a command is not.
fn lacks_run(words: &[OsString], error: &clap::Error) -> bool {
    if error.kind() == ErrorKind::InvalidSubcommand {
        let similar = error.get(ContextKind::SuggestedSubcommand).is_some();
        return is_command(words, error) || !similar;
    }
    error.kind() == ErrorKind::UnknownArgument && is_options_of_run(words)
}

/// Whether these words begin with a program, or are options of `run`.
fn is_command(words: &[OsString], error: &clap::Error) -> bool {
    let Some(first) = words.first().map(|word| word.to_string_lossy()) else {
        return false;
    };
    if first.starts_with('-') {
        return is_options_of_run(words);
    }
    let similar = error.get(ContextKind::SuggestedSubcommand).is_some();
    first.contains('/') || LAUNCHERS.contains(&&*first) || (!similar && is_in_path(&first))
}

fn is_options_of_run(words: &[OsString]) -> bool {
    let first = words.first().map(|word| word.to_string_lossy());
    first.is_some_and(|first| first.starts_with('-'))
        && RunOptions::parse_words(words).is_ok_and(|options| {
            !options.command.is_empty() || options.name.is_some() || options.url.is_some()
        })
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| is_executable(&directory.join(program)))
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn did_you_mean(words: &[OsString]) -> Report {
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words = redact::words(&words);
    let first = words.first().map_or("", String::as_str);
    let dashes = if first.starts_with('-') { "" } else { "-- " };
    Report::new(
        Exit::Usage,
        format!("`{first}` is not a command of mainstay"),
    )
    .hint(format!(
        "did you mean: mainstay run {dashes}{}",
        shell_words::line(&words)
    ))
}

/// The mistake as one line and a hint, without the values of headers and the secrets in a URL.
fn explained(error: &clap::Error) -> Report {
    let text = error.to_string();
    let problem = text.split("\n\n").next().unwrap_or(&text);
    let problem = problem.trim_start_matches("error: ");
    let problem: Vec<&str> = problem.split_whitespace().collect();
    let mut problem = problem.join(" ");
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue)
        && !value.is_empty()
    {
        let of = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(of)) => of.as_str(),
            _ => "",
        };
        let shown = if of.starts_with("--header") {
            "…".into()
        } else {
            redact::words(std::slice::from_ref(value)).concat()
        };
        problem = problem.replace(value.as_str(), &shown);
    }
    let tip = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("tip: "));
    let help = "`mainstay run --help` lists the options";
    Report::new(Exit::Usage, problem).hint(tip.unwrap_or(help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn error(line: &str) -> clap::Error {
        let words = std::iter::once("mainstay".into()).chain(words(line));
        Cli::try_parse_from(words).unwrap_err()
    }

    #[test]
    fn a_missing_run_is_found_and_a_mistyped_command_is_none() {
        for (line, meant) in [
            ("npx -y foo", "-- npx -y foo"),
            ("node server.js", "-- node server.js"),
            ("./server --x", "-- ./server --x"),
            ("/opt/a/b", "-- /opt/a/b"),
            ("-- uvx mcp-server-time", "-- uvx mcp-server-time"),
            ("--name a -- npx b", "--name a -- npx b"),
        ] {
            let (words, error) = (words(line), error(line));
            assert!(
                lacks_run(&words, &error) && is_command(&words, &error),
                "{line}"
            );
            let report = did_you_mean(&words).to_string();
            let hint = format!("\nhint: did you mean: mainstay run {meant}");
            assert!(report.ends_with(&hint), "{report}");
        }
        for line in ["pss", "restat x", "--nope", "ps --nope", "stop --nope x"] {
            assert!(!lacks_run(&words(line), &error(line)), "{line}");
        }
        // It may be a program that is not installed: a client gets the reason.
        let line = "frobnicate-the-server";
        assert!(lacks_run(&words(line), &error(line)) && !is_command(&words(line), &error(line)));
    }

    #[test]
    fn a_word_of_other_programs_leads_to_our_command() {
        for (line, meant) in [
            ("undo", "`mainstay release --all`"),
            ("version", "`mainstay --version`"),
            ("-v", "`mainstay --version`"),
            ("install", "`mainstay adopt`"),
            ("init", "`mainstay adopt`"),
            ("setup x", "`mainstay adopt`"),
            ("remove", "`mainstay release --all`"),
            ("uninstall", "`mainstay release --all`"),
            ("config", "`mainstay doctor --verbose`"),
            ("doctr", "`mainstay doctor`"),
            ("pss", "`mainstay ps`"),
            ("completions", "packaging/completions"),
        ] {
            let text = mistyped(&words(line), &error(line)).map(|report| report.to_string());
            let word = line.split(' ').next().unwrap();
            let text = text.unwrap_or_else(|| panic!("{line}: no tip"));
            let problem = format!("error: `{word}` is not a command of mainstay\nhint: ");
            assert!(text.starts_with(&problem), "{text}");
            assert!(text.contains(meant), "{text}");
        }
        for line in ["--nope", "ps --nope", "ps -v", "lease opne x"] {
            assert!(mistyped(&words(line), &error(line)).is_none(), "{line}");
        }
    }

    #[test]
    fn a_mistake_is_explained_in_one_line_without_secrets() {
        for (line, explanation) in [
            (
                "run --nmae x -- npx",
                "error: unexpected argument '--nmae' found\nhint: a similar argument exists: '--name'",
            ),
            (
                "run --grace-eof 2 -- npx",
                "error: invalid value '2' for '--grace-eof <TIME>': `2` is not a time (write it like `500ms`, `2s`, `10min`, `1h` or `1d`)\n\
                 hint: `mainstay run --help` lists the options",
            ),
            (
                "run --url http://h/ --header sesame",
                "error: invalid value '…' for '--header <NAME: VALUE>': write it like `Name: value`\n\
                 hint: `mainstay run --help` lists the options",
            ),
        ] {
            assert_eq!(explained(&error(line)).to_string(), explanation);
        }
    }

    #[test]
    fn the_server_has_its_name_even_if_the_options_are_wrong() {
        for (line, name) in [
            ("run --nmae x --name a -- b", Some("a")),
            ("run --name=a --x", Some("a")),
            ("run -- b --name a", None),
        ] {
            assert_eq!(given_name(&words(line)).as_deref(), name);
        }
        let command = command_of(&words("--nmae x -- npx -y foo"));
        assert_eq!(default_name::of(&command), "foo");
    }
}
