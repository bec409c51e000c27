//! `mainstay -V` and `mainstay --version`: which build this is.

use std::ffi::OsString;
use std::fmt;
use std::sync::LazyLock;

use mainstay_report::printer::Printer;
use mainstay_report::{Exit, Report};
use serde::Serialize;

/// The version alone, for `-V`.
pub const SHORT: &str = env!("CARGO_PKG_VERSION");

/// Which build this is. What the build did not know is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Build {
    /// The version.
    pub version: &'static str,
    /// The commit that a release was built from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<&'static str>,
    /// The date of that commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<&'static str>,
    /// The platform that it was built for.
    pub target: &'static str,
}

/// This build.
pub const BUILD: Build = Build {
    version: SHORT,
    commit: option_env!("MAINSTAY_COMMIT"),
    date: option_env!("MAINSTAY_DATE"),
    target: env!("MAINSTAY_TARGET"),
};

/// The same as one line, for `--version`.
pub static LONG: LazyLock<String> = LazyLock::new(|| BUILD.to_string());

impl fmt::Display for Build {
    /// `0.1.0 (4f2d1c09ab 2026-11-18, x86_64-unknown-linux-gnu)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.version)?;
        match (self.commit, self.date) {
            (Some(commit), Some(date)) => write!(f, "{commit} {date}, ")?,
            (Some(known), None) | (None, Some(known)) => write!(f, "{known}, ")?,
            (None, None) => {}
        }
        write!(f, "{})", self.target)
    }
}

/// Whether the arguments are `--version --json`, in either order.
pub fn is_asked_as_json(words: &[OsString]) -> bool {
    match words {
        [one, other] => {
            let is_version = |word: &OsString| word == "--version" || word == "-V";
            is_version(one) && other == "--json" || one == "--json" && is_version(other)
        }
        _ => false,
    }
}

/// Prints the build as JSON.
pub fn print_json() -> Result<Exit, Report> {
    Printer::new().json(&BUILD)?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_are_left_out() {
        let all = Build {
            version: "1.2.3",
            commit: Some("4f2d1c09ab"),
            date: Some("2026-11-18"),
            target: "x86_64-unknown-linux-gnu",
        };
        assert_eq!(
            all.to_string(),
            "1.2.3 (4f2d1c09ab 2026-11-18, x86_64-unknown-linux-gnu)"
        );
        let packaged = Build { date: None, ..all };
        assert_eq!(
            packaged.to_string(),
            "1.2.3 (4f2d1c09ab, x86_64-unknown-linux-gnu)"
        );
        let tarball = Build {
            commit: None,
            ..packaged
        };
        assert_eq!(tarball.to_string(), "1.2.3 (x86_64-unknown-linux-gnu)");
        assert_eq!(
            serde_json::to_string(&tarball).unwrap(),
            r#"{"version":"1.2.3","target":"x86_64-unknown-linux-gnu"}"#
        );
    }
}
