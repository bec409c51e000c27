//! Writes the reference pages from the tables that the program itself uses. Only in tests.
//!
//! `MAINSTAY_BLESS=1 cargo test -p mainstay reference` writes them; without it the test compares.

#![expect(clippy::format_push_string, reason = "a page is built once, in a test")]

use std::fs;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory};
use mainstay_http_core::serve::limits as serve;
use mainstay_protocol::limits::{self, Limit, TABLE};
use mainstay_protocol::time;
use serde_json::Value;

mod config;
mod fixed;
mod packaging;
mod views;

use mainstay_report::exit;
use mainstay_report::states::STATES;
use mainstay_store::config::{file, quantity};

use crate::cli::Cli;
use fixed::fixed;
use mainstay_report::happening::Happening;
use mainstay_report::samples;

const HEAD: &str = "<!-- Generated: `MAINSTAY_BLESS=1 cargo test -p mainstay reference`. -->\n\n";

#[test]
fn reference_page_of_options_is_up_to_date() {
    let mut page = String::from("# Commands and options\n");
    let mut cli = Cli::command();
    cli.build();
    page += "\n## Every command\n\n| option | what it does |\n|---|---|\n";
    for arg in cli.get_arguments().filter(|arg| arg.is_global_set()) {
        page += &option_row(arg);
    }
    for verb in cli.get_subcommands() {
        if verb.is_hide_set() || verb.get_name() == "help" {
            continue;
        }
        page += &verb_section(verb, "");
        let name = format!("{} ", verb.get_name());
        for below in verb.get_subcommands() {
            if below.get_name() != "help" {
                page += &verb_section(below, &name);
            }
        }
    }
    page += "\n## Limits\n\nEach is an option of `run` and, with `_` for `-`, a key of the config file.\n\n";
    page += &limits(&TABLE);
    page += "\n## Limits of `serve`\n\nEach is an option of `serve` and, with `_` for `-`, a key of `[serve]` in the config file.\n\n";
    page += &limits(&serve::TABLE);
    page += "\n## Fixed limits\n\n| what | how much |\n|---|---|\n";
    for (what, how_much) in fixed() {
        page += &format!("| {what} | {how_much} |\n");
    }
    compare("options.md", &page);
}

fn limits<L>(table: &[Limit<L>]) -> String {
    let mut rows =
        "| option | config key | default | from | to | what it is |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for limit in table {
        let show = |value| quantity::show(limit.unit, value);
        rows += &format!(
            "| `--{}` | `{}` | {} | {} | {} | {} |\n",
            limit.name,
            file::key(limit),
            show(limit.default),
            show(limit.min),
            show(limit.max),
            limit.help
        );
    }
    rows
}

fn verb_section(verb: &Command, before: &str) -> String {
    let about = verb
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut section = format!("\n## mainstay {before}{}\n\n{about}.\n", verb.get_name());
    let args: Vec<&Arg> = verb
        .get_arguments()
        .filter(|arg| arg.get_id() != "help" && !arg.is_hide_set() && !arg.is_global_set())
        .filter(|arg| {
            !arg.get_help_heading()
                .is_some_and(|head| head.starts_with("Limits"))
        })
        .collect();
    if !args.is_empty() {
        section += "\n| option | what it does |\n|---|---|\n";
    }
    for arg in args {
        section += &option_row(arg);
    }
    if let Some(examples) = verb.get_after_help() {
        section += &format!("\n```\n{examples}\n```\n");
    }
    section
}

fn option_row(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    format!("| `{}` | {help} |\n", written(arg))
}

fn written(arg: &Arg) -> String {
    let value: String = arg
        .get_value_names()
        .filter(|_| arg.get_action().takes_values())
        .map(|names| format!(" {}", names.join(" ")))
        .unwrap_or_default();
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}{value}"),
        (None, Some(long)) => format!("--{long}{value}"),
        (Some(short), None) => format!("-{short}{value}"),
        (None, None) => value.trim().replace('|', "\\|"),
    }
}

#[test]
fn reference_page_of_exit_codes_is_up_to_date() {
    let mut page = String::from(
        "# Exit codes\n\n`run` exits as the server did. The other commands use the low codes.\n\n\
         | code | commands | meaning |\n|---|---|---|\n",
    );
    for row in &exit::TABLE {
        page += &format!("| {} | {} | {} |\n", row.code, row.commands, row.meaning);
    }
    compare("exit-codes.md", &page);
}

