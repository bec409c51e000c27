//! The whole command on a HOME with a config file of every client: adopt, adopt again, release.
//! guards: `release` gives every config file its old bytes back, and adopting twice is adopting once.

use std::fs;
use std::path::PathBuf;

use mainstay_clients::plan;
use mainstay_clients::profile;

use crate::support::configs::{FIXTURES, fixture, put};
use crate::support::home::{Home, outcome};

/// A client, its file, and the bytes of it.
type Put = (&'static str, PathBuf, Vec<u8>);

fn home() -> (Home, Vec<Put>) {
    let home = Home::new();
    let put = |(client, name): (&'static str, &str)| {
        let bytes = fixture(name);
        (client, put(home.path(), client, &bytes), bytes)
    };
    let files = FIXTURES.map(put).into();
    (home, files)
}

#[test]
fn every_file_is_as_before() {
    let (home, files) = home();
    let adopted = home.mainstay(&["adopt", "--yes", "--json"]);
    assert_eq!(adopted.code, Some(0), "{}", adopted.stderr);
    let view = adopted.json();
    assert_eq!(view["written"], true);
    assert_eq!(view["files"].as_array().unwrap().len(), FIXTURES.len());
    let program = home.path().join(".local/bin/mainstay");
    assert!(program.is_file(), "the program is copied where it stays");
    let mut new = Vec::new();
    for (client, path, old) in &files {
        let bytes = fs::read(path).unwrap();
        assert_ne!(&bytes, old, "{client} was adopted");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains(program.to_str().unwrap()), "{client}: {text}");
        let profile = profile::named(client).unwrap();
        let survey = plan::survey(&bytes, profile, &profile.config.files[0]);
        // A client whose first kind of file is another one has no servers there.
        assert!(survey.is_err() || survey.unwrap().through > 0, "{client}");
        new.push(bytes);
    }

    let again = home.mainstay(&["adopt", "--yes"]);
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (Some(0), "nothing to do\n")
    );
    for ((client, path, _), new) in files.iter().zip(&new) {
        assert_eq!(&fs::read(path).unwrap(), new, "{client}: adopted twice");
    }

    // Nothing but the files is needed.
    fs::remove_dir_all(home.path().join(".local")).unwrap();
    let released = home.mainstay(&["release", "--all", "--yes"]);
    assert_eq!(released.code, Some(0), "{}", released.stderr);
    for (client, path, old) in &files {
        assert_eq!(&fs::read(path).unwrap(), old, "{client}: released");
    }
    let again = home.mainstay(&["release", "--all", "--yes"]);
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (Some(0), "nothing to do\n")
    );
}

#[test]
fn one_client_and_one_server_at_a_time() {
    let (home, files) = home();
    let bytes = |client: &str| {
        let (_, path, _) = files.iter().find(|(name, ..)| *name == client).unwrap();
        fs::read_to_string(path).unwrap()
    };
    let (claude, codex) = (bytes("Claude Code"), bytes("Codex"));
    let adopted = home.mainstay(&["adopt", "claude", "codex", "--server", "files", "--yes"]);
    assert_eq!(adopted.code, Some(0), "{}", adopted.stderr);
    assert!(bytes("Claude Code").matches("\"--name\"").count() == 1);
    assert!(bytes("Codex").matches("--name").count() == 1);
    assert_eq!(
        bytes("Zed"),
        String::from_utf8(fixture("zed.json")).unwrap()
    );
    let released = home.mainstay(&["release", "claude", "--yes"]);
    assert_eq!(released.code, Some(0));
    assert_eq!(bytes("Claude Code"), claude);
    assert_ne!(bytes("Codex"), codex);
    let released = home.mainstay(&["release", "--server", "files", "--yes"]);
    assert_eq!(released.code, Some(0));
    assert_eq!(bytes("Codex"), codex);
}

#[test]
fn an_edit_of_another_program_survives() {
    let home = Home::new();
    let old = fixture("codex.toml");
    let path = put(home.path(), "Codex", &old);
    assert_eq!(home.mainstay(&["adopt", "codex", "--yes"]).code, Some(0));
    let foreign = b"\n[history]\npersistence = \"none\" # mine\n";
    let edited = [fs::read(&path).unwrap(), foreign.to_vec()].concat();
    fs::write(&path, &edited).unwrap();
    assert_eq!(home.mainstay(&["release", "codex", "--yes"]).code, Some(0));
    assert_eq!(fs::read(&path).unwrap(), [old, foreign.to_vec()].concat());
}

#[test]
fn a_client_that_wrote_the_whole_file_anew_gets_equal_values_back() {
    let home = Home::new();
    let old = fixture("claude_code.json");
    let path = put(home.path(), "Claude Code", &old);
    assert_eq!(home.mainstay(&["adopt", "claude", "--yes"]).code, Some(0));
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    value["numStartups"] = 43.into();
    fs::write(&path, value.to_string()).unwrap();
    assert_eq!(home.mainstay(&["release", "claude", "--yes"]).code, Some(0));
    let mut old: serde_json::Value = serde_json::from_slice(&old).unwrap();
    old["numStartups"] = 43.into();
    let new: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(new, old);
}

