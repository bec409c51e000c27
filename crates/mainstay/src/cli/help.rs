//! The layout of help: `-h` fits a screen, `--help` is complete, and each line is wrapped once.
//!
//! Commands write their examples and notes as text below `after_help`. Here that text is laid out for the width of the terminal.
//! Lines of two blanks and a command are examples; what follows the command after two or more blanks says what it is for.

use clap::{Arg, Command};
use mainstay_report::printer::{COLUMNS, Printer, UNCUT};

/// The longest line of help.
const COLUMNS_MAX: usize = 100;
/// Help that is longer than this has a short form.
const SCREEN_LINES: usize = 40;
/// Examples that the short form shows.
const EXAMPLES_SHORT: usize = 2;
/// The indentation of a line that continues an example.
const DEEPER: &str = "      ";

/// Options that `-h` shows of commands that have too many; `--help` shows all.
const OFTEN: [(&str, &[&str]); 2] = [
    (
        "run",
        &[
            "name",
            "watch",
            "lazy",
            "lease",
            "record",
            "url",
            "header_env",
            "hibernate",
            "memory-max",
            "command",
        ],
    ),
    (
        "serve",
        &[
            "listen",
            "token_file",
            "allow_host",
            "share",
            "upstream",
            "session-ttl",
            "session-cap",
            "json",
            "command",
        ],
    ),
];

/// Lays out the help of a command and of those below it.
pub fn lay_out(command: Command) -> Command {
    lay_out_for(command, columns(Printer::new().columns()))
}

/// The width of the help. A pipe without a width gets that of a plain terminal, where people will read it.
fn columns(output: usize) -> usize {
    if output >= UNCUT {
        return COLUMNS;
    }
    output.min(COLUMNS_MAX)
}

fn lay_out_for(command: Command, columns: usize) -> Command {
    let path = command.get_name().to_owned();
    shape(command.term_width(columns), &path, columns)
}

fn shape(command: Command, path: &str, columns: usize) -> Command {
    let often = OFTEN.iter().find(|(name, _)| *name == command.get_name());
    let (mut command, hides) = match often {
        Some((_, often)) => {
            let rare = |arg: &Arg| !often.contains(&arg.get_id().as_str());
            (
                command.mut_args(|arg| {
                    let rare = rare(&arg);
                    arg.hide_short_help(rare)
                }),
                true,
            )
        }
        None => (command, false),
    };
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        let notes = Notes::read(&text);
        let long = notes.lay_out(columns, usize::MAX);
        command = command.after_help(leaked(long.clone()));
        let lines = command.clone().render_help().to_string().lines().count();
        if hides || lines > SCREEN_LINES {
            let short = notes.lay_out(columns, EXAMPLES_SHORT);
            let more = format!("{short}\n\nAll options, more examples and notes: {path} --help");
            command = command
                .after_help(leaked(more))
                .after_long_help(leaked(long));
        }
    }
    let path = path.to_owned();
    command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        shape(below, &path, columns)
    })
}

/// Help is laid out once in the life of a process, and clap keeps it for ever.
fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// The text below the options of a command.
#[derive(Debug, Default, PartialEq, Eq)]
struct Notes {
    examples: Vec<Example>,
    /// One text without line ends per paragraph.
    paragraphs: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Example {
    command: String,
    purpose: String,
}

impl Notes {
    fn read(text: &str) -> Self {
        let mut notes = Self::default();
        let mut goes_on = false;
        for line in text.lines() {
            let words = line.trim();
            if words == "Examples:" || words.is_empty() {
                goes_on = false;
            } else if let Some(example) = line.strip_prefix("  ") {
                // A paragraph that ends with a colon says what the example below it is for.
                let above = notes
                    .paragraphs
                    .pop_if(|text| goes_on && text.ends_with(':'));
                notes.example(example);
                if let (Some(above), Some(last)) = (above, notes.examples.last_mut()) {
                    last.purpose = above.trim_end_matches(':').into();
                }
                goes_on = false;
            } else if let Some(last) = notes.paragraphs.last_mut().filter(|_| goes_on) {
                last.push(' ');
                last.push_str(words);
            } else {
                notes.paragraphs.push(words.into());
                goes_on = true;
            }
        }
        notes
    }

    fn example(&mut self, line: &str) {
        let deeper = line.starts_with("  ");
        let line = line.trim();
        match self.examples.last_mut() {
            // What the example above it is for.
            Some(above) if deeper => {
                let blank = if above.purpose.is_empty() { "" } else { " " };
                above.purpose.extend([blank, line]);
            }
            Some(_) | None => {
                let (command, purpose) = line.split_once("  ").unwrap_or((line, ""));
                self.examples.push(Example {
                    command: command.into(),
                    purpose: purpose.trim().into(),
                });
            }
        }
    }

