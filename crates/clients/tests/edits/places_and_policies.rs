//! Where files are looked for, and which rules keep an edit away.
//! guards: Config files are found where the client itself looks, and an entry that an allow-list names is not changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mainstay_clients::place::{FoundConfig, Surroundings, System, find, policy};
use mainstay_clients::plan::{self, Action, Adopt, Reason};
use mainstay_clients::profile::{ALL, Scope};

use crate::support::{client, file, wish};
use crate::writing::scratch;

fn put(path: impl AsRef<Path>, text: &str) -> PathBuf {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    path.to_owned()
}

fn around(home: &Path) -> Surroundings {
    Surroundings {
        root: Some(home.join("root")),
        project: Some(home.join("work/shop")),
        ..Surroundings::new(home, BTreeMap::new())
    }
}

fn paths(found: &[FoundConfig]) -> Vec<(String, PathBuf)> {
    let pair = |found: &FoundConfig| (found.client.name.to_owned(), found.path.clone());
    found.iter().map(pair).collect()
}

#[test]
fn variables_move_files() {
    let home = scratch("variables");
    let mut around = around(&home);
    let first = |around: &Surroundings, name: &str| around.places(file(name).place).remove(0);
    assert_eq!(first(&around, "claude"), home.join(".claude.json"));
    assert_eq!(first(&around, "codex"), home.join(".codex/config.toml"));
    assert_eq!(
        first(&around, "zed"),
        home.join(".config/zed/settings.json")
    );
    for (variable, value) in [
        ("CLAUDE_CONFIG_DIR", "/x/claude"),
        ("CODEX_HOME", "/x/codex"),
        ("XDG_CONFIG_HOME", "/x/config"),
        ("COPILOT_HOME", "relative"),
    ] {
        around.variables.insert(variable.into(), value.into());
    }
    assert_eq!(
        first(&around, "claude"),
        Path::new("/x/claude/.claude.json")
    );
    assert_eq!(first(&around, "codex"), Path::new("/x/codex/config.toml"));
    assert_eq!(
        first(&around, "zed"),
        Path::new("/x/config/zed/settings.json")
    );
    assert_eq!(
        first(&around, "copilot"),
        home.join(".copilot/mcp-config.json")
    );
    around.system = System::MacOs;
    let desktop = home.join("Library/Application Support/Claude/claude_desktop_config.json");
    assert_eq!(first(&around, "claude-desktop"), desktop);
}

#[test]
fn user_and_project_files_are_found_once() {
    let home = scratch("scopes");
    let around = around(&home);
    let own = put(home.join(".claude.json"), "{}");
    let shared = put(home.join("work/shop/.mcp.json"), "{}");
    let found = find(&[client("claude")], &around);
    let scopes: Vec<_> = found
        .iter()
        .map(|found| (found.file.scope, found.path.clone()))
        .collect();
    let wanted = [(Scope::User, own), (Scope::Project, shared.clone())];
    assert_eq!(scopes, wanted);
    // Three clients read the project's file: it is given once, and says so.
    let all = find(ALL, &around);
    let mut of_shared = all.iter().filter(|found| found.path == shared);
    let one = of_shared.next().unwrap();
    assert!(of_shared.next().is_none());
    let names: Vec<_> = one.also_read_by.iter().map(|client| client.name).collect();
    assert_eq!(names, ["Copilot CLI", "Qwen Code"]);
}

#[test]
fn folders_profiles_and_parents_are_searched() {
    let home = scratch("folders");
    let around = around(&home);
    let one = put(home.join(".continue/mcpServers/a.yaml"), "");
    let two = put(home.join("work/shop/.continue/mcpServers/b.json"), "{}");
    put(home.join(".continue/mcpServers/readme.md"), "");
    let found = paths(&find(&[client("continue")], &around));
    assert_eq!(
        found,
        [("Continue".to_owned(), one), ("Continue".to_owned(), two)]
    );
    let profile = put(home.join(".config/Code/User/profiles/p1/mcp.json"), "{}");
    let found = paths(&find(&[client("vscode")], &around));
    assert_eq!(found, [("VS Code".to_owned(), profile)]);
    // Up to the root of the repository and not beyond it.
    let above = put(home.join("work/.amp/settings.json"), "{}");
    let found = paths(&find(&[client("amp")], &around));
    assert_eq!(found, [("Amp".to_owned(), above)]);
    fs::create_dir_all(home.join("work/shop/.git")).unwrap();
    assert!(find(&[client("amp")], &around).is_empty());
}

#[test]
fn scripts_and_managed_files_are_never_edited() {
    let home = scratch("never");
    let around = around(&home);
    put(home.join("work/shop/crushrc"), "mcp x\n");
    put(
        home.join("root/etc/codex/config.toml"),
        "[mcp_servers.a]\ncommand = 'x'\n",
    );
    let found = find(ALL, &around);
    assert_eq!(found.len(), 2);
    for found in &found {
        let bytes = fs::read(&found.path).unwrap();
        let refused = plan::adopt(&bytes, found.client, found.file, &wish()).unwrap_err();
        assert!(refused.to_string().contains("never edited"), "{refused}");
    }
}

