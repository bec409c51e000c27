//! `--help` of every verb shows how it is used.

mod support;
use support::Home;

#[test]
fn help_has_examples() {
    let home = Home::new();
    for verb in [
        "run", "ps", "stop", "restart", "events", "doctor", "forget", "lease",
    ] {
        let help = home.mainstay(&[verb, "--help"]);
        assert_eq!((help.stderr.as_str(), help.code), ("", Some(0)));
        let example = format!("Examples:\n  mainstay {verb}");
        assert!(help.stdout.contains(&example), "{}", help.stdout);
    }
    for verb in ["open", "renew", "close", "list"] {
        let help = home.mainstay(&["lease", verb, "--help"]).stdout;
        let example = format!("Examples:\n  mainstay lease {verb}");
        assert!(help.contains(&example), "{help}");
    }
    let help = home.mainstay(&["--help"]).stdout;
    assert!(help.contains("Examples:"), "{help}");
    assert!(!help.contains("guardian"), "{help}");
    let run = home.mainstay(&["run", "--help"]).stdout;
    assert!(run.contains("Limits:\n      --grace-eof <TIME>"), "{run}");
}
