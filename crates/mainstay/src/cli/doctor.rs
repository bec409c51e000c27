//! `mainstay doctor`: looks at this machine and says what is well and what is not, each with a hint.
//!
//! It changes nothing but the state directories, which it makes if they are missing (that is the test).

mod checks;

use clap::Args;
use mainstay_core::event::Detached;
use mainstay_core::ids::{LinkId, Tag};
use mainstay_core::tier::{Tier, WhyNot};
use mainstay_os::tier::{self, Choice, Place, Wish};
use mainstay_os::{adopter, cap, identity};
use serde::Serialize;

use crate::exit::Exit;
use crate::paths::Paths;
use crate::report::Report;
use crate::view::measure::count;
use crate::view::paint::Tone;
use crate::view::printer::Printer;

/// What `doctor` was told.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mainstay doctor
  mainstay doctor --json | jq '.findings[] | select(.status == \"problem\")'

Exit code: 0 healthy (notes included), 1 a problem was found.")]
pub struct Options {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// How trees are held on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Containment {
    /// The tier that a server started now would get.
    pub tier: Tier,
    /// Why no stronger one.
    pub why_not: Vec<WhyNot>,
    /// Whether the guard would leave the client's process tree.
    pub detached: Detached,
    /// Why `--memory-max` is only measured; none if the kernel itself holds a tree to it.
    pub memory_why_not: Option<String>,
}

/// Asks the tiers, as a server started now would. None: we cannot even tell who we are.
fn containment() -> Option<Containment> {
    let tag = Tag {
        realm: identity::realm().ok()?,
        owner: identity::me().ok()?,
        link: LinkId(0),
    };
    // The floor is always there, so the strongest is never none.
    let Choice {
        tier,
        why_not,
        place,
        ..
    } = tier::choose(Wish::Strongest, &tag).ok()?;
    let memory = match place {
        Place::Cgroup(leaf) => {
            let possible = cap::possible(leaf.path());
            // Nobody ever was in it.
            leaf.remove().ok();
            possible
        }
        Place::Scope(pending) => pending.memory_cap(),
        Place::Subreaper | Place::Pidns => Err(cap::NO_LEAF.into()),
    };
    let verdict = adopter::judge(adopter::INIT);
    let detached = if verdict.reaps {
        Detached::Yes
    } else {
        Detached::No { why: verdict.why }
    };
    Some(Containment {
        tier,
        why_not,
        detached,
        memory_why_not: memory.err(),
    })
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Something to mend.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in one word.
    pub check: &'static str,
    /// How it is.
    pub status: Status,
    /// What was seen.
    pub what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Where things are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Places {
    /// Everything that mainstay writes.
    pub state: String,
    /// The event files.
    pub events: String,
    /// One directory per link.
    pub run: String,
    /// One file per configuration.
    pub record: String,
    /// The config file; none if HOME is not ours.
    pub config: Option<String>,
}

/// The whole visit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether there is no problem.
    pub healthy: bool,
    /// This program.
    pub version: &'static str,
    /// Where things are.
    pub paths: Places,
    /// How trees are held, if this build can tell.
    pub containment: Option<Containment>,
    /// What was looked at.
    pub findings: Vec<Finding>,
}

/// Looks around.
pub fn doctor(options: &Options) -> Result<Exit, Report> {
    let paths = Paths::find()?;
    let health = examine(&paths);
    let mut printer = Printer::new();
    if options.json {
        printer.json(&health)?;
    } else {
        let text = render(&health, printer.colour());
        printer.text(&text)?;
    }
    Ok(if health.healthy {
        Exit::Ok
    } else {
        Exit::Unhealthy
    })
}

fn examine(paths: &Paths) -> Health {
    let containment = containment();
    let mut findings = checks::containment(containment.as_ref());
    findings.extend(checks::namespace());
    findings.extend(checks::inotify());
    findings.extend(checks::paths(paths));
    findings.push(checks::config(paths));
    findings.extend(checks::links(paths));
    findings.push(checks::strays(paths));
    findings.push(checks::ledger(paths));
    findings.push(checks::record(paths));
    findings.push(checks::debts(paths));
    Health {
        healthy: findings
            .iter()
            .all(|finding| finding.status != Status::Problem),
        version: env!("CARGO_PKG_VERSION"),
        paths: Places {
            state: paths.state().display(),
            events: paths.events().display(),
            run: paths.run().display(),
            record: paths.record().display(),
            config: paths.config_file().map(|file| file.display().to_string()),
        },
        containment,
        findings,
    }
}

fn render(health: &Health, colour: bool) -> String {
    let mut lines = Vec::new();
    let wide = |finding: &Finding| finding.check.len();
    let width = health.findings.iter().map(wide).max().unwrap_or(0);
    let mut problems = 0;
    for finding in &health.findings {
        let (word, tone) = match finding.status {
            Status::Ok => ("ok", Tone::Good),
            Status::Note => ("note", Tone::Warn),
            Status::Problem => ("problem", Tone::Bad),
        };
        problems += usize::from(finding.status == Status::Problem);
        let word = tone.paint(&format!("{word:<7}"), colour);
        let (check, what) = (finding.check, &finding.what);
        lines.push(format!("{word}  {check:<width$}  {what}"));
        if let Some(hint) = &finding.hint {
            let indent = " ".repeat(7 + 2 + width + 2);
            lines.push(Tone::Faint.paint(&format!("{indent}hint: {hint}"), colour));
        }
    }
    lines.push(match problems {
        0 => "healthy".into(),
        _ => count(problems, "problem"),
    });
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_in_words() {
        let finding = |check, status, hint: Option<&str>| Finding {
            check,
            status,
            what: "so it is".into(),
            hint: hint.map(Into::into),
        };
        let health = Health {
            healthy: false,
            version: "0",
            paths: Places {
                state: String::new(),
                events: String::new(),
                run: String::new(),
                record: String::new(),
                config: None,
            },
            containment: None,
            findings: vec![
                finding("tier", Status::Ok, None),
                finding("leftovers", Status::Problem, Some("do this")),
            ],
        };
        assert_eq!(
            render(&health, false),
            "\
ok       tier       so it is
problem  leftovers  so it is
                    hint: do this
1 problem
"
        );
    }
}
