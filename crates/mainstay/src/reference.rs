//! The reference pages, rendered from the tables that the program itself uses. Only in tests.
//!
//! `MAINSTAY_BLESS=1 cargo test -p mainstay reference` writes them; without it the test compares.

#![expect(
    clippy::format_push_string,
    reason = "a page is pushed together; nobody waits for it"
)]

use std::fs;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory};
use mainstay_core::limits::{self, Limit, TABLE};
use mainstay_core::policy::Retry;
use mainstay_core::serve::limits as serve;
use mainstay_core::tier::Tier;
use serde_json::Value;

mod fields;
mod fixed;
mod views;

use crate::cli::Cli;
use crate::config::{file, quantity};
use crate::{exit, samples};
use fields::FIELDS;
use fixed::fixed;

const HEAD: &str = "<!-- Generated: `MAINSTAY_BLESS=1 cargo test -p mainstay reference`. -->\n\n";

#[test]
fn options_page() {
    let mut page = String::from("# Commands and options\n");
    let mut cli = Cli::command();
    cli.build();
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
        .filter(|arg| arg.get_id() != "help" && !arg.is_hide_set())
        .filter(|arg| {
            !arg.get_help_heading()
                .is_some_and(|head| head.starts_with("Limits"))
        })
        .collect();
    if !args.is_empty() {
        section += "\n| option | what it does |\n|---|---|\n";
    }
    for arg in args {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        section += &format!("| `{}` | {help} |\n", written(arg));
    }
    if let Some(examples) = verb.get_after_help() {
        section += &format!("\n```\n{examples}\n```\n");
    }
    section
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
fn exit_codes_page() {
    let mut page = String::from(
        "# Exit codes\n\n`run` is transparent: it ends as the server ended. The other commands use the low codes.\n\n\
         | code | commands | meaning |\n|---|---|---|\n",
    );
    for row in &exit::TABLE {
        page += &format!("| {} | {} | {} |\n", row.code, row.commands, row.meaning);
    }
    compare("exit-codes.md", &page);
}

#[test]
fn config_page() {
    let mut page = String::from(
        "# Config file\n\n`~/.config/mainstay/config.toml`; it need not exist. `XDG_*` variables are not read: clients pass six \
         variables only, and everybody must see the same file.\n\nWhat counts: option, then `[server.NAME]`, then \
         `[defaults]`, then what is built in. An unknown key or a wrong unit is an error that names the line; for `run` it is a warning if it stands in `[serve]`, in `[events]` or in the table of another server.\n\n\
         ```toml\n[defaults]\ngrace_eof = \"3s\"\n\n[server.playwright]\ncommand = \"npx\"          # so that `mainstay run --name \
         playwright` is enough\nargs = [\"-y\", \"@playwright/mcp\"]\nenv = { DEBUG = \"pw:mcp\" }\ncwd = \"~/work\"\n\
         require_tier = \"cgroup\"\n```\n\n| key | where | value | built in | what it is |\n|---|---|---|---|---|\n",
    );
    let form = |unit| match unit {
        limits::Unit::Time => "time (`1500ms`, `2s`, `5m`, `1h`)",
        limits::Unit::Size => "size (`8192`, `8KiB`, `16MiB`)",
        limits::Unit::Count => "number",
    };
    for limit in &TABLE {
        page += &format!(
            "| `{}` | both | {} | {} | {} |\n",
            file::key(limit),
            form(limit.unit),
            quantity::show(limit.unit, limit.default),
            limit.help
        );
    }
    let words: Vec<&str> = Tier::ALL.iter().map(|tier| tier.word()).collect();
    let tiers = words.join(", ");
    let ways = Retry::ALL.map(Retry::word).join(", ");
    for (key, place, form, default, help) in [
        (
            "tier",
            "both",
            tiers.as_str(),
            "the strongest",
            "Hold the tree this way",
        ),
        (
            "require_tier",
            "both",
            tiers.as_str(),
            "none",
            "Do not start the server at all unless its tree is held at least this strongly",
        ),
        (
            "retry",
            "both",
            ways.as_str(),
            Retry::default().word(),
            "What is sent again if the server dies in the middle: nothing, what is safe by the protocol, or also calls of tools annotated as read-only or idempotent",
        ),
        (
            "lazy",
            "both",
            "true or false",
            "false",
            "Do not start the server before it is needed",
        ),
        (
            "advertise_list_changed",
            "both",
            "true or false",
            "false",
            "Tell the client of changed lists after a restart, also where the server did not say that it would",
        ),
        (
            "watch",
            "both",
            "list of paths, relative to the server's directory, or `~/…`",
            "none",
            "Restart the server between two requests when one of these files or directories changes",
        ),
        (
            "record",
            "both",
            "true or false",
            "true",
            "Remember how the server opens, and use what is remembered",
        ),
        (
            "record_file",
            "both",
            "absolute path, or `~/…`",
            "none",
            "Write every frame of each session to the end of this file, secrets hidden",
        ),
        (
            "record_secrets",
            "both",
            "true or false",
            "false",
            "Do not hide secrets there",
        ),
        ("command", "server", "text", "", "The server command"),
        ("args", "server", "list of texts", "", "Its arguments"),
        (
            "env",
            "server",
            "table of texts",
            "",
            "Variables added to its environment",
        ),
        (
            "cwd",
            "server",
            "absolute path, or `~/…`",
            "the client's",
            "The directory it runs in",
        ),
        (
            "url",
            "server",
            "text",
            "",
            "The URL of a streamable-HTTP server, instead of a command",
        ),
        (
            "headers",
            "server",
            "table of texts",
            "",
            "Headers that are sent to that URL; they are never logged",
        ),
        (
            "header_env",
            "server",
            "table of texts",
            "",
            "The same, with the name of a variable as each value: `Authorization = \"MY_TOKEN\"`",
        ),
        (
            "share",
            "server",
            "true or false",
            "false",
            "Let all sessions of `serve` have one server, also those up to protocol 2025-11-25; it cannot ask its clients anything",
        ),
    ] {
        assert!(file::COMMON.contains(&key) || file::SERVER.contains(&key));
        page += &format!("| `{key}` | {place} | {form} | {default} | {help} |\n");
    }
    page += "\n## `[events]`\n\nFor all servers together, since they share the [event files](events.md); kept by whoever writes the first event of a day. As long as the \
             config file has a mistake, nothing is removed.\n\n| key | value | built in | what it is |\n|---|---|---|---|\n";
    for limit in &limits::EVENTS {
        page += &format!(
            "| `{}` | {} | {} | {} |\n",
            file::key(limit),
            form(limit.unit),
            quantity::show(limit.unit, limit.default),
            limit.help
        );
    }
    page += "\n## `[serve]`\n\nFor `mainstay serve`; options count before these. Its limits are on the page of [options](options.md#limits-of-serve).\n\n\
             | key | value | built in | what it is |\n|---|---|---|---|\n";
    for (key, form, default, help) in [
        (
            "listen",
            "address with port",
            "127.0.0.1:8808",
            "Where to listen",
        ),
        (
            "token_file",
            "path, or `~/…`",
            "none",
            "The file with the token that clients must bear",
        ),
        (
            "allow_host",
            "list of texts",
            "none",
            "Names that clients may call us by, beside localhost",
        ),
        (
            "allow_origin",
            "list of texts",
            "none",
            "Web sites whose pages may call us",
        ),
        (
            "allow_user",
            "list of ids or texts",
            "none",
            "Users of this machine who may use us without a token, beside you and root; `any` for everybody",
        ),
    ] {
        assert!(file::SERVE.contains(&key));
        page += &format!("| `{key}` | {form} | {default} | {help} |\n");
    }
    page += "\n## Tiers, weakest first\n\n";
    for tier in Tier::ALL {
        page += &format!("- `{tier}`: {}\n", tier.promise());
    }
    compare("config.md", &page);
}

#[test]
fn events_page() {
    let mut page = String::from(
        "# Events\n\n`~/.local/state/mainstay/events/YYYY-MM-DD.jsonl` (UTC), one event per line, at most 64 KiB; a day that \
         grows beyond 16 MiB goes on in `YYYY-MM-DD.1.jsonl`. Fields are only ever added: ignore what you do not know. A torn \
         line is normal after a power cut. A line that would be too long is cut inside its fields and then has a field \
         `cut` with its whole length.\n\nEvery event has `v` (format version, 1), `at` (RFC 3339, UTC), `id` (the link), `server` (its name) and \
         `event` (the kind).\n",
    );
    let samples = samples::all();
    assert_eq!(samples.len(), FIELDS.len());
    for (what, (title, fields)) in samples.into_iter().zip(FIELDS) {
        let (word, meaning) = title.split_once(": ").unwrap();
        assert_eq!(word, what.word());
        let event = samples::event(what);
        let line = serde_json::to_string(&event).unwrap();
        let Value::Object(written) = serde_json::to_value(&event).unwrap() else {
            panic!("an event is an object")
        };
        page +=
            &format!("\n## {word}\n\nMeaning: {meaning}.\n\n| field | what it is |\n|---|---|\n");
        for (field, help) in *fields {
            assert!(written.contains_key(*field), "{word} has no field {field}");
            page += &format!("| `{field}` | {help} |\n");
        }
        for field in written.keys() {
            let common = ["v", "at", "id", "server", "event"].contains(&field.as_str());
            let told = fields.iter().any(|(name, _)| name == field);
            assert!(common || told, "{word}.{field} is not told");
        }
        page += &format!("\n```json\n{line}\n```\n");
    }
    compare("events.md", &page);
}

#[test]
fn json_page() {
    compare("json.md", &views::page());
}

fn size(bytes: u64) -> String {
    quantity::show(limits::Unit::Size, bytes)
}

fn compare(name: &str, page: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference")
        .join(name);
    let page = format!("{HEAD}{page}");
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/reference/{name} is not up to date: MAINSTAY_BLESS=1 cargo test -p mainstay reference"
    );
}
