//! The page: machine, targets, then every section.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;

use mainstay_os::clock;

use crate::machine;
use crate::place::Programs;
use crate::section::{Block, Part};
use crate::stats::mb;
use crate::table::Table;

/// The path of the page.
pub const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.md");

pub fn render(
    programs: &Programs,
    words: &[OsString],
    load_before: &str,
    parts: &[Part],
) -> io::Result<String> {
    let mut text = String::from("# Benchmarks\n\n");
    text.push_str(
        "Measured side by side in one run; compare rows and ratios, not machines. This page is written by\n\
         `cargo build --release -p mainstay && cargo run --release -p mainstay-bench`; every figure is from that one run.\n\n",
    );
    text.push_str(&circumstances(programs, words, load_before)?.render());
    text.push_str("\n## Targets\n\n");
    text.push_str(&targets(parts).render());
    for part in parts {
        write!(text, "\n## {}\n", part.title).map_err(io::Error::other)?;
        for block in &part.blocks {
            text.push('\n');
            match block {
                Block::Text(paragraph) => {
                    text.push_str(paragraph);
                    text.push('\n');
                }
                Block::Table(table) => text.push_str(&table.render()),
            }
        }
    }
    Ok(text)
}

fn circumstances(programs: &Programs, words: &[OsString], before: &str) -> io::Result<Table> {
    let mut table = Table::new(2, &["what", "here"]);
    let size = std::fs::metadata(&programs.mainstay)?.len() / 1_024;
    let mut command = String::from("mainstay-bench");
    for word in words {
        command.push(' ');
        command.push_str(&word.to_string_lossy());
    }
    table.row(["date".into(), machine::date(clock::wall_ms())]);
    table.row(["command".into(), format!("`{command}`")]);
    table.row([
        "CPU".into(),
        format!("{}, {} cores", machine::cpu(), machine::cores()),
    ]);
    table.row(["kernel".into(), machine::kernel()]);
    table.row(["processor time is shared", machine::autogroup()]);
    table.row([
        "load average before, after".into(),
        format!("{before}, {}", machine::load()),
    ]);
    table.row([
        "size of the mainstay binary".into(),
        format!("{} MB", mb(size)),
    ]);
    Ok(table)
}

fn targets(parts: &[Part]) -> Table {
    let mut table = Table::new(4, &["what", "target", "measured", "met"]);
    for target in parts.iter().flat_map(|part| &part.targets) {
        table.row([
            target.what,
            target.aim,
            &target.measured,
            if target.met { "met" } else { "**not met**" },
        ]);
    }
    table
}
