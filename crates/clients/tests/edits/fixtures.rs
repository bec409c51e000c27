//! One config of each client, as the client itself writes it: what becomes of every entry, and that it comes back to the byte.
//! guards: Every client has a config file of its own in the tests, and adopt and release work on each of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use mainstay_clients::place::{Surroundings, find};
use mainstay_clients::plan::{self, Action, Adopt, Reason, Release, Thrift};
use mainstay_clients::profile::ALL;

use crate::support::{adopted, client, file, reason, wish};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A client, its fixture, the servers that are adopted, and those that are not with the reason.
type Row = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [(&'static str, Reason)],
);

const TABLE: [Row; 22] = [
    (
        "Claude Code",
        "claude_code.json",
        &["files", "clock", "tracker", "orders-db"],
        &[("designs", Reason::MayNeedLogin)],
    ),
    (
        "Claude Desktop",
        "claude_desktop.json",
        &["files", "mail"],
        &[],
    ),
    (
        "Codex",
        "codex.toml",
        &["files", "orders db"],
        &[("tracker", Reason::RemoteEndsSessions)],
    ),
    (
        "Gemini CLI",
        "gemini.json",
        &["files", "weather"],
        &[("old", Reason::RemoteType { of: None })],
    ),
    (
        "Qwen Code",
        "qwen.json",
        &["time"],
        &[("search", Reason::RemoteEndsSessions)],
    ),
    (
        "Copilot CLI",
        "copilot.json",
        &["files", "notes"],
        &[("issues", Reason::RemoteEndsSessions)],
    ),
    (
        "VS Code",
        "vs_code.json",
        &["orders"],
        &[("docs", Reason::RemoteNotTested)],
    ),
    (
        "Cursor",
        "cursor.json",
        &["files"],
        &[
            ("playwright", Reason::CommandLine),
            ("docs", Reason::RemoteNotTested),
        ],
    ),
    (
        "Windsurf",
        "windsurf.json",
        &["github"],
        &[("figures", Reason::RemoteNotTested)],
    ),
    (
        "Zed",
        "zed.json",
        &["files", "older"],
        &[("mcp-server-postgres", Reason::NoCommand)],
    ),
    ("Cline", "cline.json", &["files", "clock", "tracker"], &[]),
    (
        "Roo Code",
        "roo.json",
        &["files", "build"],
        &[("docs", Reason::RemoteNotTested)],
    ),
    (
        "Continue",
        "continue.yaml",
        &["Files", "clock", "weather"],
        &[],
    ),
    (
        "Goose",
        "goose.yaml",
        &["files"],
        &[("tracker", Reason::RemoteNotTested)],
    ),
    (
        "opencode",
        "opencode.json",
        &["files", "clock", "tracker"],
        &[("designs", Reason::OAuth)],
    ),
    ("Kiro", "kiro.json", &["aws-docs"], &[]),
    ("Warp", "warp.json", &["files"], &[]),
    (
        "LM Studio",
        "lm_studio.json",
        &["files"],
        &[("models", Reason::RemoteNotTested)],
    ),
    (
        "Amp",
        "amp.json",
        &["files"],
        &[("docs", Reason::RemoteNotTested)],
    ),
    ("Junie", "junie.json", &["files"], &[]),
    (
        "Crush",
        "crush.json",
        &["files"],
        &[("tracker", Reason::RemoteNotTested)],
    ),
    (
        "Hermes",
        "hermes.yaml",
        &["files", "clock"],
        &[("tracker", Reason::RemoteEndsSessions)],
    ),
];

#[test]
fn every_client_has_a_fixture() {
    let mut rows: Vec<&str> = TABLE.iter().map(|(name, ..)| *name).collect();
    let with_files = ALL.iter().filter(|client| !client.config.files.is_empty());
    let mut names: Vec<&str> = with_files.map(|client| client.name).collect();
    rows.sort_unstable();
    names.sort_unstable();
    assert_eq!(rows, names);
    assert_eq!(fs::read_dir(folder()).unwrap().count(), TABLE.len());
}

#[test]
fn every_fixture_is_adopted_and_comes_back() {
    for (name, fixture, adopts, leaves) in TABLE {
        let text = fs::read_to_string(folder().join(fixture)).unwrap();
        adopted(name, &text);
        let plan = crate::support::adopt(name, text.as_bytes()).unwrap();
        for server in adopts {
            let entry = plan.entries().iter().find(|entry| entry.name == *server);
            let action = &entry.unwrap_or_else(|| panic!("{name}: {server}")).action;
            assert!(action.changes(), "{name}: {server}: {action:?}");
        }
        for (server, reason) in leaves {
            let entry = plan.entries().iter().find(|entry| entry.name == *server);
            let action = &entry.unwrap_or_else(|| panic!("{name}: {server}")).action;
            assert_eq!(*action, Action::Leave(reason.clone()), "{name}: {server}");
        }
        // Both formats with line ends of Windows, too.
        if !text.contains('\r') {
            adopted(name, &text.replace('\n', "\r\n"));
        }
    }
}

#[test]
fn gooses_own_extensions_are_left_alone() {
    let text = fs::read_to_string(folder().join("goose.yaml")).unwrap();
    let plan = crate::support::adopt("goose", text.as_bytes()).unwrap();
    let developer = &plan.entries()[0];
    assert_eq!(developer.name, "developer");
    let of = Some("builtin".into());
    assert_eq!(developer.action, Action::Leave(Reason::OtherType { of }));
    let untyped = "extensions:\n  x:\n    cmd: npx\n";
    assert_eq!(reason("goose", untyped), Reason::OtherType { of: None });
}

/// The local scope of Claude Code is in the same file, below the project's directory.
#[test]
fn claudes_local_entries_are_those_of_the_project() {
    let text = fs::read_to_string(folder().join("claude_code.json")).unwrap();
    let claude = client("claude");
    let own = file("claude");
    for (project, found) in [
        (Some("/home/ann/shop"), 1),
        (Some("/home/ann/notes"), 0),
        (Some("/elsewhere"), 0),
        (None, 1),
    ] {
        let wish = Adopt {
            project: project.map(Into::into),
            ..wish()
        };
        let plan = plan::adopt(text.as_bytes(), claude, own, &wish).unwrap();
        let entries = plan.entries().iter();
        let local: Vec<_> = entries.filter(|entry| entry.table.len() > 1).collect();
        assert_eq!(local.len(), found, "{project:?}");
        if let [entry] = local[..] {
            assert_eq!(entry.name, "orders-db");
            assert_eq!(entry.table, ["projects", "/home/ann/shop", "mcpServers"]);
            assert!(entry.action.changes());
        }
        let back = plan::release(plan.new_bytes(), claude, own, &Release::default()).unwrap();
        assert_eq!(back.new_bytes(), text.as_bytes());
    }
}

/// A running Claude Code writes the file anew, with its keys in another order and some of its own.
#[test]
fn claudes_file_is_released_after_the_client_rewrote_it() {
    let text = fs::read_to_string(folder().join("claude_code.json")).unwrap();
    let new = adopted("claude", &text);
    let mut value: serde_json::Value = serde_json::from_str(&new).unwrap();
    value["numStartups"] = 43.into();
    value["projects"]["/home/ann/other"] = serde_json::json!({ "mcpServers": {} });
    let rewritten = serde_json::to_string(&value).unwrap();
    let back = crate::support::release("claude", rewritten.as_bytes()).unwrap();
    let back: serde_json::Value = serde_json::from_slice(back.new_bytes()).unwrap();
    let old: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(back["mcpServers"], old["mcpServers"]);
    assert_eq!(back["numStartups"], 43);
    assert!(!back["projects"]["/home/ann/other"].is_null());
}

#[test]
fn thrifty_is_for_servers_without_state() {
    let text = r#"{"mcpServers":{"web":{"command":"npx","args":["@playwright/mcp"]},"time":{"command":"uvx","args":["mcp-server-time"]}}}"#;
    let thrifty = Adopt {
        thrifty: Some("10m".into()),
        ..wish()
    };
    let (claude, own) = (client("claude"), file("claude"));
    let plan = plan::adopt(text.as_bytes(), claude, own, &thrifty).unwrap();
    let actions: Vec<&Action> = plan.entries().iter().map(|entry| &entry.action).collect();
    assert_eq!(*actions[0], Action::Wrap(Thrift::KeepsState("a browser")));
    assert_eq!(*actions[1], Action::Wrap(Thrift::Thrifty));
    let new = crate::support::text(&plan);
    assert!(
        new.contains(r#"["run", "--name", "web", "--", "npx", "@playwright/mcp"]"#),
        "{new}"
    );
    assert!(
        new.contains(r#"["run", "--lazy", "--hibernate", "10m", "--name", "time", "--", "uvx", "mcp-server-time"]"#),
        "{new}"
    );
    // Without being asked, nothing that is adopted changes; asked to update, flags and program do.
    let later = Adopt {
        program: "/usr/bin/mainstay".into(),
        ..wish()
    };
    let same = plan::adopt(plan.new_bytes(), claude, own, &later).unwrap();
    assert!(!same.changes());
    let update = Adopt {
        update: true,
        ..later
    };
    let updated = plan::adopt(plan.new_bytes(), claude, own, &update).unwrap();
    let fresh = plan::adopt(text.as_bytes(), claude, own, &update).unwrap();
    assert_eq!(crate::support::text(&updated), crate::support::text(&fresh));
    let again = plan::adopt(updated.new_bytes(), claude, own, &update).unwrap();
    assert!(!again.changes());
    let back = plan::release(updated.new_bytes(), claude, own, &Release::default()).unwrap();
    assert_eq!(back.new_bytes(), text.as_bytes());
}

/// What a user has written among our words stays there, as it is written, whatever an update changes.
#[test]
fn flags_that_a_user_added_survive_an_update() {
    let update = |thrifty: Option<&str>| Adopt {
        program: "/usr/bin/mainstay".into(),
        update: true,
        thrifty: thrifty.map(ToOwned::to_owned),
        ..Adopt::default()
    };
    let json = |args: &str| {
        format!(r#"{{"mcpServers":{{"time":{{"command":"/x/mainstay","args":[{args}]}}}}}}"#)
    };
    for (old, plain, thrifty) in [
        (
            r#""run", "--watch", "src", "--name", "time", "--", "uvx", "t""#,
            r#""run", "--watch", "src", "--name", "time", "--", "uvx", "t""#,
            r#""run", "--watch", "src", "--lazy", "--hibernate", "5m", "--name", "time", "--", "uvx", "t""#,
        ),
        // Behind the name too; what `--thrifty` wrote is ours, and another time takes its place.
        (
            r#""run", "--lazy", "--hibernate", "10m", "--name", "time", "--record", "\u0061", "--", "uvx""#,
            r#""run", "--name", "time", "--record", "\u0061", "--", "uvx""#,
            r#""run", "--lazy", "--hibernate", "5m", "--name", "time", "--record", "\u0061", "--", "uvx""#,
        ),
        // A flag is not written twice, and the user's value is the one that counts.
        (
            r#""run", "--hibernate=1h", "--name", "time", "--", "uvx", "t""#,
            r#""run", "--hibernate=1h", "--name", "time", "--", "uvx", "t""#,
            r#""run", "--hibernate=1h", "--lazy", "--name", "time", "--", "uvx", "t""#,
        ),
        (
            r#""run", "--name", "mine", "--", "uvx", "t""#,
            r#""run", "--name", "mine", "--", "uvx", "t""#,
            r#""run", "--lazy", "--hibernate", "5m", "--name", "mine", "--", "uvx", "t""#,
        ),
        (
            r#""run", "--watch", "src", "--name=time", "uvx""#,
            r#""run", "--watch", "src", "--name=time", "uvx""#,
            r#""run", "--watch", "src", "--lazy", "--hibernate", "5m", "--name=time", "uvx""#,
        ),
        (
            r#""run", "--watch", "src", "--", "uvx", "t""#,
            r#""run", "--watch", "src", "--name", "time", "--", "uvx", "t""#,
            r#""run", "--watch", "src", "--lazy", "--hibernate", "5m", "--name", "time", "--", "uvx", "t""#,
        ),
        // Adopt writes no idle time for a browser, so this one is the user's.
        (
            r#""run", "--lazy", "--hibernate", "1h", "--name", "time", "--", "npx", "@playwright/mcp""#,
            r#""run", "--name", "time", "--", "npx", "@playwright/mcp""#,
            r#""run", "--lazy", "--hibernate", "1h", "--name", "time", "--", "npx", "@playwright/mcp""#,
        ),
    ] {
        let (claude, own) = (client("claude"), file("claude"));
        for (wish, new) in [(update(None), plain), (update(Some("5m")), thrifty)] {
            let old = json(old);
            let plan = plan::adopt(old.as_bytes(), claude, own, &wish).unwrap();
            let expected = json(new).replace("/x/mainstay", "/usr/bin/mainstay");
            assert_eq!(crate::support::text(&plan), expected, "{old}");
            let again = plan::adopt(plan.new_bytes(), claude, own, &wish).unwrap();
            assert!(!again.changes(), "{old}");
        }
    }
    // As written, also in YAML: quotes, numbers and lines.
    let old = "mcp_servers:\n  time:\n    command: /x/mainstay\n    args:\n    - run\n    - '--memory-max'\n    - 300\n    - --name\n    - time\n    - --\n    - uvx\n";
    let new = "mcp_servers:\n  time:\n    command: \"/usr/bin/mainstay\"\n    args:\n    - \"run\"\n    - '--memory-max'\n    - 300\n    - \"--name\"\n    - \"time\"\n    - \"--\"\n    - uvx\n";
    let (hermes, own) = (client("hermes"), file("hermes"));
    let plan = plan::adopt(old.as_bytes(), hermes, own, &update(None)).unwrap();
    assert_eq!(crate::support::text(&plan), new);
}

#[test]
fn an_update_reaches_servers_behind_a_url() {
    let old = r#"{"mcpServers":{"t":{"type":"http","url":"https://h.example/mcp","headers":{"Authorization":"Bearer x"}}}}"#;
    let adopted =
        adopted("claude", old).replace(r#""--name""#, r#""--record", "/tmp/r", "--name""#);
    let update = Adopt {
        program: "/usr/bin/mainstay".into(),
        update: true,
        thrifty: Some("5m".into()),
        ..Adopt::default()
    };
    let (claude, own) = (client("claude"), file("claude"));
    let plan = plan::adopt(adopted.as_bytes(), claude, own, &update).unwrap();
    let new = crate::support::text(&plan);
    assert!(new.contains(r#""command":"/usr/bin/mainstay""#), "{new}");
    let words = r#"["run", "--record", "/tmp/r", "--lazy", "--hibernate", "5m", "--name", "t", "--header-env", "Authorization=MAINSTAY_HEADER_1", "--url", "https://h.example/mcp"]"#;
    assert!(new.contains(words), "{new}");
    let back = plan::release(plan.new_bytes(), claude, own, &Release::default()).unwrap();
    assert_eq!(crate::support::text(&back), old);
}

#[test]
fn updates_work_in_every_format() {
    let update = Adopt {
        program: "/usr/bin/mainstay".into(),
        update: true,
        thrifty: Some("5m".into()),
        ..Adopt::default()
    };
    for (name, fixture, ..) in TABLE {
        let text = fs::read_to_string(folder().join(fixture)).unwrap();
        let old = adopted(name, &text);
        let (client, file) = (client(name), file(name));
        let updated = plan::adopt(old.as_bytes(), client, file, &update).unwrap();
        assert!(updated.changes(), "{name}");
        assert!(
            crate::support::text(&updated).contains("/usr/bin/mainstay"),
            "{name}"
        );
        let back = plan::release(updated.new_bytes(), client, file, &Release::default()).unwrap();
        assert_eq!(crate::support::text(&back), text, "{name}");
    }
}

#[test]
fn only_chosen_servers_change() {
    let text = fs::read_to_string(folder().join("cline.json")).unwrap();
    let (cline, own) = (client("cline"), file("cline"));
    let chosen = Some(["clock".to_owned()].into());
    let one = Adopt {
        servers: chosen.clone(),
        ..wish()
    };
    let plan = plan::adopt(text.as_bytes(), cline, own, &one).unwrap();
    let changed = plan.entries().iter().filter(|entry| entry.action.changes());
    assert_eq!(
        changed.map(|entry| &entry.name).collect::<Vec<_>>(),
        ["clock"]
    );
    let all = adopted("cline", &text);
    let release = Release {
        servers: chosen,
        project: None,
    };
    let plan = plan::release(all.as_bytes(), cline, own, &release).unwrap();
    let changed = plan.entries().iter().filter(|entry| entry.action.changes());
    assert_eq!(
        changed.map(|entry| &entry.name).collect::<Vec<_>>(),
        ["clock"]
    );
}

#[test]
fn servers_that_run_elsewhere_are_left_alone() {
    for (name, text, key) in [
        (
            "zed",
            r#"{"context_servers":{"a":{"command":"x","remote":true}}}"#,
            "remote",
        ),
        (
            "vscode",
            r#"{"servers":{"a":{"command":"x","sandboxEnabled":true}}}"#,
            "sandboxEnabled",
        ),
        (
            "codex",
            "[mcp_servers.a]\ncommand = 'x'\nenvironment_id = 'e'\n",
            "environment_id",
        ),
    ] {
        let why = reason(name, text);
        assert!(
            matches!(why, Reason::KeptBy { key: by, .. } if by == key),
            "{name}: {why}"
        );
        if name == "zed" {
            adopted(name, &text.replace("true", "false"));
        }
    }
}

#[test]
fn words_for_editing_by_hand_are_those_that_adopt_writes() {
    let thrifty = Adopt {
        thrifty: Some("10m".into()),
        ..wish()
    };
    let words = thrifty
        .words_before("time", &["uvx", "mcp-server-time"])
        .join(" ");
    let program = crate::support::PROGRAM;
    assert_eq!(
        words,
        format!("{program} run --lazy --hibernate 10m --name time --")
    );
    let words = thrifty
        .words_before("web", &["npx", "@playwright/mcp"])
        .join(" ");
    assert_eq!(words, format!("{program} run --name web --"));
}

#[test]
fn options_that_a_client_would_expand_are_refused() {
    let (claude, own) = (client("claude"), file("claude"));
    for bad in [
        Adopt {
            program: "/home/$USER/mainstay".into(),
            ..wish()
        },
        Adopt {
            program: "npx".into(),
            ..wish()
        },
        Adopt {
            thrifty: Some("--".into()),
            ..wish()
        },
        Adopt {
            thrifty: Some("${HOME}".into()),
            ..wish()
        },
        Adopt {
            thrifty: Some(String::new()),
            ..wish()
        },
    ] {
        assert!(plan::adopt(b"{}", claude, own, &bad).is_err(), "{bad:?}");
    }
}

/// Each fixture is found at its place in a fresh HOME.
#[test]
fn fixtures_are_found_in_a_home() {
    let home = crate::writing::scratch("fixtures");
    let around = Surroundings::new(&home, BTreeMap::new());
    for (name, fixture, ..) in TABLE {
        let path = around.places(file(name).place).remove(0);
        assert!(path.starts_with(&home), "{name}: {}", path.display());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(folder().join(fixture), &path).unwrap();
    }
    let found = find(ALL, &around);
    let with_files = ALL.iter().filter(|client| !client.config.files.is_empty());
    for client in with_files {
        let mut of = found
            .iter()
            .filter(|found| found.client.name == client.name);
        assert!(of.next().is_some(), "{}", client.name);
    }
}