const CLAUDE: &str = r#"{"mcpServers":{"a":{"command":"npx","args":["x"]},"b":{"type":"http","url":"http://localhost/"}}}"#;

/// What happens to `a` and `b` under the policy that is found.
fn verdicts(around: &Surroundings) -> (Action, Action) {
    let found = find(&[client("claude")], around).remove(0);
    let wish = Adopt {
        policy: policy(&found, around),
        ..wish()
    };
    let bytes = fs::read(&found.path).unwrap();
    let plan = plan::adopt(&bytes, found.client, found.file, &wish).unwrap();
    let action = |place: usize| plan.entries()[place].action.clone();
    (action(0), action(1))
}

#[test]
fn lists_that_name_commands_keep_entries_as_they_are() {
    let home = scratch("lists");
    let around = around(&home);
    put(home.join(".claude.json"), CLAUDE);
    let (a, b) = verdicts(&around);
    assert!(a.changes() && b.changes());
    let managed = home.join("root/etc/claude-code/managed-settings.json");
    let allow = |file: &Path| Action::Leave(Reason::AllowList { file: file.into() });
    let deny = |file: &Path| Action::Leave(Reason::DenyList { file: file.into() });

    put(&managed, r#"{"allowedMcpServers":[{"serverName":"a"}]}"#);
    let (a, b) = verdicts(&around);
    assert!(a.changes() && b.changes(), "names stay the same");

    put(
        &managed,
        r#"{"allowedMcpServers":[{"serverCommand":["npx","x"]}]}"#,
    );
    assert_eq!(verdicts(&around), (allow(&managed), allow(&managed)));

    put(
        &managed,
        r#"{"allowedMcpServers":[{"serverUrl":"http://localhost/*"}]}"#,
    );
    let (a, b) = verdicts(&around);
    assert!(a.changes());
    assert_eq!(b, allow(&managed));

    put(
        &managed,
        r#"{"deniedMcpServers":[{"serverCommand":["npx","x"]}]}"#,
    );
    let (a, b) = verdicts(&around);
    assert_eq!(a, deny(&managed));
    assert!(b.changes());

    put(&managed, "{ broken");
    let file = managed.clone();
    let unreadable = Action::Leave(Reason::UnreadablePolicy { file });
    assert_eq!(verdicts(&around), (unreadable.clone(), unreadable));

    fs::remove_file(&managed).unwrap();
    let own = put(
        home.join("work/shop/.claude/settings.local.json"),
        r#"{"allowedMcpServers":[{"serverCommand":["npx","x"]}]}"#,
    );
    assert_eq!(verdicts(&around).0, allow(&own));
    fs::remove_file(&own).unwrap();

    let file = put(home.join("root/etc/claude-code/managed-mcp.json"), "{}");
    let exclusive = Action::Leave(Reason::Managed { file });
    assert_eq!(verdicts(&around), (exclusive.clone(), exclusive));
}

#[test]
fn copilot_codex_and_amp_have_such_lists_too() {
    let home = scratch("others");
    let around = around(&home);
    let stdio = r#"{"mcpServers":{"a":{"command":"npx"}}}"#;
    for (name, config, text, rules, list) in [
        (
            "copilot",
            ".copilot/mcp-config.json",
            stdio,
            "root/etc/github-copilot/managed-settings.json",
            r#"{"allowedMcpServers":{"overridable":[{"serverCommand":["npx"]}]}}"#,
        ),
        (
            "codex",
            ".codex/config.toml",
            "[mcp_servers.a]\ncommand = 'x'\n",
            "root/etc/codex/requirements.toml",
            "[mcp_servers.a.identity]\ncommand = 'x'\n",
        ),
        (
            "amp",
            ".config/amp/settings.json",
            r#"{"amp.mcpServers":{"a":{"command":"npx"}}}"#,
            "root/etc/ampcode/managed-settings.json",
            r#"{"amp.mcpPermissions":[{"matches":{"command":"npx"},"action":"allow"}]}"#,
        ),
    ] {
        let path = put(home.join(config), text);
        let found = |around: &Surroundings| {
            let mut found = find(&[client(name)], around).into_iter();
            found.find(|found| found.path == path).unwrap()
        };
        assert!(policy(&found(&around), &around).is_empty(), "{name}");
        let file = put(home.join(rules), list);
        let found = found(&around);
        let wish = Adopt {
            policy: policy(&found, &around),
            ..wish()
        };
        let plan = plan::adopt(text.as_bytes(), found.client, found.file, &wish).unwrap();
        let expected = Action::Leave(Reason::AllowList { file });
        assert_eq!(plan.entries()[0].action, expected, "{name}");
    }
}