#[test]
fn reference_page_of_the_config_file_is_up_to_date() {
    compare("config.md", &config::page());
}

#[test]
fn schema_of_the_config_file_is_up_to_date() {
    let schema = serde_json::to_string_pretty(&config::schema()).unwrap();
    compare_text("config.schema.json", &format!("{schema}\n"));
}

#[test]
fn reference_page_of_events_is_up_to_date() {
    let mut page = String::from(
        "# Events\n\n`~/.local/state/mainstay/events/YYYY-MM-DD.jsonl` (UTC), one event per line, at most 64 KiB; a day that \
         grows beyond 16 MiB goes on in `YYYY-MM-DD.1.jsonl`. Fields are only ever added: ignore fields that you do not know. Some kinds had another name in earlier versions: every command reads both names and prints the current one. An incomplete \
         line is normal after a power cut. A line that would be too long is cut inside its fields and then has a field \
         `cut` with its whole length.\n\nEvery event has `v` (format version, 1), `at` (RFC 3339, UTC), `id` (the link), `server` (its name) and \
         `event` (the kind).\n",
    );
    let (samples, kinds) = (samples::all(), views::events());
    assert_eq!(samples.len(), kinds.len(), "samples / kinds of events");
    for what in samples {
        let word = what.name();
        let kind = kinds.iter().find(|kind| kind.word == word).unwrap();
        let event = samples::event(what);
        let shown = Happening::of(&event, time::utc).word;
        let line = serde_json::to_string(&event).unwrap();
        let Value::Object(written) = serde_json::to_value(&event).unwrap() else {
            panic!("an event is an object")
        };
        assert_eq!(written["event"], word);
        let old = kind.old.as_ref().map_or_else(String::new, |old| {
            format!(" Earlier versions wrote `{old}`.")
        });
        page += &format!(
            "\n## {word}\n\n{}{old} `mainstay events` calls it \"{shown}\".\n\n| field | what it is |\n|---|---|\n",
            kind.meaning
        );
        for field in &kind.fields {
            let name = &field.name;
            assert!(
                field.seldom || written.contains_key(name),
                "{word} has no field {name}"
            );
            page += &format!("| `{name}` | {} |\n", field.about);
        }
        for field in written.keys() {
            let common = ["v", "at", "id", "server", "event"].contains(&field.as_str());
            let documented = kind.fields.iter().any(|known| known.name == *field);
            assert!(common || documented, "{word}.{field} is not documented");
        }
        page += &format!("\n```json\n{line}\n```\n");
    }
    compare("events.md", &page);
}

#[test]
fn reference_page_of_states_is_up_to_date() {
    let mut page = String::from(
        "# States\n\nThe states of a server in `mainstay ps`, in the order of its life. In JSON it is the field `state`; a newer mainstay may have more.\n\n\
         | state | meaning |\n|---|---|\n",
    );
    for state in STATES {
        page += &format!("| `{}` | {} |\n", state.word, state.meaning);
    }
    compare("states.md", &page);
}

/// The words are in two functions of `core`; `ps` adds two.
#[test]
fn every_state_of_a_link_is_listed() {
    let mut words = vec!["dead".to_owned(), "elsewhere".to_owned()];
    for file in ["state.rs", "up.rs"] {
        let path = format!("../core/src/link/{file}");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
        let source = fs::read_to_string(source).unwrap();
        let (_, function) = source.split_once("    pub fn word(").unwrap();
        let (function, _) = function.split_once("\n    }\n").unwrap();
        words.extend(function.split('"').skip(1).step_by(2).map(Into::into));
    }
    assert!(words.len() > 10, "{words:?}");
    for state in STATES {
        assert!(
            words.iter().any(|word| word == state.word),
            "{}",
            state.word
        );
    }
    for word in words {
        assert!(STATES.iter().any(|state| state.word == word), "{word}");
    }
}

#[test]
fn reference_page_of_json_is_up_to_date() {
    compare("json.md", &views::page());
}

fn size(bytes: u64) -> String {
    quantity::show(limits::Unit::Size, bytes)
}

fn compare(name: &str, page: &str) {
    compare_text(name, &format!("{HEAD}{page}"));
}

fn compare_text(name: &str, page: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference")
        .join(name);
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/reference/{name} is not up to date: MAINSTAY_BLESS=1 cargo test -p mainstay reference"
    );
}