#[test]
fn files_of_a_project_are_changed_only_if_the_project_is_named() {
    let home = Home::new();
    let project = home.path().join("shop");
    fs::create_dir(&project).unwrap();
    let shared = project.join(".mcp.json");
    let old = r#"{"mcpServers":{"clock":{"command":"uvx","args":["mcp-server-time"]}}}"#;
    fs::write(&shared, old).unwrap();
    put(home.path(), "Claude Code", &fixture("claude_code.json"));
    let mut command = home.command(&["adopt", "--yes"]);
    let adopted = home.outcome(command.current_dir(&project));
    assert_eq!(adopted.code, Some(0));
    assert_eq!(fs::read_to_string(&shared).unwrap(), old);
    let adopted = home.mainstay(&["adopt", "--yes", "--project", project.to_str().unwrap()]);
    assert_eq!(adopted.code, Some(0), "{}", adopted.stderr);
    let shares = "others who share ~/shop/.mcp.json need mainstay at the same path";
    assert!(adopted.stdout.contains(shares), "{}", adopted.stdout);
    assert!(
        adopted
            .stdout
            .contains("also read by Copilot CLI, Qwen Code")
    );
    assert_ne!(fs::read_to_string(&shared).unwrap(), old);
    let mut command = home.command(&["release", "--all", "--yes"]);
    let released = home.outcome(command.current_dir(&project));
    assert_eq!(released.code, Some(0));
    assert!(!released.stdout.contains("share"), "{}", released.stdout);
    assert_eq!(fs::read_to_string(&shared).unwrap(), old);
}

#[test]
fn release_all_finds_the_files_of_projects_elsewhere() {
    let home = Home::new();
    let long = "a-directory-with-a-name-of-some-length/".repeat(5);
    let old = r#"{"mcpServers":{"clock":{"command":"uvx","args":["mcp-server-time"]}}}"#;
    let code = old.replace("mcpServers", "servers");
    let mut files = Vec::new();
    for (project, file, old) in [
        ("shop", ".mcp.json", old),
        ("a+b", ".vscode/mcp.json", code.as_str()),
        (long.as_str(), ".mcp.json", old),
    ] {
        let project = home.path().join(project);
        let path = project.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, old).unwrap();
        let adopted = home.mainstay(&["adopt", "--yes", "--project", project.to_str().unwrap()]);
        assert_eq!(adopted.code, Some(0), "{}", adopted.stderr);
        assert_ne!(fs::read_to_string(&path).unwrap(), old);
        files.push((path, old));
    }
    // A project that was removed since then is no error.
    let gone = home.path().join("gone");
    fs::create_dir(&gone).unwrap();
    fs::write(gone.join(".mcp.json"), old).unwrap();
    home.mainstay(&["adopt", "--yes", "--project", gone.to_str().unwrap()]);
    fs::remove_dir_all(gone).unwrap();
    let mut command = home.command(&["release", "--all", "--yes"]);
    let released = home.outcome(command.current_dir(home.path()));
    assert_eq!(released.code, Some(0), "{}", released.stderr);
    for (path, old) in files {
        assert_eq!(fs::read_to_string(&path).unwrap(), old, "{path:?}");
    }
}

#[test]
fn release_without_words_says_what_can_be_released() {
    let home = Home::new();
    put(home.path(), "Claude Code", &fixture("claude_code.json"));
    put(home.path(), "Codex", &fixture("codex.toml"));
    assert_eq!(home.mainstay(&["adopt", "codex", "--yes"]).code, Some(0));
    let told = home.mainstay(&["release"]);
    assert_eq!(
        told,
        outcome(
            "",
            "error: no client and no server to release is named\n\
             hint: `mainstay release --all` releases every server; these clients have some that go through mainstay: codex\n",
            2
        )
    );
    assert_eq!(home.mainstay(&["release", "--all", "--yes"]).code, Some(0));
    let told = home.mainstay(&["release"]);
    assert!(
        told.stderr
            .ends_with("hint: there is nothing to release: no server goes through mainstay\n"),
        "{told:?}"
    );
}

#[test]
fn thrifty_says_which_servers_keep_running() {
    let home = Home::new();
    let text = r#"{"mcpServers":{"web":{"command":"npx","args":["@playwright/mcp"]},"time":{"command":"uvx","args":["mcp-server-time"]}}}"#;
    let path = put(home.path(), "Claude Code", text.as_bytes());
    assert_eq!(home.mainstay(&["adopt", "--yes"]).code, Some(0));
    let thrifty = home.mainstay(&["adopt", "--yes", "--thrifty"]);
    assert_eq!(thrifty.code, Some(0), "{}", thrifty.stderr);
    let time = "will get the new path and flags, started when needed\n";
    assert!(thrifty.stdout.contains(time), "{}", thrifty.stdout);
    let new = fs::read_to_string(&path).unwrap();
    assert!(
        new.contains(r#""run", "--lazy", "--hibernate", "10m", "--name", "time", "--""#),
        "{new}"
    );
    assert!(new.contains(r#""run", "--name", "web", "--""#), "{new}");
    assert_eq!(home.mainstay(&["release", "--all", "--yes"]).code, Some(0));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let wrong = home.mainstay(&["adopt", "--thrifty=soon"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
}
