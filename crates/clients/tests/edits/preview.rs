//! The diff that people see before anything is written.
//! guards: A preview shows every change and no secret.

use crate::support::{PROGRAM, adopt, release};

#[test]
fn it_shows_the_changed_lines_and_their_surroundings() {
    let old = "{\n  \"a\": 1,\n  \"b\": 2,\n  \"mcpServers\": {\n    \"fs\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"pkg\"]\n    }\n  }\n}\n";
    let plan = adopt("claude", old.as_bytes()).unwrap();
    let diff = format!(
        "--- f\n+++ f\n@@ -3,8 +3,8 @@\n   \"b\": 2,\n   \"mcpServers\": {{\n     \"fs\": {{\n-      \"command\": \"npx\",\n-      \"args\": [\"-y\", \"pkg\"]\n+      \"command\": \"{PROGRAM}\",\n+      \"args\": [\"run\", \"--name\", \"fs\", \"--\", \"npx\", \"-y\", \"pkg\"]\n     }}\n   }}\n }}\n"
    );
    assert_eq!(plan.diff("f"), diff);
    assert_eq!(release("claude", old.as_bytes()).unwrap().diff("f"), "");
}

#[test]
fn distant_changes_are_apart_and_the_last_line_may_have_no_end() {
    let between = "# line\n".repeat(20);
    let old = format!("[mcp_servers.a]\ncommand = 'x'\n{between}[mcp_servers.b]\ncommand = 'y'");
    let plan = adopt("codex", old.as_bytes()).unwrap();
    let diff = plan.diff("f");
    assert_eq!(diff.matches("@@ -").count(), 2, "{diff}");
    assert!(diff.contains("@@ -1,5 +1,6 @@\n"), "{diff}");
    assert!(diff.contains("@@ -21,4 +22,5 @@\n"), "{diff}");
    assert_eq!(
        diff.matches("\\ No newline at end of file").count(),
        2,
        "{diff}"
    );
}

#[test]
fn no_secret_is_shown_and_the_file_gets_it_all_the_same() {
    let secrets = [
        "hunter2",
        "ghp_abcdef",
        "sk-live",
        "s3cr3t",
        "t0ken",
        "XYZZY",
        "pw4u",
        "c0mment",
    ];
    let old = r#"{
  // "API_KEY": "c0mment"
  "apiKey": "s3cr3t",
  "mcpServers": {
    "fs": {
      "command": "npx",
      "args": ["--token", "t0ken", "--key=sk-live", "postgres://ann:pw4u@db/x"],
      "env": { "LEVEL": "XYZZY", "PASSWORD": "hunter2" },
      "note": "ghp_abcdef"
    }
  }
}
"#;
    let plan = adopt("copilot", old.as_bytes()).unwrap();
    let shown = plan.diff("f") + &plan.entries()[0].shown;
    let new = crate::support::text(&plan);
    for secret in secrets {
        assert!(!shown.contains(secret), "{secret} is in\n{shown}");
        assert!(new.contains(secret), "{secret}");
    }
    assert!(
        shown.contains("[hidden]") && shown.contains("postgres://ann:[hidden]@db/x"),
        "{shown}"
    );
    let toml = "# token = t0ken\n[mcp_servers.fs]\ncommand = \"x\"\n[mcp_servers.fs.env]\nA = \"hunter2\"\n";
    let yaml = "mcp_servers:\n  fs:\n    command: x\n    env:\n      A: hunter2\n      # secret: t0ken\n      B: 'XYZZY'\n";
    for (name, text) in [("codex", toml), ("hermes", yaml)] {
        let shown = adopt(name, text.as_bytes()).unwrap().diff("f");
        for secret in secrets {
            assert!(!shown.contains(secret), "{secret} is in\n{shown}");
        }
        assert!(shown.contains("[hidden]"), "{shown}");
    }
}

#[test]
fn the_variable_of_a_header_is_shown_and_its_value_is_not() {
    let old = r#"{"mcpServers":{"t":{"type":"http","url":"https://h.example/mcp","headers":{"Authorization":"Bearer hunter2"}}}}"#;
    let diff = adopt("claude", old.as_bytes()).unwrap().diff("f");
    let named = r#""--header-env", "Authorization=MAINSTAY_HEADER_1""#;
    assert!(diff.contains(named), "{diff}");
    assert!(!diff.contains("hunter2"), "{diff}");
}

/// A minified file is one line, of which the parts around the changes are shown.
#[test]
fn a_long_line_is_shown_around_its_changes() {
    let long = "é".repeat(5_000);
    let old = format!(
        "{{\"x\":\"{long}\",\"mcpServers\":{{\"fs\":{{\"env\":{{\"A\":\"hunter2 {long}\"}},\"command\":\"npx\",\"args\":[\"-y\"]}}}},\"y\":\"{long}\"}}\n"
    );
    let diff = adopt("claude", old.as_bytes()).unwrap().diff("f");
    assert!(diff.len() < 1_500, "{}", diff.len());
    assert!(diff.contains("\n-…") && diff.contains("\n+…"), "{diff}");
    assert!(
        diff.contains("\"command\":\"npx\",\"args\":[\"-y\"]"),
        "{diff}"
    );
    assert!(diff.contains("\"--\", \"npx\", \"-y\"]"), "{diff}");
    assert!(
        diff.contains("[hidden]") && !diff.contains("hunter2"),
        "{diff}"
    );
}

#[test]
fn it_shows_no_control_characters() {
    let old = "{\"mcpServers\":{\"fs\":{\"command\":\"npx\",\"args\":[\"\u{202e}\u{1b}[31m\"]}}}";
    let old = old.replace('\u{1b}', "\u{7f}");
    let shown = adopt("copilot", old.as_bytes()).unwrap().diff("f");
    assert!(shown.contains("\\u{202e}\\u{7f}"), "{shown}");
}