    fn lay_out(&self, columns: usize, examples_max: usize) -> String {
        let shown = &self.examples[..self.examples.len().min(examples_max)];
        let mut parts: Vec<String> = Vec::new();
        if !shown.is_empty() {
            parts.push(format!("Examples:\n{}", table(shown, columns)));
        }
        // The short form has the paragraphs only if it leaves out nothing else.
        if shown.len() == self.examples.len() {
            let wrapped = self.paragraphs.iter().map(|text| wrap(text, columns, ""));
            parts.extend(wrapped);
        }
        parts.join("\n\n")
    }
}

/// Examples as two columns, if they fit, else each with its purpose on a line below it.
fn table(examples: &[Example], columns: usize) -> String {
    let explained = || examples.iter().filter(|one| !one.purpose.is_empty());
    let commands = explained()
        .map(|one| width(&one.command))
        .max()
        .unwrap_or(0);
    let purposes = explained()
        .map(|one| width(&one.purpose))
        .max()
        .unwrap_or(0);
    let beside = 2 + commands + 3 + purposes <= columns;
    let lines = examples.iter().map(|Example { command, purpose }| {
        if purpose.is_empty() {
            shell_line(command, columns)
        } else if beside {
            let blanks = " ".repeat(commands - width(command) + 3);
            format!("  {command}{blanks}{purpose}")
        } else {
            let purpose = wrap(purpose, columns, DEEPER);
            format!("{}\n{purpose}", shell_line(command, columns))
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A command that is longer than a line goes on below, in a way that a shell understands.
fn shell_line(command: &str, columns: usize) -> String {
    if 2 + width(command) <= columns {
        return format!("  {command}");
    }
    let room = columns.saturating_sub(" \\".len());
    fill(command, room, "  ", DEEPER).join(" \\\n")
}

fn wrap(text: &str, columns: usize, indent: &str) -> String {
    fill(text, columns, indent, indent).join("\n")
}

/// Words in lines of at most this width. A longer word has a line of its own.
fn fill(text: &str, columns: usize, first: &str, others: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{others}{word}")),
            None => lines.push(format!("{first}{word}")),
        }
    }
    lines
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// Every command with its help, short and long.
    fn all(columns: usize) -> Vec<(String, String, String)> {
        fn walk(command: &mut Command, path: &str, found: &mut Vec<(String, String, String)>) {
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            found.push((path.into(), short, long));
            for below in command.get_subcommands_mut() {
                if below.get_name() != "help" && !below.is_hide_set() {
                    let path = format!("{path} {}", below.get_name());
                    walk(below, &path, found);
                }
            }
        }
        let mut found = Vec::new();
        let mut cli = lay_out_for(Cli::command(), columns);
        cli.build();
        walk(&mut cli, "mainstay", &mut found);
        found
    }

    #[test]
    fn help_in_a_pipe_fits_a_plain_terminal() {
        assert_eq!([UNCUT, 120, 90, 60].map(columns), [80, 100, 90, 60]);
    }

    #[test]
    fn short_help_fits_a_screen_and_long_help_is_complete() {
        for (path, short, long) in all(100) {
            let lines = short.lines().count();
            assert!(lines <= 50, "{path} -h has {lines} lines\n{short}");
            let limits = long.matches("[default: ").count();
            assert!(limits >= short.matches("[default: ").count(), "{path}");
        }
        let (_, short, long) = all(100)
            .into_iter()
            .find(|(path, ..)| path == "mainstay run")
            .unwrap();
        assert!(long.contains("--grace-term") && !short.contains("--grace-term"));
        assert!(short.contains("--name") && short.contains("mainstay run --help"));
    }

    #[test]
    fn examples_and_notes_are_wrapped_once_at_any_width() {
        for columns in [60, 80, 100] {
            for (path, short, long) in all(columns) {
                for text in [short, long] {
                    let after = text.split_once("Examples:").map_or("", |(_, after)| after);
                    for (line, next) in after.lines().zip(after.lines().skip(1)) {
                        assert!(width(line) <= columns, "{path} at {columns}: {line}");
                        // A line of prose ends early only where its next word has no room.
                        let prose = !line.is_empty() && !line.starts_with(' ');
                        if prose && !next.is_empty() && !next.starts_with(' ') {
                            let word = next.split(' ').next().unwrap_or_default();
                            let joined = width(line) + 1 + width(word);
                            assert!(joined > columns, "{path} at {columns}: {line}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn no_help_names_a_file_that_an_installed_program_does_not_have() {
        for (path, _, long) in all(100) {
            assert!(!long.contains("docs/"), "{path}: {long}");
        }
    }

    #[test]
    fn examples_are_laid_out_for_the_width() {
        let notes = Notes::read(
            "Examples:\n  a b     one\n  a b c   two\n\nA note\nof two lines.\n\nAnother.",
        );
        assert_eq!(notes.paragraphs, ["A note of two lines.", "Another."]);
        assert_eq!(
            notes.lay_out(80, 9),
            "Examples:\n  a b     one\n  a b c   two\n\nA note of two lines.\n\nAnother."
        );
        assert_eq!(notes.lay_out(80, 1), "Examples:\n  a b   one");
        assert_eq!(
            notes.lay_out(11, 9),
            "Examples:\n  a b\n      one\n  a b c\n      two\n\nA note of\ntwo lines.\n\nAnother."
        );
        let under = Notes::read("Examples:\n  a b\n\nAgain,\nto any server:\n  a c\n\nA note.");
        assert_eq!(
            under.lay_out(80, 9),
            "Examples:\n  a b\n  a c   Again, to any server\n\nA note."
        );
        let long = Notes::read("Examples:\n  run --name x -- npx y\n      all of it");
        assert_eq!(
            long.lay_out(20, 9),
            "Examples:\n  run --name x -- \\\n      npx y\n      all of it"
        );
    }
}
