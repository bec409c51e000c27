//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::section::{self, Section};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Enough for a figure.
    Full,
    /// Enough to see that it works.
    Quick,
}

impl Effort {
    /// The number for this effort.
    pub fn pick(self, full: usize, quick: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

pub enum Asked {
    /// A measurement.
    Measure(Args),
    /// This text.
    Help(String),
}

#[derive(Debug, Default)]
pub struct Args {
    /// Checks that it works and prints. Writes no page.
    pub quick: bool,
    /// Only these sections. Prints and writes no page.
    pub only: Vec<String>,
    /// Another build of mainstay, measured beside the one next to us. Prints and writes no page.
    pub old: Option<PathBuf>,
}

impl Args {
    /// Reads the words after the program name.
    pub fn parse(words: &[OsString]) -> Result<Asked, String> {
        let mut args = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_string_lossy().as_ref() {
                "--quick" => args.quick = true,
                "--old" => {
                    let path = words.next().ok_or("--old needs a program")?;
                    args.old = Some(path.into());
                }
                "--only" => match words.next().map(|name| name.to_string_lossy()) {
                    Some(name) if section::ALL.iter().any(|section| section.name == name) => {
                        args.only.push(name.into_owned());
                    }
                    Some(name) => return Err(format!("no section is called {name}; {}", names())),
                    None => return Err(format!("--only needs a section; {}", names())),
                },
                "--help" | "-h" => return Ok(Asked::Help(help())),
                other => return Err(format!("unknown argument {other}; see --help")),
            }
        }
        Ok(Asked::Measure(args))
    }

    pub fn effort(&self) -> Effort {
        if self.quick {
            Effort::Quick
        } else {
            Effort::Full
        }
    }

    /// Whether the page is written.
    pub fn writes(&self) -> bool {
        !self.quick && self.only.is_empty() && self.old.is_none()
    }

    /// The sections to measure, in order.
    pub fn sections(&self) -> impl Iterator<Item = &'static Section> {
        section::ALL.iter().filter(|section| {
            self.only.is_empty() || self.only.iter().any(|name| name == section.name)
        })
    }
}

fn names() -> String {
    let names: Vec<&str> = section::ALL.iter().map(|section| section.name).collect();
    format!("there are {}", names.join(", "))
}

fn help() -> String {
    format!(
        "Measures `mainstay run` against a bare server and `cat | server | cat`.\n\n\
         cargo build --release -p mainstay && cargo run --release -p mainstay-bench\n\n\
         Without options everything is measured and docs/benchmarks.md is written (some minutes).\n\n\
         --quick         see that everything works (some seconds); prints, writes nothing\n\
         --only SECTION  measure this section only (repeatable); prints, writes nothing\n\
         --old PROGRAM   another build of mainstay, measured in turn with this one in data, start, memory,\n\
         \x20               bridges (serve and run --url, without other bridges) and scan; prints, writes nothing\n\n\
         Sections: {}.\n",
        names()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        match Args::parse(&words)? {
            Asked::Measure(args) => Ok(args),
            Asked::Help(text) => Err(text),
        }
    }

    #[test]
    fn only_a_whole_run_writes_the_page() {
        assert!(parse("").unwrap().writes());
        assert!(!parse("--quick").unwrap().writes());
        assert!(!parse("--old target/other").unwrap().writes());
        let one = parse("--only memory").unwrap();
        assert!(!one.writes());
        assert_eq!(one.sections().count(), 1);
    }

    #[test]
    fn mistakes_are_reported() {
        for line in ["--fast", "--only", "--only nothing", "--old"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
