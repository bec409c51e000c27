//! `-V`, `--version` and `--version --json` say which build this is.
//! guards: The version is one line that names the platform, and is there as JSON.

use serde_json::Value;

use crate::support::home::Home;

#[test]
fn version_is_one_line_and_json_has_the_same() {
    let home = Home::new();
    let number = env!("CARGO_PKG_VERSION");
    let short = home.mainstay(&["-V"]);
    assert_eq!(
        (short.stdout, short.code),
        (format!("mainstay {number}\n"), Some(0))
    );
    for words in [["--version", "--json"], ["--json", "--version"]] {
        let json = home.mainstay(&words);
        assert_eq!((json.stderr.as_str(), json.code), ("", Some(0)));
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json["version"], number);
        // A release also knows its commit. What a build does not know is left out.
        let text = |name: &str| json[name].as_str();
        let commit = [text("commit"), text("date")].into_iter().flatten();
        let commit = commit.collect::<Vec<_>>().join(" ");
        let known = [commit.as_str(), text("target").unwrap()].into_iter();
        let known: Vec<&str> = known.filter(|part| !part.is_empty()).collect();
        let long = home.mainstay(&["--version"]);
        assert_eq!(
            long.stdout,
            format!("mainstay {number} ({})\n", known.join(", "))
        );
    }
}
